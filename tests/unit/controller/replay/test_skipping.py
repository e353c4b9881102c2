"""A replay that skips polls decides what one that makes them all decides, and when it does."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from controller.replay.flows import Mix
from controller.replay.host import Options
from controller.replay.trace import HostTrace
from tests.unit.controller.replay.plain import without_shortcuts
from tests.unit.controller.replay.witness import Witness

CAPACITY_BPS = 100e6


def decided(made: HostTrace, skips: bool, **how: Any) -> tuple[list[tuple[float, Any]], set[str]]:
    """The decisions of `adaptive`, and the reasons of its moves."""
    host = Witness(made, "adaptive", Options(**how, skips=skips))
    with nullcontext() if skips else without_shortcuts():
        host.replay()
    moves = (move for _, what in host.decided if isinstance(what, tuple) for move in what)
    reasons = {move.reason for move in moves}
    return host.decided, reasons


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
    made = hot_trace(seed, samples, sample_s, ports)
    how = {"poll-interval-ms": str(poll_ms)}
    options = {"uplinks": uplinks, "mix": Mix(flows), "settings": how}
    skipped, _ = decided(made, True, **options)
    assert skipped == decided(made, False, **options)[0]
