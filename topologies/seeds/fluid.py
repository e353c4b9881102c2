"""What a jump costs, were loads a fluid: nobody who decides can lose less than the perfect one.

An uplink passes on what it carries and keeps the rest in a queue; what comes while that is
full is lost. The perfect decider sees at each poll what every VM sends just then, and all
VMs are where that is best at that very moment. It does not know what is still to start.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from topologies.seeds.instance import Instance
from topologies.seeds.placing import Placement, best

POLL_S = 0.1
# When the first poll comes after the jump begins is chance: the mean over so many moments.
PHASES = 10
# As `topologies.network.shaping` makes them.
QUEUE_BYTES = 300_000


@dataclass(frozen=True, slots=True)
class Fluid:
    """What was sent and lost, in bits."""

    sent_bits: float
    lost_bits: float

    @property
    def loss_ratio(self) -> float:
        return self.lost_bits / self.sent_bits if self.sent_bits else 0.0


@dataclass(frozen=True, slots=True)
class Perfect:
    """The perfect decider's loss: in the mean over the phases of its polls, and at worst."""

    loss_ratio: float
    worst_loss_ratio: float


# Where everybody is from a time on, by what is sent then.
Placements = Sequence[tuple[float, Placement]]


def flow(
    instance: Instance, placements: Placements, watched_s: float, queue_bytes: int = QUEUE_BYTES
) -> Fluid:
    """What the jump loses from its beginning on, with everybody placed like this.

    `placements` begins at 0 or before. What is in a queue stays there when its VM moves.
    """
    starts_s = {vm.start_s for vm in instance.vms}
    moves_s = {at_s for at_s, _ in placements}
    times_s = sorted(at_s for at_s in {0.0, *starts_s, *moves_s} if 0.0 <= at_s < watched_s)
    queue_bits = queue_bytes * 8
    waiting = [0.0] * len(instance.capacities_bps)
    sent_bits = lost_bits = 0.0
    for from_s, to_s in zip(times_s, [*times_s[1:], watched_s], strict=True):
        placement = [where for at_s, where in placements if at_s <= from_s][-1]
        offered = [0.0] * len(instance.capacities_bps)
        for bps, uplink in zip(_rates(instance, from_s), placement, strict=True):
            offered[uplink] += bps
        lasts_s = to_s - from_s
        for uplink, capacity_bps in enumerate(instance.capacities_bps):
            grown = waiting[uplink] + (offered[uplink] - capacity_bps) * lasts_s
            lost_bits += max(0.0, grown - queue_bits)
            waiting[uplink] = min(max(grown, 0.0), queue_bits)
            sent_bits += offered[uplink] * lasts_s
    return Fluid(sent_bits, lost_bits)


def nobody(instance: Instance, watched_s: float) -> Fluid:
    """What the jump loses if everybody stays at home."""
    return flow(instance, [(0.0, homes(instance))], watched_s)


def perfect(instance: Instance, watched_s: float, poll_s: float = POLL_S) -> Perfect:
    """What the perfect decider loses."""
    known: dict[tuple[float, ...], Placement] = {}

    def where(now_bps: tuple[float, ...]) -> Placement:
        if now_bps not in known:
            known[now_bps] = best(now_bps, instance.capacities_bps, homes(instance))
        return known[now_bps]

    lost = [
        flow(instance, decided(instance, phase * poll_s / PHASES, poll_s, where), watched_s)
        for phase in range(PHASES)
    ]
    ratios = [one.loss_ratio for one in lost]
    return Perfect(statistics.fmean(ratios), max(ratios))


def decided(
    instance: Instance,
    first_s: float,
    poll_s: float,
    where: Callable[[tuple[float, ...]], Placement],
) -> Placements:
    """Everybody's places: at home at first, then poll by poll, until the last load is known."""
    found: list[tuple[float, Placement]] = [(0.0, homes(instance))]
    polls = 0
    while True:
        at_s = first_s + polls * poll_s
        found.append((at_s, where(_rates(instance, at_s))))
        if at_s >= instance.last_start_s:
            return found
        polls += 1


def homes(instance: Instance) -> Placement:
    """Everybody at home."""
    return tuple(vm.home for vm in instance.vms)


def _rates(instance: Instance, at_s: float) -> tuple[float, ...]:
    return tuple(vm.after_bps if vm.start_s <= at_s else vm.before_bps for vm in instance.vms)
