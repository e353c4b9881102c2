"""What a VM port exchanges with uplinks at this moment, where flows are counted late."""

from __future__ import annotations

import pytest

from controller.load.rates import Total
from controller.load.uplink_share import UplinkShare
from policies.model import Load

MBIT = 125_000
POLL_S = 0.5


def after(carried: list[tuple[float, float]]) -> UplinkShare:
    """Of each half second: Mbit/s that the port sends, and that cross uplinks, counted late."""
    crossing, port, flows, late = UplinkShare(), 0, 0, 0
    for i, (sent, crossed) in enumerate(carried):
        port += int(sent * MBIT * POLL_S)
        flows, late = flows + late, int(crossed * MBIT * POLL_S)
        crossing.take_totals(Total(i * POLL_S, port, 0), Total(i * POLL_S, flows, 0))
    return crossing


def crossing_mbps(carried: list[tuple[float, float]], now: float) -> float:
    return after(carried).share_of(Load(tx_bps=now * 1e6)).tx_bps / 1e6


def test_all_of_a_constant_load_crosses() -> None:
    assert crossing_mbps([(10, 10)] * 12, 10) == 10


@pytest.mark.parametrize("jump", [0.001, 1, 5, 9.9])
def test_all_of_a_load_that_jumps_crosses_at_once(jump: float) -> None:
    before = [(jump, jump)] * 12
    assert crossing_mbps(before, 10) == pytest.approx(10)
    for _ in range(12):
        before.append((10, 10))
        assert crossing_mbps(before, 10) == pytest.approx(10)


def test_all_of_a_load_that_falls_crosses() -> None:
    before = [(10.0, 10.0)] * 12
    for _ in range(12):
        before.append((1, 1))
        assert crossing_mbps(before, 1) == pytest.approx(1)


def test_what_goes_to_neighbours_does_not() -> None:
    assert crossing_mbps([(10, 0)] * 12, 10) == 0
    assert crossing_mbps([(10, 5)] * 12, 10) == pytest.approx(5, rel=0.15)


def test_nothing_is_known_at_first_or_after_counters_began_anew() -> None:
    assert crossing_mbps([(10, 10)] * 2, 10) == 0
    crossing = after([(10, 10)] * 12)
    crossing.take_totals(Total(7.0, 100, 0), Total(7.0, 0, 0))
    assert crossing.share_of(Load(tx_bps=1e6)) == Load()
