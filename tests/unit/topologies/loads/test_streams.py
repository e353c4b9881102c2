"""Parallel streams: the rate of each stream in the measured part, and the spread of the rates."""

from __future__ import annotations

from typing import Any

import pytest

from topologies.loads.streams import stream_rates_bps

# The measured part of a test of 7 s.
MEASURED_S = (2.0, 6.0)


def _report(rates_bps: list[list[float]], step_s: float = 1.0) -> dict[str, Any]:
    """A report of iperf3. `rates_bps` has each stream's rate for each interval."""
    return {
        "intervals": [
            {
                "streams": [
                    {
                        "socket": 5 + 2 * stream,
                        "start": number * step_s,
                        "end": (number + 1) * step_s,
                        "bytes": round(rate_bps * step_s / 8),
                    }
                    for stream, rate_bps in enumerate(rates)
                ]
            }
            for number, rates in enumerate(rates_bps)
        ]
    }


def test_an_interval_across_an_edge_counts_in_proportion() -> None:
    # The measured part has the last second of the interval from 1.5 to 3 s.
    other = [99e6, 99e6]  # before and after it
    report = _report([other, [6e6, 0], [12e6, 8e6], [12e6, 8e6], other], step_s=1.5)
    assert stream_rates_bps(report, 2, *MEASURED_S) == pytest.approx(
        [(6e6 * 1 + 12e6 * 3) / 4, 8e6 * 3 / 4], rel=1e-6
    )


def test_a_failed_or_incomplete_test_is_an_error_but_not_a_gap_of_milliseconds() -> None:
    with pytest.raises(RuntimeError, match="unable to connect"):
        stream_rates_bps({"error": "unable to connect", "intervals": []}, 2, *MEASURED_S)
    with pytest.raises(RuntimeError, match="1 of 2 streams"):
        stream_rates_bps(_report([[8e6]] * 7), 2, *MEASURED_S)
    with pytest.raises(RuntimeError, match=r"3\.0 s of 4 s"):
        stream_rates_bps(_report([[8e6, 8e6]] * 5), 2, *MEASURED_S)
    with_gaps = _report([[8e6]] * 7)
    for interval in with_gaps["intervals"]:
        interval["streams"][0]["end"] -= 0.01
    assert stream_rates_bps(with_gaps, 1, *MEASURED_S) == pytest.approx([8e6], rel=0.02)
