"""What a policy says where it moves nothing, or something else: of one unit, and of a team."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policies.model import Move


class Standing(StrEnum):
    """What stands against moving a unit now.

    `MOVES`: nothing does, it is moved. `NEVER`: the policy moves nothing of its kind by load.
    `HELD`: a rule. `OUT_OF_SERVICE`: its uplink carries nothing, and failover has the word.
    `BELOW`: its uplink is not above the threshold. `TOO_SMALL`: it has too little of what
    saturates its uplink. `NO_ROOM`: no other uplink could take it. `NO_USE`: the team would not
    gain by it. `LATER`: another is moved first.
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
    """What a policy says of a unit.

    `move`: the one that is made, of the unit itself or, where it is `LATER`, of the other.
    `expected_ratio`: how full the other uplinks that it may use would be with it, by name.
    """

    standing: Standing
    move: Move | None = None
    expected_ratio: Mapping[str, float] = field(default_factory=dict)


class Resting(StrEnum):
    """Why a policy moves nothing.

    `NEVER`: it never does by load. `BELOW`: no uplink is above the threshold. `UNRELIEVED`: one
    is, and no move helps. `ALONE`: there are not two uplinks to choose from. `EVEN`: they differ
    by less than is worth a move. `NO_GAIN`: they differ, and no unit is of a size that helps. `NO_BETTER`: no moves would
    lower the worst utilization by enough.
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
    """Why a policy moves nothing, and the uplinks that it looks at, by name."""

    resting: Resting
    fullest: str | None = None
    emptiest: str | None = None
    unrelieved: tuple[str, ...] = ()
