"""Counters to rates: resets, wraps, what is not counted, and whose clock it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.events import UNSUPPORTED, Sample
from controller.load.rates import Rates
from policies.model import Load

KEEP_S = 40.0


def rates(*samples: tuple[float, int | None, int | None], keep_s: float = KEEP_S) -> Rates:
    kept = Rates()
    for clock_s, tx_bytes, rx_bytes in samples:
        kept.add_reading(Sample(clock_s, tx_bytes, rx_bytes), keep_s)
    return kept


def steady(from_s: int, to_s: int, bytes_per_s: int = 1000) -> list[tuple[float, int, int]]:
    return [(t, t * bytes_per_s, 0) for t in range(from_s, to_s + 1)]


RATES: dict[str, tuple[list[tuple[float, int | None, int | None]], Load]] = {
    "bits in each direction": ([(10, 1000, 50), (12, 3000, 50)], Load(tx_bps=8000)),
    "no sample": ([], Load()),
    "what was before us": ([(10, 10**12, 10**12)], Load()),
    "by the clock of the switch": ([(10, 0, 0), (10.5, 500, 0)], Load(tx_bps=8000)),
    "repeated": ([(10, 0, 0), (11, 1000, 0), (11, 1000, 0)], Load(tx_bps=8000)),
    "a reset of one is one of both": ([(1, 1000, 1000), (2, 2000, 0)], Load()),
    "a reset": ([*steady(0, 40), (41, 300, 0)], Load()),
    "after a reset": ([*steady(0, 40), (41, 300, 0), (42, 1300, 0)], Load(tx_bps=8000)),
    # Its clock goes back, even where its counters are higher than before.
    "a port that was created again": ([*steady(100, 140), (2, 10**9, 10**9)], Load()),
    **{
        f"a counter of {bits} bits that wraps": (
            [(1, 2**bits - 1500, 0), (2, 2**bits - 500, 0), (3, 500, 0)],
            Load(tx_bps=8000),
        )
        for bits in (32, 64)
    },
    # It was not at zero before.
    "begins to be counted": ([(1, UNSUPPORTED, 0), (2, 10**12, 0)], Load()),
    "is counted": (
        [(1, UNSUPPORTED, 0), (2, 10**12, 0), (3, 10**12 + 1000, 0)],
        Load(tx_bps=8000),
    ),
    # All ones in OpenFlow.
    "unsupported": ([(1, UNSUPPORTED, 0), (2, UNSUPPORTED, 1000)], Load(rx_bps=8000)),
    "not counted": ([(1, None, 0), (2, None, 1000)], Load(rx_bps=8000)),
}


@pytest.mark.parametrize(("samples", "expected"), RATES.values(), ids=list(RATES))
def test_a_rate_is_bits_between_two_samples(
    samples: list[tuple[float, int | None, int | None]], expected: Load
) -> None:
    assert rates(*samples).latest() == expected


def test_a_steady_load_whose_readings_differ_has_not_risen() -> None:
    kept, sent_bytes = rates((0.0, 0, 0)), 0
    rises_bps = []
    for number, kilobytes in enumerate((900, 980, 910, 975, 900, 985), 1):
        sent_bytes += kilobytes * 1000
        kept.add_reading(Sample(number / 10, sent_bytes, 0), KEEP_S)
        rises_bps.append(kept.rise(recent_s=0.3).tx_bps)
    assert max(rises_bps[2:]) < 1e6
    assert kept.rise().tx_bps > 5e6, "above the reading before alone"
    kept.add_reading(Sample(0.7, sent_bytes + 1_100_000, 0), KEEP_S)
    assert kept.rise(recent_s=0.3).tx_bps > 8e6, "a rise is seen at once"


# ---- the mean over a window ------------------------------------------------------------


MEANS: dict[str, tuple[list[tuple[float, int, int]], float | None]] = {
    "of the whole window, not of the last poll": ([*steady(0, 29), (30, 1_000_000, 0)], 8e6 / 30),
    "none before the window is covered": (steady(0, 26), None),
    "a window that is covered": (steady(0, 30), 8000),
    "polls that come a little early": ([(0, 0, 0), (29.2, 29200, 0)], 8000),
    "without old traffic": ([(t, min(t, 20) * 1000, 0) for t in range(71)], 0),
    "polls longer apart than the window": ([(0, 0, 0), (60, 60000, 0)], 8000),
    "none since a reset": ([*steady(0, 40), (41, 300, 0)], None),
    "none since a port was created again": ([*steady(100, 140), (2, 10**9, 10**9)], None),
    "counters that wrap again and again": ([(t, t * 2**28 % 2**32, 0) for t in range(40)], 2**31),
}


@pytest.mark.parametrize(("samples", "tx_bps"), MEANS.values(), ids=list(MEANS))
def test_the_mean_is_that_of_a_window(
    samples: list[tuple[float, int, int]], tx_bps: float | None
) -> None:
    mean = rates(*samples, keep_s=150).mean(30)
    assert (mean and mean.tx_bps) == (None if tx_bps is None else pytest.approx(tx_bps))


def test_memory_is_bounded_by_the_window() -> None:
    kept = rates(*steady(0, 10_000), keep_s=32)
    assert len(kept._totals) <= 34
    assert kept.mean(30) == Load(tx_bps=8000)


COUNTERS = st.none() | st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(st.floats(0, 1e9), COUNTERS, COUNTERS), max_size=20))
def test_no_sequence_of_counters_gives_a_negative_rate(
    samples: list[tuple[float, int | None, int | None]],
) -> None:
    kept = rates()
    for clock_s, tx_bytes, rx_bytes in samples:
        kept.add_reading(Sample(clock_s, tx_bytes, rx_bytes), KEEP_S)
        mean = kept.mean(30)
        for load in (kept.latest(), mean or Load()):
            assert load.tx_bps >= 0 and load.rx_bps >= 0
