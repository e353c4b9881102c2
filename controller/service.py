"""Runs the service: the engine on its own thread, and the I/O for the engine's commands."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.metadata
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import ovs.dirs

from controller import announce_endpoints
from controller.api import engine_commands, events, history
from controller.api.status import BridgeStatus
from controller.engine import Engine
from controller.host import addresses, client, control, faults, forwarding, garbage
from controller.host.journal import Journal
from controller.host.notify import Supervisor
from controller.host.qdisc import Qdiscs
from controller.host.sockets import BridgeSocket, Reach, TlsFiles, bind
from controller.inbox import Inbox, StatusWanted
from controller.metrics import scrapes
from controller.metrics.exporter import Exporter
from controller.openflow import commands, connections, framework, side_connection
from controller.ovsdb.database import Database
from controller.text.wording import Refused, because, one_line

LOG = logging.getLogger(__name__)

VERSION = importlib.metadata.version("ovs-lbt")
STATUS_TIMEOUT_S = 5.0
# Reported times follow the wall clock only if it is set by more than this. A smaller difference is
# drift; if reported times followed drift, one moment would be shown as several different times.
CLOCK_SET_S = 1.0
# How long a connection waits before it checks again whether the engine accepts its events.
FULL_PAUSE_S = 0.01
# How long the commit of a bundle that was sent ahead can wait. Open vSwitch forgets an open bundle
# after 10 s (`bundle-idle-timeout`).
STAGED_FOR_S = 5.0
PROBE_KEY_BYTES = 32
# While one thread computes, for example because a switch sends much data, another thread waits up to this
# long for its turn. A failover passes through several threads, so Python's default of 5 ms would add up.
TURN_S = 0.0005
# Encoding a change takes 0.1 ms. Bundles of at least this many are encoded on a separate thread.
LARGE_CHANGES = 500


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `ovs-lbt run`.

    `metrics` None: do not serve metrics. `listen` None: do not accept connections from bridges.
    `tls` None: no TLS. `metrics_tls` None: serve metrics without TLS. `history` None: do not record
    decisions. `only`: manage only this bridge, even if others are attached. `name`: the name of
    the service, which must be unique on one Open vSwitch instance. `request`: a request to carry
    out when this service leads.
    """

    ovsdb: str
    metrics: tuple[str, int] | None = None
    listen: tuple[str, int] | None = None
    tls: TlsFiles | None = None
    metrics_tls: TlsFiles | None = None
    history: Path | None = None
    only: str | None = None
    name: str = client.NAME
    request: events.Request | None = None


class Answers(Protocol):
    """Receives the answers to requests. `serve` runs on the main thread."""

    def reply(self, reply: engine_commands.Reply) -> None: ...
    def wake(self) -> None: ...
    def serve(self, going_on: Callable[[], bool]) -> int: ...


@dataclass(frozen=True, slots=True)
class _Staged:
    """A bundle that was sent on connection `datapath` without its commit. `sent_s`: when it was sent."""

    apply: engine_commands.Apply
    datapath: Any
    commit: bytes
    sent_s: float


