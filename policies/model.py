"""The values that policies are written in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

OfPort = NewType("OfPort", int)
Dpid = NewType("Dpid", int)


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


@dataclass(frozen=True, slots=True)
class Uplink:
    """A member of the team. `usable`: it carries traffic now (link up, failback delay over)."""

    name: str
    ofport: OfPort
    capacity_bps: float
    role: Role = Role.ACTIVE
    usable: bool = True
    load: Load = Load()

    @property
    def utilization_ratio(self) -> float:
        return self.load.utilization_ratio(self.capacity_bps)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed as a whole: a VM port, or a bucket of a hash (`is_bucket`).

    `number` is its ofport or its bucket, `policy` the preset it is under, `load` the part
    that crosses uplinks. `allowed`: the names of the only uplinks it may use; None: of any.
    """

    name: str
    number: int
    policy: str = "load-based"
    is_bucket: bool = False
    uplink: str | None = None
    load: Load = Load()
    pin: str | None = None
    excluded: bool = False
    allowed: frozenset[str] | None = None

    @property
    def movable(self) -> bool:
        """Whether a policy may move it; failover always may."""
        return self.pin is None and not self.excluded


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One team at one moment: uplinks in failover order, loads as means over the window."""

    uplinks: tuple[Uplink, ...]
    units: tuple[Unit, ...]
    threshold_ratio: float = 0.75


@dataclass(frozen=True, slots=True)
class Move:
    """One unit's binding changes from `source` to `target`."""

    unit: str
    source: str
    target: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """What a planner wants; `unrelieved` names uplinks above threshold that no move helps."""

    moves: tuple[Move, ...] = ()
    unrelieved: tuple[str, ...] = ()
