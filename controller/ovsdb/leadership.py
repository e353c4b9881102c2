"""Which of several services on one database leads, by locks of the database: a leader and those
who stand by.

The database's server gives the lock LEADER to one, and to the next in line when that one's
connection ends: so a leader that dies is followed at once. One that hangs or was stopped keeps its
lock. So the first of those who stand by asks, again and again, whether it lives: it steals the lock
PULSE, of which the server tells the leader, and the leader takes it back. A leader that does not is
stolen from. Locks are kept in the server's memory: nothing is written, and who is alone sends
nothing after its start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# The server takes names without dashes only. Who has this one decides, and alone may write.
LEADER = "ovs_lbt"
# By which the leader is asked whether it lives.
PULSE = "ovs_lbt_pulse"
# Who has it asks: of those who stand by, the first.
WATCH = "ovs_lbt_watch"
# A leader that hangs is stolen from 1.0 to 1.25 s later. Less would take a busy one for dead; more
# would not leave the time to take its bridges over within 2 s of its end.
TICK_S = 0.25
SILENT_TICKS = 4
# When the database was away, whoever stood by asks for the lock that much later than others: longer
# than any service takes to be back (ovsdb.RECONNECT_MS). So who led leads on.
STAND_BACK_S = 1.5


class Ask(NamedTuple):
    """A request to the database's server; `lock` empty: one without."""

    method: str
    lock: str = ""


_ECHO = Ask("echo")


def _take(lock: str) -> list[Ask]:
    """The server refuses who waits for a lock already, until that is withdrawn."""
    return [Ask("unlock", lock), Ask("steal", lock)]


@dataclass(slots=True)
class Watch:
    """One service's part in it, after the server has said who leads.

    Time counts in ticks that the server has answered: neither a server nor a service that stood
    still makes a leader look dead.
    """

    leads: bool = False
    # Whether we are the one who asks.
    asks: bool = False
    # Whether the leader has not taken back yet what we stole.
    unanswered: bool = False
    _silent_ticks: int = 0
    # A request that the server has not answered.
    _pending: Ask | None = None
    _due_s: float = field(default=float("inf"))

    def begin(self, leads: bool, now_s: float) -> list[Ask]:
        """We lead, or stand by, from here on, or the connection is a new one."""
        lost = self.leads and not leads
        self.leads, self.asks, self.unanswered = leads, False, False
        self._silent_ticks, self._pending = 0, None
        self._due_s = float("inf") if leads else now_s + TICK_S
        if leads:
            return [Ask("unlock", WATCH), *_take(PULSE)]
        # The server forgets an owner by theft who is stolen from; others it puts next in line.
        again = [Ask("unlock", LEADER), Ask("lock", LEADER)] if lost else []
        return [*again, Ask("unlock", WATCH), Ask("lock", WATCH)]

    def told(self, lock: str, ours: bool) -> bool:
        """The server says of a lock that it is ours, or not any more; whether to `answer` that."""
        if lock == WATCH:
            self.asks = ours
        elif lock == PULSE and not ours:
            self.unanswered = False
            return self.leads
        return False

    def answer(self) -> list[Ask]:
        """Say that we live, as long as we lead."""
        return _take(PULSE) if self.leads else []

    def replied(self, ask: Ask, locked: bool) -> None:
        """The server has answered; `locked`: the lock is ours."""
        if ask == Ask("lock", WATCH):
            self.asks = locked
        if ask != self._pending:
            return
        self._pending = None
        if ask == Ask("steal", PULSE):
            self.unanswered, self._silent_ticks = True, 0

    def deadline_s(self) -> float:
        """When `tick` is next due; infinity for who leads."""
        return self._due_s

    def tick(self, now_s: float) -> list[Ask]:
        """Ask whether the leader lives, or steal from it."""
        if now_s < self._due_s:
            return []
        self._due_s = now_s + TICK_S
        if not self.asks or self._pending is not None:
            return []
        if not self.unanswered:
            asked = _take(PULSE)
        elif self._silent_ticks + 1 < SILENT_TICKS:
            self._silent_ticks += 1
            asked = [_ECHO]
        else:
            self.unanswered = False
            return _take(LEADER)
        self._pending = asked[-1]
        return asked
