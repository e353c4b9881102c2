"""`ovs-lbt` with a fault in one part: `python faulty.py FAULT ovs-lbt WORDS…`.

Each fault is an exception where nobody expects one, in one thread. No test imports this: the
framework may patch whatever process it is in.
"""

from __future__ import annotations

import importlib
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

# What lies beside this file has names of the standard library's.
sys.path.pop(0)
# Before all others, as in the command: it may have to patch the standard library.
framework: Any = importlib.import_module("controller.openflow.framework")

from controller import cli  # noqa: E402
from controller.api.events import PortStatsRead, Request  # noqa: E402
from controller.engine import Engine  # noqa: E402
from controller.host import forwarding  # noqa: E402
from controller.host.control import Server  # noqa: E402
from controller.openflow import connections, messages  # noqa: E402
from controller.ovsdb import database  # noqa: E402


def fails(*_: object, **__: object) -> Any:
    raise AttributeError("injected")


def sometimes(function: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    """The same function, that fails where `when` says so of its arguments."""

    def call(*arguments: Any, **more: Any) -> Any:
        return fails() if when(*arguments) else function(*arguments, **more)

    return call


def first(count: int) -> Callable[..., bool]:
    """Whether it is one of the first calls."""
    calls = iter(range(count))
    return lambda *_: next(calls, None) is not None


def is_attach(_self: Any, event: Any, *_: object) -> bool:
    return isinstance(event, Request) and event.words[0] == "attach"


def poll(_self: Any, event: Any, *_: object) -> bool:
    return isinstance(event, PortStatsRead)


def always(*_: object) -> bool:
    return True


def _sender() -> None:
    framework._AT_ONCE = False
    made = framework.Connection.__init__

    def broken(connection: Any, sock: Any, *rest: Any) -> None:
        sock.sendall = fails
        made(connection, sock, *rest)

    framework.Connection.__init__ = broken


def _listener() -> None:
    listens = socket.create_server

    class Listener:
        """Takes no call at first."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            self._socket = listens(*arguments, **more)
            self.setsockopt = self._socket.setsockopt
            self.accept = sometimes(self._socket.accept, first(2))

    socket.create_server = Listener  # type: ignore[assignment]


def _library() -> None:
    handle = Engine.handle

    def handled(engine: Engine, event: Any, now_s: float) -> Any:
        if is_attach(engine, event):
            threading.Thread(target=fails, name="a library's", daemon=True).start()
        return handle(engine, event, now_s)

    Engine.handle = handled  # type: ignore[assignment, method-assign]


# Of what a part does, and which of its calls fail.
FAILING: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "engine": (Engine, "handle", is_attach),
    "poll": (Engine, "handle", poll),
    "commands": (Server, "_take", always),
    "writes": (database.Database, "_commit", always),
    "one-write": (database.Database, "_command", always),
    "handler": (messages, "port_states", always),
    "reply": (messages, "bundle_outcome", always),
    "handshake": (framework.Connection, "set_state", lambda _, state: state == "config"),
    "line": (connections.Dialers, "dial", always),
    "echoes": (framework._Echoes, "run", first(2)),
    "forwarding": (forwarding, "_fdb", always),
}
OTHERS = {"sender": _sender, "listener": _listener, "library": _library}

if __name__ == "__main__":
    if (name := sys.argv[1]) in OTHERS:
        OTHERS[name]()
    else:
        owner, attribute, when = FAILING[name]
        setattr(owner, attribute, sometimes(getattr(owner, attribute), when))
    sys.exit(cli.main(sys.argv[3:]))
