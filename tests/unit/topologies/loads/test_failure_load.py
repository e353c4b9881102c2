"""A failed uplink: when the loss ends, and when the other uplinks share the load well."""

from __future__ import annotations

import pytest

from topologies.loads.failure_load import lossless_s, placed_s
from topologies.loads.probing import FlowResult
from topologies.loads.settling import Reading

CAPACITIES = {"uplink1": 100_000_000, "uplink2": 50_000_000}
FAILED_S, WATCHED_S, EVERY_S = 100.0, 8.0, 0.01


def flow(sent: int, *missing: int) -> FlowResult:
    """A flow of ten datagrams a second from the failure on, of which `missing` are lost."""
    arrivals = [(n, FAILED_S + n / 10) for n in range(sent) if n not in missing]
    return FlowResult(sent, 0.0, 0.0, arrivals)


def readings(*steps: tuple[float, float, float]) -> list[Reading]:
    """The counters of uplinks; a step has a time and the uplinks' utilizations from then on."""
    sent, found = [0.0, 0.0], []
    for number in range(round(WATCHED_S / EVERY_S) + 1):
        at_s = number * EVERY_S
        found.append(Reading(at_s, {"uplink1": int(sent[0]), "uplink2": int(sent[1])}))
        shares = next(step[1:] for step in reversed(steps) if at_s >= step[0] - 1e-9)
        for index, (share, bps) in enumerate(zip(shares, CAPACITIES.values(), strict=True)):
            sent[index] += share * bps / 8 * EVERY_S
    return found


@pytest.mark.parametrize(
    ("flows", "lossless_after_s"),
    [
        ([flow(80)], 0.0),
        ([flow(80, 0, 1, 2)], 0.3),
        ([flow(80, 0, 1), flow(80), flow(80, 4, 30)], 3.1),
        ([flow(80, *range(20, 80))], WATCHED_S),
        ([flow(80, *range(80))], WATCHED_S),
    ],
)
def test_loss_ends_with_the_first_datagram_after_the_last_lost_one(
    flows: list[FlowResult], lossless_after_s: float
) -> None:
    assert lossless_s(flows, FAILED_S, WATCHED_S) == pytest.approx(lossless_after_s)


@pytest.mark.parametrize(
    ("steps", "placed_after_s"),
    [
        ([(0, 0.70, 0.70)], 0.0),
        ([(0, 0.60, 0.90), (2.5, 0.72, 0.66)], 2.5),
        ([(0, 0.60, 0.90), (1.0, 0.7, 0.7), (3.0, 0.95, 0.2), (4.0, 0.7, 0.7)], 4.0),
        ([(0, 0.60, 0.90)], WATCHED_S),
        ([(0, 0.7, 0.7), (7.5, 0.60, 0.90)], WATCHED_S),
    ],
)
def test_the_load_is_placed_once_no_uplink_exceeds_the_limit(
    steps: list[tuple[float, float, float]], placed_after_s: float
) -> None:
    found = placed_s(readings(*steps), CAPACITIES, 0.7 * 150e6, 0.0, WATCHED_S)
    assert found == pytest.approx(placed_after_s, abs=0.03)
