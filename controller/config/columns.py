"""Lists what ovs-lbt does with the settings of Open vSwitch that the NORMAL action follows.

The list names each column of the tables Bridge, Port and Interface, and each key of their column
`other_config`. `attach`, `check` and docs/reference/openvswitch.md use it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from controller.config.rows import BridgeRow, PortRow
from controller.text.wording import quoted

# What ovs-lbt does: the same as NORMAL, something different, or it refuses some values at the attach.
SAME, DIFFERENT, REFUSED = "same", "different", "refused"
# A table, and below it the rows `WHAT NAME...: WORDS`. A NAME with a dot is a key of `other_config`.
# Names with a condition are reported: `=VALUE` if they have this value, `!=DEFAULT` if they are set
# to another value. A bond is a port with several interfaces.
_LIST = """
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
different stp_enable=true rstp_enable=true: while the service is down, VM ports stay on an uplink \
that spanning tree blocks
different mcast_snooping_enable=true: multicast reaches every VM port in its VLAN, not only group members
different .mcast-snooping-aging-time .mcast-snooping-disable-flood-unregistered \
.mcast-snooping-table-size: see mcast_snooping_enable
different flood_vlans!=: ovs-lbt learns addresses in these VLANs instead of flooding
different .mac-aging-time!=300: learned addresses expire after 300 s
different .mac-table-size!=8192: the number of learned addresses is limited for each VM port instead
different .forward-bpdu=true: on a LAG, LACP frames and BPDUs from VMs are not sent to the network
different fail_mode: attach sets secure for plain uplinks, and detach restores the previous mode
refused controller: another program's flows or groups that conflict with those of ovs-lbt
refused mirrors: an output_vlan whose copies would form a loop, or return on another bond member
refused protocols: a list without OpenFlow13
refused flow_tables!=: a flow_limit also limits the ovs-lbt flows; to remove it: ovs-vsctl clear \
bridge NAME flow_tables
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
different .priority-tags!=never: frames without a VLAN are sent without a priority tag
refused vlan_mode=dot1q-tunnel: tagged frames from the port would be dropped; if the port sends no \
tagged frames: ovs-vsctl set port NAME vlan_mode=access
refused cvlans .qinq-ethtype: see vlan_mode
Bond
same lacp .lacp-fallback-ab .lacp-system-id .lacp-system-priority .lacp-time: done by Open vSwitch itself
same .bond-detect-mode .bond-miimon-interval: the state of the link is the same
same bond_fake_iface: this interface carries no frames
different bond_mode bond_active_slave: the policy of ovs-lbt selects the uplinks
different .bond-hash-basis!=0 .bond-rebalance-interval!=10000 .lb-output-action=true: the policy of \
ovs-lbt selects the uplinks
different .bond-primary!=: the policy of ovs-lbt selects the uplinks; see role=standby
different bond_updelay!=0: failback-delay-s of the bridge applies instead
different bond_downdelay!=0: traffic leaves an uplink as soon as its link is down
different .all-members-active=true: each broadcast from the network is delivered only once
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
_NAME = re.compile(r"(\.?)([\w-]+)(?:(!?=)(\S*))?")


class Name(NamedTuple):
    """A column, or a key of `other_config`, and the values that are reported.

    `condition`: "=" if `value` is reported, "!=" if all other values are, "" if none is.
    """

    is_key: bool
    name: str
    condition: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"other_config:{self.name}" if self.is_key else self.name

    def is_reported(self, record: BridgeRow | PortRow) -> bool:
        """Whether this setting of a record has a value that is reported."""
        if not self.condition:
            return False
        found = record.other_config.get(self.name) if self.is_key else getattr(record, self.name)
        text = str(found or "").lower()
        return (text == self.value) if self.condition == "=" else text not in ("", self.value)


class Row(NamedTuple):
    """What ovs-lbt does (SAME, DIFFERENT or REFUSED) with some settings of a table, and why."""

    table: str
    what: str
    names: tuple[Name, ...]
    words: str


def _rows() -> Iterator[Row]:
    table = ""
    for line in _LIST.strip().splitlines():
        head, colon, words = line.partition(": ")
        if not colon:
            table = line
            continue
        what, *names = head.split()
        yield Row(table, what, tuple(map(_name, names)), words)


def _name(text: str) -> Name:
    found = _NAME.fullmatch(text)
    assert found is not None, f"{text!r} is not a column or a key"
    dot, name, condition, value = found.groups(default="")
    return Name(bool(dot), name, condition, value)


ROWS = tuple(_rows())


def reported(row: BridgeRow, what: str) -> Iterator[str]:
    """Report the settings of a bridge and its ports for which ovs-lbt does `what`."""
    bonds = tuple(port for port in row.ports if len(port.interfaces) > 1)
    records: dict[str, tuple[BridgeRow | PortRow, ...]] = {
        "Bridge": (row,),
        "Port": row.ports,
        "Bond": bonds,
    }
    for of in ROWS:
        found = records.get(of.table, ()) if of.what == what else ()
        for name, record in itertools.product(of.names, found):
            if name.is_reported(record):
                table = "Bridge" if record is row else "Port"
                words = of.words.replace("NAME", quoted(record.name))
                yield f"{table} {record.name} {name}: {words}"
