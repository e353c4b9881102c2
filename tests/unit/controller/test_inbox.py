"""The inbox: what is urgent comes first, and nothing of one bridge overtakes anything else of it."""

from __future__ import annotations

import math
import queue
import threading
import time

import pytest

from controller.api.events import (
    BundleDone,
    DatabaseRead,
    InstalledRead,
    LearnedRead,
    PortChanged,
    PortRemoved,
    PortState,
    PortStatsRead,
    Request,
    SwitchGone,
    Tick,
    UnitCountersRead,
)
from controller.inbox import (
    ENTRIES,
    MOST_IN_A_ROW,
    MOST_OF_A_BRIDGE,
    MOST_PASSED,
    Inbox,
    Item,
    StatusWanted,
)

LONG_AGO_S = 0.0


def failed(bridge: str) -> PortChanged:
    return PortChanged(bridge, PortState(1, "eth1", up=False, speed_bps=1e9))


def counted(bridge: str) -> PortStatsRead:
    return PortStatsRead(bridge, ())


def taken(inbox: Inbox, due_s: float = math.inf) -> list[Item | None]:
    """Everything that is in it, in turn; `None` where what is due has its turn."""
    found = []
    while len(inbox):
        found.append(inbox.next_item(due_s))
    return found


def holding(*items: Item) -> Inbox:
    inbox = Inbox()
    for item in items:
        inbox.put(item)
    return inbox


def test_a_failed_link_comes_before_the_counters_of_other_bridges_that_wait_already() -> None:
    inbox = holding(counted("br1"), counted("br2"), counted("br3"))
    assert inbox.next_item(math.inf) == counted("br1")
    inbox.put(failed("br9"))
    assert taken(inbox) == [failed("br9"), counted("br2"), counted("br3")]


@pytest.mark.parametrize("event", [failed("br1"), SwitchGone("br1"), BundleDone("br1", 7)])
def test_what_a_bridge_counted_before_an_event_is_taken_before_it(
    event: PortChanged | SwitchGone | BundleDone,
) -> None:
    units = UnitCountersRead("br1", ())
    before: list[Item] = [counted("br1"), units, InstalledRead("br1", (), ())]
    after: list[Item] = [counted("br1"), units]
    inbox = holding(counted("br0"), *before, counted("br2"), event, *after)
    assert taken(inbox) == [*before, event, counted("br0"), counted("br2"), *after]


def test_events_that_cannot_wait_keep_their_order() -> None:
    asked = Request(1, ("show",))
    events: list[Item] = [failed("br1"), DatabaseRead(()), PortRemoved("br2", 3), asked, Tick()]
    assert taken(holding(counted("br3"), *events)) == [*events, counted("br3")]


def test_what_is_due_comes_between_them() -> None:
    inbox = holding(counted("br1"), failed("br2"))
    assert [inbox.next_item(LONG_AGO_S) for _ in range(2)] == [failed("br2"), None]
    assert inbox.next_item(math.inf) == counted("br1")


def test_a_scrape_waits_as_counters_do() -> None:
    scrape = StatusWanted("", queue.SimpleQueue())
    inbox = holding(scrape, counted("br1"), failed("br2"))
    assert taken(inbox) == [failed("br2"), scrape, counted("br1")]


def test_changes_without_end_do_not_keep_it_from_anything_else() -> None:
    inbox = holding(counted("br1"), *[failed("br0")] * 100)
    first = [inbox.next_item(LONG_AGO_S) for _ in range(2 * MOST_PASSED + 2)]
    assert first.index(counted("br1")) == MOST_PASSED + 1
    assert first.index(None) == MOST_PASSED
    assert first.count(None) == 2


def test_bridges_take_turns_and_the_events_of_each_keep_their_order() -> None:
    others: list[Item] = [failed("br1"), PortRemoved("br1", 1), failed("br2")]
    found = taken(holding(*[failed("br0")] * 100, *others))
    assert [item for item in found if item != failed("br0")] == others
    assert found.index(others[-1]) == len(others) * (MOST_IN_A_ROW + 1) - 1


def test_a_large_reading_counts_as_many_events() -> None:
    addresses = tuple((1, f"{number:012x}", 0) for number in range(ENTRIES * MOST_OF_A_BRIDGE))
    large = LearnedRead("br0", addresses)
    inbox = Inbox()
    assert not inbox.is_full_of(large), "it is taken if nothing else of its bridge waits"
    inbox.put(large)
    assert inbox.is_full_of(failed("br0")) and not inbox.is_full_of(
        large.__class__("br1", addresses)
    )
    assert inbox.next_item(math.inf) == large
    assert not inbox.is_full_of(failed("br0"))


def test_work_that_is_always_due_does_not_keep_it_from_counters() -> None:
    inbox = holding(*(counted(f"br{number}") for number in range(3)))
    found = taken(inbox, LONG_AGO_S)
    assert found == [*[None] * MOST_PASSED, counted("br0"), *found[MOST_PASSED + 1 :]]
    assert found.count(None) == 3 * MOST_PASSED


def test_it_waits_until_something_is_due() -> None:
    due_s = time.monotonic() + 0.02
    assert Inbox().next_item(due_s) is None
    assert time.monotonic() >= due_s


def test_a_timer_that_is_due_at_once_never_waits_for_an_event() -> None:
    inbox = Inbox()

    def wait_often() -> None:
        for _ in range(40_000):
            inbox.put(Tick())
            inbox.next_item(math.inf)
            assert inbox.next_item(time.monotonic() + 1e-6) is None

    waiting = threading.Thread(target=wait_often, daemon=True)
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive(), "the engine waits although a timer is due"
