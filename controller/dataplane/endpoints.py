"""Tunnel endpoints: frames that they send on uplinks other than their home uplink, and peers' replies.

Without a LAG, frames that a hash sends out on an uplink other than the home uplink ("off home")
have one of our source addresses. Open vSwitch's userspace datapath uses the source address of a tunnel's
frame as the endpoint's address, and replies to this address. So each endpoint has its own off-home
addresses, one for each uplink. In frames to an off-home address, this destination is replaced with
the endpoint's own address, because the tunnel accepts no other destination.

A *lane* is all traffic with the off-home addresses for one uplink. A lane uses one uplink in both
directions: the first live uplink in the lane's order. If that uplink fails, frames keep the off-home
address and leave on the next uplink, so that upstream switches learn the address on the new port.

To uplinks: the bucket's group -> OFF_HOME -> the lane's group (the lane's first live uplink).
From uplinks: FROM_UPLINK -> TO_ENDPOINT -> EGRESS.

Tables: TO_ENDPOINT; in LEARN, FROM_UPLINK and OFF_HOME, the flows for off-home addresses; SPOKEN,
with the flows learned in LEARN and OFF_HOME. Groups: one per lane, and one per lane and uplink.

Invariant: a frame to an off-home address reaches the endpoint and no other port. If the network does not
know the address and floods the frame to every uplink, one copy is accepted. If frames were sent from the
address in the last `SPOKEN_TIMEOUT_S` seconds, frames to it are accepted on every uplink, like all known
unicast, because some frames still arrive on the old uplink after a failure.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.dataplane import specs, tables
from controller.dataplane.output import first_live, if_first_live, leave_by
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import BROADCAST, Group, Register, Table
from controller.dataplane.team import Endpoint, Team
from policies.model import OfPort

_LANE_MASK = 0xFFFF


def flows(team: Team) -> Iterator[FlowSpec]:
    hashed = {port.ofport: port.hashed for port in team.vm_ports}
    index = team.uplinks.index
    for endpoint in team.endpoints:
        yield from _returning(endpoint)
        yield from _announced(endpoint)
        number = hashed.get(endpoint.ofport)
        if number is not None and team.has_lanes(number):
            yield from _leaving(endpoint, team)
    for lane, order in team.lanes.items() if team.endpoints else ():
        for uplink in order:
            unspoken = {Register.LANE: lane, Register.UPLINK: uplink, Register.TARGET: 0}
            taken = tables.to_endpoint_group_id(index(lane), index(uplink))
            yield flow(Table.TO_ENDPOINT, 10, unspoken, specs.ToGroup(taken))


def groups(team: Team) -> Iterator[specs.GroupSpec]:
    index = team.uplinks.index
    for lane, order in team.lanes.items() if team.endpoints else ():
        yield first_live(Group.LANE.id_of(lane), ((u, leave_by(u, team)) for u in order))
        deliver = (
            specs.CopyBits(Register.HOME, 0, Register.TARGET, 0, 16),
            specs.Resubmit(Table.EGRESS),
        )
        for position, uplink in enumerate(order):
            group_id = tables.to_endpoint_group_id(index(lane), index(uplink))
            yield if_first_live(group_id, order[:position], uplink, deliver)


def _returning(endpoint: Endpoint) -> Iterator[FlowSpec]:
    """Yield flows for frames from uplinks to off-home addresses, and for our own returning frames."""
    for lane, mac in endpoint.off_home_macs:
        yield flow(Table.FROM_UPLINK, 20, {"eth_src": mac})
        yield flow(
            Table.FROM_UPLINK,
            15,
            {"eth_dst": mac},
            specs.Resubmit(Table.SPOKEN),
            specs.SetField("eth_dst", endpoint.mac),
            specs.SetField(Register.HOME, endpoint.ofport),
            specs.SetField(Register.LANE, lane),
            goto=Table.TO_ENDPOINT,
        )
    spoken = {Register.TARGET: endpoint.ofport}
    yield flow(Table.TO_ENDPOINT, 20, spoken, specs.Resubmit(Table.EGRESS))


def _announced(endpoint: Endpoint) -> Iterator[FlowSpec]:
    """Yield flows that send our learning packets from off-home addresses, but not VMs' frames."""
    for lane, mac in endpoint.off_home_macs:
        yield flow(Table.LEARN, 60, {"eth_src": mac})
        rarp: specs.Fields = {"eth_src": mac, "eth_dst": BROADCAST, "eth_type": tables.ETH_RARP}
        announces = {**rarp, Register.VM_PORT: endpoint.ofport}
        yield flow(Table.LEARN, 70, announces, *_by_lane(endpoint, lane))


def _leaving(endpoint: Endpoint, team: Team) -> Iterator[FlowSpec]:
    """Yield flows for hashed frames. Frames in the lane of the home leave on the home."""
    sent: specs.Fields = {Register.VM_PORT: endpoint.ofport}
    for lane, mac in endpoint.off_home_macs:
        at_home = {**sent, Register.LANE: int(lane) << 16 | int(lane)}
        by_home = (specs.SetField(Register.LANE, 0), specs.SetField(Register.TARGET, 0))
        yield flow(Table.OFF_HOME, 60, at_home, *by_home, specs.Resubmit(Table.OFF_HOME))
        off_home = {**sent, Register.LANE: (int(lane), _LANE_MASK)}
        ours = specs.SetField("eth_src", mac)
        yield flow(Table.OFF_HOME, 50, off_home, ours, *_by_lane(endpoint, lane))


def _by_lane(endpoint: Endpoint, lane: OfPort) -> specs.Actions:
    """Return actions that send a frame through a lane, and learn that the off-home address is in use."""
    speaks = specs.Learn(
        Table.SPOKEN,
        tables.cookie(tables.Kind.LEARNED, endpoint.ofport),
        tables.SPOKEN_TIMEOUT_S,
        (tables.TO_SOURCE, tables.TO_SENDER),
        delete_learned=True,
    )
    return speaks, specs.ToGroup(Group.LANE.id_of(lane))