class Service:
    """Runs the engine, which owns all state, on one thread. Other threads submit events to it."""

    _dialers: connections.Dialers
    _database: Database
    _request: events.Request | None = None

    def __init__(
        self,
        options: Options,
        answers: Callable[[Callable[[events.Request], None], str], Answers] = control.Server,
    ) -> None:
        name = f"{options.name}@{socket.gethostname()}"
        self._engine = Engine(
            epoch_s=_epoch_s(),
            leads=False,
            name=name,
            probe_key=os.urandom(PROBE_KEY_BYTES),
            listens_on=options.listen,
        )
        self._events = Inbox()
        self._connections: dict[str, Any] = {}
        # For each bridge: when its last poll began, and whether that poll reads counters of units.
        self._asked: dict[str, tuple[float, bool]] = {}
        self._ovsdb = options.ovsdb
        self._beside_the_switch = options.ovsdb.startswith("unix:")
        self._only = options.only
        self._request = options.request
        self._supervisor = Supervisor()
        self._role_known = False
        self._polls: dict[engine_commands.ReadStats, bytes] = {}
        self._challenged = threading.Event()
        self._staged: dict[str, _Staged] = {}
        self._exit_status: int | None = None
        control.claim_pidfile(options.name)
        self._control = answers(self.request, VERSION)
        self._is_set_up = False
        kept = Path(ovs.dirs.RUNDIR) / f"{options.name}.faults"
        faults.LEDGER.open(kept, self._events.put, self._end_after_fault)
        threading.excepthook = faults.uncaught
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._journal = Journal(options.history)
        self._exporter = Exporter(
            self._status, VERSION, lambda: self._engine.fleet.leads, faults.LEDGER.counts
        )
        if options.metrics is not None:
            metrics = *options.metrics, options.metrics_tls
            bind("metrics", functools.partial(scrapes.serve, self._exporter.application, *metrics))
        framework.start(
            "controller.openflow.app",
            submit=self._submit_switch,
            connections=self._connections,
            caller=lambda connection: self._dialers.caller(connection),
            confirm=lambda then: self._database.replica.confirm(then),
            room=lambda bridge: connections.room(self._database.row(bridge)),
        )
        self._dialers = connections.Dialers(
            Reach(options.ovsdb, Path(ovs.dirs.RUNDIR), options.tls),
            record=lambda bridge: self._database.row(bridge),
            is_current=lambda: self._database.is_current,
            tried=lambda: self._events.put(events.Tick()),
        )
        if options.only is not None and self._beside_the_switch:
            # The only request configures the bridge once, and the tunnel endpoints must be known by then.
            with contextlib.suppress(OSError):
                self._events.put(addresses.read_addresses())
        self._database = Database(options.ovsdb, self._submit_database, options.tls)
        # Before changes that OpenFlow roles do not protect, the database confirms that this service leads.
        self._confirmed = self._database.confirmed
        self._qdiscs = Qdiscs(self._events.put, self._beside_the_switch, self._confirmed)
        self._database.contend()
        if self._beside_the_switch:
            addresses.start(self._events.put)
        if options.listen is not None:
            called = options.listen, options.tls
            bind("listener", functools.partial(self._dialers.listen, *called))

    def request(self, request: events.Request) -> None:
        """Carry out a request after all urgent events and changes of the database that preceded it."""
        self._database.replica.catch_up(lambda: self._events.put(request))

    def _submit_switch(self, event: events.Event) -> None:
        while self._events.is_full_of(event):
            time.sleep(FULL_PAUSE_S)
        self._events.put(event)

    def _submit_database(self, event: events.Event) -> None:
        if self._only is not None and isinstance(event, events.DatabaseRead):
            # Other bridges may have tunnels that use endpoints on this bridge.
            rows = (r if r.name == self._only else r.without_our_keys() for r in event.bridges)
            event = replace(event, bridges=tuple(rows))
        if isinstance(event, events.Challenged):
            self._challenged.set()
        self._events.put(event)

    def run(self) -> int:
        """Serve until the service must end or the engine fails. Return the exit status."""
        self._is_set_up = True
        garbage.search_new_objects()
        sys.setswitchinterval(TURN_S)
        faults.vital("engine", "engine", self._run_engine)
        LOG.info("ovs-lbt %s is running on %s", VERSION, framework.NAME)
        try:
            status = self._control.serve(going_on=lambda: self._exit_status is None)
        except Exception as error:
            faults.report("commands", error, "control socket", ends=True)
            status = 1
        self._supervisor.stopping()
        self._journal.flush()
        return status if self._exit_status is None else self._exit_status

    def _run_engine(self) -> None:
        while True:
            if self._step():
                self._report()
            self._supervisor.feed(time.monotonic())

    def _step(self) -> bool:
        """Handle the next event or due timer, and carry out the engine's commands immediately.

        Returns whether the supervisor's status may have changed. Polls never change the status.
        """
        due_s = min(self._engine.deadline_s(), self._supervisor.feed_due_s)
        event = self._events.next_item(due_s)
        worth_it = not isinstance(event, events.PortStatsRead | events.UnitCountersRead | None)
        if event is None:
            event = events.Tick()
        if self._challenged.is_set() and self._engine.fleet.leads:
            # Answer before waiting events are handled, because a busy service is alive, too.
            self._challenged.clear()
            self._carry_out_all(self._engine.handle(events.Challenged(), time.monotonic()))
        if isinstance(event, events.Challenged):
            self._challenged.clear()
            return False
        if isinstance(event, StatusWanted):
            event.answer.put(self._engine.fleet.status_after(event.after))
            return False
        if isinstance(event, events.Request) and event.words[0] == "history":
            self._journal.ask(event, self._engine.fleet.names(), self._control.reply)
            return False
        self._follow_clock()
        started_s = time.monotonic()
        commands = self._engine.handle(event, started_s)
        # A switch may send replies without a request.
        if (
            isinstance(event, events.PortStatsRead | events.UnitCountersRead)
            and event.bridge in self._asked
        ):
            asked_s, units = self._asked[event.bridge]
            if isinstance(event, events.UnitCountersRead) is units:
                took_s = time.monotonic() - started_s
                self._exporter.observe(event.bridge, "decision_duration", took_s)
                self._exporter.observe(event.bridge, "stats_poll_duration", started_s - asked_s)
        self._carry_out_all(commands)
        self._role_known |= isinstance(event, events.Leading)
        if self._request is not None and self._engine.fleet.leads:
            self._events.put(self._request)
            self._request = None
        return worth_it

    def _follow_clock(self) -> None:
        """Adjust reported times if the wall clock was set, for example some time after a boot."""
        epoch_s = _epoch_s()
        if abs(epoch_s - self._engine.fleet.epoch_s) > CLOCK_SET_S:
            self._carry_out_all(self._engine.set_clock(epoch_s))

    def _report(self) -> None:
        """Report the state of the connections to the supervisor."""
        bridges = self._dialers.bridges
        away = sorted(bridges - self._connections.keys())
        text = f"{len(bridges) - len(away)} of {len(bridges)} bridges connected"
        text = f"{text}; not connected: {', '.join(away)}" if away else text
        self._supervisor.status(text if self._engine.fleet.leads else "on standby")
        if self._role_known and self._dialers.all_tried:
            self._supervisor.ready()

    def _carry_out_all(self, commands: Iterable[engine_commands.Command]) -> None:
        """Carry out commands. An internal error in a bridge's command affects only that bridge."""
        for command in commands:
            try:
                self._carry_out(command)
            except Exception as error:
                of = command.apply if isinstance(command, engine_commands.Prepare) else command
                if not isinstance(of, engine_commands.BridgeCommand):
                    raise
                self._events.put(events.CommandFailed(of.bridge, error))

    def _carry_out(self, command: engine_commands.Command) -> None:
        match command:
            case engine_commands.Connect(bridge=bridge):
                self._dialers.open(bridge)
            case engine_commands.Disconnect(bridge=bridge):
                self._dialers.close(bridge)
            case engine_commands.Prepare(apply=apply):
                self._prepare(apply)
            case (
                engine_commands.SetPortFlags(bridge=bridge)
                | engine_commands.AddSelectGroup(bridge=bridge)
            ):
                dial = functools.partial(self._dial_beside, bridge)
                side_connection.start(dial, command, self._events.put)
            case engine_commands.Shape():
                self._qdiscs.start(command)
            case engine_commands.ReadForwarding(bridge=bridge):
                forwarding.read_forwarding(bridge, self._events.put, self._beside_the_switch)
            case engine_commands.ForgetForwarding(bridge=bridge):
                if self._beside_the_switch:
                    forwarding.forget_forwarding(bridge)
            case engine_commands.ForwardByOne():
                forwarding.forward_by_one(
                    command, self._events.put, self._confirmed, self._beside_the_switch
                )
            case engine_commands.AnnounceEndpoints(bridge=bridge):
                if self._beside_the_switch:
                    announce_endpoints.start(bridge, self._ovsdb)
            case engine_commands.Write():
                self._database.write(command)
            case engine_commands.Answer():
                self._database.replica.answer()
            case engine_commands.Reply():
                self._control.reply(command)
            case engine_commands.Report(level=level, text=text):
                LOG.log(logging.getLevelNamesMapping()[level.upper()], "%s", one_line(text))
            case engine_commands.ReportFailure(of=name, error=error, again=again):
                faults.report("bridge", error, name, again=again)
            case engine_commands.Record(entry=entry):
                self._journal.write(history.as_line(entry, self._engine.fleet.epoch_s))
            case engine_commands.Observe():
                self._exporter.observe(command.bridge, command.histogram, command.seconds)
            case _:
                self._send(command)

    def _dial_beside(self, bridge: str) -> BridgeSocket:
        """Open a separate connection to a bridge, without an OpenFlow role.

        Raises:
            Refused: the connection failed, or another service leads.
        """
        if not self._confirmed():
            raise Refused(f"{bridge}: {faults.ANOTHER_LEADS}")
        return self._dialers.dial(bridge)

    def _send(self, command: Any) -> None:
        """Send all messages of a command in one write; drop them if the connection is lost."""
        datapath = self._connections.get(command.bridge)
        if datapath is None:
            return
        if isinstance(command, engine_commands.ReadStats):
            self._asked[command.bridge] = time.monotonic(), command.units
        if not self._send_large(datapath, command):
            datapath.send(self._unless_staged(datapath, command))

    def _send_large(self, datapath: Any, command: Any) -> bool:
        """Encode and send a large change on another thread, so that other bridges do not wait for it.

        Return False if the command is not large, or must be encoded now.
        """
        if not isinstance(command, engine_commands.Apply) or len(command.changes) < LARGE_CHANGES:
            return False

        def make() -> bytes:
            try:
                return self._encoded(datapath, command)
            except Exception as error:
                self._events.put(events.CommandFailed(command.bridge, error))
                return b""

        return command.bridge not in self._staged and bool(datapath.send_made(make))

    def _prepare(self, command: engine_commands.Apply) -> None:
        """Send a bundle without its commit, so that only the commit is left to send.

        The switch handles up to 50 messages of a connection at a time, and forwards in between.
        """
        if (datapath := self._connections.get(command.bridge)) is None:
            return
        *ahead, commit = commands.apply_changes(datapath, command)
        dropped = self._drop_staged(datapath, command.bridge)
        datapath.send(dropped + framework.serialized(ahead))
        self._staged[command.bridge] = _Staged(
            command, datapath, framework.serialized([commit]), time.monotonic()
        )

    def _unless_staged(self, datapath: Any, command: Any) -> bytes:
        """Return the unsent messages of a command. A bundle that differs from the staged one replaces it."""
        staged = self._staged.get(command.bridge)
        if staged is None or not isinstance(command, engine_commands.Apply):
            return self._encoded(datapath, command)
        is_fresh = time.monotonic() - staged.sent_s < STAGED_FOR_S
        if staged.apply == command and staged.datapath is datapath and is_fresh:
            del self._staged[command.bridge]
            return staged.commit
        return self._drop_staged(datapath, command.bridge) + self._encoded(datapath, command)

    def _drop_staged(self, datapath: Any, bridge: str) -> bytes:
        """Return the message that discards a bundle staged on this connection; empty without a bundle."""
        staged = self._staged.pop(bridge, None)
        if staged is None or staged.datapath is not datapath:
            return b""
        return framework.serialized(commands.discard(datapath, staged.apply))

    def _encoded(self, datapath: Any, command: Any) -> bytes:
        """Return the messages of a command as bytes. Poll messages never change, so they are cached."""
        if not isinstance(command, engine_commands.ReadStats):
            return framework.serialized(commands.encode(datapath, command))
        asked = replace(command, bridge="")
        if asked not in self._polls:
            self._polls[asked] = framework.serialized(commands.encode(datapath, command))
        return self._polls[asked]

    def _status(self) -> tuple[BridgeStatus, ...]:
        """Request the status of all bridges from the engine's thread. Call this on another thread."""
        found: list[BridgeStatus] = []
        while True:
            wanted = StatusWanted(found[-1].config.name if found else "", queue.SimpleQueue())
            self._events.put(wanted)
            try:
                status = wanted.answer.get(timeout=STATUS_TIMEOUT_S)
            except queue.Empty:
                late = f"the service is overloaded: no status within {STATUS_TIMEOUT_S:g} s"
                raise TimeoutError(late) from None
            if status is None:
                return tuple(found)
            found.append(status)

    def _end_after_fault(self) -> None:
        """End the service immediately after a fault, because its state may be wrong.

        The supervisor restarts the service. The switch continues with the installed flows.
        """
        self._exit_status = 1
        if self._is_set_up:
            self._control.wake()
        else:
            exit_now(1)

    def _stop(self, number: int, _frame: object) -> None:
        """Handle a signal to end the service. The switch continues with the installed flows."""
        if self._exit_status is None:
            self._exit_status = 0
        self._control.wake()


def _epoch_s() -> float:
    """Return the wall-clock time at which the engine's clock was zero."""
    return time.time() - time.monotonic()


def serve_and_exit(made: Callable[[], Service], tell: Callable[[str], object]) -> int:
    """Run the service that `made` returns, and end the process with the service's status, or 1 after an error.

    `tell` receives the text of an expected error that prevents the start, such as an invalid option.
    """
    status = 1
    try:
        try:
            service = made()
        except (Refused, ValueError, OSError) as error:
            tell(because(error))
        else:
            status = service.run()
    except Exception:
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        exit_now(status)
    return status


def exit_now(status: int) -> None:
    """Remove the pidfile and the socket, and end the process even if framework threads still run.

    Errors when writing output are ignored: the process must end even if nothing reads its output.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        atexit._run_exitfuncs()
    finally:
        os._exit(status)
