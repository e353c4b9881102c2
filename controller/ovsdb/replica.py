"""Replicates Open vSwitch's database, and exchanges the lock messages that elect a leader."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ovs import jsonrpc, poller
from ovs.db import idl

from controller.host import faults
from controller.ovsdb import records
from controller.ovsdb.leadership import LEADER, PULSE, STAND_BACK_S, WATCH, Ask, Watch

LOG = logging.getLogger(__name__)

# The most time to wait for the server's confirmation that this service leads, or for its latest changes.
CONFIRM_TIMEOUT_S = 1.0
# The interval between checks whether an unsuitable schema has been upgraded.
SCHEMA_INTERVAL_S = 5.0
# The error from older servers, after which the library uses an older method.
UNKNOWN_METHOD = "unknown method"
MS_PER_S = 1000

Then = Callable[[bool | None], None]


@contextlib.contextmanager
def _vital() -> Iterator[None]:
    """After a failure, end the process and the thread. The library would keep the thread running."""
    try:
        yield
    except Exception as error:
        faults.report("database", error, "replica", ends=True)
        raise SystemExit(1) from error


class Replica(idl.Idl):  # type: ignore[misc]
    """A replica of the database that reports changes and, after `contend`, whether this service leads.

    The library requests the lock LEADER and asserts it with every transaction, so the server refuses
    writes from a service that does not lead. This class handles all other messages about locks. Its
    thread calls `changed`, `led` (when this service's role changes) and `challenged` (when a
    standby checks this service). `leads`: None while unknown. `lacking`: the text from
    `records.lacking` for the current schema; if not empty, the rows are from an earlier schema.
    """

    # Attributes of the library's class.
    lock_name: str | None
    is_lock_contended: bool
    state: int

    def __init__(self, remote: str, helper: Any, database: str) -> None:
        super().__init__(remote, helper)
        self.changed: Callable[[], None] = lambda: None
        self.led: Callable[[bool], None] = lambda _leads: None
        self.challenged: Callable[[], None] = lambda: None
        self.leads: bool | None = None
        self.contends = False
        # Whether the server sent all rows on the present connection, and `changed` was called for them.
        self.is_current = False
        # Rows that have changed since the last reading, each as (name of the table, row ID).
        self.touched: set[tuple[str, Any]] = set()
        self._database = database
        self.lacking = ""
        self._schema_request_id: int | None = None
        self._schema_due_s = float("inf")
        # The connection on which the schema was requested, and whether the schema is suitable.
        self._asked_on = -1
        self._fits = True
        self._seen = -1, ""
        self._watch = Watch()
        # The connection on which we joined the election, and whether we were the leader then.
        self._begun: tuple[int, bool] | None = None
        self._lock_due_s: float | None = None
        # The requests about locks that the server has not answered yet.
        self._asked: dict[int, Ask] = {}
        # Functions to run on the replica's thread once this service takes part in the election.
        self._to_do: queue.SimpleQueue[Callable[[float], None]] = queue.SimpleQueue()
        self._confirming: dict[int, tuple[Then, float]] = {}
        # Functions to run after `changed`.
        self._caught_up: list[Callable[[], None]] = []
        self._wakened, self._waken = socket.socketpair()
        self._wakened.setblocking(False)
        self._waken.setblocking(False)
        self._receive = self._session.recv
        self._session.recv = self._received

    # ---- called on any thread ----------------------------------------------------------

    def answer(self) -> None:
        """Answer a standby service's check, to show that this service is alive."""
        self._on_thread(self._answer)

    def confirm(self, then: Then) -> None:
        """Ask the server whether this service leads. Call `then` with the answer (None: no answer)."""
        self._on_thread(lambda now_s: self._confirm(then, now_s))

    def catch_up(self, then: Callable[[], None]) -> None:
        """Call `then` after `changed` was called for every change that the server has made so far.

        If the server cannot be asked, or does not answer in time, call `then` anyway.
        """
        self._on_thread(lambda now_s: self._catch_up(then, now_s))

    def _on_thread(self, step: Callable[[float], None]) -> None:
        self._to_do.put(step)
        with contextlib.suppress(BlockingIOError):
            self._waken.send(b"!")

    # ---- called on the replica's thread ------------------------------------------------

    def contend(self) -> None:
        """Request the lock LEADER, and take part in the election from now on."""
        self.contends = True
        self.set_lock(LEADER)

    def notify(self, _event: str, row: Any, _updates: Any = None) -> None:
        self.touched.add((row._table.name, row.uuid))

    def cooperative_yield(self) -> None:
        time.sleep(0)

    @_vital()
    def run(self) -> Any:
        """Run the library's loop once. If ovs-lbt's code fails, the process ends.

        The library would only log the failure, and continue although an event was lost.
        """
        with contextlib.suppress(BlockingIOError):
            self._wakened.recv(4096)
        if self.contends:
            self._stand_back(time.monotonic())
        result = self._follow_server()
        if self.contends:
            self._contend(time.monotonic())
        monitors = self.state == self.IDL_S_MONITORING and self._fits
        if monitors:
            self.lacking, self._schema_due_s = "", float("inf")
        elif (now_s := time.monotonic()) >= self._schema_due_s:
            self._ask_for_schema(now_s)
        if (now := (self.change_seqno, self.lacking)) != self._seen:
            self._seen = now
            self.changed()
        self.is_current = monitors and self._session.is_connected()
        caught_up, self._caught_up = self._caught_up, []
        for then in caught_up:
            then()
        return result

    def _follow_server(self) -> Any:
        """Let the library process messages. If that fails, reconnect and read all rows again."""
        try:
            return super().run()
        except Exception as error:
            faults.report("database", error, "replica")
            self.force_reconnect()
        return False

    def _ask_for_schema(self, now_s: float) -> None:
        """Request the schema, because the server does not report changes of the schema."""
        self._schema_due_s = now_s + SCHEMA_INTERVAL_S
        request = jsonrpc.Message.create_request("get_schema", [self._database])
        self._schema_request_id = request.id
        self._session.send(request)

    def _take_schema(self, schema: Any) -> None:
        lacking, fitted = records.lacking(schema), self._fits
        self._fits = not lacking
        if self._fits and not fitted:
            self.force_reconnect()
        elif lacking not in ("", self.lacking):
            LOG.error("%s; the last valid state stays in force", lacking)
            self.lacking = lacking

    @_vital()
    def wait(self, waiting: Any) -> None:
        super().wait(waiting)
        waiting.fd_wait(self._wakened.fileno(), poller.POLLIN)
        times = [self._schema_due_s, *(due_s for _, due_s in self._confirming.values())]
        if self._lock_due_s is not None:
            times.append(self._lock_due_s)
        if self._is_begun:
            times.append(self._watch.due_s)
        if (due_s := min(times, default=float("inf"))) < float("inf"):
            waiting.timer_wait(max(0, round((due_s - time.monotonic()) * MS_PER_S) + 1))

    @property
    def _is_begun(self) -> bool:
        """Whether the server has answered the request for the lock LEADER on this connection."""
        if self._begun is None or not self._session.is_connected():
            return False
        return bool(self._begun[0] == self._session.get_seqno())

    def _stand_back(self, now_s: float) -> None:
        """After an outage, delay a standby service's request for LEADER, so that the leader is first."""
        if self.leads is not False:
            return
        if not self._session.is_connected():
            # The library would request the lock with its first message.
            self.lock_name, self.is_lock_contended = None, False
            self._lock_due_s = None
        elif self.lock_name is None and self._lock_due_s is None:
            self._lock_due_s = now_s + STAND_BACK_S
        elif self._lock_due_s is not None and now_s >= self._lock_due_s:
            self._lock_due_s = None
            self.set_lock(LEADER)

    def _contend(self, now_s: float) -> None:
        """Report a new role of this service, and send its requests for the election."""
        self._expire(now_s)
        if not self._session.is_connected():
            self._asked.clear()
        if self.has_lock or self.is_lock_contended:
            self._follow(self.has_lock, now_s)
        if self._is_begun:
            self._send(self._watch.tick(now_s))
        while not self._to_do.empty():
            self._to_do.get()(now_s)

    def _answer(self, _now_s: float) -> None:
        if self._is_begun:
            self._send(self._watch.answer())

    def _follow(self, leads: bool, now_s: float) -> None:
        begun = self._session.get_seqno(), leads
        if begun == self._begun or not self._session.is_connected():
            return
        self._begun = begun
        self._send(self._watch.begin(leads, now_s))
        if leads is not self.leads:
            self.leads = leads
            self.led(leads)

    def _send(self, asked: Iterable[Ask]) -> None:
        for ask in asked:
            params = [ask.lock] if ask.lock else []
            request = jsonrpc.Message.create_request(ask.method, params)
            if ask in (Ask("steal", LEADER), Ask("lock", LEADER)):
                # Let the library treat the answer as the answer to its own request.
                self._lock_request_id = request.id
            else:
                self._asked[request.id] = ask
            self._session.send(request)

    def _confirm(self, then: Then, now_s: float) -> None:
        if not self._is_begun:
            then(None)
        elif not self.has_lock:
            then(False)
        else:
            operation = {"op": "assert", "lock": LEADER}
            request = jsonrpc.Message.create_request("transact", [self._database, operation])
            self._confirming[request.id] = then, now_s + CONFIRM_TIMEOUT_S
            self._session.send(request)

    def _catch_up(self, then: Callable[[], None], now_s: float) -> None:
        if not self.is_current:
            self._caught_up.append(then)
            return
        # The server answers after it has sent all earlier changes.
        request = jsonrpc.Message.create_request("echo", [])
        due_s = now_s + CONFIRM_TIMEOUT_S
        self._confirming[request.id] = (lambda _: self._caught_up.append(then)), due_s
        self._session.send(request)

    def _expire(self, now_s: float) -> None:
        here = self._session.is_connected()
        late = [n for n, (_, due_s) in self._confirming.items() if now_s >= due_s or not here]
        for number in late:
            then, _ = self._confirming.pop(number)
            then(None)

    def _received(self) -> Any:
        """Return the next message that the library has to process; None if no message has arrived."""
        while (message := self._receive()) is not None:
            if (connection := self._session.get_seqno()) != self._asked_on:
                # The library requests rows only after its first answers have arrived.
                self._asked_on, self._fits = connection, True
                self._ask_for_schema(time.monotonic())
            if not self._is_ours(message):
                return message
        return None

    def _is_ours(self, message: Any) -> bool:
        """Handle a message about our locks or an answer to our requests; return False for all others."""
        if message.type == jsonrpc.Message.T_NOTIFY:
            if message.method == "monitor_canceled":
                # The schema was converted. Older libraries would wait for rows that never arrive.
                self.force_reconnect()
                return True
            if message.method.startswith("update"):
                # With an unsuitable schema, rows may have types that cannot be read.
                return not self._fits
            lock = message.params[0] if message.params else None
            if message.method not in ("locked", "stolen") or lock not in (PULSE, WATCH):
                return False
            if self._watch.lock_changed(lock, message.method == "locked"):
                self.challenged()
            return True
        if not isinstance(message.id, int):
            return False
        if message.id == self._schema_request_id:
            self._take_schema(message.result)
            return True
        if message.id == self._monitor_request_id and message.error != UNKNOWN_METHOD:
            if message.error is not None:
                self._fits, self._schema_due_s = False, 0.0
            return not self._fits
        if message.id in self._asked:
            result = message.result
            locked = isinstance(result, dict) and result.get("locked") is True
            self._watch.replied(self._asked.pop(message.id), locked)
            return True
        if message.id in self._confirming:
            then, _ = self._confirming.pop(message.id)
            # All operations of the transaction succeeded.
            done = isinstance(message.result, list) and all(
                isinstance(result, dict) and "error" not in result for result in message.result
            )
            then(done)
            return True
        return False
