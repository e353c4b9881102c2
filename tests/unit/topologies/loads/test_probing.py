"""Probes: what became of numbered datagrams, by their arrivals."""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.loads import probe, probing
from topologies.loads.probing import Flow, Heard, Probing

INTERVAL_S = 0.01


def _heard(*numbers: int, sent: int = 10) -> Heard:
    """Datagrams that arrived in this order, each at the time when its place was due."""
    arrivals = [(number, place * INTERVAL_S) for place, number in enumerate(numbers)]
    return Heard(sent, 0.0, (sent - 1) * INTERVAL_S, arrivals)


def test_all_that_arrive_in_order_are_neither_lost_nor_twice_nor_late() -> None:
    heard = _heard(*range(10))
    assert (heard.lost, heard.duplicated, heard.reordered) == (0, 0, 0)
    assert heard.longest_gap_s() == pytest.approx(INTERVAL_S)


def test_a_datagram_that_arrives_twice_is_neither_lost_nor_reordered() -> None:
    heard = _heard(0, 1, 2, 1, 1, 3, sent=5)
    assert (heard.lost, heard.duplicated, heard.reordered) == (1, 2, 0)


def test_one_that_was_overtaken_is_reordered() -> None:
    assert _heard(0, 2, 1, 3, 5, 6, 4).reordered == 2


def test_a_flow_that_never_arrives_is_one_gap_all_its_time() -> None:
    heard = Heard(sent=101, start_s=5.0, end_s=6.0, arrivals=[])
    assert heard.lost == 101
    assert heard.longest_gap_s() == 1.0


def test_silence_at_the_beginning_and_at_the_end_are_gaps() -> None:
    heard = Heard(sent=100, start_s=0.0, end_s=1.0, arrivals=[(30, 0.3), (31, 0.31), (32, 0.32)])
    assert heard.longest_gap_s() == pytest.approx(0.68)
    assert heard.longest_gap_s(to_s=0.2) == pytest.approx(0.3)


def test_a_gap_counts_whole_if_it_overlaps_the_span() -> None:
    times_s = [0.0, 0.1, 0.2, 0.9, 1.0, 1.4]
    heard = Heard(15, 0.0, 1.4, list(enumerate(times_s)))
    assert heard.longest_gap_s(0.5, 0.6) == pytest.approx(0.7)
    assert heard.longest_gap_s(0.95, 1.2) == pytest.approx(0.4)
    assert heard.longest_gap_s(0.05, 0.15) == pytest.approx(0.1)


@given(st.lists(st.integers(0, 30), min_size=1), st.randoms(use_true_random=False))
def test_every_arrival_is_the_first_of_its_number_or_a_duplicate(
    numbers: list[int], order: random.Random
) -> None:
    order.shuffle(numbers)
    heard = _heard(*numbers, sent=31)
    assert heard.sent - heard.lost + heard.duplicated == len(numbers)
    assert 0 <= heard.reordered < max(2, heard.received)
    assert _heard(*sorted(numbers), sent=31).reordered == 0


def test_the_figures_are_those_of_all_flows_and_the_worst_gap() -> None:
    found = probing.figures([_heard(*range(10)), _heard(0, 2, 1, 2, 9)])
    assert found["probe_lost"] == 6
    assert found["probe_duplicated"] == 1
    assert found["reordered_ratio"] == pytest.approx(1 / 14)
    assert found["longest_gap_ms"] == pytest.approx(50.0)


def test_a_probe_numbers_what_it_sends_and_records_what_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "LINGER_S", 0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.setblocking(False)
        one = probe.Probe(own, INTERVAL_S, {3: own.getsockname(), 8: own.getsockname()})
        start_s = time.monotonic()
        one.run(start_s, start_s + 10, lambda: one.sent == 5)
    assert one.sent == 5
    assert [(flow, number) for flow, number, _ in one.arrivals] == [
        (flow, number) for number in range(5) for flow in (3, 8)
    ]
    # Never before their time.
    assert all(at_s >= start_s + number * INTERVAL_S for _, number, at_s in one.arrivals)


def test_probes_end_with_their_results_when_stopped(tmp_path: Path) -> None:
    """As processes, both ends of a flow in our own namespace."""
    flow = Flow("here", "here", "127.0.0.1")
    probing_ = Probing({"here": os.getpid()}, [flow], tmp_path, rate_pps=200, port=_free_port())
    try:
        probing_.start(time.monotonic() + 0.3, time.monotonic() + 60)
        while not (tmp_path / "here.probe.json").exists():
            if time.monotonic() > probing_.start_s + 0.2:
                probing_.stop()
            time.sleep(0.01)
        (heard,) = probing_.finish().values()
    finally:
        probing_.close()
    assert 0 < heard.sent < 2000
    assert (heard.lost, heard.duplicated, heard.reordered) == (0, 0, 0)
    assert heard.longest_gap_s() >= 0.005


def test_a_probe_that_failed_says_why(tmp_path: Path) -> None:
    port = _free_port()
    probing_ = Probing({"here": os.getpid()}, [Flow("here", "here", "nowhere")], tmp_path, 10, port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", port))
        try:
            probing_.start(time.monotonic(), time.monotonic() + 60)
            with pytest.raises(RuntimeError, match=r"here: exit 1 -> exit 0[\s\S]*in use"):
                probing_.finish()
        finally:
            probing_.close()


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])
