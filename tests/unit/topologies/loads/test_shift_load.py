"""A load that changes: the hot VMs, and the result of each flow."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from topologies.loads import traffic


def test_a_late_sender_skips_datagrams_instead_of_sending_a_burst() -> None:
    own, other = socket.socketpair(type=socket.SOCK_DGRAM)
    with own, other:
        own.setblocking(False)
        bits = (100 + traffic.HEADERS_BYTES) * 8
        flow = traffic.Sending(own.send, 100, bits / 0.001)
        flow.begin(5.0, 0.0)
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


def test_the_rate_of_each_flow_changes_at_its_own_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = itertools.count(100.0, 0.0005)  # time only passes where somebody looks
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _span_s: None)
    monkeypatch.setattr(traffic, "time", clock)
    fast_bps = (100 + traffic.HEADERS_BYTES) * 8 / 0.01
    flows = [
        {"sender_pid": os.getpid(), "address": "127.0.0.1", "port": 9, "rate_bps": rate_bps}
        for rate_bps in (0.0, fast_bps / 10, fast_bps)
    ]
    change = {
        "at_s": 101.0,
        "end_s": 102.0,
        "rates_bps": [fast_bps, fast_bps, 0.0],
        "after_s": [0.0, 0.5, 0.2],
    }
    (tmp_path / traffic.CHANGE).write_text(json.dumps(change))
    plan = {"payload_bytes": 100, "longest_s": 5.0, "flows": flows}
    found = traffic.send(
        plan,
        tmp_path,
        lambda _pid, _kind: contextlib.nullcontext(Mock()),  # type: ignore[arg-type, return-value]
        lambda: True,
    )["flows"]
    # Before and after the change, which the second flow makes 0.5 s later and the third 0.2 s later.
    assert [one["first"] for one in found] == pytest.approx([0, 10, 100], abs=1)
    sent = [one["sent"] - one["first"] for one in found]
    assert sent == pytest.approx([100, 5 + 50, 20], abs=1)
