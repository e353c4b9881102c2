"""The engine's inbox: a queue of events with priorities, and a limit on each bridge's events."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass

from controller.api.events import (
    BridgeEvent,
    Event,
    InboundRead,
    InstalledRead,
    PortStatsRead,
    UnitCountersRead,
)
from controller.api.status import BridgeStatus

# If this many events of one bridge wait, none are read from its switch. The number is large enough
# for a failure of all uplinks and VM ports of a bridge at the same time.
MOST_OF_A_BRIDGE = 200
# Readings are larger than other events: each group of this many entries counts as one more event.
ENTRIES = 250
# The largest number of events of one bridge in a row, while an event of another bridge waits.
MOST_IN_A_ROW = 2
# How many times in a row more urgent items can be taken before a waiting one.
MOST_PASSED = 10


@dataclass(frozen=True, slots=True)
class StatusWanted:
    """A metrics scrape's request for the status of the first bridge whose name follows `after`.

    Bridges are read one by one, so that decisions do not wait until all bridges are read.
    """

    after: str
    answer: queue.SimpleQueue[BridgeStatus | None]


# Items that can wait. Counters from polls can be evaluated later, because they include the time on
# the switch's clock.
PATIENT = (PortStatsRead, UnitCountersRead, InboundRead, InstalledRead, StatusWanted)

Item = Event | StatusWanted


class Inbox:
    """Accepts events from any thread, and returns them to the engine's thread one by one.

    Urgent events, such as link failures, finished bundles and operators' requests, come first. Due
    timers come next. Data read from switches, and scrapes, come last (`PATIENT`), so that failovers
    do not wait until the polls of all other bridges are evaluated.

    Events of one bridge stay in order: counters from before a link failure are returned before the
    failure. No item is passed over more than `MOST_PASSED` times in a row, and bridges take turns, so
    that a switch that reports changes continuously does not block other bridges.
    """

    def __init__(self) -> None:
        # New items that are not sorted yet. Only the engine's thread uses the other queues. A SimpleQueue
        # would wait for ever if a short timeout ends before it has begun to wait (CPython 3.11 and 3.12).
        self._arrived: queue.Queue[Item] = queue.Queue()
        self._prompt: deque[Item] = deque()
        self._patient: deque[Item] = deque()
        # How often in a row each kind was passed over: urgent events, due timers, patient events.
        self._passed = [0, 0, 0]
        # The bridge of the last urgent event, and the number of its events returned in a row.
        self._last, self._in_a_row = "", 0
        # The number of waiting events of each bridge, weighted (`_weight`).
        self._count: Counter[str] = Counter()
        self._counting = threading.Lock()

    def __len__(self) -> int:
        return self._arrived.qsize() + len(self._prompt) + len(self._patient)

    def put(self, item: Item) -> None:
        """Add an item to the queue. Thread-safe."""
        self._weigh(item, 1)
        self._arrived.put(item)

    def is_full_of(self, item: Item) -> bool:
        """Whether the bridge of `item` has too many queued events to add the item now."""
        waiting = self._count.get(_bridge_of(item), 0)
        return waiting > 0 and waiting + _weight(item) > MOST_OF_A_BRIDGE

    def next_item(self, due_s: float) -> Item | None:
        """Return the next item; None if the timer that is due at `due_s` comes first.

        If no item is available, wait for one until `due_s`.
        """
        if (item := self._first(due_s)) is not None:
            self._weigh(item, -1)
        return item

    def _weigh(self, item: Item, sign: int) -> None:
        if bridge := _bridge_of(item):
            # Computed outside the lock, because all threads that add events would wait.
            weight = sign * _weight(item)
            with self._counting:
                self._count[bridge] += weight
                assert self._count[bridge] >= 0, "the weight of an event does not change"

    def _first(self, due_s: float) -> Item | None:
        while not self._arrived.empty():
            self._sort(self._arrived.get_nowait())
        wait_s = due_s - time.monotonic()
        if wait_s > 0.0 and not (self._prompt or self._patient):
            try:
                return self._arrived.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
            except queue.Empty:
                return None
        return self._next(is_due=wait_s <= 0.0)

    def _sort(self, item: Item) -> None:
        if isinstance(item, PATIENT):
            self._patient.append(item)
            return
        if bridge := _bridge_of(item):
            ahead = [one for one in self._patient if _bridge_of(one) == bridge]
            if ahead:
                self._prompt += ahead
                self._patient = deque(one for one in self._patient if _bridge_of(one) != bridge)
        self._prompt.append(item)

    def _next(self, is_due: bool) -> Item | None:
        lanes = enumerate((self._prompt, is_due, self._patient))
        waiting = [lane for lane, waits in lanes if waits]
        assert waiting, "an item or a due timer is available"
        overdue = (lane for lane in waiting[1:] if self._passed[lane] >= MOST_PASSED)
        lane = next(overdue, waiting[0])
        for other in waiting:
            self._passed[other] = self._passed[other] + 1 if other != lane else 0
        return (self._next_prompt, lambda: None, self._patient.popleft)[lane]()

    def _next_prompt(self) -> Item:
        at = 0
        if self._in_a_row >= MOST_IN_A_ROW:
            others = (n for n, one in enumerate(self._prompt) if _bridge_of(one) != self._last)
            at = next(others, 0)
        item = self._prompt[at]
        del self._prompt[at]
        bridge = _bridge_of(item)
        self._in_a_row = self._in_a_row + 1 if bridge and bridge == self._last else 1
        self._last = bridge
        return item


def _bridge_of(item: Item) -> str:
    """Return the bridge that an event concerns; empty if it does not concern one bridge."""
    return item.bridge if isinstance(item, BridgeEvent) else ""


def _weight(item: Item) -> int:
    """Return an item's weight in events: large items take more memory and more time to handle."""
    held = (getattr(item, name) for name in getattr(item, "__dataclass_fields__", ()))
    return 1 + sum(len(value) for value in held if isinstance(value, tuple)) // ENTRIES
