"""Streams, web users and changing loads: their plans, and the rates of each stream and flow."""

from __future__ import annotations

import itertools
import socket
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from topologies.loads import traffic, web_load
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


SERVERS = 4


def test_sessions_offer_the_load_and_ramp_linearly_and_equally_on_all_servers() -> None:
    sessions = web_load.plan_sessions([1.0] * SERVERS, 130e6, ramp_s=40.0, seed=1)
    assert len(sessions) * web_load.wire_bps_per_session() == pytest.approx(130e6, rel=0.02)
    assert len(set(Counter(server for server, _ in sessions).values())) == 1
    begun = [sum(s["begin_s"] < at_s for _, s in sessions) for at_s in (10, 20, 30, 40)]
    quarter = len(sessions) / 4
    assert begun == pytest.approx([quarter, 2 * quarter, 3 * quarter, len(sessions)], abs=1)
    for at_s in (7.0, 19.0, 33.0):
        by_server = Counter(server for server, s in sessions if s["begin_s"] < at_s)
        assert max(by_server.values()) - min(by_server.values()) <= 1


def test_a_late_sender_skips_datagrams_instead_of_sending_a_burst() -> None:
    own, other = socket.socketpair(type=socket.SOCK_DGRAM)
    with own, other:
        own.setblocking(False)
        bits = (100 + traffic.HEADERS_BYTES) * 8
        flow = traffic.Sending(own.send, 100)
        flow.begin(bits / 0.001, 5.0, 0.0)
        for at_s in (5.0, 5.0015, 5.0035):
            flow.send(at_s)
        assert (flow.sent, flow.skipped) == (4, 0)
        flow.send(5.1)
        assert flow.sent + flow.skipped in (100, 101)  # rounding decides whether the last is due
        assert flow.sent - 4 <= traffic.MAX_DELAY_S / 0.001 + 1
        flow.reset_counters()
        flow.change_rate(bits / 0.002, 5.1)
        first = flow.sent
        flow.send(5.105)
        assert (flow.first, flow.skipped) == (first, 0)
        assert 2 <= flow.sent - first <= 3
        other.setblocking(False)
        numbers = [
            traffic.NUMBER.unpack(other.recv(traffic.NUMBER.size))[0] for _ in range(flow.sent)
        ]
        assert numbers == list(range(flow.sent))


def test_the_rate_of_each_flow_changes_at_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(100.0, 0.0005)  # time only passes where somebody looks
    monkeypatch.setattr(traffic, "time", SimpleNamespace(monotonic=lambda: next(now)))
    fast_bps = (100 + traffic.HEADERS_BYTES) * 8 / 0.01
    rates_bps = (0.0, fast_bps / 10, fast_bps)
    orders = iter(
        [
            {
                "at_s": 101.0,
                "end_s": 102.0,
                "rates_bps": [fast_bps, fast_bps, 0.0],
                "after_s": [0.0, 0.5, 0.2],
            }
        ]
    )
    plan = {
        "start_s": 100.0,
        "end_s": 105.0,
        "probes": False,
        "flows": [{"rate_bps": rate_bps} for rate_bps in rates_bps],
    }
    flows = [traffic.Sending(lambda _payload: None, 100) for _ in rates_bps]
    traffic.send_all(plan, flows, lambda: [*itertools.islice(orders, 1)], lambda _span_s: None)
    # Before and after the change, which the second flow makes 0.5 s later and the third 0.2 s later.
    assert [one.first for one in flows] == pytest.approx([0, 10, 100], abs=1)
    sent = [one.sent - one.first for one in flows]
    assert sent == pytest.approx([100, 5 + 50, 20], abs=1)
