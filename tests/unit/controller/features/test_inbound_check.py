"""Inbound follows a VM port's move, or it is announced again, and given up in the end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from controller.api.engine_commands import Observe, ReadInbound, ReadLearned, Report
from controller.api.events import InboundRead
from controller.features.inbound_check import (
    ANSWERED_AFTER_S,
    MOST_AGAIN,
    READ_INTERVAL_S,
    SILENT_S,
    InboundCheck,
)
from policies.model import Move, Reason
from tests.unit.fake_switch import world
from tests.unit.rows import host

VM, OLD, NEW = 10, 1, 2


class Seen(NamedTuple):
    """What a reading led to: how long after the move inbound followed, an announcement, or a warning."""

    followed_s: tuple[float, ...] = ()
    again: bool = False
    astray: tuple[str, ...] = ()


def watched() -> InboundCheck:
    checks = world(host()).start().bridge.inbound_check
    moved(checks, "vnet0", "eth2", 0.0)
    return checks


def moved(checks: InboundCheck, port: str, uplink: str, now_s: float) -> None:
    source = "eth1" if uplink == "eth2" else "eth2"
    checks.watch_moves([Move(port, source, uplink, Reason.THRESHOLD)], now_s)


def due(checks: InboundCheck, now_s: float) -> tuple[int, ...]:
    """The ofports that the next reading is for."""
    (command,) = checks._read(now_s)
    assert isinstance(command, ReadInbound)
    return command.ofports


def readings(checks: InboundCheck, *came: Mapping[int, int]) -> Iterator[tuple[float, Seen]]:
    """What each reading tells, when between two of them so much came by each uplink."""
    counted, now_s = {OLD: 5000, NEW: 700}, 0.0
    yield now_s, read(checks, counted, now_s)
    for by_uplink in came:
        now_s += READ_INTERVAL_S
        counted = {uplink: count + by_uplink.get(uplink, 0) for uplink, count in counted.items()}
        yield now_s, read(checks, counted, now_s)


def read(checks: InboundCheck, counted: Mapping[int, int], now_s: float) -> Seen:
    if not due(checks, now_s):
        return Seen()
    return judged(checks, now_s, *((VM, uplink, count) for uplink, count in counted.items()))


def judged(checks: InboundCheck, now_s: float, *counted: tuple[int, int, int]) -> Seen:
    told = checks.heard(InboundRead("br0", counted), now_s)
    return Seen(
        tuple(c.seconds for c in told if isinstance(c, Observe)),
        any(isinstance(c, ReadLearned) for c in told),
        tuple(c.text for c in told if isinstance(c, Report)),
    )


def test_inbound_follows_once_it_comes_by_the_new_uplink() -> None:
    seen = dict(readings(watched(), {OLD: 100}, {OLD: 40, NEW: 60}, {NEW: 100}, {OLD: 100}))
    assert [s.followed_s for s in seen.values()] == [(), (), (), (1.0,), ()]
    assert not any(s.again or s.astray for s in seen.values())


def test_a_stray_frame_by_the_new_uplink_is_not_when_inbound_began_to_follow() -> None:
    seen = dict(readings(watched(), {OLD: 99, NEW: 1}, {OLD: 100}, {OLD: 60, NEW: 40}, {NEW: 100}))
    assert [s.followed_s for s in seen.values() if s.followed_s] == [(1.5,)]


def test_counters_that_start_anew_tell_nothing() -> None:
    checks = watched()
    assert read(checks, {OLD: 5000, NEW: 0}, 0.0) == Seen()
    assert read(checks, {OLD: 10, NEW: 0}, 2.0) == Seen()
    assert read(checks, {OLD: 10, NEW: 100}, 2.5).followed_s == (2.5,)


def test_nothing_is_read_for_ever_where_nothing_counts_any_more() -> None:
    checks, now_s = watched(), 0.0
    while due(checks, now_s):
        assert now_s <= SILENT_S
        assert judged(checks, now_s) == Seen()
        now_s += READ_INTERVAL_S


def test_the_latest_move_counts() -> None:
    checks = watched()
    read(checks, {OLD: 0, NEW: 0}, 0.0)
    moved(checks, "vnet0", "eth1", 0.3)
    assert read(checks, {OLD: 0, NEW: 100}, 0.5) == Seen()
    assert read(checks, {OLD: 100, NEW: 100}, 1.0).followed_s == (0.7,)


def test_ports_that_are_gone_are_not_read() -> None:
    checks = watched()
    moved(checks, "vnet1", "eth2", 0.0)
    checks.keep_watching({VM + 1})
    assert due(checks, 0.0) == (VM + 1,)
    checks.forget_switch()
    assert due(checks, 9.0) == ()


BYTES = st.integers(0, 3)


@given(st.lists(st.tuples(BYTES, BYTES), max_size=60))
def test_whatever_comes_it_ends_and_is_announced_again_so_often_at_most(
    came: list[tuple[int, int]],
) -> None:
    seen = dict(readings(watched(), *({OLD: old, NEW: new} for old, new in came)))
    again_s = [0.0] + [at_s for at_s, s in seen.items() if s.again]
    assert len(again_s) - 1 <= MOST_AGAIN
    assert all(b - a > ANSWERED_AFTER_S for a, b in itertools.pairwise(again_s))
    ends = [at_s for at_s, s in seen.items() if s.followed_s or s.astray]
    assert len(ends) <= 1
    assert not ends or ends[0] >= max(again_s), "announced after the end"
