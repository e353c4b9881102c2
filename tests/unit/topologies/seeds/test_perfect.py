"""The lower bounds of a load jump: the best placement, and the perfect decider's loss."""

from __future__ import annotations

import itertools
import random

import pytest

from topologies.seeds import perfect
from topologies.seeds.jumps import (
    TOLERANCE_RATIO,
    Jump,
    Vm,
    find_below,
    find_best,
    lower_bound_ratio,
    worst_ratio,
)

MBPS = 1e6
Case = tuple[list[float], list[float]]


def _cases(count: int) -> list[Case]:
    drawn = random.Random(7)
    return [
        (
            [drawn.lognormvariate(2.0, 1.0) for _ in range(drawn.randint(1, 7))],
            [float(drawn.choice((20, 50, 100))) for _ in range(drawn.randint(2, 4))],
        )
        for _ in range(count)
    ]


def _brute(loads: list[float], capacities: list[float]) -> float:
    every = itertools.product(range(len(capacities)), repeat=len(loads))
    return min(worst_ratio(loads, capacities, placement) for placement in every)


@pytest.mark.parametrize(("loads", "capacities"), _cases(60))
def test_search_matches_brute_force(loads: list[float], capacities: list[float]) -> None:
    optimum = _brute(loads, capacities)
    found = worst_ratio(loads, capacities, find_best(loads, capacities))
    near = lower_bound_ratio(loads, capacities) * (1 + TOLERANCE_RATIO)
    assert optimum - 1e-9 <= found <= max(optimum, near) + 1e-9
    assert lower_bound_ratio(loads, capacities) <= optimum + 1e-9
    assert find_below(loads, capacities, optimum - 1e-6) is None
    placed = find_below(loads, capacities, optimum + 1e-6)
    assert placed is not None
    assert worst_ratio(loads, capacities, placed) < optimum + 1e-6


# Two uplinks of 100 Mbit/s with queues of 300 kB, which is 2.4 Mbit. An overload of 20 Mbit/s fills
# a queue in 120 ms.
def _jump(*vms: Vm, capacities_mbps: tuple[int, ...] = (100, 100)) -> Jump:
    return Jump("x", tuple(mbps * 10**6 for mbps in capacities_mbps), vms)


OVERLOAD = (Vm(0, 0.0, 80 * MBPS, 0.0), Vm(0, 0.0, 40 * MBPS, 0.0))


@pytest.mark.parametrize(
    ("placements", "watched_s", "lost_mbit"),
    [
        # For 10 s, of which the queue still holds 2.4 Mbit at the end.
        ([(0.0, (0, 0))], 10.0, 197.6),
        # The queue is not full before the second VM moves, or for 50 ms.
        ([(0.0, (0, 0)), (0.12, (0, 1))], 10.0, 0.0),
        ([(0.0, (0, 0)), (0.17, (0, 1))], 10.0, 0.05 * 20),
        # The queue is full at 0.12 s. It drains at 60 Mbit/s for 20 ms until the VM returns: 1.2 Mbit,
        # which an overload for 60 ms adds again.
        ([(0.0, (0, 0)), (0.12, (1, 0)), (0.14, (0, 0))], 0.2, 0.0),
        ([(0.0, (0, 0)), (0.12, (1, 0)), (0.14, (0, 0))], 0.3, 0.1 * 20),
        # What is lost in 80 ms is not queued.
        ([(0.0, (0, 0)), (0.2, (1, 0)), (0.22, (0, 0))], 0.25, 0.08 * 20),
    ],
)
def test_only_a_full_queue_drops_traffic(
    placements: list[tuple[float, tuple[int, int]]], watched_s: float, lost_mbit: float
) -> None:
    found = perfect.loss_ratio(_jump(*OVERLOAD), placements, watched_s)
    assert found * 120 * watched_s == pytest.approx(lost_mbit, abs=1e-9)


def test_perfect_decider_is_delayed_only_by_its_polls() -> None:
    # An overload of 80 Mbit/s fills the queue in 30 ms; the poll is 0 to 90 ms after the start.
    jump = _jump(Vm(0, 0.0, 90 * MBPS, 0.0), Vm(0, 0.0, 90 * MBPS, 0.0))
    found = perfect.perfect_loss_ratio(jump, watched_s=10.0)
    lost = [max(0.0, phase * 0.01 - 0.03) * 80 for phase in range(10)]
    assert found == pytest.approx(sum(lost) / 10 / 1800)


def test_perfect_decider_does_not_know_future_loads() -> None:
    # At the first poll, only the first VM sends. The second starts on the same uplink after it.
    jump = _jump(
        Vm(0, 0.0, 70 * MBPS, 0.0),
        Vm(0, 0.0, 70 * MBPS, 0.01),
        capacities_mbps=(100, 80),
    )
    asked: list[tuple[float, ...]] = []

    def place(now_bps: tuple[float, ...]) -> tuple[int, ...]:
        asked.append(now_bps)
        return jump.homes

    decided = perfect.schedule(jump, 0.0, 0.1, place)
    assert [at_s for at_s, _ in decided] == [0.0, 0.0, 0.1]
    assert asked == [(70 * MBPS, 0.0), (70 * MBPS, 70 * MBPS)]
