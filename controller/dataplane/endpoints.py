"""Tunnel endpoints: frames that they send off home, and frames that peers send to off-home addresses.

Without a LAG, frames that a hash sends off home have one of our source addresses. Open vSwitch's
userspace datapath takes the source address of a tunnel's frame as the endpoint's address, and sends the
tunnel's other direction there. So each endpoint has its own off-home addresses, one for each uplink.
Frames to these are delivered with the endpoint's own address, because only that one ends a tunnel.

A *lane* is all traffic with the off-home address of one uplink. It uses one uplink in both directions:
the first live one of its order. If the uplink fails, its frames keep their address and leave on the next
one, so that upstream switches learn from these frames where to send traffic of peers.

Bucket's group -> OFF_HOME -> the lane's group (its first live uplink).
FROM_UPLINK -> TO_ENDPOINT -> EGRESS.

Tables: TO_ENDPOINT; in LEARN, FROM_UPLINK and OFF_HOME, the flows for off-home addresses of endpoints. Its
flows teach SPOKEN. Groups: one for each lane, and for each lane one for each uplink.

Invariant: a frame to such an address reaches the endpoint and no other port. If the network does not
know the address and sends the frame down every uplink, one copy is accepted. The exception is an address
that has sent in the last `SPOKEN_TIMEOUT_S` seconds: its frames are accepted on every uplink, like all
known unicast, because some frames still arrive on the old uplink after a failure.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.dataplane import tables
from controller.dataplane.output import first_live, if_first_live, leave_by
from controller.dataplane.specs import (
    Actions,
    CopyBits,
    Fields,
    FlowSpec,
    GroupSpec,
    Learn,
    Resubmit,
    SetField,
    ToGroup,
    flow,
)
from controller.dataplane.tables import BROADCAST, Group, Register, Table
from controller.dataplane.team import Endpoint, Team
from policies.model import OfPort

_LANE_MASK = 0xFFFF


def flows(team: Team) -> Iterator[FlowSpec]:
    hashed = {port.ofport: port.hashed for port in team.vm_ports}
    for endpoint in team.endpoints:
        yield from _returning(endpoint)
        yield from _announced(endpoint)
        number = hashed.get(endpoint.ofport)
        if number is not None and team.has_lanes(number):
            yield from _leaving(endpoint, team)
    for lane, order in team.lanes.items() if team.endpoints else ():
        for uplink in order:
            unspoken = {Register.LANE: lane, Register.UPLINK: uplink, Register.TARGET: 0}
            taken = tables.to_endpoint_group_id(_index(lane, team), _index(uplink, team))
            yield flow(Table.TO_ENDPOINT, 10, unspoken, ToGroup(taken))


def groups(team: Team) -> Iterator[GroupSpec]:
    for lane, order in team.lanes.items() if team.endpoints else ():
        yield first_live(Group.LANE.id_of(lane), ((u, leave_by(u, team)) for u in order))
        deliver = CopyBits(Register.HOME, 0, Register.TARGET, 0, 16), Resubmit(Table.EGRESS)
        for position, uplink in enumerate(order):
            group_id = tables.to_endpoint_group_id(_index(lane, team), _index(uplink, team))
            yield if_first_live(group_id, order[:position], uplink, deliver)


def _index(uplink: int, team: Team) -> int:
    return team.uplinks.index(uplink)


def _returning(endpoint: Endpoint) -> Iterator[FlowSpec]:
    """Frames to off-home addresses, which uplinks bring; frames from them are our own, coming back."""
    for lane, mac in endpoint.off_home_macs:
        yield flow(Table.FROM_UPLINK, 20, {"eth_src": mac})
        yield flow(
            Table.FROM_UPLINK,
            15,
            {"eth_dst": mac},
            Resubmit(Table.SPOKEN),
            SetField("eth_dst", endpoint.mac),
            SetField(Register.HOME, endpoint.ofport),
            SetField(Register.LANE, lane),
            goto=Table.TO_ENDPOINT,
        )
    spoken = {Register.TARGET: endpoint.ofport}
    yield flow(Table.TO_ENDPOINT, 20, spoken, Resubmit(Table.EGRESS))


def _announced(endpoint: Endpoint) -> Iterator[FlowSpec]:
    """Learning packets of ours for off-home addresses. No VM may send from these addresses."""
    for lane, mac in endpoint.off_home_macs:
        yield flow(Table.LEARN, 60, {"eth_src": mac})
        rarp: Fields = {"eth_src": mac, "eth_dst": BROADCAST, "eth_type": tables.ETH_RARP}
        announces = {**rarp, Register.VM_PORT: endpoint.ofport}
        yield flow(Table.LEARN, 70, announces, *_by_lane(endpoint, lane))


def _leaving(endpoint: Endpoint, team: Team) -> Iterator[FlowSpec]:
    """What the hash sends off home; the lane of its home leaves by the home, whichever that is now."""
    sent: Fields = {Register.VM_PORT: endpoint.ofport}
    for lane, mac in endpoint.off_home_macs:
        at_home = {**sent, Register.LANE: int(lane) << 16 | int(lane)}
        by_home = (SetField(Register.LANE, 0), SetField(Register.TARGET, 0))
        yield flow(Table.OFF_HOME, 60, at_home, *by_home, Resubmit(Table.OFF_HOME))
        off_home = {**sent, Register.LANE: (int(lane), _LANE_MASK)}
        ours = SetField("eth_src", mac)
        yield flow(Table.OFF_HOME, 50, off_home, ours, *_by_lane(endpoint, lane))


def _by_lane(endpoint: Endpoint, lane: OfPort) -> Actions:
    """Leave by a lane, and learn that the frame's source, an off-home address, has sent just now."""
    speaks = Learn(
        Table.SPOKEN,
        tables.cookie(tables.Kind.LEARNED, endpoint.ofport),
        tables.SPOKEN_TIMEOUT_S,
        (tables.TO_SOURCE, tables.TO_SENDER),
        delete_learned=True,
    )
    return speaks, ToGroup(Group.LANE.id_of(lane))
