"""The running service: the engine's thread, and the shell that carries out its commands."""

from __future__ import annotations

import atexit
import importlib.metadata
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ovs.dirs

from controller import control, framework, openflow, port_flags
from controller.engine import Engine
from controller.events import (
    Command,
    Connect,
    Disconnect,
    Event,
    ReadStats,
    Reply,
    Report,
    SetPortFlags,
    Tick,
    UnitCountersRead,
    Write,
)
from controller.exporter import Exporter
from controller.ovsdb import Database
from controller.status import BridgeStatus

LOG = logging.getLogger(__name__)

VERSION = importlib.metadata.version("ovs-lbt")
STATUS_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """What `ovs-lbt run` is told. `metrics` None: no metrics are served."""

    ovsdb: str
    metrics: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class _StatusWanted:
    """A scrape waits for the engine's picture of itself."""

    answer: queue.SimpleQueue[tuple[BridgeStatus, ...]]


class Service:
    """Everything that runs. All state is the engine's and changes on one thread only."""

    def __init__(self, options: Options) -> None:
        started_s = time.monotonic()
        self._engine = Engine(epoch_s=time.time() - started_s)
        self._events: queue.SimpleQueue[Event | _StatusWanted] = queue.SimpleQueue()
        self._connections: dict[str, Any] = {}
        self._lines: dict[str, framework.Line] = {}
        self._asked_s: dict[str, float] = {}
        self._crashed = threading.Event()
        control.claim_pidfile()
        self._control = control.Server(self._events.put, VERSION)
        self._exporter = Exporter(self._status, VERSION)
        if options.metrics is not None:
            self._exporter.listen(*options.metrics)
        framework.start(
            "controller.app",
            submit=self._events.put,
            connections=self._connections,
            crash=self._crash,
        )
        self._database = Database(options.ovsdb, self._events.put)

    def run(self) -> int:
        """Serve until the engine cannot be trusted any more; the process's exit status."""
        threading.Thread(target=self._run_engine, name="engine", daemon=True).start()
        LOG.info("ovs-lbt %s is running", VERSION)
        self._control.serve(going_on=lambda: not self._crashed.is_set())
        return 1

    def _run_engine(self) -> None:
        try:
            while True:
                self._step()
        except Exception as error:
            LOG.exception("the engine failed")
            self._crash(error)

    def _step(self) -> None:
        """Wait for an event or the next deadline, and do what the engine says."""
        wait_s = max(0.0, min(self._engine.deadline_s() - time.monotonic(), threading.TIMEOUT_MAX))
        event: Event | _StatusWanted
        try:
            event = self._events.get(timeout=wait_s)
        except queue.Empty:
            event = Tick()
        if isinstance(event, _StatusWanted):
            event.answer.put(self._engine.status())
            return
        started_s = time.monotonic()
        commands = self._engine.handle(event, started_s)
        if isinstance(event, UnitCountersRead):
            self._exporter.observe_decision(event.bridge, time.monotonic() - started_s)
            self._exporter.observe_poll(event.bridge, started_s - self._asked_s[event.bridge])
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Connect(bridge=bridge):
                self._lines[bridge] = framework.Line(bridge, _management_socket(bridge))
            case Disconnect(bridge=bridge):
                self._lines.pop(bridge).stop()
            case SetPortFlags(bridge=bridge):
                port_flags.start(_management_socket(bridge), command, self._events.put)
            case Write():
                self._database.write(command)
            case Reply():
                self._control.reply(command)
            case Report(level=level, text=text):
                LOG.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
            case _:
                self._send(command)

    def _send(self, command: Any) -> None:
        """One write for all messages of a command; a connection just lost takes none."""
        datapath = self._connections.get(command.bridge)
        if datapath is None:
            return
        if isinstance(command, ReadStats):
            self._asked_s[command.bridge] = time.monotonic()
        messages = openflow.ENCODERS[type(command)](datapath, command)
        datapath.send(framework.serialized(messages))

    def _status(self) -> tuple[BridgeStatus, ...]:
        """The engine's picture, asked for by another thread."""
        wanted = _StatusWanted(queue.SimpleQueue())
        self._events.put(wanted)
        return wanted.answer.get(timeout=STATUS_TIMEOUT_S)

    def _crash(self, error: Exception) -> None:
        """Nothing is certain any more: end at once, and let the supervisor start us anew.

        The switch goes on by what is installed.
        """
        LOG.critical("ending after an error: %s", error)
        self._crashed.set()
        self._control.wake()


def _management_socket(bridge: str) -> Path:
    return Path(ovs.dirs.RUNDIR) / f"{bridge}.mgmt"


def exit_now(status: int) -> None:
    """End the process, which the framework's threads would keep; pidfile and socket go."""
    atexit._run_exitfuncs()
    os._exit(status)
