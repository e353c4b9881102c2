"""An uplink that fails: from when on nothing is lost, and the rest is used as it should be."""

from __future__ import annotations

import pytest

from topologies.loads.failure_load import lossless_s, placed_s
from topologies.loads.probing import Heard
from topologies.loads.settling import Reading

CAPACITIES = {"uplink1": 100_000_000, "uplink2": 50_000_000}
FAILED_S, WATCHED_S, EVERY_S = 100.0, 8.0, 0.01


def heard(sent: int, *missing: int) -> Heard:
    """A flow of ten datagrams a second since the failure; these never came."""
    arrivals = [(n, FAILED_S + n / 10) for n in range(sent) if n not in missing]
    return Heard(sent, 0.0, 0.0, arrivals)


def readings(*steps: tuple[float, float, float]) -> list[Reading]:
    """Counters of uplinks that carry these shares of their capacities from a time on."""
    sent, found = [0.0, 0.0], []
    for number in range(round(WATCHED_S / EVERY_S) + 1):
        at_s = number * EVERY_S
        found.append(Reading(at_s, {"uplink1": int(sent[0]), "uplink2": int(sent[1])}))
        shares = next(step[1:] for step in reversed(steps) if at_s >= step[0] - 1e-9)
        for index, (share, bps) in enumerate(zip(shares, CAPACITIES.values(), strict=True)):
            sent[index] += share * bps / 8 * EVERY_S
    return found


@pytest.mark.parametrize(
    ("flows", "over_s"),
    [
        ([heard(80)], 0.0),
        ([heard(80, 0, 1, 2)], 0.3),
        ([heard(80, 0, 1), heard(80), heard(80, 4, 30)], 3.1),
        ([heard(80, *range(20, 80))], WATCHED_S),
        ([heard(80, *range(80))], WATCHED_S),
    ],
)
def test_loss_is_over_with_the_first_datagram_behind_the_last_lost_one(
    flows: list[Heard], over_s: float
) -> None:
    assert lossless_s(flows, FAILED_S, WATCHED_S) == pytest.approx(over_s)


@pytest.mark.parametrize(
    ("steps", "after_s"),
    [
        ([(0, 0.70, 0.70)], 0.0),
        ([(0, 0.60, 0.90), (2.5, 0.72, 0.66)], 2.5),
        ([(0, 0.60, 0.90), (1.0, 0.7, 0.7), (3.0, 0.95, 0.2), (4.0, 0.7, 0.7)], 4.0),
        ([(0, 0.60, 0.90)], WATCHED_S),
        ([(0, 0.7, 0.7), (7.5, 0.60, 0.90)], WATCHED_S),
    ],
)
def test_a_rest_is_well_used_once_no_uplink_is_above_the_limit_any_more(
    steps: list[tuple[float, float, float]], after_s: float
) -> None:
    found = placed_s(readings(*steps), CAPACITIES, 0.7 * 150e6, 0.0, WATCHED_S)
    assert found == pytest.approx(after_s, abs=0.03)
