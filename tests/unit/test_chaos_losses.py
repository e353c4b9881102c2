"""What chaos counts as lost, the bound of each kind of event, and the table that says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import documents
from tests.switch.chaos import losses, model
from tests.switch.chaos.losses import Flow, Lost, Moment
from tests.switch.chaos.model import Event, Service, State

FIRST = State.first(2, (None, 10))
WATCHED = State.first(2, (None, 10), watched=True)
ON_LACP = State.first(2, (None, 10), lag=True, negotiated=True, on_bond=True)
MOVE, DOWN = Event("move", ("v0", "u1")), Event("cable-down", ("u0",))
OUT = Flow("v0 to host", "v0", inbound=False)
IN = Flow("host to v0", "v0", inbound=True, silent=True)
SENT = {number: (100 + number * 0.02, 100 + number * 0.02 + 0.001) for number in range(100)}


def of(event: Event, before: State = FIRST, heard: set[int] | None = None, *after: Moment) -> Lost:
    """What `OUT` loses if only some of its frames are heard."""
    bound = losses.bound_ms(event, before)
    return losses.lost(OUT, SENT, heard or set(SENT), [Moment(0.0, before), *after], bound)


def test_the_document_has_the_bounds() -> None:
    text = (documents.ROOT / "docs/reliability/chaos.md").read_text()
    assert losses.with_table(text) == text, "again: python -m tests.switch.chaos.losses"


def test_every_kind_of_event_has_a_bound() -> None:
    assert losses.BOUNDS.keys() == model.KINDS.keys()


def test_a_frame_that_is_lost_is_beyond_a_bound_of_nothing() -> None:
    assert not of(MOVE).beyond
    found = of(MOVE, FIRST, SENT.keys() - {7})
    assert found.beyond
    assert found.lost_ms == losses.FRAME_MS
    assert "lost 1 of 100 frames (20 ms, from #7) -> at most 0 ms" in str(found)


def test_a_failover_may_lose_a_tenth_of_a_second() -> None:
    assert not of(DOWN, FIRST, SENT.keys() - set(range(10, 15))).beyond
    assert of(DOWN, FIRST, SENT.keys() - set(range(10, 16))).beyond


@pytest.mark.parametrize(
    ("before", "event", "of_it", "most_ms"),
    [
        (FIRST, "flap u0 3", "", 300),
        (WATCHED, "flap u0 3", "", 2300),
        (WATCHED, "database-restarted", "", 2000),
        (WATCHED, "dark u0", "", 1000),
        (ON_LACP, "dark u0", "", 4100),
        (FIRST, "storm 2", "", 400),
        (FIRST, "service-killed", "", 0),
        # Broadcasts to a VM that gets another uplink have a bound of their own.
        (FIRST, "move v0 u1", "broadcast", 0),
        (FIRST, "move v0 u1", "moved", 0),
        (FIRST, "move v0 u1", "broadcast moved", 80),
        (FIRST, "cable-down u0", "broadcast moved", 100),
        # A service that stops may leave a VM port half moved.
        (FIRST, "service-killed", "broadcast", 0),
        (FIRST, "service-killed", "moved", 0),
        (FIRST, "service-killed", "broadcast moved", 2000),
        # So has a link whose BFD is still slow.
        (WATCHED, "dark u0", "slow", 3100),
        (WATCHED, "cable-down u0", "slow", 100),
        # A broadcast may be lost when a bond is taken over.
        (ON_LACP, "observe", "broadcast", 20),
        (ON_LACP, "observe", "", 0),
        (FIRST, "observe", "broadcast", 0),
        # And the VM that an event is about has a bound of its own.
        (FIRST, "vm-renamed v0", "own", 1000),
        (FIRST, "vm-renamed v0", "", 0),
    ],
)
def test_a_bound_depends_on_what_watches_on_how_many_fail_and_on_the_flow(
    before: State, event: str, of_it: str, most_ms: float
) -> None:
    flags = dict.fromkeys(of_it.split(), True)
    assert losses.bound_ms(Event.parse(event), before, **flags) == most_ms


def test_a_broadcast_may_come_twice_for_each_link_that_fails() -> None:
    dead = replace(FIRST, service=Service.DEAD)
    back = Event("cable-up", ("u0",))
    assert losses.twice_bound(DOWN, FIRST) == 1
    assert losses.twice_bound(Event("storm", ("2",)), FIRST) == 4
    assert losses.twice_bound(MOVE, FIRST) == 0
    assert losses.twice_bound(back, FIRST) == 0
    assert losses.twice_bound(back, dead) == 1


def test_what_is_sent_while_there_is_no_way_is_told_apart() -> None:
    found = of(MOVE, FIRST, SENT.keys() - set(range(10)), Moment(0.1, None), Moment(100.2, FIRST))
    assert (found.cut, found.numbers, found.beyond) == (10, (), False)
    late = of(MOVE, FIRST, SENT.keys() - set(range(12)), Moment(0.1, None), Moment(100.2, FIRST))
    assert late.numbers == (10, 11)
    assert late.beyond


def test_what_is_sent_while_a_way_ends_is_told_apart() -> None:
    gone = Moment(100.2005, None), Moment(100.3, FIRST)
    assert of(MOVE, FIRST, SENT.keys() - {10}, *gone).numbers == ()
    assert of(MOVE, FIRST, SENT.keys() - {9}, *gone).numbers == (9,)


def test_a_flow_counts_that_has_a_way_before_and_after() -> None:
    assert losses.expected(OUT, FIRST, FIRST)
    assert not losses.expected(OUT, FIRST, model.after(FIRST, Event("vm-stops", ("v0",))))
    retagged = model.after(FIRST, Event("vm-retagged", ("v0", "20")))
    assert losses.expected(OUT, FIRST, retagged)
    assert not losses.expected(IN, FIRST, retagged)
    dark = replace(FIRST, uplinks={n: replace(u, plugged=False) for n, u in FIRST.uplinks.items()})
    assert not losses.expected(OUT, FIRST, dark)


def test_what_is_not_promised() -> None:
    dead = replace(FIRST, service=Service.DEAD)
    assert losses.promised(IN, DOWN, FIRST, FIRST)
    assert losses.promised(OUT, DOWN, dead, dead)
    assert losses.promised(IN, MOVE, dead, dead)
    assert not losses.promised(IN, DOWN, dead, dead)
    observed = replace(ON_LACP, observing=True)
    assert not losses.promised(OUT, DOWN, observed, observed)
    assert losses.promised(OUT, Event("observe"), ON_LACP, observed)
