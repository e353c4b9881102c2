"""Flows that are counted later than ever: waited for, and never taken for small loads."""

from __future__ import annotations

import pytest

from controller.load.lateness import MOST_LATE_S, Lateness
from controller.load.rates import Total
from tests.unit.controller.load.counted_late import counted_late, vms
from tests.unit.fake_switch import Rate, moves

UPLINK = 1
RATE_BPS = 80e6
WINDOW_S = 2.0


class Read:
    """Readings of one uplink and the flows that leave by it, every half second."""

    def __init__(self) -> None:
        self.lateness, self._clock_s, self._carried, self._counted = Lateness(), 100.0, 0.0, 0.0
        self.read(0.0)

    def read(self, seconds: float, bps: float = RATE_BPS, counts: bool = True) -> Read:
        for _ in range(max(1, round(seconds / 0.5))):
            self._clock_s += 0.5 if seconds else 0.0
            self._carried += bps / 8 * 0.5 if seconds else 0.0
            counted = self._carried - self._counted if counts else 0.0
            self._counted += counted
            now = {UPLINK: Total(self._clock_s, int(self._carried), 0)}
            self.lateness.take_reading(now, int(counted), WINDOW_S + 2.0 + self.lateness.more_s)
        return self

    @property
    def times(self) -> tuple[float, float] | None:
        return self.lateness.times(WINDOW_S)


def test_a_window_is_a_window_while_flows_count_on() -> None:
    assert Read().read(10.0).times == (WINDOW_S, 0.0)


def test_it_ends_when_flows_stood_still_and_is_whole_again_after_they_made_up_for_it() -> None:
    read = Read().read(5.0)
    assert read.read(1.0, counts=False).times == (WINDOW_S, 0.0), "as late as ever"
    assert read.read(2.0, counts=False).times == (WINDOW_S, 3.0)
    assert read.read(0.5).times == (WINDOW_S, 3.5), "more may follow"
    assert read.read(0.5).times == (4.0, 0.0), "from where they stood still"
    assert read.read(4.0).times == (WINDOW_S, 0.0)
    read.read(6.0)
    assert read.lateness.more_s == 0.0


def test_nothing_is_waited_for_while_nothing_is_carried() -> None:
    read = Read().read(2.0).read(5.0, bps=10_000, counts=False)
    assert read.times == (WINDOW_S, 0.0)
    assert read.read(0.5, counts=False).read(0.5).times == (WINDOW_S, 0.0)


def test_what_is_others_is_not_waited_for_for_ever() -> None:
    read = Read().read(2.0).read(MOST_LATE_S + 4.0, counts=False)
    assert read.times == (WINDOW_S, 0.0)
    assert Lateness.times(read.lateness, 60.0) is None, "of before and of now"


def test_who_was_idle_beside_others_made_up_for_nothing() -> None:
    read = Read().read(2.0)
    lateness = read.read(6.0, counts=False).lateness
    now = {UPLINK: Total(109.0, int(RATE_BPS / 8 * 8.5) + 1, 0)}
    lateness.take_reading(now, int(0.3 * RATE_BPS / 8), 30.0)
    assert lateness.times(WINDOW_S) == (WINDOW_S, 0.0)


# ---- load-based, where the switch does not update its flows for a while -----------------------


def from_s(begin_s: float, mbps: float) -> Rate:
    return lambda now_s: mbps if now_s >= begin_s else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("window_s", [2, 5])
@pytest.mark.parametrize("late_s", [0.0, 1.2, 3.0, 8.0])
@pytest.mark.parametrize("phase_s", [0.0, 0.33, 0.6])
def test_a_port_that_does_not_fit_stays_however_late_it_is_counted(
    window_s: int, late_s: float, phase_s: float
) -> None:
    begin_s = 20.0 + phase_s
    paused = begin_s + 0.6, begin_s + 0.6 + late_s
    both = vms(10, from_s(begin_s, 42)) | vms(11, from_s(begin_s, 42))
    keys = {"window_s": str(window_s), "poll_interval_ms": "200"}
    here = counted_late("load-based", both, 0.5, (100, 30), paused, keys=keys)
    here.run_until(paused[1] + 2 * window_s + 5.0)
    assert moves(here) == {}


@pytest.mark.parametrize("late_s", [0.0, 3.0, 8.0])
def test_one_that_fits_moves_when_it_is_counted(late_s: float) -> None:
    paused = 20.6, 20.6 + late_s
    both = vms(10, from_s(20.0, 42)) | vms(11, from_s(20.0, 42))
    keys = {"window_s": "2", "poll_interval_ms": "200"}
    here = counted_late("load-based", both, 0.5, (100, 60), paused, keys=keys)
    here.run_until(paused[1] - 0.1)
    assert not late_s or moves(here) == {}, "nobody knows by whom"
    here.run_until(paused[1] + 5.0)
    assert moves(here) == {"threshold": 1}
