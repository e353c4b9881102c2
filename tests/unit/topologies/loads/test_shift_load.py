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
from topologies.loads.shift_load import parse_fdb

# As ovs-vswitchd 3.1 prints it.
FDB = """\
 port  VLAN  MAC                Age
    1     0  56:85:1c:9a:5e:10    1
    2     0  3a:bb:41:76:f8:72    0
    3     0  b2:8c:5a:0f:c8:01    0
LOCAL     0  12:34:56:78:9a:bc    7
"""


def test_the_fdb_of_the_upstream_switch_shows_the_uplinks_of_vms() -> None:
    vms = {"56:85:1c:9a:5e:10": "vm1", "3a:bb:41:76:f8:72": "vm2", "b2:8c:5a:0f:c8:01": "client1"}
    found = parse_fdb(FDB, {"1": "uplink1", "2": "uplink2"}, vms)
    assert found == {"vm1": "uplink1", "vm2": "uplink2"}


def test_a_datagram_that_cannot_be_sent_is_skipped() -> None:
    own, other = socket.socketpair(type=socket.SOCK_DGRAM)
    other.close()
    with own:
        bits = (100 + traffic.HEADERS_BYTES) * 8
        flow = traffic.Sending(own.send, 100, bits / 0.001)
        flow.begin(5.0, 0.0)
        flow.send(5.0)
        assert (flow.sent, flow.skipped) == (0, 1)


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
