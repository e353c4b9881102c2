"""Which uplink is at fault if frames between the uplinks of a team are lost although all links are up.

If two uplinks do not reach each other, it is unknown which of them is cut off. A third uplink decides:
this is the rule of VMware's beacon probing. So does a host that should answer on each of them: this is
the rule of `arp_ip_target` of the Linux bonding driver.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Fault(StrEnum):
    """What is lost on an uplink: everything, the frames of a VLAN, or frames beyond some length."""

    UNREACHABLE = "unreachable"
    VLAN = "vlan"
    MTU = "mtu"


@dataclass(frozen=True, slots=True, order=True)
class PathFault:
    """A fault between uplinks.

    `uplinks`: the one that is at fault; if that cannot be known (`decided` False), all that may be.
    `vlan`: the VLAN that it concerns, 0 for untagged frames; None: all. `mtu`: the MTU that does not
    pass.
    """

    kind: Fault
    uplinks: tuple[str, ...]
    decided: bool = True
    vlan: int | None = None
    mtu: int | None = None

    @property
    def concerns(self) -> tuple[Fault, int | None, int | None]:
        """What is lost, on whichever uplink: the kind, the VLAN and the MTU."""
        return self.kind, self.vlan, self.mtu

    @property
    def found(self) -> str:
        """What was found, in words."""
        lost = self._lost
        if not self.decided:
            between = ", ".join(self.uplinks)
            return f"uplinks {between}: {lost} between them, and which of them is at fault is not known"
        others = "between it and the others" if self.kind is Fault.UNREACHABLE else "on it"
        return f"uplink {self.uplinks[0]}: {lost} {others}, although its link is up"

    @property
    def expected(self) -> str:
        """What to do, for the operators of the network."""
        ports = "its switch port" if self.decided else "the switch ports of both"
        if len(self.uplinks) > 2:
            ports = "the switch ports of all"
        if self.kind is Fault.VLAN and self.vlan:
            return f"allow VLAN {self.vlan} on {ports} and between the switches"
        if self.kind is Fault.VLAN:
            return f"set the same native VLAN on {ports}"
        if self.kind is Fault.MTU:
            return f"set an MTU of at least {self.mtu} on {ports} and between the switches"
        return f"check {ports}: same network, not blocked, and the switches connected to each other"

    @property
    def short(self) -> str:
        """What is lost, in a word or two, for tables."""
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
    """What probes of one VLAN and one length have shown.

    `mtu`: the MTU that the probes had; 0 for the shortest frames. `passes`: for each pair of uplinks
    that was probed, as (sender, receiver), whether probes arrive. `reaches`: for each uplink, whether
    a host that was queried answers on it; empty if no host is queried in this VLAN.
    """

    vlan: int
    mtu: int
    passes: Mapping[tuple[str, str], bool]
    reaches: Mapping[str, bool] = field(default_factory=dict)

    def joins(self, one: str, other: str) -> bool:
        """Whether probes arrive in both directions."""
        return self.passes.get((one, other), False) and self.passes.get((other, one), False)


def faults(uplinks: Sequence[str], passages: Collection[Passage]) -> frozenset[PathFault]:
    """The faults that probes have shown on these uplinks, whose links are all up.

    A fault of a VLAN is looked for only among uplinks that reach each other in another VLAN, and one
    of an MTU only among uplinks that reach each other in that VLAN with short frames.
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
    """Add the faults among these uplinks to `found`. Returns the groups that reach each other.

    The uplinks that are at fault are each a fault of its own, and those that may be are one.
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
    """The uplinks that are at fault, and those of which it cannot be known.

    A group that a host answers to is well, and the others are not. Without a host, an uplink that
    reaches no other is at fault if others reach each other.
    """
    answered = [group for group in groups if any(reaches.get(u, False) for u in group)]
    well = answered or [group for group in groups if len(group) > 1] or groups
    silent = sorted(u for group in groups if group not in well for u in group)
    return silent, sorted(u for group in well for u in group) if len(well) > 1 else []


def _groups(uplinks: Sequence[str], passage: Passage) -> list[list[str]]:
    """The uplinks in groups: those of one group reach each other, directly or by others of it."""
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
