"""The control socket (unixctl server), which passes commands to the engine and returns its answers.

As with any OVS daemon, the pidfile and the socket are in OVS's run directory, so that
`ovs-appctl -t ovs-lbt lbt/show` works.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import queue
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import ovs.daemon
import ovs.poller
import ovs.unixctl
import ovs.unixctl.server
import ovs.util

from controller.api.commands import REQUESTS, SLOW
from controller.api.engine_commands import Reply
from controller.api.events import Request
from controller.api.requests import form
from controller.text.wording import printable

PREFIX = "lbt/"
# A request that takes longer than this is answered with an error.
ANSWER_TIMEOUT_S = 15.0
SLOW_TIMEOUT_S = 125.0
EXPIRY_CHECK_MS = 1000
# How often to check whether the socket still exists.
RUNDIR_CHECK_MS = 5000
# How long a client may take to send a request or read an answer, and the most open connections.
CALLER_MAX_S, CALLERS_MAX = 10.0, 64
# The database and the switch have separate time limits, so the cause is not known here.
UNANSWERED = "run `ovs-lbt show` to check the switch's connection, and see journalctl -u ovs-lbt"


def claim_pidfile(name: str) -> None:
    """Write the pidfile, or exit with an error if another service with the name `name` is running."""
    ovs.util.PROGRAM_NAME = name
    ovs.daemon.set_pidfile(None)
    ovs.daemon.daemonize()


class _Caller(ovs.unixctl.server.UnixctlConnection):  # type: ignore[misc]
    """A client's connection. It is closed if a text cannot be decoded, or if the client is too slow."""

    def __init__(self, rpc: Any) -> None:
        super().__init__(rpc)
        # When the connection was accepted, or last received an answer.
        self.since_s = time.monotonic()

    def run(self) -> int | None:
        if self._request_id is None and time.monotonic() > self.since_s + CALLER_MAX_S:
            return errno.ETIMEDOUT
        try:
            error: int | None = super().run()
        except UnicodeError:
            return errno.EPROTO
        return error


ovs.unixctl.server.UnixctlConnection = _Caller


class Server:
    """The control socket's server. It runs on the main thread; the engine's thread calls `reply`."""

    def __init__(self, submit: Callable[[Request], None], version: str) -> None:
        self._version = version
        self._server = self._listen()
        self._submit = submit
        self._ids = itertools.count(1)
        # For each request: the connection, the time limit, and the duration of the limit.
        self._waiting: dict[int, tuple[Any, float, float]] = {}
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        # A pair of sockets, not a pipe, because os.read would block with green threads.
        self._wakened, self._waken = socket.socketpair()
        self._wakened.setblocking(False)
        self._waken.setblocking(False)
        for name, row in REQUESTS.items():
            ovs.unixctl.command_register(PREFIX + name, *form(row), self._take, name)
        # OVS daemons in C have the command list-commands. OVS daemons in Python have help instead.
        listed = ovs.unixctl.commands["help"].callback
        ovs.unixctl.command_register("list-commands", "", 0, 0, listed, None)

    def _listen(self) -> Any:
        """Create the socket. Only its owner has write access, because a client can send any command."""
        others = os.umask(0o077)
        try:
            error, server = ovs.unixctl.server.UnixctlServer.create(None, self._version)
        finally:
            os.umask(others)
        if error:
            raise OSError(error, os.strerror(error))
        return server

    def _listen_again(self) -> None:
        """Create the socket and the pidfile again, if another program has deleted Open vSwitch's run directory."""
        old = self._server._listener
        if os.path.exists(old.bind_path):
            return
        with contextlib.suppress(OSError):
            # A deleted directory can still be mounted.
            if not os.stat(os.path.dirname(old.bind_path)).st_nlink:
                return
            server = self._listen()
            old.bind_path = None  # closing would delete the new socket, which has the same path
            self._server.close()
            self._server = server
            if not os.path.exists(ovs.daemon.make_pidfile_name(None)):
                ovs.daemon._make_pidfile()

    def reply(self, reply: Reply) -> None:
        """Answer a request. Thread-safe."""
        self._replies.put(reply)
        self.wake()

    def wake(self) -> None:
        """Make `serve` check its state again. Safe on any thread and in signal handlers."""
        with contextlib.suppress(BlockingIOError):
            self._waken.send(b"!")

    def serve(self, going_on: Callable[[], bool]) -> int:
        """Serve until `going_on`, called after each `wake`, returns False. Return exit status 1."""
        # Python runs signal handlers on this thread when it wakes up. A signal on another thread, or
        # just before `block`, does not wake this thread, but a byte on the socket does.
        signal.set_wakeup_fd(self._waken.fileno(), warn_on_full_buffer=False)
        while going_on():
            self._listen_again()
            self._server.run()
            self._hang_up()
            poller = ovs.poller.Poller()
            self._server.wait(poller)
            poller.fd_wait(self._wakened.fileno(), ovs.poller.POLLIN)
            busy = self._waiting or self._server._conns
            poller.timer_wait(EXPIRY_CHECK_MS if busy else RUNDIR_CHECK_MS)
            poller.block()
            self._answer()
            self._expire()
        return 1

    def _hang_up(self) -> None:
        """If there are too many connections, close the oldest, preferably one without a request."""
        callers = self._server._conns
        while len(callers) > CALLERS_MAX:
            oldest = min(callers, key=lambda caller: caller._request_id is not None)
            oldest._close()
            callers.remove(oldest)

    def _take(self, connection: Any, words: list[str], name: str) -> None:
        request_id = next(self._ids)
        limit_s = SLOW_TIMEOUT_S if name in SLOW else ANSWER_TIMEOUT_S
        self._waiting[request_id] = (connection, time.monotonic() + limit_s, limit_s)
        self._submit(Request(request_id, (name, *words)))

    def _answer(self) -> None:
        try:
            self._wakened.recv(4096)
        except BlockingIOError:
            return
        while not self._replies.empty():
            reply = self._replies.get()
            connection, *_ = self._waiting.pop(reply.request_id, (None,))
            if connection is not None:
                _send(connection, reply.text, reply.refused)

    def _expire(self) -> None:
        """Answer overdue requests with an error, for example if the switch is lost during a move."""
        now_s = time.monotonic()
        for request_id in [i for i, (_, due_s, _) in self._waiting.items() if due_s <= now_s]:
            connection, _, limit_s = self._waiting.pop(request_id)
            text = f"the request was not completed within {limit_s:g} s; {UNANSWERED}"
            _send(connection, text, refused=True)


def _send(connection: Any, text: str, refused: bool) -> None:
    """Send an answer, unless the client has closed the connection. ovs-appctl prints the text."""
    if connection._request_id is not None:
        (connection.reply_error if refused else connection.reply)(printable(text, whole=True))
        connection.since_s = time.monotonic()
