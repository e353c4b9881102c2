"""What is remembered of uplinks that fill up, when time passes without another reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.load.filling import CHANGING_S, LASTING_S, Filling, lasts
from policies.model import IDLE, Load, OfPort, Snapshot, Uplink

CAPACITY_BPS = 100.0
LEAST = st.tuples(*[st.integers(0, 3)] * 4)


def take(filling: Filling, unexplained: tuple[int, ...], tenths: int) -> None:
    loads = {
        "eth0": Load(unexplained[0], unexplained[1]),
        "eth1": Load(unexplained[2], unexplained[3]),
    }
    filling.note_unexplained(loads, tenths / 10)


def unexplained(filling: Filling) -> tuple[Load, Load]:
    least = filling.least_unexplained(("eth0", "eth1"))
    return least["eth0"], least["eth1"]


@given(before=st.lists(LEAST, min_size=1, max_size=20), then=st.lists(LEAST, max_size=5))
def test_what_is_held_beside_units_is_as_if_it_was_read_ten_times_a_second(
    before: list[tuple[int, ...]], then: list[tuple[int, ...]]
) -> None:
    read, held = Filling(), Filling()
    for tenths, least in enumerate(before):
        for filling in (read, held):
            take(filling, least, tenths)
    last = tenths = len(before) - 1
    found = unexplained(read)
    while tenths < last + 30 and (tenths + 1) / 10 < held.next_change_s(last / 10):
        tenths += 1
        take(read, before[-1], tenths)
        assert unexplained(read) == found
    held.taken_s = tenths / 10
    for more, least in enumerate((before[-1], *then), 1):
        for filling in (read, held):
            take(filling, least, tenths + more)
        assert unexplained(read) == unexplained(held)


def see(filling: Filling, bps: float, rise_bps: float, now_s: float) -> None:
    uplink = Uplink("eth0", OfPort(1), CAPACITY_BPS, load=Load(bps))
    filling.see(Snapshot((uplink,), ()), Load(rise_bps), IDLE, now_s)


@pytest.mark.parametrize("bps", [76.0, 99.0])
def test_a_full_uplink_changes_when_it_is_full_for_longer_than_a_burst(bps: float) -> None:
    """And one that is nearly full."""
    filling = Filling()
    see(filling, bps, 90.0, 1.0)
    assert filling.next_change_s(1.0) == 1.0, "loads may go on to change"
    see(filling, bps, 0.0, 1.1)
    assert filling.next_change_s(1.1) == 1.0 + LASTING_S
    assert not lasts(filling.high_s, 1.1)
    see(filling, bps, 0.0, 1.0 + LASTING_S)
    assert filling.next_change_s(1.0 + LASTING_S) == float("inf")
    assert lasts(filling.high_s, 1.0 + LASTING_S)
    assert lasts(filling.full_s, 1.0 + LASTING_S) is (bps > 95.0)
    see(filling, 75.0, 0.0, 1.0 + LASTING_S)
    assert not lasts(filling.high_s, 1.0 + 2 * LASTING_S)


@given(
    seen=st.lists(st.tuples(st.integers(0, 94), st.integers(0, 60)), min_size=1, max_size=12),
    more=st.integers(1, 12),
    then=st.tuples(st.integers(0, 120), st.integers(0, 60)),
)
def test_after_a_pause_it_is_as_if_the_same_loads_were_seen_again(
    seen: list[tuple[int, int]], more: int, then: tuple[int, int]
) -> None:
    read, paused = Filling(), Filling()
    for tenths, (bps, rise_bps) in enumerate(seen):
        for filling in (read, paused):
            see(filling, bps, rise_bps, tenths / 10)
    last = len(seen) - 1
    if paused.next_change_s(last / 10) <= last / 10:
        return
    for tenths in range(last + 1, last + more + 1):
        see(read, seen[-1][0], 0.0, tenths / 10)
    for filling in (read, paused):
        see(filling, *then, (last + more + 1) / 10)
    assert paused == read


def test_loads_change_until_they_have_been_steady_for_a_moment() -> None:
    filling = Filling()
    see(filling, 10.0, 60.0, 1.0)
    settled_s = 1.0 + CHANGING_S
    assert filling.changes(settled_s - 0.01) and not filling.changes(settled_s)
