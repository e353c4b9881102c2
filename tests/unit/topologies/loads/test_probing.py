"""Probes: loss, duplicates, order and gaps, computed from the arrivals of numbered datagrams."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

import pytest

from topologies.loads.probing import Datagrams, Flow, FlowResult, flow_result
from topologies.loads.programs import Programs

INTERVAL_S = 0.01


def _result(*numbers: int, sent: int = 10) -> FlowResult:
    """A flow whose datagrams arrive in this order, one in each interval."""
    arrivals = [(number, index * INTERVAL_S) for index, number in enumerate(numbers)]
    return FlowResult(sent, 0.0, (sent - 1) * INTERVAL_S, arrivals)


@pytest.mark.parametrize(
    ("numbers", "lost", "duplicated", "reordered"),
    [
        ([*range(10)], 0, 0, 0),
        ([], 10, 0, 0),
        # A datagram that arrives twice is not reordered.
        ([0, 1, 2, 1, 1, 3], 6, 2, 0),
        # An overtaken one is.
        ([0, 2, 1, 3, 5, 6, 4], 3, 0, 2),
    ],
)
def test_datagrams_are_counted_by_their_numbers(
    numbers: list[int], lost: int, duplicated: int, reordered: int
) -> None:
    result = _result(*numbers)
    assert (result.lost, result.duplicated, result.reordered) == (lost, duplicated, reordered)


def test_gaps_are_also_before_the_first_and_after_the_last_arrival() -> None:
    assert FlowResult(sent=101, start_s=5.0, end_s=6.0, arrivals=[]).longest_gap_s() == 1.0
    result = FlowResult(
        sent=100, start_s=0.0, end_s=1.0, arrivals=[(30, 0.3), (31, 0.31), (32, 0.32)]
    )
    assert result.longest_gap_s() == pytest.approx(0.68)
    assert result.longest_gap_s(to_s=0.2) == pytest.approx(0.3)
    # A gap that overlaps the span counts in full.
    times_s = [0.0, 0.1, 0.2, 0.9, 1.0, 1.4]
    result = FlowResult(15, 0.0, 1.4, list(enumerate(times_s)))
    assert result.longest_gap_s(0.5, 0.6) == pytest.approx(0.7)
    assert result.longest_gap_s(0.95, 1.2) == pytest.approx(0.4)
    assert result.longest_gap_s(0.05, 0.15) == pytest.approx(0.1)


def test_datagrams_before_the_rate_changes_do_not_count() -> None:
    one = {"first": 3, "sent": 8, "numbers": [1, 2, 3, 5, 7], "times_s": [0.1, 0.2, 0.3, 0.5, 0.7]}
    found = flow_result(one, 5.0, 0.1)
    assert (found.sent, found.lost) == (5, 2)
    assert found.arrivals == [(0, 0.3), (2, 0.5), (4, 0.7)]
    assert found.start_s == 5.0
    assert found.end_s == pytest.approx(5.4)


@pytest.mark.system
def test_probes_end_with_their_results_when_stopped(tmp_path: Path) -> None:
    """Both ends are in this namespace."""
    flow = Flow("here", "here", "127.0.0.1", 200 * 400)
    with contextlib.closing(Programs(tmp_path, "probes")) as programs:
        port = _free_port()
        probes = Datagrams(programs, {"here": os.getpid()}, [flow], port=port)
        probes.start(time.monotonic() + 0.3, time.monotonic() + 60)
        while f":{port:04X} " not in Path("/proc/net/udp").read_text():
            time.sleep(0.01)
        time.sleep(max(0.0, probes.start_s - time.monotonic()) + 0.2)
        probes.stop()
        (result,) = probes.finish().values()
    assert 0 < result.sent < 2000
    assert (result.lost, result.duplicated, result.reordered) == (0, 0, 0)
    assert result.longest_gap_s() >= 0.005


@pytest.mark.system
def test_the_error_of_a_failed_probe_has_the_reason(tmp_path: Path) -> None:
    port, here = _free_port(), {"here": os.getpid()}
    with (
        contextlib.closing(Programs(tmp_path, "probes")) as programs,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken,
    ):
        taken.bind(("", port))
        probes = Datagrams(programs, here, [Flow("here", "here", "127.0.0.1")], port=port)
        probes.start(time.monotonic(), time.monotonic())
        with pytest.raises(RuntimeError, match=r"probes, datagrams: exit status 1;[\s\S]*in use"):
            probes.finish()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])
