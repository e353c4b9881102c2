"""What ovs-lbt does with the columns of Open vSwitch's records, as a table with the tests.

The rows name each column of the tables Bridge, Port and Interface, and each key of their column
`other_config`.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.config.columns import ROWS, Row, rows

HEAD = "| column or key | ovs-lbt | in detail | test |\n|---|---|---|---|"
TITLES = {"Bond": "Port with several interfaces (bond)"}
NOT_TESTED = "not tested"
LIKE = "switch/test_columns.py::test_settings_that_open_vswitch_follows_itself_work_as_before"
UNLIKE = (
    "switch/test_columns.py::test_settings_that_only_normal_follows_are_told_and_change_nothing"
)
LOST = "switch/test_columns.py::test_settings_with_which_frames_would_be_lost_are_refused"
TREE = "switch/test_returning_uplink.py::test_an_uplink_that_spanning_tree_blocks_carries_nothing"
SNOOPING = "switch/test_as_normal.py::test_snooping_brings_no_second_copy"
VLANS = "switch/test_vlans.py::test_every_vlan_mode_does_what_normal_does"
WATCHED = "switch/test_liveness.py::test_bfd_leaves_a_link_that_carries_nothing"
LACP = "switch/test_lacp.py::test_a_member_that_loses_lacp_is_left_until_it_is_back"
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
# The test of each row, by its table and its first name; "" if forwarding does not depend on the row.
TESTS: Mapping[tuple[str, str], str] = {
    ("Bridge", "name"): "",
    ("Bridge", "datapath-id"): LIKE,
    ("Bridge", "controller-queue-size"): LIKE,
    ("Bridge", "disable-in-band"): "switch/test_reports.py"
    "::test_flows_for_a_controller_that_bypass_ours_are_refused_and_found",
    ("Bridge", "ports"): "switch/test_attach.py::test_a_vm_port_that_comes_and_goes",
    ("Bridge", "hwaddr"): LIKE,
    ("Bridge", "ipfix"): LIKE,
    ("Bridge", "auto_attach"): NOT_TESTED,
    ("Bridge", "stp-forward-delay"): NOT_TESTED,
    ("Bridge", "rstp-address"): TREE,
    ("Bridge", "stp_enable"): TREE,
    ("Bridge", "mcast_snooping_enable"): SNOOPING,
    ("Bridge", "mcast-snooping-aging-time"): SNOOPING,
    ("Bridge", "flood_vlans"): UNLIKE,
    ("Bridge", "mac-aging-time"): UNLIKE,
    ("Bridge", "mac-table-size"): UNLIKE,
    ("Bridge", "forward-bpdu"): "switch/test_forward_bpdu.py::test_they_arrive_as_with_normal",
    ("Bridge", "fail_mode"): (
        "switch/test_adoption.py"
        "::test_a_standalone_bridge_is_secure_while_attached_and_standalone_again"
    ),
    ("Bridge", "controller"): (
        "switch/test_adoption.py::test_what_others_have_in_our_place_is_named"
    ),
    ("Bridge", "mirrors"): "switch/test_mirrors.py::test_a_mirror_to_a_vlan_is_as_with_normal",
    ("Bridge", "protocols"): (
        "switch/test_protocols.py"
        "::test_a_bridge_that_does_not_allow_our_openflow_is_refused_and_told"
    ),
    ("Bridge", "flow_tables"): LOST,
    ("Port", "name"): "",
    ("Port", "mac"): LIKE,
    ("Port", "interfaces"): VLANS,
    ("Port", "protected"): (
        "switch/test_as_normal.py::test_protected_vm_ports_do_not_reach_each_other"
    ),
    ("Port", "qos"): LIKE,
    ("Port", "stp-enable"): NOT_TESTED,
    ("Port", "rstp-enable"): TREE,
    ("Port", "mcast-snooping-flood"): SNOOPING,
    ("Port", "priority-tags"): UNLIKE,
    ("Port", "vlan_mode"): LOST,
    ("Port", "cvlans"): NOT_TESTED,
    ("Bond", "lacp"): LACP,
    ("Bond", "bond-detect-mode"): LIKE,
    ("Bond", "bond_fake_iface"): LIKE,
    ("Bond", "bond_mode"): "switch/test_as_normal.py::test_what_a_vm_floods_reaches_every_vm_once",
    ("Bond", "bond-hash-basis"): UNLIKE,
    ("Bond", "bond-primary"): UNLIKE,
    ("Bond", "bond_updelay"): (
        "switch/test_liveness.py::test_no_failback_to_a_port_upstream_that_does_not_forward_yet"
    ),
    ("Bond", "bond_downdelay"): UNLIKE,
    ("Bond", "all-members-active"): UNLIKE,
    ("Interface", "name"): "",
    ("Interface", "emc-enable"): LIKE,
    ("Interface", "mac_in_use"): (
        "switch/test_restart.py::test_ports_that_a_restart_numbers_anew_are_known_by_their_names"
    ),
    ("Interface", "mac"): LIKE,
    ("Interface", "admin_state"): "switch/test_failover.py::test_loses_hardly_more_than_the_bond",
    ("Interface", "bfd"): WATCHED,
    ("Interface", "cfm_fault"): (
        "unit/controller/engine/test_liveness.py"
        "::test_what_watches_an_uplink_is_what_the_database_says"
    ),
    ("Interface", "lacp_current"): LACP,
    ("Interface", "lldp"): LIKE,
    ("Interface", "ingress_policing_burst"): NOT_TESTED,
}
# All rows, in the order of their tests.
ALL = sorted(
    (*ROWS, *rows(UNREPORTED)), key=lambda row: [*TESTS].index((row.table, row.names[0].name))
)


def markdown() -> str:
    """A table for each table of the database, with a row for each row of the list."""
    parts: dict[str, list[str]] = {}
    for row in ALL:
        lines = parts.setdefault(row.table, [f"## {TITLES.get(row.table, row.table)}", "", HEAD])
        lines.append(_line(row))
    return "\n\n".join("\n".join(lines) for lines in parts.values())


def test_of(row: Row) -> str:
    """The test of a row, by its path below tests/; NOT_TESTED, or "" if no frame depends on the row."""
    return TESTS[row.table, row.names[0].name]


def _line(row: Row) -> str:
    names = ", ".join(
        f"`{name}`" if name.condition != "=" else f"`{name}={name.value}`" for name in row.names
    )
    test = test_of(row).removeprefix("switch/")
    what = f"{row.what}, reported" if any(name.condition for name in row.names) else row.what
    return f"| {names} | {what} | {row.words} | {f'`{test}`' if '::' in test else test} |"
