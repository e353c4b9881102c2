"""The unixctl server: operators' commands in, the engine's answers out.

OVS's own convention: a pidfile and a socket in OVS's run directory, so that
`ovs-appctl -t ovs-lbt lbt/show` works as for any OVS daemon.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import queue
import socket
import time
from collections.abc import Callable
from typing import Any

import ovs.daemon
import ovs.poller
import ovs.unixctl
import ovs.unixctl.server
import ovs.util

from controller.api.events import Reply, Request

PREFIX = "lbt/"
# A request that has not been answered by then is answered with an error.
ANSWER_TIMEOUT_S = 15.0
EXPIRY_CHECK_MS = 1000
# Whoever is waited for, each has its own time; so this is told when ours is up, too.
UNANSWERED = "ovs-lbt show, which says whether the switch is connected; and the log of ovs-lbt"

# What each command takes: a usage line, and the least and most words.
COMMANDS = {
    "show": ("[BRIDGE] [--json]", 0, 2),
    "attach": ("BRIDGE [KEY=VALUE]...", 1, 32),
    "detach": ("BRIDGE [--purge]", 1, 2),
    "set": ("bridge|interface NAME KEY=VALUE...", 3, 64),
    "move": ("PORT UPLINK", 2, 2),
    "pin": ("PORT UPLINK", 2, 2),
    "unpin": ("PORT", 1, 1),
    "drain": ("UPLINK", 1, 1),
    "undrain": ("UPLINK", 1, 1),
    "plan": ("[BRIDGE] [--json]", 0, 2),
    "apply": ("[BRIDGE]", 0, 1),
    "explain": ("PORT [--json]", 1, 2),
    "history": ("[BRIDGE] [--port PORT] [--last N] [--json]", 0, 6),
}


def claim_pidfile(name: str) -> None:
    """Write the pidfile, or exit with an error if another service of that name holds it."""
    ovs.util.PROGRAM_NAME = name
    ovs.daemon.set_pidfile(None)
    ovs.daemon.daemonize()


class _Caller(ovs.unixctl.server.UnixctlConnection):  # type: ignore[misc]
    """A connection of which the library cannot decode every text: it is closed then."""

    def run(self) -> int | None:
        try:
            error: int | None = super().run()
        except UnicodeError:
            return errno.EPROTO
        return error


ovs.unixctl.server.UnixctlConnection = _Caller


class Server:
    """Runs on the main thread; the engine's thread answers through `reply`."""

    def __init__(self, submit: Callable[[Request], None], version: str) -> None:
        # Whoever may write to the socket is an operator.
        others = os.umask(0o077)
        try:
            error, self._server = ovs.unixctl.server.UnixctlServer.create(None, version)
        finally:
            os.umask(others)
        if error:
            raise OSError(error, os.strerror(error))
        self._submit = submit
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[Any, float]] = {}
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        # Green threads' os.read would wait; their sockets can be told not to.
        self._wakened, self._waken = socket.socketpair()
        self._wakened.setblocking(False)
        self._waken.setblocking(False)
        for name, (usage, least, most) in COMMANDS.items():
            ovs.unixctl.command_register(PREFIX + name, usage, least, most, self._take, name)
        # OVS's daemons in C call it list-commands, those in Python help.
        ovs.unixctl.command_register("list-commands", "", 0, 0, _list_commands, None)

    def reply(self, reply: Reply) -> None:
        """Answer a request; from any thread."""
        self._replies.put(reply)
        self.wake()

    def wake(self) -> None:
        """Make `serve` look at everything again; from any thread or signal handler."""
        with contextlib.suppress(BlockingIOError):
            self._waken.send(b"!")

    def serve(self, going_on: Callable[[], bool]) -> int:
        """Serve until `going_on` says no; call `wake` to make it ask. A failure, then."""
        while going_on():
            self._server.run()
            poller = ovs.poller.Poller()
            self._server.wait(poller)
            poller.fd_wait(self._wakened.fileno(), ovs.poller.POLLIN)
            if self._waiting:
                poller.timer_wait(EXPIRY_CHECK_MS)
            poller.block()
            self._answer()
            self._expire()
        return 1

    def _take(self, connection: Any, words: list[str], name: str) -> None:
        request_id = next(self._ids)
        self._waiting[request_id] = (connection, time.monotonic() + ANSWER_TIMEOUT_S)
        self._submit(Request(request_id, (name, *words)))

    def _answer(self) -> None:
        try:
            self._wakened.recv(4096)
        except BlockingIOError:
            return
        while not self._replies.empty():
            reply = self._replies.get()
            connection, _ = self._waiting.pop(reply.request_id, (None, 0.0))
            if connection is not None:
                _send(connection, reply.text, reply.refused)

    def _expire(self) -> None:
        """Nobody waits for ever, e.g. for a switch that went away during a move."""
        now_s = time.monotonic()
        for request_id in [i for i, (_, due_s) in self._waiting.items() if due_s <= now_s]:
            connection, _ = self._waiting.pop(request_id)
            text = f"no answer in {ANSWER_TIMEOUT_S:g} s -> {UNANSWERED}"
            _send(connection, text, refused=True)


def _send(connection: Any, text: str, refused: bool) -> None:
    """Answer who has asked, unless it has hung up meanwhile."""
    if connection._request_id is not None:
        (connection.reply_error if refused else connection.reply)(text)


def _list_commands(connection: Any, _words: list[str], _aux: Any) -> None:
    lines = ["The available commands are:"]
    for name, command in sorted(ovs.unixctl.commands.items()):
        lines.append(f"  {name:<23} {command.usage}".rstrip())
    connection.reply("\n".join(lines))
