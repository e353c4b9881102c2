"""Loads that come and go in phases: who is never busy at one time may share an uplink."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.load.recent_loads import EVERY_S, MOST_PHASES, PEAK_S, RecentLoads
from policies import gain
from policies.model import Load, Move, OfPort, Reason, Snapshot, Unit, Uplink
from tests.unit.controller.engine import jumps

CAPACITY_BPS = 100e6
HOT_BPS, COLD_BPS = 30e6, 5e6


def units(**sent_bps: float) -> list[Unit]:
    return [Unit(name, 1, load=Load(tx_bps=bps)) for name, bps in sent_bps.items()]


def test_what_is_alike_is_one_phase_until_it_is_too_long_ago() -> None:
    phases = RecentLoads()
    for at_s in (0.0, 0.1, 7.0):
        phases.note_loads(units(web=30e6 + at_s * 1e5, db=0.0), CAPACITY_BPS, at_s, at_s)
    phases.note_loads(units(web=5e6), CAPACITY_BPS, 7.0, 7.1)
    assert phases.phases() == [{"web": Load(tx_bps=30e6)}, {"web": Load(tx_bps=5e6)}]
    phases.note_loads(units(web=5e6), CAPACITY_BPS, 7.1, 7.0 + PEAK_S)
    assert phases.phases() == [{"web": Load(tx_bps=5e6)}]


def test_loads_that_change_all_the_time_have_no_phases() -> None:
    phases, now_s = RecentLoads(), 0.0
    for number in range(MOST_PHASES):
        until_s, now_s = now_s, number * EVERY_S
        phases.note_loads(units(web=20e6 * (number % 4)), CAPACITY_BPS, until_s, now_s)
    assert phases.phases()
    phases.note_loads(units(web=90e6), CAPACITY_BPS, now_s, now_s + EVERY_S / 2)
    assert len(phases.phases()) == MOST_PHASES, "not more often than that"
    phases.note_loads(units(web=90e6), CAPACITY_BPS, now_s, now_s + EVERY_S)
    assert not phases.phases()


def test_a_move_that_fills_an_uplink_in_another_phase_harms() -> None:
    """`a` and `b` fill eth1 now. With `a` on eth2, `c` and `d` would in their phase."""
    loads = {"a": 45e6, "b": 45e6, "c": 5e6, "d": 5e6}
    homes = {"a": "eth1", "b": "eth1", "c": "eth2", "d": "eth2"}
    snapshot = Snapshot(
        uplinks=(
            Uplink("eth1", OfPort(1), CAPACITY_BPS, load=Load(tx_bps=90e6)),
            Uplink("eth2", OfPort(2), CAPACITY_BPS, load=Load(tx_bps=10e6)),
        ),
        units=tuple(
            Unit(name, n, uplink=homes[name], load=Load(tx_bps=bps))
            for n, (name, bps) in enumerate(loads.items())
        ),
    )
    other = {name: Load(tx_bps=50e6 - bps) for name, bps in loads.items()}
    alone = (Move("a", "eth1", "eth2", Reason.REBALANCE),)
    swap = (*alone, Move("c", "eth2", "eth1", Reason.REBALANCE))
    assert gain.harms_no_phase(alone, snapshot, [])
    assert not gain.harms_no_phase(alone, snapshot, [other])
    assert gain.harms_no_phase(swap, snapshot, [other])


@pytest.mark.parametrize(
    "every_s", [3.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (6.0, 9.0, 12.0))]
)
def test_jumps_to_and_fro_are_settled_within_a_second(every_s: float) -> None:
    """Three that are busy while the other three rest, all of each three on one uplink at first."""
    here, switch = jumps.team((CAPACITY_BPS,) * 2, (0, 0, 0, 1, 1, 1), (1e5,) * 6)
    here.start()
    here.run_until(20.0)
    for number in range(6):
        since_s, seen = here.now_s, len(switch.series)
        busy = {10, 11, 12} if number % 2 == 0 else {13, 14, 15}
        switch.start_s = {
            ofport: (bps, HOT_BPS if ofport in busy else COLD_BPS, since_s)
            for ofport, bps in switch.loads(since_s).items()
        }
        here.run_until(since_s + every_s)
        full_s = [
            until_s - since_s
            for _, until_s, offered in switch.series[seen:]
            if max(offered) > 0.75 * CAPACITY_BPS
        ]
        assert max(full_s, default=0.0) <= 1.1
    assert switch.uplinks.lost_bytes == 0.0
    assert len(jumps.moved(here, 20.0)) <= 3, "and then nothing moves any more"


def test_no_vm_port_is_divided_while_another_has_room_whenever_it_is_busy() -> None:
    """A big one comes where a bigger one has just been: their peaks do not fit, they do."""
    here, switch = jumps.team((100e6, 50e6), (0, 1), (55e6, 2e6))
    here.start()
    here.run_until(20.0)
    since_s = here.now_s
    switch.start_s = {10: (55e6, 2e6, since_s), 11: (2e6, 60e6, since_s)}
    here.run_until(since_s + 3.0)
    assert here.bindings() == {"vm00": "eth1", "vm01": "eth1"}
    assert [m.reason for e in jumps.moved(here, since_s) for m in e.moves] == [Reason.REBALANCE]


@given(
    before=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40),
    then=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12),
)
def test_phases_after_a_pause_are_those_of_a_reading_every_tenth_of_a_second(
    before: list[tuple[int, int]], then: list[tuple[int, int]]
) -> None:
    """Nothing is read during the pause, and loads stay as they are: as in a replay."""

    def take(phases: RecentLoads, sent: tuple[int, int], tenths: int) -> None:
        loads = units(web=10e6 * sent[0], db=3e6 * sent[1])
        phases.note_loads(loads, CAPACITY_BPS, (tenths - 1) / 10, tenths / 10)

    read, paused = RecentLoads(), RecentLoads()
    for tenths, sent in enumerate(before):
        for phases in (read, paused):
            take(phases, sent, tenths)
    last = tenths = len(before) - 1
    found = read.phases()
    while tenths < last + 150 and (tenths + 1) / 10 < paused.next_change_s:
        tenths += 1
        take(read, before[-1], tenths)
        assert read.phases() == found
    # Phases may also be forgotten meanwhile, unless another one begins.
    while tenths < last + 150 and paused.begins_s == math.inf:
        tenths += 1
        take(read, before[-1], tenths)
    for more, sent in enumerate((before[-1], *then), 1):
        for phases in (read, paused):
            take(phases, sent, tenths + more)
        assert read == paused
