"""A fluid model of a load jump, which gives the loss of a perfect decider as a lower bound.

An uplink forwards at its capacity and queues the excess. Traffic that arrives while the queue is
full is lost. At each poll, the perfect decider sees what every VM sends at that moment, and moves
all VMs to the best placement at once. It does not know which loads are still to start.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topologies.seeds.instance import Instance
from topologies.seeds.placement_search import Placement, find_best

POLL_S = 0.1
# The time between the jump and the first poll is random, so the loss is a mean over this many
# evenly spaced phases of the poll interval.
PHASES = 10
# The queue size that `topologies.network.shaping` sets.
QUEUE_BYTES = 300_000


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic that was sent and lost, in bits."""

    sent_bits: float
    lost_bits: float

    @property
    def loss_ratio(self) -> float:
        return self.lost_bits / self.sent_bits if self.sent_bits else 0.0


@dataclass(frozen=True, slots=True)
class PerfectLoss:
    """The perfect decider's loss: the mean over the phases of its polls, and the worst phase."""

    loss_ratio: float
    worst_loss_ratio: float


# Placements, each with the time from which it applies.
Schedule = Sequence[tuple[float, Placement]]


def simulate(
    instance: Instance, placements: Schedule, watched_s: float, queue_bytes: int = QUEUE_BYTES
) -> Traffic:
    """Simulate a jump from its beginning, with the VMs placed by `placements`.

    `placements` begins at 0 or before. When a VM moves, its queued traffic stays in the old queue.
    """
    starts_s = {vm.start_s for vm in instance.vms}
    moves_s = {at_s for at_s, _ in placements}
    times_s = sorted(at_s for at_s in {0.0, *starts_s, *moves_s} if 0.0 <= at_s < watched_s)
    queue_bits = queue_bytes * 8
    queued_bits = [0.0] * len(instance.capacities_bps)
    sent_bits = lost_bits = 0.0
    for from_s, to_s in zip(times_s, [*times_s[1:], watched_s], strict=True):
        placement = [placement for at_s, placement in placements if at_s <= from_s][-1]
        offered_bps = [0.0] * len(instance.capacities_bps)
        for bps, uplink in zip(_rates_bps(instance, from_s), placement, strict=True):
            offered_bps[uplink] += bps
        duration_s = to_s - from_s
        for uplink, capacity_bps in enumerate(instance.capacities_bps):
            grown = queued_bits[uplink] + (offered_bps[uplink] - capacity_bps) * duration_s
            lost_bits += max(0.0, grown - queue_bits)
            queued_bits[uplink] = min(max(grown, 0.0), queue_bits)
            sent_bits += offered_bps[uplink] * duration_s
    return Traffic(sent_bits, lost_bits)


def simulate_static(instance: Instance, watched_s: float) -> Traffic:
    """Simulate a jump in which no VM moves."""
    return simulate(instance, [(0.0, home_placement(instance))], watched_s)


def perfect_loss(instance: Instance, watched_s: float, poll_s: float = POLL_S) -> PerfectLoss:
    """Compute the perfect decider's loss."""
    cache: dict[tuple[float, ...], Placement] = {}

    def place(rates_bps: tuple[float, ...]) -> Placement:
        if rates_bps not in cache:
            cache[rates_bps] = find_best(
                rates_bps, instance.capacities_bps, home_placement(instance)
            )
        return cache[rates_bps]

    ratios = [
        simulate(
            instance, schedule(instance, phase * poll_s / PHASES, poll_s, place), watched_s
        ).loss_ratio
        for phase in range(PHASES)
    ]
    return PerfectLoss(statistics.fmean(ratios), max(ratios))


def schedule(
    instance: Instance,
    first_poll_s: float,
    poll_s: float,
    place: Callable[[tuple[float, ...]], Placement],
) -> Schedule:
    """The home placement, then the placement of each poll until all loads have started."""
    found: list[tuple[float, Placement]] = [(0.0, home_placement(instance))]
    polls = 0
    while True:
        at_s = first_poll_s + polls * poll_s
        found.append((at_s, place(_rates_bps(instance, at_s))))
        if at_s >= instance.last_start_s:
            return found
        polls += 1


def home_placement(instance: Instance) -> Placement:
    """The placement before the jump: every VM on its home uplink."""
    return tuple(vm.home for vm in instance.vms)


def _rates_bps(instance: Instance, at_s: float) -> tuple[float, ...]:
    return tuple(vm.after_bps if vm.start_s <= at_s else vm.before_bps for vm in instance.vms)
