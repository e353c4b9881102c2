"""The service with two bridges and without threads: br0 is hostile, br1 must not notice."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from os_ken import cfg
from os_ken.base.app_manager import AppManager
from os_ken.controller import ofp_handler

from controller.api.engine_commands import (
    AddSelectGroup,
    ReadForwarding,
    Reply,
    SetPortFlags,
    Write,
)
from controller.api.events import (
    DatabaseRead,
    ForwardingRead,
    PortFlagsSet,
    SelectGroupAdded,
    SwitchConnected,
    Tick,
)
from controller.engine import Engine
from controller.host import faults
from controller.inbox import Inbox
from controller.openflow import framework
from controller.openflow.app import TeamingApp
from controller.service import Service
from tests.unit.fake_switch import FakeSwitch, world
from tests.unit.rows import host

CHUNK_BYTES = 512


class Nothing:
    """Stands in for the parts of the service that are not looked at; each call is none."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: None


class Rig(Service):
    """Real from the socket's bytes to the bytes that would be sent; `crashes` are exceptions."""

    def __init__(self) -> None:
        framework_is_loaded()
        _CURRENT[:] = [self]
        self._engine = Engine()
        self._events = Inbox()
        self._connections = {}
        self._asked = {}
        self._polls = {}
        self._staged = {}
        self._role_known = False
        self._challenged = threading.Event()
        self._only = None
        self._beside_the_switch = False
        self._exit_status = None
        self.crashes: list[str] = []
        self.replies: list[Reply] = []
        nothing: Any = Nothing()
        self._journal = self._exporter = self._database = self._control = nothing
        self._dialers = self._qdiscs = nothing
        self._supervisor = _NoSupervisor()  # type: ignore[assignment]
        here, there = host(), replace(host(), name="br1")
        self.good: FakeSwitch = world(there).switches["br1"]
        self._events.put(DatabaseRead((here, there)))
        self._events.put(SwitchConnected("br1", tuple(self.good.ports.values())))
        self.proceed()

    def proceed(self) -> None:
        while len(self._events):
            self._step()

    def _carry_out(self, command: Any) -> None:
        if isinstance(command, Write) or getattr(command, "bridge", "") != "br1":
            if isinstance(command, SetPortFlags):
                self._events.put(PortFlagsSet(command.bridge, command.number, frozenset()))
            elif isinstance(command, AddSelectGroup):
                self._events.put(SelectGroupAdded(command.bridge, command.number))
            elif isinstance(command, ReadForwarding):
                self._events.put(ForwardingRead(command.bridge, (), "no"))
            elif isinstance(command, Reply):
                self.replies.append(command)
            else:
                super()._carry_out(command)
            return
        for event in self.good.carry_out(command):
            self._events.put(event)

    def hear(self, sent: Iterable[bytes], dialled: bool = True) -> None:
        """A connection from its beginning to its end."""
        wire = _Wire(sent, self)
        connection = _Connection(wire, "hostile", "br0" if dialled else None)
        try:
            connection._recv_loop()
        except Exception as error:
            # As in `connections`: the connection ends.
            self.ended = repr(error)
        connection.close()
        _drain()
        self.proceed()
        self._events.put(Tick())
        self.proceed()

    def check(self) -> None:
        """Nothing has happened to anything else."""
        assert self.crashes == []
        assert not self._connections
        bridges = self._engine.fleet.bridges
        assert bridges.keys() == {"br0", "br1"}
        assert len(bridges["br1"].placing.bound) == 4
        assert self.good.installed == bridges["br1"].installation.desired()
        assert bridges["br0"].config.errors == ()


class _NoSupervisor:
    feed_due_s = float("inf")


class _Wire:
    """A socket that says what it was given, in chunks; between them, everybody has their turn."""

    def __init__(self, said: Iterable[bytes], rig: Rig) -> None:
        self._said = deque(
            part[at : at + CHUNK_BYTES] for part in said for at in range(0, len(part), CHUNK_BYTES)
        )
        self._rig = rig
        self._closed = False

    def recv(self, _count: int) -> bytes:
        _drain()
        self._rig.proceed()
        return self._said.popleft() if self._said and not self._closed else b""

    def recv_some(self, _count: int) -> bytes:
        return self._said.popleft() if self._said and not self._closed else b""

    def shutdown(self, _how: int) -> None:
        self._closed = True

    def close(self) -> None:
        self._closed = True

    def setsockopt(self, *_: Any) -> None: ...

    def settimeout(self, _: Any) -> None: ...


class _Connection(framework.Connection):
    """Sends nothing."""

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        assert isinstance(buf, bytes | bytearray)
        if close_socket:
            framework.hang_up(self)
        return True


_CURRENT: list[Rig] = []


@cache
def framework_is_loaded() -> tuple[Any, ...]:
    """Both apps, with no thread of their own."""
    faults.LEDGER._end = lambda: _CURRENT[0].crashes.append("a handler failed")
    faults.vital = faults.guarded  # type: ignore[assignment]
    apps = AppManager.get_instance()
    cfg.CONF(project="ovs-lbt", args=[])
    here = (
        apps._instantiate(None, ofp_handler.OFPHandler),
        apps._instantiate(
            None,
            TeamingApp,
            submit=lambda event: _CURRENT[0]._events.put(event),
            connections=_Connections(),
            caller=lambda connection: setattr(connection, "refused", True),
            confirm=lambda then: then(True),
        ),
    )
    apps._update_bricks()
    return here


class _Connections(dict[str, Any]):
    """Those of the rig in use."""

    def __setitem__(self, bridge: str, connection: Any) -> None:
        _CURRENT[0]._connections[bridge] = connection

    def __delitem__(self, bridge: str) -> None:
        del _CURRENT[0]._connections[bridge]

    def get(self, bridge: str, default: Any = None) -> Any:
        return _CURRENT[0]._connections.get(bridge, default)


def _drain() -> None:
    """What the apps' threads would do with their events."""
    for app in framework_is_loaded():
        while not app.events.empty():
            event, state = app.events.get()
            app._events_sem.release()
            for handler in app.get_handlers(event, state):
                handler(event)
