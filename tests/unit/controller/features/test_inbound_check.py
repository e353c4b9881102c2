"""Checks of inbound traffic after a move end, whatever comes, and with the port."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from controller.api.engine_commands import Observe, ReadInbound, ReadLearned, Report
from controller.api.events import InboundRead
from controller.features.inbound_check import (
    ANSWERED_AFTER_S,
    MOST_AGAIN,
    READ_INTERVAL_S,
    InboundCheck,
)
from policies.model import Move, Reason
from tests.unit.fake_switch import world
from tests.unit.rows import host

VM, OLD, NEW = 10, 1, 2


class Seen(NamedTuple):
    """What a reading led to: another announcement, or the end, with a time or a warning."""

    again: bool = False
    ends: bool = False


def watched() -> InboundCheck:
    checks = world(host()).start().bridge.inbound_check
    moved(checks, "vnet0")
    return checks


def moved(checks: InboundCheck, port: str) -> None:
    checks.watch_moves([Move(port, "eth1", "eth2", Reason.THRESHOLD)], 0.0)


def due(checks: InboundCheck, now_s: float) -> tuple[int, ...]:
    """The ofports that the next reading is for."""
    (command,) = checks._read(now_s)
    assert isinstance(command, ReadInbound)
    return command.ofports


def readings(checks: InboundCheck, came: Iterable[tuple[int, int]]) -> Iterator[tuple[float, Seen]]:
    """What each reading tells, when between two of them so much came by each uplink."""
    counted, now_s = [5000, 700], 0.0
    yield now_s, read(checks, counted, now_s)
    for by_uplink in came:
        now_s += READ_INTERVAL_S
        counted = [count + more for count, more in zip(counted, by_uplink, strict=True)]
        yield now_s, read(checks, counted, now_s)


def read(checks: InboundCheck, counted: list[int], now_s: float) -> Seen:
    if not due(checks, now_s):
        return Seen()
    read = tuple((VM, uplink, count) for uplink, count in zip((OLD, NEW), counted, strict=True))
    told = checks.heard(InboundRead("br0", read), now_s)
    return Seen(
        any(isinstance(c, ReadLearned) for c in told),
        any(isinstance(c, Observe | Report) for c in told),
    )


def test_ports_that_are_gone_are_not_read() -> None:
    checks = watched()
    moved(checks, "vnet1")
    checks.keep_watching({VM + 1})
    assert due(checks, 0.0) == (VM + 1,)
    checks.forget_switch()
    assert due(checks, 9.0) == ()


BYTES = st.integers(0, 3)


@given(st.lists(st.tuples(BYTES, BYTES), max_size=60))
def test_whatever_comes_it_ends_and_is_announced_again_so_often_at_most(
    came: list[tuple[int, int]],
) -> None:
    seen = dict(readings(watched(), came))
    again_s = [0.0] + [at_s for at_s, s in seen.items() if s.again]
    assert len(again_s) - 1 <= MOST_AGAIN
    assert all(b - a > ANSWERED_AFTER_S for a, b in itertools.pairwise(again_s))
    ends = [at_s for at_s, s in seen.items() if s.ends]
    assert len(ends) <= 1
    assert not ends or ends[0] >= max(again_s), "announced after the end"
