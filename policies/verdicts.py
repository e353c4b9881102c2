"""The reasons why a policy does or does not move a unit, and why it moves no units of a team."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policies.model import Move


class Standing(StrEnum):
    """The reason why a unit is, or is not, moved now.

    `MOVES`: the unit is moved. `NEVER`: the policy never balances such units. `HELD`: a rule
    prevents the move. `OUT_OF_SERVICE`: the uplink carries nothing, so failover decides. `BELOW`:
    the uplink is not above the threshold. `TOO_SMALL`: the unit carries too little of the load that
    saturates the uplink. `NO_ROOM`: no other uplink has room for the unit. `NO_USE`: a move of the
    unit would not help the team. `LATER`: another unit is moved first.
    """

    MOVES = "moves"
    NEVER = "never-by-load"
    HELD = "held-by-rule"
    OUT_OF_SERVICE = "uplink-out-of-service"
    BELOW = "below-threshold"
    TOO_SMALL = "too-small"
    NO_ROOM = "no-room"
    NO_USE = "no-use"
    LATER = "another-first"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A policy's verdict on a unit.

    `move`: the move of the unit itself or, for `LATER`, of the other unit. `expected_ratio`: for
    each other uplink that the unit can use, by name, the utilization if the unit moved there.
    """

    standing: Standing
    move: Move | None = None
    expected_ratio: Mapping[str, float] = field(default_factory=dict)


class WhyAtRest(StrEnum):
    """The reason why a policy moves nothing.

    `NEVER`: the policy never moves units to balance load. `BELOW`: no uplink is above the
    threshold. `UNRELIEVED`: no move relieves the uplinks above it. `ALONE`: fewer than two uplinks
    are in service. `EVEN`: uplinks differ too little for a move. `NO_GAIN`: uplinks differ, but no
    unit has a size that helps. `NO_BETTER`: no moves would lower the worst utilization by enough.
    """

    NEVER = "never-by-load"
    BELOW = "below-threshold"
    UNRELIEVED = "unrelieved"
    ALONE = "one-uplink"
    EVEN = "even"
    NO_GAIN = "no-gain"
    NO_BETTER = "no-better"


@dataclass(frozen=True, slots=True)
class Rest:
    """The reason why a policy moves nothing, and the names of the uplinks concerned."""

    why: WhyAtRest
    fullest: str | None = None
    emptiest: str | None = None
    unrelieved: tuple[str, ...] = ()
