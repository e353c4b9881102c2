"""Elects the leader among several services on one database, with locks of ovsdb-server.

The server grants the lock LEADER to one service. When the connection of that service ends, the
server grants the lock to the next service in the queue, so a leader that ends is replaced
immediately. A leader that hangs or is suspended keeps the lock. Therefore the first service on
standby checks repeatedly whether the leader is alive: the standby service steals the lock PULSE,
the server notifies the leader, and the leader steals PULSE back. If the leader does not do so, the
standby service steals LEADER. Locks exist only in the server's memory, so nothing is written to the
database. Without a standby service, the leader sends no requests about locks after its start.

This module contains only the election. For the behaviour of leader and standby, see `controller.engine`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

# The owner of this lock is the leader. Only the leader may write. Lock names must not contain dashes.
LEADER = "ovs_lbt"
# The lock that is stolen to check whether the leader is alive.
PULSE = "ovs_lbt_pulse"
# The owner of this lock is the first service on standby, which checks the leader.
WATCH = "ovs_lbt_watch"
# LEADER is stolen from a leader that hangs for 1.0 to 1.25 s. If this time were shorter, a busy leader
# would be replaced. If it were longer, a takeover would not be complete within 2 s.
TICK_S = 0.25
SILENT_TICKS = 4
# After the database was unreachable, services on standby delay their requests for the lock by this time,
# which is longer than any service needs to reconnect (database.RECONNECT_MS). So the old leader remains
# the leader.
STAND_BACK_S = 1.5


class Ask(NamedTuple):
    """A request to ovsdb-server. `lock` is empty for requests without a lock."""

    method: str
    lock: str = ""


_ECHO = Ask("echo")


def _take(lock: str) -> list[Ask]:
    """Return requests that steal a lock: first unlock, because a client in the queue must not steal."""
    return [Ask("unlock", lock), Ask("steal", lock)]


@dataclass(slots=True)
class Watch:
    """The state of one service in the election, after the server has granted LEADER to some service.

    Time is measured in checks that the server has answered, so that no leader is replaced because
    the server or this service paused.
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
        """Start as leader or standby, after connecting or a change of role. Return requests to send."""
        lost = self.leads and not leads
        self.leads, self.asks, self.unanswered = leads, False, False
        self._silent_ticks, self._pending = 0, None
        self.due_s = float("inf") if leads else now_s + TICK_S
        if leads:
            return [Ask("unlock", WATCH), *_take(PULSE)]
        # If the lock was stolen, request the lock again: the server removed this service from the lock's
        # queue.
        again = [Ask("unlock", LEADER), Ask("lock", LEADER)] if lost else []
        return [*again, Ask("unlock", WATCH), Ask("lock", WATCH)]

    def lock_changed(self, lock: str, ours: bool) -> bool:
        """Handle a report that this service got or lost a lock. Return whether to call `answer`."""
        if lock == WATCH:
            self.asks = ours
        elif lock == PULSE and not ours:
            self.unanswered = False
            return self.leads
        return False

    def answer(self) -> list[Ask]:
        """Return the requests that show that this service is alive; none if another service leads."""
        return _take(PULSE) if self.leads else []

    def replied(self, ask: Ask, locked: bool) -> None:
        """Handle the server's answer to a request. `locked`: this service owns the requested lock."""
        if ask == Ask("lock", WATCH):
            self.asks = locked
        if ask != self._pending:
            return
        self._pending = None
        if ask == Ask("steal", PULSE):
            self.unanswered, self._silent_ticks = True, 0

    def tick(self, now_s: float) -> list[Ask]:
        """Return the requests that check whether the leader is alive, or that steal its lock."""
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
