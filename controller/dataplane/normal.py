"""NORMAL: on a bond, the frames of ports that the service does not know are left to NORMAL.

Such a port is that of a VM that was started while the service was not running.

Tables: UNKNOWN_PORT, NO_UPLINK; in CLASSIFY, EGRESS, DELIVERY, PRESENT and ABSENT, the flows for these ports. It
teaches LOCATION and LOCAL_SOURCE what these ports send. Groups: one for each uplink, where NORMAL takes
unicast from any.

Invariant: without a bond, no frame reaches NORMAL, which would join the uplinks into a loop. With
one, NORMAL gets what uplinks flood only while it brings no copy to a VM port that the service knows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from controller.config.vlans import TRUNK
from controller.dataplane import tables
from controller.dataplane.output import TO_NORMAL, if_first_live
from controller.dataplane.reflection import by_presence
from controller.dataplane.specs import (
    Actions,
    CopyBits,
    Fields,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    LearnMatch,
    MatchValue,
    PopVlan,
    Resubmit,
    SetField,
    ToGroup,
    flow,
)
from controller.dataplane.tables import TAGGED, VLAN_ID_BITS, Group, Register, Table
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort

_LEFT_TO_NORMAL = SetField(Register.NORMAL, 1)
# If it snoops, NORMAL sends the frames of IP groups to each VM port that it knows as a member or router,
# and to those with `mcast-snooping-flood`, whether they have the flag `no-flood` or not.
SNOOPED = ("01:00:5e:00:00:00", "ff:ff:ff:80:00:00"), ("33:33:00:00:00:00", "ff:ff:00:00:00:00")
# It floods frames to all hosts of a link, and to routers and protocols in 224.0.0.0/24. Neighbor
# solicitations are left to it as well: without them, nobody reaches the VM of an unknown port by IPv6.
FLOODED_GROUPS = (
    ("01:00:5e:00:00:00", "ff:ff:ff:ff:ff:00"),
    "33:33:00:00:00:01",
    ("33:33:ff:00:00:00", "ff:ff:ff:00:00:00"),
)
# What is added to a priority, the destinations (None: all), and the actions for them.
_Way = tuple[int, MatchValue | None, Actions]


def flooded_by(uplink: OfPort, team: Team) -> tuple[Fields, list[_Way]]:
    """How NORMAL receives frames that an uplink floods.

    The match of frames from the uplink, and the actions for all of them and for some destinations.
    """
    from_uplink, restored = _as_it_came(uplink, team)
    if not team.floods_to_normal:
        return from_uplink, [(0, None, ())]
    to_normal: Actions = (*restored, TO_NORMAL)
    ways: list[_Way] = [(0, None, to_normal)]
    if team.normal_takes_any:
        ways.append((5, tables.UNICAST, (*restored, ToGroup(Group.NORMAL.id_of(uplink)))))
    if team.snoops:
        ways += [(5, groups, ()) for groups in SNOOPED]
        ways += [(7, group, to_normal) for group in FLOODED_GROUPS]
    return from_uplink, ways


def flows(team: Team) -> Iterator[FlowSpec]:
    """The flows for a bond; none for plain uplinks."""
    if not team.leaves_to_normal:
        return
    yield from _learn_from_unknown(team)
    # What an uplink brings for a VM port that has none of its uplinks is not for NORMAL.
    from_vm = {Register.UPLINK: 0}
    yield flow(Table.NO_UPLINK, 0, from_vm, *((TO_NORMAL,) if team.floods_to_normal else ()))
    # The flows in EGRESS for known VM ports, and for no VM port at all, have a higher priority.
    yield flow(Table.EGRESS, 3, from_vm, goto=Table.UPLINK_OUT)
    judged = _LEFT_TO_NORMAL, Resubmit(Table.LOCAL_SOURCE)
    for uplink in team.uplinks:
        from_uplink, restored = _as_it_came(uplink, team)
        yield flow(Table.DELIVERY, 40, {**from_uplink, Register.NORMAL: 1}, *restored, TO_NORMAL)
        yield flow(Table.EGRESS, 3, from_uplink, *judged, goto=Table.REFLECTION)


def _learn_from_unknown(team: Team) -> Iterator[FlowSpec]:
    """Learn from a frame of an unknown port before it goes on to NORMAL.

    Unicast from uplinks for the address is then left to NORMAL. It does not go to the port that
    the VM had before it was stopped and started. While that port is there, nothing is learned: the
    unknown port may be an uplink, which brings back what our VMs have sent.

    A broadcast of the VM that comes back is dropped, as any reflection is. The switch remembers
    this for `LOCK_TIMEOUT_S` only: each frame teaches it anew, and nothing tells the service when
    the VM leaves. The VLAN of an untagged frame is not known here, so its address is learned for
    all VLANs; if the port is an uplink, it is the VLAN of the others.

    The cookie of what is learned depends on the uplinks and on the ports without flooding. When these
    change, the flow that taught it goes, and with it all that was learned.
    """
    numbers = f"{sorted(team.uplinks)} {sorted(team.no_flood)}".encode()
    taught = tables.cookie(tables.Kind.LEARNED, tables.FROM_NORMAL | zlib.crc32(numbers))
    limit = tables.ADDRESSES_PER_PORT_MAX  # for all of these ports together
    tag = LearnMatch("vlan_tci", Register.VLAN, VLAN_ID_BITS)
    native = next((vlans.native for vlans in team.uplink_vlans.values()), None) or 0
    untagged = SetField(Register.VLAN, native)
    tagged = CopyBits("vlan_tci", 0, Register.VLAN, 0, VLAN_ID_BITS)
    unknown = {Register.NORMAL: 1, Register.UPLINK: 0}
    look_ups = (Table.LOCAL_SOURCE, Table.UNKNOWN_PORT, Table.CLASSIFY)
    for tags, vlan, in_vlan in (
        (0, (), untagged),
        (TAGGED, (tag,), tagged),
    ):
        located = *vlan, tables.TO_SOURCE, LearnLoad("in_port", Register.TARGET, 16)
        local = *vlan, tables.FROM_SOURCE, tables.IS_LOCAL
        sent = {"vlan_vid": tags, "eth_src": tables.UNICAST, Register.NORMAL: 0}
        yield flow(Table.CLASSIFY, 1, sent, _LEFT_TO_NORMAL, in_vlan, *map(Resubmit, look_ups))
        yield flow(
            Table.UNKNOWN_PORT,
            10,
            {"vlan_vid": tags},
            Learn(Table.LOCATION, taught, tables.LEARNED_TIMEOUT_S, located, True, 20, limit),
            Learn(Table.LOCAL_SOURCE, taught, tables.LOCK_TIMEOUT_S, local, True, 20, limit),
        )
    for port in team.vm_ports:
        known = {Register.LOCAL: 1, Register.BEHIND: port.ofport}
        yield flow(Table.UNKNOWN_PORT, 20, known, *by_presence(port))
    yield flow(Table.PRESENT, 30, unknown)
    anew = (SetField(Register.BEHIND, 0), Resubmit(Table.UNKNOWN_PORT))
    yield flow(Table.ABSENT, 30, unknown, *anew)


def by_any_uplink(port: VmPort, team: Team) -> Actions:
    """How NORMAL gets a frame of a VM port, if no uplink of the team exists; () if it must not.

    The bond was created again while the service was not running: its members have other numbers.
    """
    if not (team.over_normal and port.order) or port.is_confined(team.uplinks):
        return ()
    is_access = port.vlans.native and not port.vlans.takes_tagged
    return (*((PopVlan(),) if is_access else ()), Resubmit(Table.NO_UPLINK))


def groups(team: Team) -> Iterator[GroupSpec]:
    """Give NORMAL unicast from the first live uplink only: flooded frames arrive on all of them."""
    if team.floods_to_normal and team.normal_takes_any:
        for index, uplink in enumerate(team.uplinks):
            before = team.uplinks[:index]
            yield if_first_live(Group.NORMAL.id_of(uplink), before, uplink, (TO_NORMAL,))


def _as_it_came(uplink: OfPort, team: Team) -> tuple[Fields, Actions]:
    """A match of the frames from an uplink, and the actions that restore what CLASSIFY changed.

    NORMAL takes no tagged frames from an access port, and ours have a tag.
    """
    vlans = team.uplink_vlans.get(uplink, TRUNK)
    from_uplink: Fields = {Register.UPLINK: uplink}
    if team.over_normal and vlans.native and not vlans.takes_tagged:
        return {**from_uplink, "vlan_vid": TAGGED}, (PopVlan(),)
    return from_uplink, ()
