"""Peaks over which time passes without another reading, as in a replay that skips polls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.load.peaks import Peaks
from policies.model import Load, Unit

UNITS = Unit("web", 1), Unit("db", 2)
RATES = st.tuples(*[st.integers(0, 3)] * 4)


def take(peaks: Peaks, rates: tuple[int, ...], tenths: int) -> None:
    loads = Load(rates[0], rates[1]), Load(rates[2], rates[3])
    peaks.note_peaks(zip(UNITS, loads, strict=True), tenths / 10)


@given(before=st.lists(RATES, min_size=1, max_size=30), then=st.lists(RATES, max_size=5))
def test_held_peaks_are_those_of_a_reading_every_tenth_of_a_second(
    before: list[tuple[int, ...]], then: list[tuple[int, ...]]
) -> None:
    read, held = Peaks(), Peaks()
    for tenths, rates in enumerate(before):
        for peaks in (read, held):
            take(peaks, rates, tenths)
    last = len(before) - 1
    found = [read.peak_of(unit.name) for unit in UNITS]
    tenths = last
    while tenths < last + 150 and (tenths + 1) / 10 < held.next_fall_s():
        tenths += 1
        take(read, before[-1], tenths)
        assert [read.peak_of(unit.name) for unit in UNITS] == found
    held.hold_peaks(tenths / 10)
    for more, rates in enumerate((before[-1], *then), 1):
        for peaks in (read, held):
            take(peaks, rates, tenths + more)
        assert read == held


@given(
    before=st.lists(RATES, min_size=1, max_size=30),
    holds=st.lists(st.integers(1, 150), min_size=1, max_size=4),
    then=st.lists(RATES, max_size=5),
)
def test_peaks_that_are_held_fall_as_with_a_reading_every_tenth_of_a_second(
    before: list[tuple[int, ...]], holds: list[int], then: list[tuple[int, ...]]
) -> None:
    read, held = Peaks(), Peaks()
    for tenths, rates in enumerate(before):
        for peaks in (read, held):
            take(peaks, rates, tenths)
    tenths = len(before) - 1
    for wait in holds:
        for _ in range(wait):
            tenths += 1
            take(read, before[-1], tenths)
        held.hold_peaks(tenths / 10)
        assert [held.peak_of(unit.name) for unit in UNITS] == [
            read.peak_of(unit.name) for unit in UNITS
        ]
        assert held.next_fall_s() == read.next_fall_s()
    for more, rates in enumerate(then, 1):
        for peaks in (read, held):
            take(peaks, rates, tenths + more)
        assert read == held
