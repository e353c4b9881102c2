"""The record of one load jump: each contender's run, the control, and the lower bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topologies.compare.figures import Figures
from topologies.seeds import fluid
from topologies.seeds.instance import Instance
from topologies.seeds.placement_search import find_best, worst_ratio

JUMP, CONTROL = "jump", "control"
# The figures of a run that its record keeps.
RECORDED_FIGURES = (
    *("loss_ratio", "excess_loss_ratio", "highest_ratio", "relieved_s", "settle_s", "moves"),
    *("jump_ratio", "strangers", "sent_ratio", "reordered_ratio", "duplicated", "offered_bps"),
)


@dataclass(frozen=True, slots=True)
class LowerBounds:
    """The best that any placement and any decider can reach, and the loss without moves.

    `static_loss_ratio` is an upper bound: what is lost if no VM ever moves.
    """

    best_ratio: float
    perfect: fluid.PerfectLoss
    static_loss_ratio: float


def lower_bounds(instance: Instance, watched_s: float) -> LowerBounds:
    """Compute the bounds of a jump that is watched for `watched_s`."""
    loads = [vm.after_bps for vm in instance.vms]
    return LowerBounds(
        best_ratio=worst_ratio(
            loads, instance.capacities_bps, find_best(loads, instance.capacities_bps)
        ),
        perfect=fluid.perfect_loss(instance, watched_s),
        static_loss_ratio=fluid.simulate_static(instance, watched_s).loss_ratio,
    )


def run_figures(figures: Figures, perfect_loss_ratio: float | None) -> Figures:
    """Select a run's recorded figures, and add its loss in excess of the perfect decider's."""
    found = dict(figures)
    if perfect_loss_ratio is not None:
        found["excess_loss_ratio"] = figures["loss_ratio"] - perfect_loss_ratio
    return {name: found[name] for name in RECORDED_FIGURES if name in found}


def new_record(
    instance: Instance, watched_s: float, bounds: LowerBounds, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The record of a jump before any run. Only runs with equal `settings` are comparable."""
    return {
        "instance": instance.as_json(),
        "settings": dict(settings),
        "watched_s": watched_s,
        "best_ratio": bounds.best_ratio,
        "jump_ratio": max(instance.home_utilizations()),
        "offered_bps": instance.offered_bps,
        "last_start_s": instance.last_start_s,
        "perfect": {
            "loss_ratio": bounds.perfect.loss_ratio,
            "worst_loss_ratio": bounds.perfect.worst_loss_ratio,
        },
        "nobody": {"loss_ratio": bounds.static_loss_ratio},
        JUMP: {},
        CONTROL: {},
        "failures": [],
    }
