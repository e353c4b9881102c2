"""Peaks over which time passes without another reading, as in a replay that skips polls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.load.recent_loads import PEAK_S, RecentLoads
from policies.model import IDLE, Load, Unit

UNITS = "web", "db"
# Loads differ by less than a phase needs.
CAPACITY_BPS = 100.0
RATES = st.tuples(*[st.integers(0, 3)] * 4)


def take(peaks: RecentLoads, rates: tuple[int, ...], until_eighths: int, eighths: int) -> None:
    loads = Load(rates[0], rates[1]), Load(rates[2], rates[3])
    units = (Unit(name, 1, load=load) for name, load in zip(UNITS, loads, strict=True))
    peaks.note_loads(units, CAPACITY_BPS, until_eighths / 8, eighths / 8)


def peaks_of(peaks: RecentLoads) -> list[Load]:
    return [peaks.peaks().get(name, IDLE) for name in UNITS]


@given(
    taken=st.lists(st.tuples(RATES, st.integers(1, 150)), min_size=1, max_size=30),
)
def test_a_peak_is_the_highest_rate_that_was_carried_less_than_ten_seconds_ago(
    taken: list[tuple[tuple[int, ...], int]],
) -> None:
    """`taken`: rates, each with the eighths of a second until the next reading."""
    peaks, carried, eighths = RecentLoads(), list[tuple[int, ...]](), 0
    for rates, lasts in taken:
        until = eighths - 1
        take(peaks, rates, until, eighths)
        carried.append(rates)
        # A reading at ten seconds ago does not count any more.
        recent = carried[-int(8 * PEAK_S) :]
        tx0, rx0, tx1, rx1 = (max(of) for of in zip(*recent, strict=True))
        assert peaks_of(peaks) == [Load(tx0, rx0), Load(tx1, rx1)]
        carried += [rates] * (lasts - 1)
        eighths += lasts


@given(
    before=st.lists(RATES, min_size=1, max_size=30),
    wait=st.integers(1, 150),
    then=st.lists(RATES, max_size=5),
)
def test_peaks_after_a_pause_are_those_of_a_reading_every_eighth_of_a_second(
    before: list[tuple[int, ...]], wait: int, then: list[tuple[int, ...]]
) -> None:
    """Nothing is read during the pause, and loads stay as they are: as in a replay."""
    read, paused = RecentLoads(), RecentLoads()
    for eighths, rates in enumerate(before):
        for peaks in (read, paused):
            take(peaks, rates, eighths - 1, eighths)
    eighths, found, change_s = len(before) - 1, peaks_of(read), paused.next_change_s
    for _ in range(wait):
        eighths += 1
        take(read, before[-1], eighths - 1, eighths)
        assert eighths / 8 >= change_s or peaks_of(read) == found
    for rates in then:
        eighths += 1
        for peaks in (read, paused):
            take(peaks, rates, eighths - 1, eighths)
        assert peaks_of(read) == peaks_of(paused) and read.next_change_s == paused.next_change_s
