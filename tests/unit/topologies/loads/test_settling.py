"""When a load has settled: after a jump, and after an uplink has failed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from topologies.loads.probing import FlowResult
from topologies.loads.settling import Reading, placed_s, settle_s
from topologies.loads.shift_load import lossless_s
from topologies.seeds.plan import highest_ratio

CAPACITY_BPS = 100_000_000
CAPACITIES = {"uplink1": CAPACITY_BPS, "uplink2": CAPACITY_BPS}
UNEQUAL = {"uplink1": CAPACITY_BPS, "uplink2": CAPACITY_BPS // 2}
EVERY_S, END = 0.01, 10.0
Step = tuple[float, float, float]


def _readings(
    *steps: Step,
    stalls: Mapping[float, float] | None = None,
    capacities: Mapping[str, int] = CAPACITIES,
) -> list[Reading]:
    """The counters of two uplinks; a step has a time, and their utilizations from then on.

    `stalls` has durations by start time. During a stall the uplinks send nothing. Afterwards they
    send the backlog at full speed.
    """
    sent, backlog, found = [0.0, 0.0], [0.0, 0.0], []
    for number in range(round(END / EVERY_S) + 1):
        at_s = number * EVERY_S
        found.append(Reading(at_s, dict(zip(capacities, map(int, sent), strict=True))))
        stalled = any(begin <= at_s < begin + s for begin, s in (stalls or {}).items())
        now = next(step[1:] for step in reversed(steps) if at_s >= step[0] - 1e-9)
        for index, (share, bps) in enumerate(zip(now, capacities.values(), strict=True)):
            most = bps / 8 * EVERY_S
            backlog[index] += share * most
            sending = 0.0 if stalled else min(backlog[index], most)
            backlog[index] -= sending
            sent[index] += sending
    return found


@pytest.mark.parametrize(
    ("steps", "stalls", "settled_after_s"),
    [
        ([(0, 1.0, 0.16), (2.5, 0.87, 0.45), (4.0, 0.62, 0.70), (5.3, 0.66, 0.66)], {}, 5.3),
        # The smallest VM moves.
        ([(0, 0.62, 0.70), (3.0, 0.66, 0.66)], {}, 3.0),
        ([(0, 0.66, 0.66)], {}, 0.0),
        ([(0, 1.0, 0.16), (0.4, 0.66, 0.66)], {2.0: 0.05, 4.0: 0.3, 5.0: 0.5}, 0.4),
        # After a short stall, the backlog of one uplink lasts longer.
        ([(0, 1.0, 0.16), (0.4, 0.8, 0.5)], {4.0: 0.02}, 0.4),
        # An uplink is full in the end.
        ([(0, 1.0, 0.16)], {}, END),
    ],
)
def test_uplinks_settle_with_the_last_change_of_the_split(
    steps: list[Step], stalls: dict[float, float], settled_after_s: float
) -> None:
    found = settle_s(_readings(*steps, stalls=stalls), CAPACITIES, 0.0, END)
    assert found == pytest.approx(settled_after_s, abs=0.03)


FAILED_S, WATCHED_S = 100.0, 8.0


def _flow(sent: int, *missing: int) -> FlowResult:
    """A flow of ten datagrams a second from the failure on, of which `missing` are lost."""
    arrivals = [(n, FAILED_S + n / 10) for n in range(sent) if n not in missing]
    return FlowResult(sent, 0.0, 0.0, arrivals)


@pytest.mark.parametrize(
    ("flows", "lossless_after_s"),
    [
        ([_flow(80)], 0.0),
        ([_flow(80, 0, 1), _flow(80), _flow(80, 4, 30)], 3.1),
        ([_flow(80, *range(20, 80))], WATCHED_S),
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
        ([(0, 0.60, 0.90), (1.0, 0.7, 0.7), (3.0, 0.95, 0.2), (4.0, 0.72, 0.66)], 4.0),
        ([(0, 0.7, 0.7), (7.5, 0.60, 0.90)], WATCHED_S),
    ],
)
def test_the_load_is_placed_once_no_uplink_exceeds_the_limit(
    steps: list[Step], placed_after_s: float
) -> None:
    readings = _readings(*steps, capacities=UNEQUAL)
    found = placed_s(readings, UNEQUAL, 0.7 * 150e6, 0.0, WATCHED_S)
    assert found == pytest.approx(placed_after_s, abs=0.03)


@pytest.mark.parametrize(
    ("until_s", "from_s", "highest"),
    [(4.7, 0.0, 0.95), (4.7, 4.7, 0.5), (4.3, 0.0, 0.5)],
    ids=["half a second", "before the span", "too short"],
)
def test_highest_ratio_is_over_all_uplinks_and_spans(
    until_s: float, from_s: float, highest: float
) -> None:
    steps = (0, 0.5, 0.3), (4.2, 0.5, 0.95), (until_s, 0.5, 0.3)
    readings = _readings(*steps, capacities=UNEQUAL)
    assert highest_ratio(readings, UNEQUAL, from_s, END) == pytest.approx(highest, abs=0.002)
    assert highest_ratio([], UNEQUAL, 0.0, END) == 0.0
