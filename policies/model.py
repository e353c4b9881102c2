"""The values that policies are written in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

OfPort = NewType("OfPort", int)
# The bridge's own port, and where reserved numbers begin.
OFPORT_LOCAL = 0xFFFE
OFPORT_MAX = 0xFF00

# Of one team: what the ids of delivery groups have room for.
MAX_UPLINKS = 64

# Of a capacity, reservations get so much at most, or the device would send more than it has.
RESERVABLE_RATIO = 0.95
# Sums of reservations are no nearer to what they should be than that.
EVEN_BPS = 0.001


class Reason(StrEnum):
    """Why a unit moves; the same words in commands, metrics and logs."""

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
        """Whether a policy moves for the sake of load."""
        return self in (Reason.THRESHOLD, Reason.REBALANCE, Reason.SPLIT, Reason.MERGE)


class Role(StrEnum):
    """What an uplink is for: failover goes to active uplinks first, then to standby ones."""

    ACTIVE = "active"
    STANDBY = "standby"
    UNUSED = "unused"
    DRAINED = "drained"


class Teaming(StrEnum):
    """What the switch upstream knows of the team: nothing, a static LAG, or LACP."""

    SWITCH_INDEPENDENT = "switch-independent"
    STATIC = "static"
    LACP = "lacp"


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic seen from the host: `tx_bps` towards the network, `rx_bps` from it."""

    tx_bps: float = 0.0
    rx_bps: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(self.tx_bps + other.tx_bps, self.rx_bps + other.rx_bps)

    def __sub__(self, other: Load) -> Load:
        return Load(self.tx_bps - other.tx_bps, self.rx_bps - other.rx_bps)

    def utilization_ratio(self, capacity_bps: float) -> float:
        """The busier direction as a share of capacity; links are full duplex."""
        return max(self.tx_bps, self.rx_bps) / capacity_bps


IDLE = Load()


def room_bps(capacity_bps: float) -> float:
    """What an uplink of that capacity can promise, of which nothing has to be cut."""
    return RESERVABLE_RATIO * capacity_bps


def can_promise(more_bps: float, promised_bps: float, capacity_bps: float) -> bool:
    """Whether an uplink has room for so much more; what is no more always has."""
    return more_bps <= max(0.0, room_bps(capacity_bps) - promised_bps) + EVEN_BPS


@dataclass(frozen=True, slots=True)
class Uplink:
    """A member of the team. `usable`: it carries traffic now (link up, failback delay over).

    `waiting`: its link is back, and others carry traffic until its failback delay is over.
    `reserved_bps`: of its capacity, what is promised to units that are bound to it.
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
        """What it can promise in all."""
        return room_bps(self.capacity_bps)

    def has_room_for(self, units: Iterable[Unit]) -> bool:
        """Whether it can promise units of other uplinks what these are promised."""
        more_bps = sum(unit.rules.reserve_bps for unit in units)
        return can_promise(more_bps, self.reserved_bps, self.capacity_bps)

    @property
    def utilization_ratio(self) -> float:
        return self.load.utilization_ratio(self.capacity_bps)


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operator asks of where a unit goes."""

    # The uplink that it uses while that can be had.
    pin: str | None = None
    # Whether an operator names the only uplinks it may use: rather than by one of these that
    # carries nothing it is bound to none.
    confined: bool = False
    # The uplinks that it should use, the best first; and those that it should not.
    prefer: tuple[str, ...] = ()
    avoid: frozenset[str] = frozenset()
    # The set whose members should share an uplink.
    affinity: str | None = None
    # The set whose members should each use a different uplink.
    anti_affinity: str | None = None
    # What it is promised of its uplink's capacity; 0: nothing.
    reserve_bps: float = 0.0

    @property
    def in_set(self) -> bool:
        """Whether it matters to the unit where others are."""
        return self.affinity is not None or self.anti_affinity is not None

    @property
    def ruled(self) -> bool:
        """Whether there is an uplink that the unit should use, or should not."""
        return self.in_set or bool(self.prefer or self.avoid)

    @property
    def whole(self) -> bool:
        """Whether a rule says by which uplink the unit goes; none of it is spread then."""
        return self.pin is not None or self.confined or self.ruled


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed as a whole: a VM port, an address behind one, or a bucket of a hash.

    `is_bucket`: it is the last; `behind`: the VM port whose address it is. `number` is its ofport,
    made of its address, or its bucket, `policy` the preset it is under, `load` the part
    that crosses uplinks. `allowed`: the names of the only uplinks it may use; None: of any.
    `excluded`: load does not move it. `spread`: what it sends goes by buckets, by its uplink what
    it receives; where a policy may end that, `load` is the latter and `spread_bps` the former.
    `divisible`: a policy may spread it; `ripe`: and end it now.
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
    ripe: bool = False

    @property
    def own_load(self) -> Load:
        """What moves with it: what it sends by buckets does not."""
        return Load(rx_bps=self.load.rx_bps) if self.spread else self.load

    def as_judged(self, load: Load, spread_bps: float, excluded: bool) -> Unit:
        """The same unit with these, made fast: hundreds are, ten times a second."""
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
            ripe=self.ripe,
        )

    @property
    def movable(self) -> bool:
        """Whether a policy may move it; failover always may."""
        return self.rules.pin is None and not self.excluded


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One team at one moment: uplinks in failover order, loads as means over the window.

    `units`: those that the policy may move. `in_sets`: the units under any policy that are in a
    set of which members share an uplink or are kept apart.
    """

    uplinks: tuple[Uplink, ...]
    units: tuple[Unit, ...]
    threshold_ratio: float = 0.75
    in_sets: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """One unit's binding changes from `source` to `target`.

    Of a split or a merge both are its home. `shares`: of a split, the part of what it sends that
    each uplink is to carry.
    """

    unit: str
    source: str
    target: str
    reason: Reason
    shares: tuple[tuple[str, float], ...] = ()

    @property
    def is_resplit(self) -> bool:
        """Whether it stays at home, and what it sends is spread from now on, or no more."""
        return self.reason in (Reason.SPLIT, Reason.MERGE)

    def shifts(self, load: Load) -> Iterator[tuple[str, Load]]:
        """What uplinks carry more or less when a unit with this load moves so."""
        if self.shares:
            yield self.source, Load(tx_bps=-load.tx_bps)
            for uplink, share in self.shares:
                yield uplink, Load(tx_bps=share * load.tx_bps)
        elif not self.is_resplit:
            yield self.source, Load() - load
            yield self.target, load


@dataclass(frozen=True, slots=True)
class Plan:
    """What a planner wants; `unrelieved` names uplinks above threshold that no move helps.

    `cool`: the spread units that would do no harm as a whole.
    """

    moves: tuple[Move, ...] = ()
    unrelieved: tuple[str, ...] = ()
    cool: tuple[str, ...] = ()
