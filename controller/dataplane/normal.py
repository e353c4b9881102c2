"""Frames that Open vSwitch's action NORMAL handles on a bond: those to and from unknown ports.

For example, a VM's port is unknown if the VM was started while the service was not running.

Tables: UNKNOWN_PORT, NO_UPLINK; in CLASSIFY, EGRESS, DELIVERY, PRESENT and ABSENT, the flows for unknown
ports. Sources on unknown ports are learned in LOCATION and LOCAL_SOURCE. Groups: one for each uplink, if
NORMAL accepts unicast from any uplink.

Invariant: without a bond, no frame reaches NORMAL, which would form a loop over the uplinks. With a bond,
NORMAL receives frames that uplinks flood only if NORMAL delivers no copies to known VM ports.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from controller.config.vlans import TRUNK
from controller.dataplane import specs, tables
from controller.dataplane.learning import LOCKS
from controller.dataplane.output import TO_NORMAL, if_first_live
from controller.dataplane.reflection import by_presence
from controller.dataplane.specs import FlowSpec, flow
from controller.dataplane.tables import TAGGED, VLAN_ID_BITS, Group, Register, Table
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort

_LEFT_TO_NORMAL = specs.SetField(Register.NORMAL, 1)
# With snooping, NORMAL sends frames for IP multicast groups to the ports of known members and routers,
# and to ports with `mcast-snooping-flood`, even if these ports have the flag `no-flood`.
SNOOPED = ("01:00:5e:00:00:00", "ff:ff:ff:80:00:00"), ("33:33:00:00:00:00", "ff:ff:00:00:00:00")
# Destinations that NORMAL floods even with snooping: all hosts, and the routers and protocols in
# 224.0.0.0/24. Without neighbor solicitations, a VM on an unknown port could not be reached over IPv6.
FLOODED_GROUPS = (
    ("01:00:5e:00:00:00", "ff:ff:ff:ff:ff:00"),
    "33:33:00:00:00:01",
    ("33:33:ff:00:00:00", "ff:ff:ff:00:00:00"),
)
# The addition to a flow's priority, the destinations (None: all), and the actions for them.
_Way = tuple[int, specs.MatchValue | None, specs.Actions]


def flooded_by(uplink: OfPort, team: Team) -> tuple[specs.Fields, list[_Way]]:
    """Return a match and actions that pass frames flooded by an uplink to NORMAL.

    The first entry of the list is for all frames; the other entries are for some destinations.
    """
    from_uplink, restored = _as_it_came(uplink, team)
    if not team.floods_to_normal:
        return from_uplink, [(0, None, ())]
    to_normal: specs.Actions = (*restored, TO_NORMAL)
    ways: list[_Way] = [(0, None, to_normal)]
    if team.normal_takes_any:
        ways.append((5, tables.UNICAST, (*restored, specs.ToGroup(Group.NORMAL.id_of(uplink)))))
    if team.snoops:
        ways += [(5, groups, ()) for groups in SNOOPED]
        ways += [(7, group, to_normal) for group in FLOODED_GROUPS]
    return from_uplink, ways


def flows(team: Team) -> Iterator[FlowSpec]:
    """Yield the flows for a bond; none for plain uplinks."""
    if not team.leaves_to_normal:
        return
    yield from _learn_from_unknown(team)
    # Frames from uplinks to a VM port without any uplink must not reach NORMAL.
    from_vm = {Register.UPLINK: 0}
    by_normal: specs.Actions = (TO_NORMAL,) if team.floods_to_normal else ()
    if by_normal and not team.hears_everywhere:
        # When an uplink is up again, the bond announces the addresses that NORMAL has learned from these
        # frames. If an announcement returns on another uplink, its address must not seem to be there.
        by_normal = (specs.SetField(Register.ANNOUNCES, 1), *LOCKS, TO_NORMAL)
    yield flow(Table.NO_UPLINK, 0, from_vm, *by_normal)
    # The flows in EGRESS for known VM ports, and for no VM port at all, have a higher priority.
    yield flow(Table.EGRESS, 3, from_vm, goto=Table.UPLINK_OUT)
    judged = _LEFT_TO_NORMAL, specs.Resubmit(Table.LOCAL_SOURCE)
    for uplink in team.uplinks:
        from_uplink, restored = _as_it_came(uplink, team)
        yield flow(Table.DELIVERY, 40, {**from_uplink, Register.NORMAL: 1}, *restored, TO_NORMAL)
        yield flow(Table.EGRESS, 3, from_uplink, *judged, goto=Table.REFLECTION)


def _learn_from_unknown(team: Team) -> Iterator[FlowSpec]:
    """Yield flows that learn the source of a frame from an unknown port, and pass the frame to NORMAL.

    Unicast from uplinks to this address is then passed to NORMAL, and not sent to the port that the VM
    had before the VM was restarted. While that port exists, nothing is learned: the unknown port may be
    an uplink, on which frames from our VMs return.

    Returning broadcasts from the VM are dropped like other reflections. The switch remembers the source
    for `LOCK_TIMEOUT_S` only, because the service is not notified when the VM leaves; each frame restarts
    this time. The VLAN of an untagged frame is unknown, so the frame's address is learned for all VLANs;
    if the port is an uplink, the VLAN is the native VLAN of the other uplinks.

    The cookie of learned flows depends on the uplinks and on the ports with `no-flood`. When these
    change, the learning flow is removed, and the switch then deletes all flows that it has learned.
    """
    numbers = f"{sorted(team.uplinks)} {sorted(team.no_flood)}".encode()
    taught = tables.cookie(tables.Kind.LEARNED, tables.FROM_NORMAL | zlib.crc32(numbers))
    limit = tables.ADDRESSES_PER_PORT_MAX  # for all of these ports together
    tag = specs.LearnMatch("vlan_tci", Register.VLAN, VLAN_ID_BITS)
    native = next((vlans.native for vlans in team.uplink_vlans.values()), None) or 0
    untagged = specs.SetField(Register.VLAN, native)
    tagged = specs.CopyBits("vlan_tci", 0, Register.VLAN, 0, VLAN_ID_BITS)
    unknown = {Register.NORMAL: 1, Register.UPLINK: 0}
    look_ups = (Table.LOCAL_SOURCE, Table.UNKNOWN_PORT, Table.CLASSIFY)
    for tags, vlan, in_vlan in ((0, (), untagged), (TAGGED, (tag,), tagged)):
        located = *vlan, tables.TO_SOURCE, specs.LearnLoad("in_port", Register.TARGET, 16)
        local = *vlan, tables.FROM_SOURCE, tables.IS_LOCAL
        sent = {"vlan_vid": tags, "eth_src": tables.UNICAST, Register.NORMAL: 0}
        yield flow(
            Table.CLASSIFY, 1, sent, _LEFT_TO_NORMAL, in_vlan, *map(specs.Resubmit, look_ups)
        )
        yield flow(
            Table.UNKNOWN_PORT,
            10,
            {"vlan_vid": tags},
            specs.Learn(Table.LOCATION, taught, tables.LEARNED_TIMEOUT_S, located, True, 20, limit),
            specs.Learn(Table.LOCAL_SOURCE, taught, tables.LOCK_TIMEOUT_S, local, True, 20, limit),
        )
    for port in team.vm_ports:
        known = {Register.LOCAL: 1, Register.BEHIND: port.ofport}
        yield flow(Table.UNKNOWN_PORT, 20, known, *by_presence(port))
    yield flow(Table.PRESENT, 30, unknown)
    anew = (specs.SetField(Register.BEHIND, 0), specs.Resubmit(Table.UNKNOWN_PORT))
    yield flow(Table.ABSENT, 30, unknown, *anew)


def by_any_uplink(port: VmPort, team: Team) -> specs.Actions:
    """Return actions that pass a VM port's frame to NORMAL if no uplink exists; () if rules forbid this.

    No uplink exists if the bond was recreated, with new ofports, while no service was running.
    """
    if not (team.over_normal and port.order) or port.is_confined(team.uplinks):
        return ()
    is_access = port.vlans.native and not port.vlans.takes_tagged
    return (*((specs.PopVlan(),) if is_access else ()), specs.Resubmit(Table.NO_UPLINK))


def groups(team: Team) -> Iterator[specs.GroupSpec]:
    """Yield groups that pass flooded unicast, which arrives on all uplinks, to NORMAL only once."""
    if team.floods_to_normal and team.normal_takes_any:
        for index, uplink in enumerate(team.uplinks):
            before = team.uplinks[:index]
            yield if_first_live(Group.NORMAL.id_of(uplink), before, uplink, (TO_NORMAL,))


def _as_it_came(uplink: OfPort, team: Team) -> tuple[specs.Fields, specs.Actions]:
    """Return the match for frames from an uplink, and actions that undo what CLASSIFY has changed.

    CLASSIFY adds a tag to frames from an access port, from which NORMAL does not accept tagged frames.
    """
    vlans = team.uplink_vlans.get(uplink, TRUNK)
    from_uplink: specs.Fields = {Register.UPLINK: uplink}
    if team.over_normal and vlans.native and not vlans.takes_tagged:
        return {**from_uplink, "vlan_vid": TAGGED}, (specs.PopVlan(),)
    return from_uplink, ()
