"""A fluid model of a load jump, which gives the loss of a perfect decider as a lower bound.

An uplink forwards at its capacity and queues the excess. Traffic that arrives while the queue is
full is lost. At each poll, the perfect decider sees what every VM sends at that moment, and moves
all VMs to the best placement at once. It does not know which loads are still to start.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence

from topologies.network.shaping import QUEUE_BYTES
from topologies.seeds.jumps import Jump, Placement, find_best

POLL_S = 0.1
# The time between the jump and the first poll is random, so the loss is a mean over this many
# evenly spaced phases of the poll interval.
PHASES = 10

Rates = tuple[float, ...]
# Placements, each with the time from which it applies.
Schedule = Sequence[tuple[float, Placement]]


def loss_ratio(jump: Jump, placements: Schedule, watched_s: float) -> float:
    """The share of the traffic of a jump that is lost, with the VMs placed by `placements`.

    `placements` begins at 0 or before. When a VM moves, its queued traffic stays in the old queue.
    """
    changes_s = {0.0, *(vm.start_s for vm in jump.vms), *(at_s for at_s, _ in placements)}
    times_s = sorted(at_s for at_s in changes_s if 0.0 <= at_s < watched_s)
    queue_bits = QUEUE_BYTES * 8
    queued_bits = [0.0] * len(jump.capacities_bps)
    sent_bits = lost_bits = 0.0
    for from_s, to_s in zip(times_s, [*times_s[1:], watched_s], strict=True):
        placement = [placement for at_s, placement in placements if at_s <= from_s][-1]
        offered_bps = [0.0] * len(jump.capacities_bps)
        for bps, uplink in zip(_rates_bps(jump, from_s), placement, strict=True):
            offered_bps[uplink] += bps
        duration_s = to_s - from_s
        for uplink, capacity_bps in enumerate(jump.capacities_bps):
            grown = queued_bits[uplink] + (offered_bps[uplink] - capacity_bps) * duration_s
            lost_bits += max(0.0, grown - queue_bits)
            queued_bits[uplink] = min(max(grown, 0.0), queue_bits)
            sent_bits += offered_bps[uplink] * duration_s
    return lost_bits / sent_bits if sent_bits else 0.0


@functools.cache
def perfect_loss_ratio(jump: Jump, watched_s: float, poll_s: float = POLL_S) -> float:
    """The perfect decider's loss: the mean over the phases of its polls."""

    @functools.cache
    def place(rates_bps: Rates) -> Placement:
        return find_best(rates_bps, jump.capacities_bps, jump.homes)

    return statistics.fmean(
        loss_ratio(jump, schedule(jump, phase * poll_s / PHASES, poll_s, place), watched_s)
        for phase in range(PHASES)
    )


def schedule(
    jump: Jump, first_poll_s: float, poll_s: float, place: Callable[[Rates], Placement]
) -> Schedule:
    """The home placement, then the placement of each poll until all loads have started."""
    found: list[tuple[float, Placement]] = [(0.0, jump.homes)]
    at_s, polls = 0.0, 0
    while polls == 0 or at_s < jump.last_start_s:
        at_s = first_poll_s + polls * poll_s
        found.append((at_s, place(_rates_bps(jump, at_s))))
        polls += 1
    return found


def _rates_bps(jump: Jump, at_s: float) -> Rates:
    return tuple(vm.after_bps if vm.start_s <= at_s else vm.before_bps for vm in jump.vms)
