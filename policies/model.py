"""Defines the values that policies use: loads, uplinks, rules, units, snapshots, moves, plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from policies.values import value

OfPort = NewType("OfPort", int)
# The bridge's own port; from this number on, OpenFlow port numbers are reserved.
OFPORT_LOCAL = 0xFFFE
OFPORT_MAX = 0xFF00

# The most uplinks of a team: the IDs of delivery groups have room for this many.
MAX_UPLINKS = 64

# The largest share of a capacity that can be reserved. With more, the device would have to send
# faster than it can.
RESERVABLE_RATIO = 0.95
# The tolerance for sums of reservations.
EVEN_BPS = 0.001


class Reason(StrEnum):
    """The reason for a move; the same words appear in commands, metrics and logs."""

    THRESHOLD = "threshold"
    REBALANCE = "rebalance"
    SPLIT = "split"
    MERGE = "merge"
    RULE = "rule"
    PIN = "pin"
    DRAIN = "drain"
    MANUAL = "manual"
    FAILOVER = "failover"
    FAILBACK = "failback"

    @property
    def by_load(self) -> bool:
        """Whether moves for this reason are made by a policy, because of load."""
        return self in (Reason.THRESHOLD, Reason.REBALANCE, Reason.SPLIT, Reason.MERGE)


class Role(StrEnum):
    """The role of an uplink: failover uses active uplinks first, then standby ones."""

    ACTIVE = "active"
    STANDBY = "standby"
    UNUSED = "unused"
    DRAINED = "drained"


class Teaming(StrEnum):
    """The configuration of the team on the upstream switch: none, a static LAG, or LACP."""

    SWITCH_INDEPENDENT = "switch-independent"
    STATIC = "static"
    LACP = "lacp"


@value(frozen=True, slots=True)
class Load:
    """Traffic as the host sees it: `tx_bps` towards the network, `rx_bps` from it."""

    tx_bps: float = 0.0
    rx_bps: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(self.tx_bps + other.tx_bps, self.rx_bps + other.rx_bps)

    def __sub__(self, other: Load) -> Load:
        return Load(self.tx_bps - other.tx_bps, self.rx_bps - other.rx_bps)

    def larger(self, other: Load) -> Load:
        """Return the larger of the two loads, for each direction."""
        return Load(max(self.tx_bps, other.tx_bps), max(self.rx_bps, other.rx_bps))

    def utilization_ratio(self, capacity_bps: float) -> float:
        """Return the load in the busier direction as a share of capacity."""
        return max(self.tx_bps, self.rx_bps) / capacity_bps


IDLE = Load()


def room_bps(capacity_bps: float) -> float:
    """Return the rate that can be reserved on an uplink of this capacity."""
    return RESERVABLE_RATIO * capacity_bps


def can_promise(more_bps: float, promised_bps: float, capacity_bps: float) -> bool:
    """Whether `more_bps` can be reserved in addition to `promised_bps`; always true for 0."""
    return more_bps <= max(0.0, room_bps(capacity_bps) - promised_bps) + EVEN_BPS


@value(frozen=True, slots=True)
class Uplink:
    """A member of the team. `usable`: whether it carries traffic (link up, failback delay over).

    `waiting`: its link is up again, but the uplink carries nothing until the failback delay ends.
    `reserved_bps`: the part of the capacity that is reserved for units bound to the uplink.
    """

    name: str
    ofport: OfPort
    capacity_bps: float
    role: Role = Role.ACTIVE
    usable: bool = True
    load: Load = Load()
    reserved_bps: float = 0.0
    waiting: bool = False

    @property
    def room_bps(self) -> float:
        """The total rate that can be reserved on the uplink."""
        return room_bps(self.capacity_bps)

    def has_room_for(self, units: Iterable[Unit]) -> bool:
        """Whether the uplink has room for the reservations of `units`, none of which is on it yet."""
        more_bps = sum(unit.rules.reserve_bps for unit in units)
        return can_promise(more_bps, self.reserved_bps, self.capacity_bps)

    @property
    def utilization_ratio(self) -> float:
        return self.load.utilization_ratio(self.capacity_bps)

    def carrying(self, load: Load, reserved_bps: float | None = None) -> Uplink:
        """Return a copy with this load. Faster than `replace`. `reserved_bps` None: unchanged."""
        return Uplink(
            self.name,
            self.ofport,
            self.capacity_bps,
            self.role,
            self.usable,
            load,
            self.reserved_bps if reserved_bps is None else reserved_bps,
            self.waiting,
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """An operator's rules for the uplink of a unit."""

    # The uplink that the unit uses while this uplink is in service.
    pin: str | None = None
    # Whether an operator limited the uplinks that the unit may use. While none of these uplinks
    # carries traffic, the unit is bound to no uplink.
    confined: bool = False
    # The uplinks that the unit should use, the best first; and those that it should not use.
    prefer: tuple[str, ...] = ()
    avoid: frozenset[str] = frozenset()
    # The set whose members should share an uplink.
    affinity: str | None = None
    # The set whose members should each use a different uplink.
    anti_affinity: str | None = None
    # The rate reserved for the unit on its uplink, in bit/s; 0: none.
    reserve_bps: float = 0.0

    @property
    def in_set(self) -> bool:
        """Whether the unit is in a set, so that its uplink depends on those of other units."""
        return self.affinity is not None or self.anti_affinity is not None

    @property
    def ruled(self) -> bool:
        """Whether the unit is in a set, or prefers or avoids uplinks."""
        return self.in_set or bool(self.prefer or self.avoid)

    @property
    def unsplittable(self) -> bool:
        """Whether a rule determines the unit's uplink, so that its traffic must not be spread."""
        return self.pin is not None or self.confined or self.ruled


