"""The reasons why a policy moves a unit or not, and why it moves nothing in a team."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policies.model import Move


class Standing(StrEnum):
    """The reason why a unit is, or is not, moved now.

    `MOVES`: it is moved. `NEVER`: the policy moves no units of its kind because of load. `HELD`: a
    rule prevents it. `OUT_OF_SERVICE`: its uplink carries nothing, so failover decides. `BELOW`:
    its uplink is not above the threshold. `TOO_SMALL`: it carries too little of the load
    that saturates its uplink. `NO_ROOM`: no other uplink has room for it. `NO_USE`: moving it does not
    help the team. `LATER`: another unit is moved first.
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

    `move`: the move of the unit itself or, for `LATER`, of the other unit. `expected_ratio`: the
    utilization of each other uplink that it may use if it were moved there, by name.
    """

    standing: Standing
    move: Move | None = None
    expected_ratio: Mapping[str, float] = field(default_factory=dict)


class WhyAtRest(StrEnum):
    """The reason why a policy moves nothing.

    `NEVER`: it never moves because of load. `BELOW`: no uplink is above the threshold.
    `UNRELIEVED`: an uplink is above it, and no move helps. `ALONE`: fewer than two uplinks are in
    service. `EVEN`: the uplinks differ too little for a move. `NO_GAIN`: they differ, but no unit
    has a size that helps. `NO_BETTER`: no moves would lower the worst utilization by enough.
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
    """The reason why a policy moves nothing, and the uplinks concerned, by name."""

    why: WhyAtRest
    fullest: str | None = None
    emptiest: str | None = None
    unrelieved: tuple[str, ...] = ()
