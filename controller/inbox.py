"""The engine's inbox: events from all threads, and which of them has its turn."""

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

# With so many events of one bridge waiting, no more are read from its switch. All uplinks and VM ports
# of a bridge can fail at once before that.
MOST_OF_A_BRIDGE = 200
# Readings are larger than other events: so many of their entries count as one more event.
ENTRIES = 250
# So many events of one bridge in a row are handled while an event of another one waits.
MOST_IN_A_ROW = 2
# So often in a row, something that waits lets go first what is more urgent.
MOST_PASSED = 10


@dataclass(frozen=True, slots=True)
class StatusWanted:
    """A scrape waits for the status of the next bridge `after` this one, by name.

    Bridges are read one by one, so that decisions need not wait for all of them.
    """

    after: str
    answer: queue.SimpleQueue[BridgeStatus | None]


# These can wait. A poll brings counters every second, and nothing depends on the moment at which
# they are judged: the switch's own clock is in them.
PATIENT = (PortStatsRead, UnitCountersRead, InboundRead, InstalledRead, StatusWanted)

Item = Event | StatusWanted


class Inbox:
    """Takes events from any thread, and gives them to the engine's thread one by one.

    Urgent events come first: a link has failed, a bundle is done, or an operator sends a request.
    Next come due timers. Readings and scrapes come last (`PATIENT`). So a failover
    does not wait until the polls of all other bridges have been judged.

    Events of one bridge stay in order: counters from before a link failure are taken before the
    failure. Nothing is passed over more than `MOST_PASSED` times in a row, and bridges
    take turns, so that a switch that reports changes without end does not block other bridges.
    """

    def __init__(self) -> None:
        # What was put in and is not sorted yet. Only the engine's thread touches the rest.
        self._arrived: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._prompt: deque[Item] = deque()
        self._patient: deque[Item] = deque()
        # How often in a row each was passed over: prompt events, what is due, patient events.
        self._passed = [0, 0, 0]
        # The bridge of the last prompt event, and how many of its events were taken in a row.
        self._last, self._in_a_row = "", 0
        # How many events of each bridge wait.
        self._count: Counter[str] = Counter()
        self._counting = threading.Lock()

    def __len__(self) -> int:
        return self._arrived.qsize() + len(self._prompt) + len(self._patient)

    def put(self, item: Item) -> None:
        """Put an event in, from any thread."""
        self._weigh(item, 1)
        self._arrived.put(item)

    def is_full_of(self, item: Item) -> bool:
        """Whether so many events of the same bridge wait that no more should be put in."""
        waiting = self._count.get(_bridge_of(item), 0)
        return waiting > 0 and waiting + _weight(item) > MOST_OF_A_BRIDGE

    def next_item(self, due_s: float) -> Item | None:
        """Return the next event. None: the timer that was due at `due_s` is next.

        Wait for an event if there is none, but no longer than until then.
        """
        if (item := self._first(due_s)) is not None:
            self._weigh(item, -1)
        return item

    def _weigh(self, item: Item, sign: int) -> None:
        if bridge := _bridge_of(item):
            # Outside the lock: all threads that put events in would wait for it.
            weight = sign * _weight(item)
            with self._counting:
                self._count[bridge] += weight
                assert self._count[bridge] >= 0, "events leave with the weight that they came with"

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
        assert waiting, "nothing is taken before it is there"
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
    """The bridge that an event concerns; empty if it does not concern one bridge."""
    return item.bridge if isinstance(item, BridgeEvent) else ""


def _weight(item: Item) -> int:
    """As how many events an event counts: what it holds takes memory, and time to handle."""
    held = (getattr(item, name) for name in getattr(item, "__dataclass_fields__", ()))
    return 1 + sum(len(value) for value in held if isinstance(value, tuple)) // ENTRIES
