"""Classification: sets a frame's ingress port and VLAN, and drops frames that must not be forwarded.

Tables: CLASSIFY; in LEARN, FROM_UPLINK and UPLINK_OUT, the flows that drop these frames.

Invariant: after CLASSIFY, either register VM_PORT or register UPLINK is set to the ingress port, and register
VLAN to a VLAN that this port carries. A frame in VLAN 0 is untagged or priority-tagged; any other frame
has the tag of its VLAN.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.config.vlans import TRUNK, PortVlans, VlanSet, blocks
from controller.dataplane import specs, tables
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import VLAN_ID_MASK, VLAN_PRESENT, Register, Table, openflow_port
from controller.dataplane.team import Team, kept
from policies.model import OfPort

# Reserved multicast (IEEE 802.1D table 7-10), which a bridge never forwards.
RESERVED_MULTICAST = ("01:80:c2:00:00:00", "ff:ff:ff:ff:ff:f0")
# The destinations of STP and LACP.
OF_ONE_LINK = "01:80:c2:00:00:00", "01:80:c2:00:00:02"
# Vendors' protocols between switches, which NORMAL does not forward either: Cisco's (ISL; CDP, VTP,
# PVST+ and more; UplinkFast), Extreme's (EDP, EAPS).
VENDORS_MULTICAST = (
    ("01:00:0c:00:00:00", "ff:ff:ff:ff:ff:f0"),
    ("01:00:0c:cc:cc:c0", "ff:ff:ff:ff:ff:f0"),
    ("01:00:0c:cd:cd:c0", "ff:ff:ff:ff:ff:f0"),
    ("00:e0:2b:00:00:00", "ff:ff:ff:ff:ff:f0"),
)
# Pause frames, which may also be addressed to a single host.
ETH_FLOW_CONTROL = 0x8808
NO_ADDRESS = "00:00:00:00:00:00"


def flows(team: Team) -> Iterator[FlowSpec]:
    for uplink in team.uplinks:
        came_in = specs.SetField(Register.UPLINK, uplink)
        vlans = team.uplink_vlans.get(uplink, TRUNK)
        yield from _classify(uplink, vlans, came_in, Table.FROM_UPLINK)
    for port in team.vm_ports:
        came_in = specs.SetField(Register.VM_PORT, port.ofport)
        yield from _classify(port.ofport, port.vlans, came_in, Table.LEARN)
        yield from _drop_inner_tags(port.ofport)
    if not team.leaves_to_normal:
        # NORMAL would connect the uplinks to a loop, so frames from unknown ports are dropped.
        yield flow(Table.CLASSIFY, 1, {})
    yield from _drop_what_no_bridge_forwards(team)


@kept
def _drop_inner_tags(ofport: OfPort) -> Iterator[FlowSpec]:
    """Yield flows that drop a VM port's frames with a second tag after a tag of VLAN 0."""
    port = openflow_port(ofport)
    for tag in tables.ETH_TAGS:
        tagged = {"in_port": port, "vlan_vid": VLAN_PRESENT, "eth_type": tag}
        yield flow(Table.CLASSIFY, 115, tagged)


@kept
def _classify(
    ofport: OfPort, vlans: PortVlans, came_in: specs.SetField, goto: Table
) -> Iterator[FlowSpec]:
    """Yield flows that set registers and the VLAN tag, or drop frames that the port must not receive."""
    came: specs.Fields = {"in_port": openflow_port(ofport)}
    # A multicast address is never a valid source.
    yield flow(Table.CLASSIFY, 120, {**came, "eth_src": tables.MULTICAST})
    tagged = vlans.carried if vlans.takes_tagged else VlanSet()
    if vlans.native is not None:
        in_vlan = (came_in, specs.SetField(Register.VLAN, vlans.native))
        tag = specs.SetField("vlan_vid", VLAN_PRESENT | vlans.native)
        push, retag = ((specs.PushVlan(), tag), (tag,)) if vlans.native else ((), ())
        untagged, priority_tagged = {**came, "vlan_vid": 0}, {**came, "vlan_vid": VLAN_PRESENT}
        yield flow(Table.CLASSIFY, 110, untagged, *in_vlan, *push, goto=goto)
        yield flow(Table.CLASSIFY, 110, priority_tagged, *in_vlan, *retag, goto=goto)
        if not vlans.native:
            # A tag with neither a VLAN nor a priority is removed, as NORMAL does.
            empty_tag = {**priority_tagged, "vlan_pcp": 0}
            yield flow(Table.CLASSIFY, 112, empty_tag, *in_vlan, specs.PopVlan(), goto=goto)
        if tagged:
            tagged |= VlanSet.of(0)
    by_tag = specs.CopyBits("vlan_tci", 0, Register.VLAN, 0, tables.VLAN_ID_BITS)
    for value, mask in blocks(tagged):
        whole = VLAN_PRESENT | VLAN_ID_MASK
        vid = tables.masked(VLAN_PRESENT | value, VLAN_PRESENT | mask, whole)
        yield flow(Table.CLASSIFY, 100, {**came, "vlan_vid": vid}, came_in, by_tag, goto=goto)
    yield flow(Table.CLASSIFY, 90, came)


def _drop_what_no_bridge_forwards(team: Team) -> Iterator[FlowSpec]:
    """Yield flows that drop frames of protocols between switches, and frames without a source address.

    With `forward-bpdu`, NORMAL and our pipeline flood such frames. On a LAG, STP and LACP frames are
    still not sent out, because the upstream switch would treat the VM as the other end of the link.
    """
    for reserved in () if team.forwards_bpdu else (RESERVED_MULTICAST, *VENDORS_MULTICAST):
        yield flow(Table.LEARN, 60, {"eth_dst": reserved})
        yield flow(Table.FROM_UPLINK, 30, {"eth_dst": reserved})
    for of_link in OF_ONE_LINK if team.forwards_bpdu and team.hears_everywhere else ():
        yield flow(Table.UPLINK_OUT, 200, {"eth_dst": of_link})
    yield flow(Table.LEARN, 60, {"eth_type": ETH_FLOW_CONTROL})
    yield flow(Table.LEARN, 60, {"eth_src": NO_ADDRESS})
