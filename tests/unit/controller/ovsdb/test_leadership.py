"""Who leads: services that die, hang and wake, and a server that keeps their locks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.ovsdb.leadership import LEADER, SILENT_TICKS, TICK_S, Ask, Watch

STEP_S = 0.05
# The longest that a leader who hangs keeps the lead, with a step for each message on its way.
STOLEN_WITHIN_S = (SILENT_TICKS + 1) * TICK_S + 8 * STEP_S


@dataclass
class Server:
    """RFC 7047's locks: who has one, and who waits for it.

    As ovsdb-server has it, who has stolen one and is stolen from is not next in line.
    """

    queues: dict[str, list[Service]] = field(default_factory=dict)
    thieves: set[tuple[str, int]] = field(default_factory=set)
    stands_still: bool = False
    requests: int = 0
    _waiting: list[tuple[Service, Ask]] = field(default_factory=list)

    def take(self, asker: Service, ask: Ask) -> None:
        self.requests += 1
        self._waiting.append((asker, ask))

    def work(self) -> None:
        while self._waiting and not self.stands_still:
            self._carry_out(*self._waiting.pop(0))

    def _carry_out(self, asker: Service, ask: Ask) -> None:
        queue = self.queues.setdefault(ask.lock, [])
        if ask.method in ("lock", "steal") and asker in queue:
            raise AssertionError(f'must issue "unlock" before new "{ask.method}" request')
        match ask.method:
            case "lock":
                queue.append(asker)
            case "steal":
                queue.insert(0, asker)
                asker.tell(ask, True)
                if len(queue) > 1:
                    queue[1].tell(Ask("stolen", ask.lock), False)
                    if (ask.lock, id(queue[1])) in self.thieves:
                        self._leave(queue[1], ask.lock)
                self.thieves.add((ask.lock, id(asker)))
                return
            case "unlock":
                self._leave(asker, ask.lock)
        asker.tell(ask, bool(queue) and queue[0] is asker)

    def hang_up(self, gone: Service) -> None:
        for lock in list(self.queues):
            self._leave(gone, lock)

    def _leave(self, gone: Service, lock: str) -> None:
        queue = self.queues.get(lock, [])
        had_it = bool(queue) and queue[0] is gone
        self.thieves.discard((lock, id(gone)))
        if gone in queue:
            queue.remove(gone)
        if had_it and queue:
            queue[0].tell(Ask("locked", lock), True)


@dataclass(eq=False)
class Service:
    """What `replica.Replica` does, between messages and the watch."""

    server: Server
    name: str
    watch: Watch = field(default_factory=Watch)
    alive: bool = True
    stopped: bool = False
    leads: bool | None = None
    busy_until_s: float = 0.0
    _inbox: deque[tuple[Ask, bool]] = field(default_factory=deque)
    _challenged: bool = False

    def start(self) -> None:
        self.server.take(self, Ask("lock", LEADER))

    def tell(self, ask: Ask, ours: bool) -> None:
        self._inbox.append((ask, ours))

    def kill(self) -> None:
        self.alive = False
        self.server.hang_up(self)

    def run(self, now_s: float) -> None:
        if not self.alive or self.stopped:
            return
        has_lock: bool | None = None
        while self._inbox:
            ask, ours = self._inbox.popleft()
            if ask.lock == LEADER:
                has_lock = ours if ask.method != "unlock" else has_lock
            elif ask.method in ("locked", "stolen"):
                self._challenged |= self.watch.lock_changed(ask.lock, ours)
            else:
                self.watch.replied(ask, ours)
        asked: list[Ask] = []
        if has_lock is not None and has_lock is not self.leads:
            self.leads = has_lock
            asked += self.watch.begin(has_lock, now_s)
        if self.leads is not None:
            asked += self.watch.tick(now_s)
        if self._challenged and now_s >= self.busy_until_s:
            self._challenged = False
            asked += self.watch.answer()
        for ask in asked:
            self.server.take(self, ask)


class Host:
    """Several services on one database, in time."""

    def __init__(self, services: int) -> None:
        self.server = Server()
        self.services = [Service(self.server, f"service {n}") for n in range(services)]
        self.now_s = 0.0
        for service in self.services:
            service.start()
            self.run(2 * STEP_S)

    def run(self, for_s: float) -> Host:
        until_s = self.now_s + for_s - STEP_S / 2
        while self.now_s < until_s:
            self.now_s += STEP_S
            self.server.work()
            for service in self.services:
                service.run(self.now_s)
        return self

    @property
    def leaders(self) -> list[int]:
        """Those who take themselves for it, of those who could do something."""
        able = [n for n, s in enumerate(self.services) if s.alive and not s.stopped]
        return [n for n in able if self.services[n].leads]


def test_who_is_alone_leads_and_asks_nothing_more() -> None:
    host = Host(1).run(1)
    asked = host.server.requests
    assert host.run(60).leaders == [0]
    assert host.server.requests == asked


@pytest.mark.parametrize("services", [2, 3])
def test_the_first_leads_for_as_long_as_it_lives(services: int) -> None:
    host = Host(services)
    for _ in range(200):
        assert host.run(0.3).leaders == [0]


@pytest.mark.parametrize("services", [2, 3])
def test_a_leader_that_dies_is_followed_by_the_next_one(services: int) -> None:
    host = Host(services).run(5)
    for number in range(services - 1):
        host.services[number].kill()
        assert host.run(3 * STEP_S).leaders == [number + 1]
        assert host.run(5).leaders == [number + 1]


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.15, 0.2])
def test_a_leader_that_hangs_is_stolen_from_and_stands_by_when_it_wakes(after_s: float) -> None:
    host = Host(2).run(5 + after_s)
    first, second = host.services
    first.stopped = True
    host.run(SILENT_TICKS * TICK_S - 4 * STEP_S)
    assert host.leaders == []
    host.run(STOLEN_WITHIN_S - SILENT_TICKS * TICK_S + 4 * STEP_S)
    assert host.leaders == [1]
    host.run(7)
    first.stopped = False
    assert host.run(STEP_S).leaders == [1]
    assert host.run(7).leaders == [1]
    second.stopped = True
    assert host.run(STOLEN_WITHIN_S).leaders == [0]


def test_a_leader_by_theft_that_is_stolen_from_follows_the_thief_at_once() -> None:
    host = Host(2).run(5)
    for thief in (1, 0, 1, 0):
        host.services[1 - thief].stopped = True
        host.run(STOLEN_WITHIN_S)
        assert host.leaders == [thief]
        host.services[1 - thief].stopped = False
        host.run(1)
    host.services[0].kill()
    assert host.run(4 * STEP_S).leaders == [1]


def test_a_leader_that_is_slow_keeps_the_lead() -> None:
    host = Host(2).run(5)
    for _ in range(20):
        host.services[0].busy_until_s = host.now_s + 0.8
        assert host.run(1.1).leaders == [0]


def test_who_stands_by_and_stood_still_itself_steals_nothing() -> None:
    host = Host(2)
    for pause_s in (0.3, 0.5, 1.0, 1.1, 1.3, 5.0, 60.0):
        host.services[1].stopped = True
        host.run(pause_s)
        host.services[1].stopped = False
        for _ in range(20):
            assert host.run(STEP_S).leaders == [0]


def test_a_server_that_stood_still_makes_nobody_look_dead() -> None:
    host = Host(2).run(5)
    for pause_s in (0.3, 0.5, 1.0, 1.1, 1.3, 5.0, 60.0):
        host.server.stands_still = True
        host.run(pause_s)
        host.server.stands_still = False
        for _ in range(20):
            assert host.run(STEP_S).leaders == [0]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.floats(0.05, 4.0), st.floats(0.05, 4.0)), max_size=8)
)
def test_whoever_hangs_and_wakes_one_leads_in_the_end(
    stops: list[tuple[int, float, float]],
) -> None:
    host = Host(2)
    for number, asleep_s, awake_s in stops:
        host.services[number].stopped = True
        host.run(asleep_s)
        host.services[number].stopped = False
        host.run(awake_s)
        assert len(host.leaders) <= 1
    assert len(host.run(STOLEN_WITHIN_S).leaders) == 1
