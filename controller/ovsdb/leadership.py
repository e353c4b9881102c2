"""Elects the leader among several services on one database, by locks of ovsdb-server.

The server gives the lock LEADER to one service. When the connection of that service ends, the
server gives the lock to the next in the queue, so a leader that dies is replaced immediately. A leader
that hangs or is stopped keeps its lock. Therefore the first service on standby checks repeatedly
whether the leader is alive. It steals the lock PULSE, the server notifies the leader, and the
leader takes PULSE back. If the leader does not, the standby steals LEADER. Locks exist only in the
server's memory: nothing is written to the database. A service without a standby sends nothing after
its start.

This module only elects. The behaviour of leader and standby is in `controller.engine`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# Lock names must not contain dashes. The owner of this lock leads, and alone may write.
LEADER = "ovs_lbt"
# The lock by which the leader is checked.
PULSE = "ovs_lbt_pulse"
# The owner of this lock checks the leader: the first service on standby.
WATCH = "ovs_lbt_watch"
# LEADER is stolen from a leader that hangs for 1.0 to 1.25 s. A shorter time would take a busy
# leader for dead. A longer one would not leave enough time to take over within 2 s.
TICK_S = 0.25
SILENT_TICKS = 4
# After the database was unreachable, services on standby ask for the lock this much later than
# others. That is longer than any service needs to reconnect (ovsdb.RECONNECT_MS), so the old leader
# stays leader.
STAND_BACK_S = 1.5


class Ask(NamedTuple):
    """A request to ovsdb-server. `lock` is empty for requests without a lock."""

    method: str
    lock: str = ""


_ECHO = Ask("echo")


def _take(lock: str) -> list[Ask]:
    """Unlock first: the server refuses a steal by a client that already waits for the lock."""
    return [Ask("unlock", lock), Ask("steal", lock)]


@dataclass(slots=True)
class Watch:
    """One service's part in the election, once the server has named the leader.

    Time is counted in ticks that the server has answered, so a pause of the server or of this
    service does not make a leader look dead.
    """

    leads: bool = False
    # Whether this service checks the leader.
    asks: bool = False
    # Whether the leader has not yet taken back the stolen PULSE.
    unanswered: bool = False
    _silent_ticks: int = 0
    # A request that the server has not answered yet.
    _pending: Ask | None = None
    # When `tick` is next due; infinity for the leader.
    due_s: float = field(default=float("inf"))

    def begin(self, leads: bool, now_s: float) -> list[Ask]:
        """Start as leader or as standby, also after a reconnect."""
        lost = self.leads and not leads
        self.leads, self.asks, self.unanswered = leads, False, False
        self._silent_ticks, self._pending = 0, None
        self.due_s = float("inf") if leads else now_s + TICK_S
        if leads:
            return [Ask("unlock", WATCH), *_take(PULSE)]
        # Re-queue for the lock after losing a stolen lock: the server forgets such an owner, while
        # it puts others next in the queue.
        again = [Ask("unlock", LEADER), Ask("lock", LEADER)] if lost else []
        return [*again, Ask("unlock", WATCH), Ask("lock", WATCH)]

    def lock_changed(self, lock: str, ours: bool) -> bool:
        """The server reports that a lock is ours or no longer ours. Returns whether to `answer`."""
        if lock == WATCH:
            self.asks = ours
        elif lock == PULSE and not ours:
            self.unanswered = False
            return self.leads
        return False

    def answer(self) -> list[Ask]:
        """Show that this service is alive, if it leads."""
        return _take(PULSE) if self.leads else []

    def replied(self, ask: Ask, locked: bool) -> None:
        """The server has answered a request. `locked`: the lock is ours."""
        if ask == Ask("lock", WATCH):
            self.asks = locked
        if ask != self._pending:
            return
        self._pending = None
        if ask == Ask("steal", PULSE):
            self.unanswered, self._silent_ticks = True, 0

    def tick(self, now_s: float) -> list[Ask]:
        """Check whether the leader is alive, or steal its lock."""
        if now_s < self.due_s:
            return []
        assert not self.leads, "the leader checks no other service"
        self.due_s = now_s + TICK_S
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
