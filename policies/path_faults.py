"""Finds the faulty uplink if frames between the uplinks of a team are lost although all links are up.

If two uplinks do not reach each other, it is unknown which of them is cut off. A third uplink shows
this, as with VMware's beacon probing. So does a host that should answer on each uplink, as with
`arp_ip_target` of the Linux bonding driver.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Fault(StrEnum):
    """Which frames are lost on an uplink: all, those of one VLAN, or those longer than a limit."""

    UNREACHABLE = "unreachable"
    VLAN = "vlan"
    MTU = "mtu"


@dataclass(frozen=True, slots=True, order=True)
class PathFault:
    """A fault between uplinks.

    `uplinks`: the faulty uplink; if it is not known (`decided` False), all uplinks that may be faulty.
    `vlan`: the VLAN whose frames are lost, 0 for untagged frames; None: all VLANs. `mtu`: the MTU
    that the lost frames fill.
    """

    kind: Fault
    uplinks: tuple[str, ...]
    decided: bool = True
    vlan: int | None = None
    mtu: int | None = None

    @property
    def concerns(self) -> tuple[Fault, int | None, int | None]:
        """The fault without its uplinks: the kind of lost frames, the VLAN and the MTU."""
        return self.kind, self.vlan, self.mtu

    @property
    def found(self) -> str:
        """The lost frames and the uplinks of the fault, as text."""
        lost = self._lost
        if not self.decided:
            between = ", ".join(self.uplinks)
            return f"uplinks {between}: {lost} between them, and it is not known which uplink is faulty"
        others = "to or from other uplinks" if self.kind is Fault.UNREACHABLE else "on this uplink"
        return f"uplink {self.uplinks[0]}: {lost} {others}, although its link is up"

    @property
    def expected(self) -> str:
        """The action that the network's operators should take."""
        ports = "its switch port" if self.decided else "the switch ports of both uplinks"
        if len(self.uplinks) > 2:
            ports = "the switch ports of all these uplinks"
        if self.kind is Fault.VLAN and self.vlan:
            return f"allow VLAN {self.vlan} on {ports}, and on the links between the switches"
        if self.kind is Fault.VLAN:
            return "set the same native VLAN on the switch ports of all uplinks"
        if self.kind is Fault.MTU:
            return f"set an MTU of at least {self.mtu} on {ports}, and on the links between the switches"
        return f"check {ports} (same network, not blocked) and the links between the switches"

    @property
    def short(self) -> str:
        """A description of the lost frames in one or two words, for tables."""
        if self.kind is Fault.UNREACHABLE:
            return "unreachable"
        where = f"VLAN {self.vlan}" if self.vlan else "untagged"
        return where if self.kind is Fault.VLAN else f"MTU {self.mtu} {where}"

    @property
    def _lost(self) -> str:
        where = f"of VLAN {self.vlan}" if self.vlan else "without a tag"
        if self.kind is Fault.UNREACHABLE:
            return "frames are lost"
        if self.kind is Fault.VLAN:
            return f"frames {where} are lost"
        return f"frames {where} that fill an MTU of {self.mtu} are lost"


@dataclass(frozen=True, slots=True)
class Passage:
    """The results of all probes in one VLAN that have the same length.

    `mtu`: the MTU that the probes fill; 0 for the shortest frames. `passes`: for each pair of
    uplinks that was probed, as (sender, receiver), whether probes arrive. `reaches`: for each
    uplink, whether a queried host answers on it; empty if no host is queried in this VLAN.
    """

    vlan: int
    mtu: int
    passes: dict[tuple[str, str], bool]
    reaches: dict[str, bool] = field(default_factory=dict)

    def joins(self, one: str, other: str) -> bool:
        """Whether probes between two uplinks arrive in both directions."""
        return self.passes.get((one, other), False) and self.passes.get((other, one), False)


def faults(uplinks: Sequence[str], passages: Collection[Passage]) -> frozenset[PathFault]:
    """Return the faults between these uplinks, whose links are all up, based on results of probes.

    A VLAN fault is searched for only among uplinks that reach each other in another VLAN, and an MTU
    fault only among uplinks that reach each other in that VLAN with short frames.
    """
    short = [passage for passage in passages if not passage.mtu]
    if not short:
        return frozenset()
    found = set[PathFault]()
    reaches = {u: any(p.reaches.get(u, False) for p in short) for u in uplinks}
    anything = Passage(
        0,
        0,
        {(a, b): any(p.passes.get((a, b), False) for p in short) for a in uplinks for b in uplinks},
        reaches if any(passage.reaches for passage in short) else {},
    )
    for group in _judged(uplinks, anything, PathFault(Fault.UNREACHABLE, ()), found):
        for passage in short:
            fault = PathFault(Fault.VLAN, (), vlan=passage.vlan)
            for part in _judged(group, passage, fault, found):
                for long in passages:
                    if long.mtu and long.vlan == passage.vlan:
                        fault = PathFault(Fault.MTU, (), vlan=long.vlan, mtu=long.mtu)
                        _judged(part, long, fault, found)
    return frozenset(found)


def _judged(
    uplinks: Sequence[str], passage: Passage, fault: PathFault, found: set[PathFault]
) -> list[list[str]]:
    """Add the faults among these uplinks to `found`. Return the groups that reach each other.

    Each faulty uplink is a separate fault. All uplinks that may be faulty are one fault.
    """
    groups = _groups(uplinks, passage)
    at_fault, doubtful = _at_fault(groups, passage.reaches)
    found |= {replace(fault, uplinks=(uplink,)) for uplink in at_fault}
    if doubtful:
        found.add(replace(fault, uplinks=tuple(doubtful), decided=False))
    return groups


def _at_fault(
    groups: Sequence[Sequence[str]], reaches: Mapping[str, bool]
) -> tuple[list[str], list[str]]:
    """Return the faulty uplinks, and the uplinks that may be faulty.

    If a host answers a group, that group works, and the other groups do not. Without a host, an uplink
    that reaches no other uplink is faulty if others reach each other.
    """
    answered = [group for group in groups if any(reaches.get(u, False) for u in group)]
    well = answered or [group for group in groups if len(group) > 1] or groups
    silent = sorted(u for group in groups if group not in well for u in group)
    return silent, sorted(u for group in well for u in group) if len(well) > 1 else []


def _groups(uplinks: Sequence[str], passage: Passage) -> list[list[str]]:
    """Return the uplinks in groups that reach each other, directly or through others of the group."""
    left, groups = list(uplinks), []
    while left:
        group = [left.pop(0)]
        # The group grows in this loop.
        for uplink in group:
            near = [u for u in left if passage.joins(uplink, u)]
            left = [u for u in left if u not in near]
            group += near
        groups.append(group)
    return groups