NO_RULES = Rules()


@value(frozen=True, slots=True)
class Unit:
    """An item that is placed as a whole: a VM port, an address behind one, or a bucket of a hash.

    `is_bucket`: the unit is a bucket. `behind`: the VM port of an address. `number`: the ofport,
    the bucket, or a number derived from the address. `policy`: the preset. `load`: its load on
    `uplink`. `allowed`: the uplinks that the unit can use, by name; None: all. `excluded`: never
    balanced. `spread`: `uplink` carries only received traffic, and buckets carry the sent traffic.
    If a policy can end that, `load` is the received and `spread_bps` the sent traffic. `divisible`:
    a policy can spread it. `merge_due`: a policy can merge it now. `kept_off`: the uplinks that
    lose the unit's frames although their links are up, and are therefore its last choice.
    """

    name: str
    number: int
    policy: str = "load-based"
    is_bucket: bool = False
    uplink: str | None = None
    load: Load = Load()
    rules: Rules = NO_RULES
    excluded: bool = False
    allowed: frozenset[str] | None = None
    behind: str | None = None
    spread: bool = False
    spread_bps: float = 0.0
    divisible: bool = False
    merge_due: bool = False
    kept_off: frozenset[str] = frozenset()

    @property
    def own_load(self) -> Load:
        """The load that moves with the unit. Traffic that it sends through buckets does not."""
        return Load(rx_bps=self.load.rx_bps) if self.spread else self.load

    def as_judged(self, load: Load, spread_bps: float, excluded: bool) -> Unit:
        """Return a copy with these values. Faster than `replace`: each poll makes hundreds of copies."""
        return Unit(
            name=self.name,
            number=self.number,
            policy=self.policy,
            is_bucket=self.is_bucket,
            uplink=self.uplink,
            load=load,
            rules=self.rules,
            excluded=excluded,
            allowed=self.allowed,
            behind=self.behind,
            spread=self.spread,
            spread_bps=spread_bps,
            divisible=self.divisible,
            merge_due=self.merge_due,
            kept_off=self.kept_off,
        )

    @property
    def movable(self) -> bool:
        """Whether a policy can move the unit to balance load. Failover can always move it."""
        return self.rules.pin is None and not self.excluded


@value(frozen=True, slots=True)
class Snapshot:
    """One team at one moment: uplinks in failover order, and loads as means over the window.

    `units`: the units that the policy can move. `in_sets`: units of any policy that are in affinity
    or anti-affinity sets.
    """

    uplinks: tuple[Uplink, ...]
    units: tuple[Unit, ...]
    threshold_ratio: float = 0.75
    in_sets: tuple[Unit, ...] = ()


@value(frozen=True, slots=True)
class Move:
    """A change of a unit's binding from `source` to `target`.

    For a split or merge, `source` and `target` are the unit's home uplink. `shares`: for a split, the
    share of the unit's sent traffic that each uplink gets.
    """

    unit: str
    source: str
    target: str
    reason: Reason
    shares: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        assert not self.is_resplit or self.source == self.target, "its home stays"
        assert not self.shares or self.reason is Reason.SPLIT, "only a split has shares"

    @property
    def is_resplit(self) -> bool:
        """Whether the move only starts or ends spreading, without a new home uplink."""
        return self.reason in (Reason.SPLIT, Reason.MERGE)

    def shifts(self, load: Load) -> Iterator[tuple[str, Load]]:
        """Yield the changes of uplink loads when a unit with this load makes this move."""
        if self.shares:
            yield self.source, Load(tx_bps=-load.tx_bps)
            for uplink, share in self.shares:
                yield uplink, Load(tx_bps=share * load.tx_bps)
        elif not self.is_resplit:
            yield self.source, Load() - load
            yield self.target, load


@dataclass(frozen=True, slots=True)
class Plan:
    """The moves of a planner. `unrelieved`: uplinks above the threshold that no move relieves.

    `mergeable`: the spread units that could be merged without harm.
    """

    moves: tuple[Move, ...] = ()
    unrelieved: tuple[str, ...] = ()
    mergeable: tuple[str, ...] = ()
