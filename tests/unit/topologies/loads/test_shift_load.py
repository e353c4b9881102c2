"""A load that changes: the hot VMs, and the result of each flow."""

from __future__ import annotations

import itertools
import socket
from types import SimpleNamespace

import pytest

from topologies.loads import traffic


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
        assert flow.max_delay_s == pytest.approx(0.096, abs=0.001)
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
