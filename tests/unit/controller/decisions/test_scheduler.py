"""No decision depends on units and plans that are kept from earlier ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from controller.api.events import DatabaseRead, Event, PortChanged, PortState
from controller.config.rows import PREFIX, InterfaceRow
from controller.load.filling import LASTING_S
from controller.load.recent_loads import PEAK_S
from controller.replay.host import Host, Options
from controller.replay.switch import Mix
from controller.replay.trace import HostTrace
from tests.unit.controller.replay.test_skipping import CAPACITY_BPS, hot_trace
from tests.unit.controller.replay.witness import Witness, without_shortcuts

Happening = Callable[[Host], Event]


def link(up: bool, uplink: int = 1) -> Happening:
    """The link of an uplink fails, or returns."""
    return lambda host: PortChanged(
        host.trace.name, PortState(uplink, host.switch.uplinks[uplink], up, CAPACITY_BPS)
    )


def bridge_key(key: str, value: str) -> Happening:
    def changed(host: Host) -> Event:
        host.row = replace(host.row, external_ids={**host.row.external_ids, PREFIX + key: value})
        return DatabaseRead((host.row,))

    return changed


def port_key(port: str, key: str, value: str | None) -> Happening:
    def with_key(one: InterfaceRow) -> InterfaceRow:
        kept = {k: v for k, v in one.external_ids.items() if k != PREFIX + key}
        new = {} if value is None else {PREFIX + key: value}
        return replace(one, external_ids=kept | new) if one.name == port else one

    def changed(host: Host) -> Event:
        host.row = host.row.with_interfaces(with_key)
        return DatabaseRead((host.row,))

    return changed


HAPPENINGS: dict[str, Happening] = {
    "link fails": link(False),
    "link returns": link(True),
    "other link fails": link(False, 2),
    "other link returns": link(True, 2),
    "pinned": port_key("vm0", "pin", "uplink2"),
    "unpinned": port_key("vm0", "pin", None),
    "excluded": port_key("vm1", "exclude", "true"),
    "threshold": bridge_key("threshold", "60%"),
    "drained": port_key("uplink2", "role", "drained"),
    "in use again": port_key("uplink2", "role", "active"),
    "observed": bridge_key("mode", "observe"),
    "enforced": bridge_key("mode", "enforce"),
    "other policy": bridge_key("policy", "load-based"),
    "the same policy": bridge_key("policy", "adaptive"),
}


def mild_trace(seed: int, samples: int, sample_s: float, ports: int) -> HostTrace:
    """VM ports of which none fills an uplink: moves are made when the peaks of loads fall, too."""
    chance = random.Random(seed)

    def load() -> tuple[float, float]:
        tx_bps = min(45e6, 4e6 * chance.paretovariate(0.9)) if chance.random() < 0.6 else 0.0
        return tx_bps, 1e6 * chance.paretovariate(1.5)

    times_s = (number * sample_s for number in range(samples))
    made = {at_s: {f"vm{n}": load() for n in range(ports)} for at_s in times_s}
    return HostTrace("host", CAPACITY_BPS, made)


class Eventful(Witness):
    """A host to which something happens at some times, in seconds since the replay began."""

    def __init__(
        self, trace: HostTrace, options: Options, happens: list[tuple[float, str]]
    ) -> None:
        super().__init__(trace, "adaptive", options)
        self._happens = sorted(happens)

    def _run_until(self, end_s: float) -> None:
        while self._happens and self._happens[0][0] < end_s:
            at_s, name = self._happens.pop(0)
            super()._run_until(max(at_s, self.now_s))
            # A replay knows of no such events: it must not skip polls because of what it saw before.
            self._changed_s = self.now_s
            self._say(HAPPENINGS[name](self))
        super()._run_until(end_s)


def decided(
    made: HostTrace, happens: list[tuple[float, str]], shortcuts: bool, **how: Any
) -> list[tuple[float, Any]]:
    with nullcontext() if shortcuts else without_shortcuts():
        host = Eventful(made, Options(**how), happens)
        host.replay()
    return host.decided


@pytest.mark.slow
# An example is long; a smaller one tells no more.
@settings(max_examples=12, phases=[Phase.generate])
@given(
    seed=st.integers(0, 9999),
    samples=st.integers(2, 4),
    sample_s=st.sampled_from([7.3, 14.7, 30]),
    trace=st.sampled_from([hot_trace, mild_trace, mild_trace]),
    ports=st.integers(2, 7),
    uplinks=st.integers(2, 3),
    flows=st.sampled_from([4, 32, 256]),
    poll_ms=st.sampled_from([100, 100, 250, 700]),
    happens=st.lists(
        st.tuples(
            st.integers(600, 1300).map(lambda tenths: tenths / 10),
            st.sampled_from(sorted(HAPPENINGS)),
        ),
        max_size=6,
    ),
)
def test_what_is_remembered_of_the_last_decision_changes_none(
    seed: int,
    samples: int,
    sample_s: float,
    trace: Callable[[int, int, float, int], HostTrace],
    ports: int,
    uplinks: int,
    flows: int,
    poll_ms: int,
    happens: list[tuple[float, str]],
) -> None:
    made = trace(seed, samples, sample_s, ports)
    how = {"poll-interval-ms": str(poll_ms)}
    options = {"uplinks": uplinks, "mix": Mix(flows), "settings": how, "skips": False}
    assert decided(made, happens, True, **options) == decided(made, happens, False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("skips", [False, True])
def test_an_uplink_that_stays_nearly_full_does_not_wait_until_peaks_are_forgotten(
    skips: bool,
) -> None:
    """One VM port fills an uplink at its peak. It is idle while those on the other uplink are busy."""
    small, busy = [f"vm{number}" for number in (3, 5)], [f"vm{number}" for number in (0, 2, 4)]
    before = {"vm1": 60e6, **dict.fromkeys(small, 1e6), **dict.fromkeys(busy, 5e6)}
    after = {"vm1": 5e6, **dict.fromkeys(small, 1e6), **dict.fromkeys(busy, 28e6)}
    changed_s = 20.0
    samples = {
        at_s: {name: (bps, 0.0) for name, bps in loads.items()}
        for at_s, loads in ((0.0, before), (changed_s, after), (changed_s + 30.0, after))
    }
    host = Witness(HostTrace("host", CAPACITY_BPS, samples), "adaptive", Options(skips=skips))
    host.replay()
    after_s = [at_s - 60.0 - changed_s for at_s, _ in host.decided]
    first_s = min(at_s for at_s in after_s if at_s > 0.0)
    assert LASTING_S <= first_s < LASTING_S + 1.0 < PEAK_S
