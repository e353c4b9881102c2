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


@given(
    before=st.lists(RATES, min_size=1, max_size=30),
    holds=st.lists(st.integers(1, 150), min_size=1, max_size=4),
    # None: the same as before.
    then=st.lists(st.none() | RATES, max_size=5),
)
def test_peaks_that_are_held_fall_as_with_a_reading_every_tenth_of_a_second(
    before: list[tuple[int, ...]], holds: list[int], then: list[tuple[int, ...] | None]
) -> None:
    read, held = Peaks(), Peaks()

    def peaks_of(peaks: Peaks) -> list[Load | None]:
        return [peaks.peak_of(unit.name) for unit in UNITS]

    for tenths, rates in enumerate(before):
        for peaks in (read, held):
            take(peaks, rates, tenths)
    tenths = len(before) - 1
    for wait in holds:
        found, falls_s = peaks_of(read), held.next_fall_s()
        for _ in range(wait):
            tenths += 1
            take(read, before[-1], tenths)
            assert tenths / 10 >= falls_s or peaks_of(read) == found
        held.hold_peaks(tenths / 10)
        assert peaks_of(held) == peaks_of(read)
        assert held.next_fall_s() == read.next_fall_s()
    for more, changed in enumerate(then, 1):
        for peaks in (read, held):
            take(peaks, changed or before[-1], tenths + more)
        assert read == held
