"""What ovs-lbt does with the columns of Open vSwitch's records, as a table with the tests.

The rows name each column of the tables Bridge, Port and Interface, and each key of their column
`other_config`. The page itself has their order, and the test of each row; the other cells are made anew.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from controller.config.columns import ROWS, Row, rows
from tests.documents import sections

PAGE = "docs/reference/openvswitch.md"
HEAD = "| column or key | ovs-lbt | in detail | test |\n|---|---|---|---|"
TITLES = {"Bond": "Port with several interfaces (bond)"}
NOT_TESTED = "not tested"
# Of a row that the page does not have yet.
MISSING = "write its test here, from tests/switch on: FILE::NAME"
# The rows that nothing reports, in the form of the list in controller/config/columns.py.
UNREPORTED = """
Bridge
same name external_ids datapath_id datapath_version status rstp_status: does not change forwarding
same .datapath-id .dp-desc .dp-sn: describes the bridge to controllers
same .controller-queue-size .in-band-queue: concerns connections to controllers
same .disable-in-band: in-band control itself is refused, because its hidden flows bypass ovs-lbt
same ports datapath_type: ovs-lbt uses all ports and both datapaths
same .hwaddr: the address of LOCAL
same ipfix netflow sflow: done by Open vSwitch itself
same auto_attach: Open vSwitch itself sets trunks of ports
same .stp-forward-delay .stp-hello-time .stp-max-age .stp-priority .stp-system-id: see stp_enable
same .rstp-address .rstp-ageing-time .rstp-force-protocol-version .rstp-forward-delay .rstp-max-age \
.rstp-priority .rstp-transmit-hold-count: see rstp_enable
different .mcast-snooping-aging-time .mcast-snooping-disable-flood-unregistered \
.mcast-snooping-table-size: see mcast_snooping_enable
different fail_mode: attach sets secure for plain uplinks, and detach restores the previous mode
refused controller: another program's flows or groups that conflict with those of ovs-lbt
refused mirrors: an output_vlan whose copies would form a loop, or return on another bond member
refused protocols: a list without OpenFlow13
Port
same name external_ids statistics status rstp_statistics rstp_status: does not change forwarding
same mac .transient: does not change forwarding
same interfaces tag trunks vlan_mode fake_bridge: ovs-lbt reads the VLANs of each port
same protected: Open vSwitch itself drops frames between protected ports; set on plain uplinks
same qos: a max-rate limits the port, and is the capacity of an uplink
same .stp-enable .stp-path-cost .stp-port-num .stp-port-priority: see stp_enable
same .rstp-enable .rstp-path-cost .rstp-port-admin-edge .rstp-port-auto-edge .rstp-port-mcheck \
.rstp-port-num .rstp-port-priority: see rstp_enable
different .mcast-snooping-flood .mcast-snooping-flood-reports: see mcast_snooping_enable
refused cvlans .qinq-ethtype: see vlan_mode
Bond
same lacp .lacp-fallback-ab .lacp-system-id .lacp-system-priority .lacp-time: done by Open vSwitch itself
same .bond-detect-mode .bond-miimon-interval: the state of the link is the same
same bond_fake_iface: this interface carries no frames
different bond_mode bond_active_slave: the policy of ovs-lbt selects the uplinks
Interface
same name external_ids error ifindex link_resets statistics status: does not change forwarding
same .emc-enable .hw-offload-priority .pmd-rxq-affinity .tx-steering: does not change forwarding
same mac_in_use ofport ofport_request options type: ovs-lbt reads the port number and the type
same mac mtu mtu_request: configures the device
same admin_state duplex link_speed link_state: an uplink without a link carries no frames; its speed \
is its capacity
same bfd bfd_status: an uplink whose peer does not answer carries no frames
same cfm_fault cfm_fault_status cfm_flap_count cfm_health cfm_mpid cfm_remote_mpids cfm_remote_opstate \
.cfm_ccm_pcp .cfm_ccm_vlan .cfm_demand .cfm_extended .cfm_interval .cfm_opstate: see bfd
same lacp_current .lacp-aggregation-key .lacp-port-id .lacp-port-priority: see lacp
same lldp: done by Open vSwitch itself
same ingress_policing_burst ingress_policing_kpkts_burst ingress_policing_kpkts_rate \
ingress_policing_rate: done by the device
"""
CELLS = re.compile(r"^\| (`[^|]+) \| [^|]+ \| [^|]+ \| ([^|]*) \|$", re.MULTILINE)


def markdown() -> str:
    """A table for each table of the database, with a row for each row of the list."""
    parts: dict[str, list[str]] = {}
    for row in ALL:
        lines = parts.setdefault(row.table, [f"## {_title(row)}", "", HEAD])
        what = f"{row.what}, reported" if any(name.condition for name in row.names) else row.what
        lines.append(f"| {_names(row)} | {what} | {row.words} | {_test(row)} |")
    return "\n\n".join("\n".join(lines) for lines in parts.values())


def test_of(row: Row) -> str:
    """The test of a row, by its path below tests/; NOT_TESTED, or "" if no frame depends on the row."""
    test = _test(row).strip("`")
    return f"switch/{test}" if "::" in test and "/" not in test else test


def _test(row: Row) -> str:
    return _tests().get((_title(row), _names(row)), MISSING)


@functools.cache
def _tests() -> Mapping[tuple[str, str], str]:
    """The last cell of each row of the page, by the title of its table and its first cell."""
    return {
        (title, names): test
        for title, section in sections(PAGE).items()
        for names, test in CELLS.findall(section)
    }


def _title(row: Row) -> str:
    return TITLES.get(row.table, row.table)


def _names(row: Row) -> str:
    return ", ".join(
        f"`{name}`" if name.condition != "=" else f"`{name}={name.value}`" for name in row.names
    )


def _place(row: Row) -> int:
    """The place of a row on the page; behind all others if it is not there yet."""
    key = (_title(row), _names(row))
    return [*_tests()].index(key) if key in _tests() else len(_tests())


# All rows, in the order of the page.
ALL = sorted((*ROWS, *rows(UNREPORTED)), key=_place)
