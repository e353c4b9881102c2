"""Output: sends frames out on a port, tagged as the port requires, or out on the first live uplink.

Tables: PORT_OUT.

Invariant: a frame leaves on a port only in a VLAN that the port carries, with at most one tag. Uplinks
that carry every VLAN need flows in PORT_OUT only if `VmPort.known_on` is set.

A fast failover group selects the first live uplink. Each of its buckets watches one uplink, so the
switch itself fails over when a link goes down, without a controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.config.vlans import TRUNK, PortVlans, VlanSet
from controller.dataplane import specs, tables
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import Register, Table, openflow_port
from controller.dataplane.team import Team
from policies.model import OfPort

TO_NORMAL = specs.Output(tables.OFPP_NORMAL)
# A group that is always live. Buckets without a port watch this group, because each must watch something.
ALWAYS = specs.GroupSpec(tables.ALWAYS_GROUP_ID, "all", (specs.Bucket(()),))


def out_by(ofport: OfPort) -> specs.Actions:
    """Return actions that send a frame out on a port, or drop it if the port lacks the frame's VLAN."""
    return specs.SetField(Register.TARGET, ofport), specs.Resubmit(Table.PORT_OUT)


def leave_by(uplink: OfPort, team: Team) -> specs.Actions:
    """Return actions that send a frame out on an uplink, directly if the uplink carries every VLAN."""
    carries_everything = team.uplink_vlans.get(uplink, TRUNK) == TRUNK
    return (specs.Output(openflow_port(uplink)),) if carries_everything else out_by(uplink)


def first_live(
    group_id: int, ways: Iterable[tuple[OfPort, specs.Actions]], otherwise: specs.Actions = ()
) -> specs.GroupSpec:
    """Return a group that executes the actions of the first live uplink in `ways`.

    `otherwise`: the actions if no uplink is live, which need the group `ALWAYS`; (): drop the frame.
    """
    buckets = [specs.Bucket(actions, watch_port=openflow_port(uplink)) for uplink, actions in ways]
    if otherwise:
        buckets.append(specs.Bucket(otherwise, watch_group=tables.ALWAYS_GROUP_ID))
    return specs.GroupSpec(group_id, "ff", tuple(buckets))


def if_first_live(
    group_id: int, before: Iterable[OfPort], uplink: OfPort, actions: specs.Actions
) -> specs.GroupSpec:
    """Return a group that executes `actions` if `uplink` is live, and no uplink in `before` is live."""
    return first_live(group_id, [*((live, ()) for live in before), (uplink, actions)])


def flows(team: Team) -> Iterator[FlowSpec]:
    some_known = any(port.known_on for port in team.vm_ports)
    for uplink in team.uplinks:
        vlans = team.uplink_vlans.get(uplink, TRUNK)
        if vlans != TRUNK or some_known:
            yield from _port_out(uplink, vlans)
            yield from _drop_inner_tags(uplink, vlans)
    for port in team.vm_ports:
        yield from _port_out(port.ofport, port.vlans)


def _port_out(ofport: OfPort, vlans: PortVlans) -> Iterator[FlowSpec]:
    out, carried = specs.Output(openflow_port(ofport)), vlans.carried
    target: specs.Fields = {Register.TARGET: ofport}
    untagged = None if vlans.native_tagged else vlans.native
    if untagged or (untagged == 0 and vlans.untags):
        # The switch accepts pop_vlan only in a flow that matches tagged frames.
        in_native = {**target, "vlan_vid": tables.TAGGED, Register.VLAN: untagged}
        yield flow(Table.PORT_OUT, 20, in_native, specs.PopVlan(), out)
    if untagged and not vlans.takes_tagged:
        carried = VlanSet()
    for in_vlan in tables.in_vlans(carried):
        yield flow(Table.PORT_OUT, 10, {**target, **in_vlan}, out)


def _drop_inner_tags(uplink: OfPort, vlans: PortVlans) -> Iterator[FlowSpec]:
    """Yield flows that drop frames with two tags if the outer tag would be removed on output.

    The next switch would use the inner tag as the frame's VLAN.
    """
    if vlans.native and not vlans.native_tagged:
        in_native = {Register.TARGET: uplink, Register.VLAN: vlans.native}
        for tag in tables.ETH_TAGS:
            yield flow(Table.PORT_OUT, 30, {**in_native, "eth_type": tag})
