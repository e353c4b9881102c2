"""Parallel streams: the rate of each stream in the measured part, and the spread of the rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topologies import layouts
from topologies.benches.set_vs_lbfo import STREAMS
from topologies.compare.plan import Options
from topologies.loads.load import Stage
from topologies.loads.pace import ACCELERATED
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import (
    Flow,
    stream_rates_bps,
)
from topologies.network.private_ovs import PrivateOvs

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
    with pytest.raises(RuntimeError, match="1 streams -> 2"):
        stream_rates_bps(_report([[8e6]] * 7), 2, *MEASURED_S)
    with pytest.raises(RuntimeError, match=r"3\.0 s measured -> 4 s"):
        stream_rates_bps(_report([[8e6, 8e6]] * 5), 2, *MEASURED_S)
    with_gaps = _report([[8e6]] * 7)
    for interval in with_gaps["intervals"]:
        interval["streams"][0]["end"] -= 0.01
    assert stream_rates_bps(with_gaps, 1, *MEASURED_S) == pytest.approx([8e6], rel=0.02)


def test_flows_that_send_at_different_times_are_measured_over_the_whole_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flows = [Flow("vm1", "client1", "", 4.0), Flow("vm2", "client1", "", 2.0, begin_s=8.0)]
    reports = [_report([[30e6]] * 4), _report([[50e6]] * 2)]
    nothing_is_up = object.__new__(PrivateOvs)
    layout = layouts.set_vs_lbfo()
    load = StreamLoad(Stage(layout, "", {}, {}, nothing_is_up, tmp_path), flows)
    monkeypatch.setattr(load, "_report", lambda number, _end_s: reports[number])
    outcome = load.finish()
    assert outcome.details["stream_rates_bps"] == [[30e6], [50e6]]
    assert outcome.throughput_bps == pytest.approx((4 * 30e6 + 2 * 50e6) / 10)
    assert outcome.received_bytes == (4 * 30e6 + 2 * 50e6) / 8


def test_the_commands_of_a_flow_match_the_document() -> None:
    warm_up_s, measured_s, cool_down_s = Options(ACCELERATED).pace.streams_s
    assert (warm_up_s, measured_s, cool_down_s) == (5, 15, 5)
    flow = Flow("vm1", "vm2", "10.1.1.1", warm_up_s + measured_s + cool_down_s, streams=STREAMS)
    words = " ".join(flow.sender_command(5001))
    assert words.startswith("iperf3 --client 10.1.1.1 --port 5001 --json ")
    assert "--parallel 8 --length 131072 --time 25 " in f"{words} "
    words = " ".join(flow.receiver_command(5001))
    assert "--server --one-off --json" in words and "--port 5001" in words
    limited = Flow("vm1", "vm2", "10.1.1.1", 2.5, rate_bps=7_000_000, buffer_bytes=8192)
    words = " ".join(limited.sender_command(5002))
    assert "--parallel 1 --length 8192 --fq-rate 7000000 --time 2.5 " in f"{words} "
