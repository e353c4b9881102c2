"""What came of one jump: every contender's run, the control, and what a perfect decider loses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topologies.compare.figures import Figures
from topologies.seeds import fluid
from topologies.seeds.instance import Instance
from topologies.seeds.placing import best, worst_ratio

JUMP, CONTROL = "jump", "control"
# Of what is measured, what is told of each run.
TOLD = (
    *("loss_ratio", "excess_loss_ratio", "highest_ratio", "relieved_s", "settle_s", "moves"),
    *("jump_ratio", "strangers", "sent_ratio", "reordered_ratio", "duplicated", "offered_bps"),
)


@dataclass(frozen=True, slots=True)
class Bound:
    """What no placement and no decider is better than."""

    best_ratio: float
    perfect: fluid.Perfect
    nobody_loss_ratio: float


def bound(instance: Instance, watched_s: float) -> Bound:
    """The bound of a jump that is watched for so long."""
    loads = [vm.after_bps for vm in instance.vms]
    return Bound(
        best_ratio=worst_ratio(
            loads, instance.capacities_bps, best(loads, instance.capacities_bps)
        ),
        perfect=fluid.perfect(instance, watched_s),
        nobody_loss_ratio=fluid.nobody(instance, watched_s).loss_ratio,
    )


def told(figures: Figures, perfect_loss_ratio: float | None) -> Figures:
    """A run's figures, with what it lost more than the perfect decider."""
    found = dict(figures)
    if perfect_loss_ratio is not None:
        found["excess_loss_ratio"] = figures["loss_ratio"] - perfect_loss_ratio
    return {name: found[name] for name in TOLD if name in found}


def record(
    instance: Instance, watched_s: float, bounds: Bound, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The record of a jump before any run; `settings` are what makes runs compare."""
    return {
        "instance": instance.as_json(),
        "settings": dict(settings),
        "watched_s": watched_s,
        "best_ratio": bounds.best_ratio,
        "jump_ratio": max(instance.used_ratios()),
        "offered_bps": instance.offered_bps,
        "last_start_s": instance.last_start_s,
        "perfect": {
            "loss_ratio": bounds.perfect.loss_ratio,
            "worst_loss_ratio": bounds.perfect.worst_loss_ratio,
        },
        "nobody": {"loss_ratio": bounds.nobody_loss_ratio},
        JUMP: {},
        CONTROL: {},
        "failures": [],
    }


def resumable(
    found: Mapping[str, Any], instance: Instance, settings: Mapping[str, Any], wanted: set[str]
) -> bool:
    """Whether a record is of this jump, made alike, and has every run that is wanted."""
    try:
        has = {f"{kind} {name}" for kind in (JUMP, CONTROL) for name in found[kind]}
        return (
            found["instance"] == instance.as_json()
            and found["settings"] == dict(settings)
            and not found["failures"]
            and wanted <= has
        )
    except (KeyError, TypeError):
        return False
