"""What nobody is better than: the best placement, and a decider that knows all loads."""

from __future__ import annotations

import itertools
import random

import pytest

from topologies.seeds import fluid
from topologies.seeds.instance import Instance, Vm
from topologies.seeds.placing import NEAR_ENOUGH, best, fitting, fluid_ratio, worst_ratio

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
def test_the_search_is_as_good_as_trying_everything(
    loads: list[float], capacities: list[float]
) -> None:
    optimum = _brute(loads, capacities)
    found = worst_ratio(loads, capacities, best(loads, capacities))
    near = fluid_ratio(loads, capacities) * (1 + NEAR_ENOUGH)
    assert optimum - 1e-9 <= found <= max(optimum, near) + 1e-9
    assert fluid_ratio(loads, capacities) <= optimum + 1e-9
    assert fitting(loads, capacities, optimum - 1e-6) is None
    placed = fitting(loads, capacities, optimum + 1e-6)
    assert placed is not None
    assert worst_ratio(loads, capacities, placed) < optimum + 1e-6


def test_exactly_at_the_limit_is_not_below_it() -> None:
    assert fitting([50.0, 50.0], [100.0, 100.0], 0.5) is None
    assert fitting([50.0, 50.0], [100.0, 100.0], 0.51) is not None


def test_of_equals_home_is_taken() -> None:
    assert best([50.0, 10.0], [100.0, 100.0], [1, 0]) == (1, 0)
    assert best([50.0, 10.0], [100.0, 100.0], [0, 1]) == (0, 1)


# Two uplinks of 100 Mbit/s and a queue of 300 kB, which is 2.4 Mbit: 20 Mbit/s too much fill it
# in 120 ms.
def _jump(*vms: Vm, capacities_mbps: tuple[int, ...] = (100, 100)) -> Instance:
    return Instance("x", tuple(mbps * 10**6 for mbps in capacities_mbps), vms)


TOO_MUCH = (Vm(0, 0.0, 80 * MBPS, 0.0), Vm(0, 0.0, 40 * MBPS, 0.0))


def test_what_comes_while_a_queue_is_full_is_lost() -> None:
    found = fluid.nobody(_jump(*TOO_MUCH), watched_s=10.0)
    assert found.sent_bits == pytest.approx(1200 * MBPS)
    # 20 Mbit/s too much for 10 s, of which 2.4 Mbit are in the queue in the end.
    assert found.lost_bits == pytest.approx(200 * MBPS - 2.4 * MBPS)
    assert found.loss_ratio == pytest.approx(197.6 / 1200)


def test_a_queue_that_does_not_fill_loses_nothing() -> None:
    found = fluid.flow(_jump(*TOO_MUCH), [(0.0, (0, 0)), (0.12, (0, 1))], 10.0)
    assert found.lost_bits == pytest.approx(0.0)
    later = fluid.flow(_jump(*TOO_MUCH), [(0.0, (0, 0)), (0.17, (0, 1))], 10.0)
    assert later.lost_bits == pytest.approx(0.05 * 20 * MBPS)


def test_a_queue_empties_as_fast_as_there_is_room() -> None:
    # Full at 0.12 s, then 40 Mbit/s of room for 30 ms: half of it is empty again when the VM returns.
    placements = [(0.0, (0, 0)), (0.12, (1, 0)), (0.14, (0, 0))]
    found = fluid.flow(_jump(*TOO_MUCH), placements, 0.2)
    # Out: 60 Mbit/s of room for 20 ms, 1.2 Mbit. In again: 20 Mbit/s for 60 ms, 1.2 Mbit.
    assert found.lost_bits == pytest.approx(0.0)
    found = fluid.flow(_jump(*TOO_MUCH), placements, 0.3)
    assert found.lost_bits == pytest.approx(0.1 * 20 * MBPS)


def test_loads_count_from_their_own_start_on() -> None:
    later = _jump(Vm(0, 0.0, 80 * MBPS, 0.0), Vm(0, 10 * MBPS, 40 * MBPS, 0.1))
    found = fluid.nobody(later, watched_s=1.0)
    assert found.sent_bits == pytest.approx((80 + 10 * 0.1 + 40 * 0.9) * MBPS)
    assert found.lost_bits == pytest.approx((20 * 0.9 - 2.4) * MBPS)


def test_without_a_load_nothing_is_lost() -> None:
    assert fluid.nobody(_jump(Vm(0, 0.0, 0.0, 0.0)), 1.0).loss_ratio == 0.0


def test_the_perfect_decider_is_late_by_its_polls_only() -> None:
    # 80 Mbit/s too much: the queue is full after 30 ms, and the poll comes 0 to 90 ms after the start.
    jump = _jump(Vm(0, 0.0, 90 * MBPS, 0.0), Vm(0, 0.0, 90 * MBPS, 0.0))
    found = fluid.perfect(jump, watched_s=10.0)
    lost = [max(0.0, phase * 0.01 - 0.03) * 80 for phase in range(10)]
    assert found.worst_loss_ratio == pytest.approx(max(lost) / 1800)
    assert found.loss_ratio == pytest.approx(sum(lost) / 10 / 1800)


def test_the_perfect_decider_does_not_know_what_is_still_to_start() -> None:
    # At the first poll only the first VM sends. The other two start after it on its uplink.
    jump = _jump(
        Vm(0, 0.0, 70 * MBPS, 0.0),
        Vm(0, 0.0, 70 * MBPS, 0.01),
        capacities_mbps=(100, 80),
    )
    asked: list[tuple[float, ...]] = []

    def where(now_bps: tuple[float, ...]) -> tuple[int, ...]:
        asked.append(now_bps)
        return fluid.homes(jump)

    decided = fluid.decided(jump, 0.0, 0.1, where)
    assert [at_s for at_s, _ in decided] == [0.0, 0.0, 0.1]
    assert asked == [(70 * MBPS, 0.0), (70 * MBPS, 70 * MBPS)]


def test_the_perfect_decider_needs_no_poll_after_the_last_start() -> None:
    jump = _jump(Vm(0, 0.0, 70 * MBPS, 0.0), Vm(0, 0.0, 20 * MBPS, 0.2))
    decided = fluid.decided(jump, 0.05, 0.1, lambda _: fluid.homes(jump))
    assert [at_s for at_s, _ in decided] == pytest.approx([0.0, 0.05, 0.15, 0.25])
