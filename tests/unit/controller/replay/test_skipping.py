"""A replay that skips polls decides what one that makes them all decides, and when it does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from controller.api.events import Sample, UnitCountersRead
from controller.load.loads import Loads
from controller.replay.host import Options
from controller.replay.skipping import Readings
from controller.replay.switch import Mix
from controller.replay.trace import HostTrace
from policies.model import Load
from tests.unit.controller.replay.witness import Witness, without_shortcuts

CAPACITY_BPS = 100e6


def decides_the_same(made: HostTrace, **how: Any) -> set[str]:
    """The reasons of the moves of `adaptive`."""
    skips = Witness(made, "adaptive", Options(**how, skips=True))
    skips.replay()
    polls = Witness(made, "adaptive", Options(**how, skips=False))
    with without_shortcuts():
        polls.replay()
    assert skips.decided == polls.decided
    return reasons(skips)


def reasons(host: Witness) -> set[str]:
    """The reasons of the moves."""
    return {m.reason for _, what in host.decided if isinstance(what, tuple) for m in what}


def hot_trace(seed: int, samples: int, sample_s: float, ports: int) -> HostTrace:
    """VM ports of which some send more than an uplink carries, and now and then nothing.

    A third of the loads are about those of the sample before.
    """
    chance = random.Random(seed)

    def load(hot: bool) -> float:
        mbps = chance.uniform(60, 190) if hot else min(120.0, 6 * chance.paretovariate(1.0))
        return mbps * 1e6

    made: dict[float, dict[str, tuple[float, float]]] = {}
    before: dict[str, tuple[float, float]] = {}
    for number in range(samples):
        now = {}
        for port in (f"vm{n}" for n in range(ports)):
            now[port] = (load(chance.random() < 0.35), load(False))
            if chance.random() < 0.1:
                now[port] = (0.0, now[port][1])
            elif port in before and chance.random() < 0.35:
                tx_bps, rx_bps = (bps * chance.uniform(0.98, 1.02) for bps in before[port])
                now[port] = (tx_bps, rx_bps)
        made[number * sample_s] = before = now
    return HostTrace("host", CAPACITY_BPS, made)


@pytest.mark.slow
# An example is long; a smaller one tells no more.
@settings(max_examples=8, phases=[Phase.generate])
@given(
    seed=st.integers(0, 9999),
    samples=st.integers(2, 5),
    sample_s=st.sampled_from([7.3, 19, 30]),
    ports=st.integers(2, 6),
    uplinks=st.integers(2, 3),
    flows=st.sampled_from([4, 32, 256]),
    poll_ms=st.sampled_from([100, 100, 100, 200, 250, 300, 500, 700, 1000]),
)
def test_all_decisions_are_the_same_while_vm_ports_are_split_and_merged(
    seed: int, samples: int, sample_s: float, ports: int, uplinks: int, flows: int, poll_ms: int
) -> None:
    made, how = hot_trace(seed, samples, sample_s, ports), {"poll-interval-ms": str(poll_ms)}
    decides_the_same(made, uplinks=uplinks, mix=Mix(flows), settings=how)


@pytest.mark.slow
def test_a_reading_between_two_polls_counts_as_a_poll_when_it_would_with_every_poll() -> None:
    made, how = hot_trace(312, 5, 7.3, 5), {"poll-interval-ms": "300"}
    decides_the_same(made, uplinks=3, mix=Mix(256), settings=how)


def test_buckets_repeat_until_one_is_read_that_may_not() -> None:
    loads, readings = Loads(), Readings()

    def read(clock_s: float, tx_bytes: float) -> bool:
        sample = Sample(clock_s, tx_bytes, 0)
        loads.take_units(UnitCountersRead("br0", (), (((0, 3), sample),)), {}, (), 30.0)
        readings.note(True, clock_s)
        return readings.buckets_repeat(loads)

    repeats = [read(tenths / 10, 0.0) for tenths in range(15)]
    assert repeats == [False] * 13 + [True] * 2, "then no update is spread over more"
    assert not read(2.0, 1e6), "it may have been counted late"
    loads.bucket_rates.clear()
    readings.note(True, 2.1)
    assert readings.buckets_repeat(loads)


def made(*samples: tuple[float, dict[str, float]]) -> HostTrace:
    """A host whose VM ports send so many Mbit/s; each sample has the time at which it begins."""
    return HostTrace(
        "host",
        CAPACITY_BPS,
        {at: {port: (mbps * 1e6, 0.0) for port, mbps in sent.items()} for at, sent in samples},
    )


HOT, COOL = {"a": 140.0, "b": 3.0, "c": 11.0}, {"a": 20.0, "b": 3.0, "c": 11.0}


@pytest.mark.slow
def test_a_vm_port_that_is_split_again_is_judged_the_same() -> None:
    trace = made((0.0, HOT), (20.0, COOL), (110.0, HOT), (130.0, HOT))
    assert {"split", "merge"} <= decides_the_same(trace, mix=Mix(64))


def test_what_buckets_have_counted_is_forgotten_when_no_vm_port_is_split_any_more() -> None:
    host = Witness(made((0.0, HOT), (20.0, COOL), (110.0, COOL)), "adaptive", Options())
    host.replay()
    assert {"split", "merge"} <= reasons(host)
    loads = {*host.bridge.loads.of_buckets([f"adaptive/{n}" for n in range(256)], None)}
    assert loads == {Load()}


def quiet_trace(seed: int, samples: int) -> HostTrace:
    """VM ports that are quiet, of which one is busy now and then."""
    chance = random.Random(seed)
    loads = []
    for _ in range(samples):
        sent = {f"vm{n}": chance.choice([0.0, 1.0]) * chance.uniform(0.1, 4.0) for n in range(6)}
        if chance.random() < 0.2:
            sent[f"vm{chance.randrange(6)}"] = chance.uniform(20.0, 90.0)
        loads.append(sent)
    return made(*((20.0 * number, sent) for number, sent in enumerate(loads)))


def test_the_peaks_of_the_last_sample_that_nothing_follows_from_are_remembered() -> None:
    idle = dict.fromkeys("abcde", 1.0)
    peak, hot = {**idle, "a": 50.0}, {**idle, "a": 5.0, "c": 40.0, "e": 40.0}
    before = [(20.0 * number, {**idle, "b": 2.0 + number}) for number in range(3)]
    same = [(20.0 * number, peak) for number in range(3, 6)]
    trace = made(*before, *same, (120.0, hot), (150.0, idle))
    passing, with_polls = (Witness(trace, "adaptive", Options(skips=s)) for s in (True, False))
    assert passing.replay().moves == with_polls.replay().moves > 0
    assert passing.decided == with_polls.decided and passing.polls < 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_samples_that_move_nothing_pass_without_a_poll(seed: int) -> None:
    trace = quiet_trace(seed, 12 if seed == 1 else 40)
    with_polls = Witness(trace, "adaptive", Options(skips=False))
    passing = Witness(trace, "adaptive", Options())
    moves = [host.replay().moves for host in (passing, with_polls)]
    assert passing.decided == with_polls.decided and moves[0] == moves[1] > 0
    # Those of the takeover are 50.
    assert passing.polls < 50 + 5 * len(trace.samples) < with_polls.polls / 10
