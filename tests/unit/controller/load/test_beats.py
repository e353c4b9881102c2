"""Counters that a switch adds to twice a second: known by how they behave, and read by the beat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.events import Sample
from controller.load.rates import Rates

RATE_BPS = 100e6
KEEP_S = 30.0


def read(
    rates: Rates,
    until_s: float,
    beat_s: float,
    bps: float = RATE_BPS,
    from_s: float = 0.0,
    every_s: float = 0.1,
    already: float = 0.0,
) -> Rates:
    """Read what a counter says that is brought up to date each `beat_s`; 0: at once."""
    steps = round((until_s - from_s) / every_s)
    for number in range(1, steps + 1):
        now_s = from_s + number * every_s
        known_s = now_s if not beat_s else int((now_s + 1e-9) / beat_s) * beat_s
        counted = already + bps / 8 * max(0.0, known_s - from_s)
        rates.add_reading(Sample(100.0 + now_s, int(counted), 0), KEEP_S)
    return rates


def test_a_counter_that_counts_on_is_live() -> None:
    rates = read(Rates(), 3.0, 0.0)
    assert rates.late is False
    assert rates.latest().tx_bps == pytest.approx(RATE_BPS, rel=1e-6)


@given(st.floats(0.4, 0.7))
def test_the_rate_of_one_that_has_beats_is_that_of_whole_beats(beat_s: float) -> None:
    rates = Rates()
    for end in range(30, 61):
        rates = read(Rates(), end / 10, beat_s)
        assert rates.late is True
        # A beat is seen to a reading: of two beats of 0.4 s that is an eighth.
        assert rates.latest().tx_bps == pytest.approx(RATE_BPS, rel=0.27)
        assert rates.mean(2.0).tx_bps == pytest.approx(RATE_BPS, rel=0.15)  # type: ignore[union-attr]


def test_nothing_is_carried_when_no_beat_comes_any_more() -> None:
    rates = read(Rates(), 3.0, 0.5)
    for number in range(1, 30):
        rates.add_reading(Sample(103.0 + number / 10, int(RATE_BPS / 8 * 3.0), 0), KEEP_S)
    assert rates.latest().tx_bps == 0.0


def test_one_that_begins_to_count_at_once_is_live_again() -> None:
    rates = read(Rates(), 3.0, 0.5)
    read(rates, 4.0, 0.0, from_s=3.0, already=RATE_BPS / 8 * 3.0)
    assert rates.late is False


def test_who_reads_too_seldom_to_see_beats_takes_some_of_them() -> None:
    rates = read(Rates(), 3.0, 0.5)
    read(rates, 12.0, 0.5, from_s=3.0, every_s=1.0, already=RATE_BPS / 8 * 3.0)
    assert rates.latest().tx_bps == pytest.approx(RATE_BPS, rel=0.3)


def test_a_jump_is_seen_as_a_whole_with_the_second_beat() -> None:
    rates = read(Rates(), 3.0, 0.5)
    read(rates, 4.1, 0.5, bps=3 * RATE_BPS, from_s=3.0, already=RATE_BPS / 8 * 3.0)
    assert rates.latest().tx_bps == pytest.approx(3 * RATE_BPS, rel=0.01)


def test_a_beat_is_no_rise() -> None:
    rates = Rates()
    for end in range(20, 40):
        rates = read(Rates(), end / 10, 0.5)
        assert rates.rise().tx_bps == 0.0


@pytest.mark.parametrize("beat_s", [0.5, 1.0])
@pytest.mark.parametrize("every_s", [0.02, 0.1])
def test_the_first_update_is_no_rate_of_a_moment(beat_s: float, every_s: float) -> None:
    """Whether a second one is to come is not known yet, however often the counter is read."""
    rates = Rates()
    read(rates, beat_s, beat_s)
    for number in range(1, int((beat_s - 0.05) / every_s)):
        now_s = beat_s + number * every_s
        rates.add_reading(Sample(100.0 + now_s, int(RATE_BPS / 8 * beat_s), 0), KEEP_S)
        assert rates.latest().tx_bps == pytest.approx(RATE_BPS, rel=0.3)


def test_a_single_burst_is_not_taken_for_the_first_update_for_ever() -> None:
    rates = read(Rates(), 1.0, 1.0)
    for number in range(1, 14):
        rates.add_reading(Sample(101.0 + number / 10, int(RATE_BPS / 8), 0), KEEP_S)
    assert rates.latest().tx_bps == 0.0
