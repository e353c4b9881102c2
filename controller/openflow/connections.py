"""Connections to bridges: whom the service dials, when it dials again, and who dials it.

Bridges dial the service if it listens (`--listen`).
"""

from __future__ import annotations

import functools
import logging
import socket
import threading
from collections.abc import Callable

from controller.config import openflow_version
from controller.config.rows import BridgeRow
from controller.host import faults
from controller.host.sockets import (
    CONNECT_TIMEOUT_S,
    TLS_OPTIONS,
    BridgeSocket,
    Reach,
    TlsFiles,
    TlsSocket,
    Unreachable,
    reason,
    refuse_plain,
)
from controller.openflow import framework
from controller.text.wording import in_words

LOG = logging.getLogger(__name__)

# The pauses between attempts on a socket of this host, in seconds. Plain uplinks forward nothing
# from when a restarted switch takes connections until the pipeline is back, so the first pauses are
# short: so many attempts last longer than a restart.
QUICK_RETRY_S, SLOW_RETRY_S = 0.01, 0.1
QUICK_RETRIES = 500
# All bridges together make this many attempts a second at most, which take a tenth of a core.
RETRIES_PER_S = 1000
# The pauses between attempts elsewhere; the last one repeats.
RETRY_REMOTE_S = (0.05, 0.1, 0.2, 0.5, 1.0)
# How often to look whether a bridge that has dialled the service still keeps that connection.
CALLER_LOOKS_S = 0.25
# The pause after a switch sent something unreadable, which it will probably send again.
RETRY_REFUSED_S = 5.0


def local_pause_s(failures: int, bridges: int = 1) -> float:
    """Return the pause after so many failures in a row, of each of so many bridges of this host."""
    if failures >= QUICK_RETRIES:
        return SLOW_RETRY_S
    return min(max(QUICK_RETRY_S, bridges / RETRIES_PER_S), SLOW_RETRY_S)


def remote_pause_s(failures: int) -> float:
    """Return the pause after so many failures in a row of a bridge that is reached over TCP."""
    return RETRY_REMOTE_S[min(failures, len(RETRY_REMOTE_S) - 1)]


class Dialer:
    """Keeps a connection to one bridge: dials again whenever it is lost, until `stop`.

    `pause_s` returns the pause after a number of failures in a row. `tried` is called after the
    first attempt, successful or not.
    """

    def __init__(
        self,
        bridge: str,
        dial: Callable[[], BridgeSocket],
        pause_s: Callable[[int], float] = local_pause_s,
        tried: Callable[[], None] = lambda: None,
    ) -> None:
        self.was_tried = False
        self._bridge = bridge
        self._dial = dial
        self._pause_s = pause_s
        self._tried = tried
        self._complaint = ""
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._connection: framework.Connection | None = None
        self._caller: framework.Connection | None = None
        self._thread = faults.lasting("lines", f"line {bridge}", self._run)

    def stop(self) -> None:
        """Close the connection and do not dial again."""
        self._stopped.set()
        with self._lock:
            for connection in (self._connection, self._caller):
                if connection is not None:
                    framework.hang_up(connection)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def yield_to(self, caller: framework.Connection) -> None:
        """Use a connection that the bridge has dialled, for as long as it lasts."""
        with self._lock:
            if self._connection is not None:
                framework.hang_up(self._connection)
            if self._caller is not None:
                framework.hang_up(self._caller)
            self._caller = caller

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            if self._has_called():
                self._stopped.wait(CALLER_LOOKS_S)
                continue
            wire = self._attempt()
            if wire is None:
                self._stopped.wait(self._pause_s(failures))
                failures += 1
                continue
            connection = self._serve(wire)
            failures = 0 if connection.id is not None else failures + 1
            again_s = RETRY_REFUSED_S if connection.refused else self._pause_s(failures)
            self._stopped.wait(again_s)

    def _has_called(self) -> bool:
        with self._lock:
            if self._caller is not None and not self._caller.is_active:
                self._caller = None
            return self._caller is not None

    def _attempt(self) -> BridgeSocket | None:
        try:
            wire = self._dial()
        except (Unreachable, ValueError) as error:
            self._complain(str(error))
            return None
        finally:
            if not self.was_tried:
                self.was_tried = True
                self._tried()
        return wire

    def _complain(self, complaint: str) -> None:
        """Log a complaint, unless it is the same as the last one."""
        if complaint != self._complaint:
            LOG.warning("%s", complaint)
            self._complaint = complaint

    def _serve(self, wire: BridgeSocket) -> framework.Connection:
        """Serve a connection until it ends, and return it; its id is None if no switch answered."""
        connection = framework.Connection(wire, self._bridge, self._bridge)
        with self._lock:
            self._connection = connection
            unwanted = self._stopped.is_set() or self._caller is not None
        if unwanted:
            framework.hang_up(connection)
        _serve(connection)
        with self._lock:
            self._connection = None
        if connection.id is not None:
            self._complaint = ""
        elif not unwanted and not connection.refused:
            # With TLS 1.3, a switch that rejects our certificate closes the connection.
            found = f"{self._bridge}: the switch closed the connection at once"
            self._complain(f"{found} -> a switch that trusts our certificate")
        return connection


class Dialers:
    """Dials all bridges that the service manages, and accepts those that dial the service.

    `record` returns a bridge's row in the database, None if it has none. `is_current` tells
    whether these rows are what is in the database now. `tried` is called after the first attempt to
    reach a bridge.
    """

    def __init__(
        self,
        reach: Reach,
        record: Callable[[str], BridgeRow | None],
        is_current: Callable[[], bool],
        tried: Callable[[], None],
    ) -> None:
        self._reach = reach
        self._record = record
        self._is_current = is_current
        self._tried = tried
        self._lock = threading.Lock()
        self._dialers: dict[str, Dialer] = {}
        self._strangers: set[int] = set()

    @property
    def bridges(self) -> set[str]:
        with self._lock:
            return set(self._dialers)

    @property
    def all_tried(self) -> bool:
        """Whether the service has dialled every bridge at least once."""
        with self._lock:
            return all(dialer.was_tried for dialer in self._dialers.values())

    def dial(self, bridge: str) -> BridgeSocket:
        """Make another connection to a bridge.

        A bridge is left alone while Open vSwitch's scripts restore its flows, as Open vSwitch itself
        connects to no controller then: the scripts fail if somebody else adds groups. Until the
        database is read again, nobody knows whether they do. Neither is a bridge that does not allow
        the version of OpenFlow that we speak: it would end each connection.

        Raises:
            Unreachable: the bridge cannot be reached now.
        """
        if not self._is_current():
            raise Unreachable(f"{bridge}: ovsdb-server is unreachable -> a running ovsdb-server")
        record = self._record(bridge)
        if record is not None and record.restores_flows:
            found = f"{bridge}: Open vSwitch waits until its scripts have restored flows"
            raise Unreachable(f"{found} -> no Open_vSwitch other_config:flow-restore-wait")
        if record is not None and (unspoken := openflow_version.refusal(record)):
            raise Unreachable(unspoken)
        return self._reach.dial(bridge, record.controllers if record else ())

    def open(self, bridge: str) -> None:
        def dial() -> BridgeSocket:
            return self.dial(bridge)

        def pause_s(failures: int) -> float:
            if self._reach.local:
                return local_pause_s(failures, len(self._dialers))
            return remote_pause_s(failures)

        with self._lock:
            self._dialers[bridge] = Dialer(bridge, dial, pause_s, self._tried)

    def close(self, bridge: str) -> None:
        with self._lock:
            dialer = self._dialers.pop(bridge)
        dialer.stop()

    def listen(self, address: tuple[str, int], tls: TlsFiles | None) -> None:
        """Accept connections from bridges, over TLS if `tls` names files.

        Raises:
            OSError: the address cannot be bound.
            ValueError: a TLS file is invalid, or others could read what is sent.
        """
        if tls is None:
            refuse_plain(f"--listen {address[0]}:{address[1]}", address[0], TLS_OPTIONS)
        context = tls.context(server_side=True) if tls else None
        host, port = address
        try:
            listener = socket.create_server(
                address, family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as error:
            found = f"--listen {host}:{port}: {in_words(error)}"
            raise OSError(f"{found} -> a free address") from error

        def take(sock: socket.socket, peer: str) -> None:
            sock.settimeout(CONNECT_TIMEOUT_S)
            try:
                wire = TlsSocket(sock, context, server_side=True) if context else BridgeSocket(sock)
            except OSError as error:
                LOG.warning("%s: %s -> a TLS client with a valid certificate", peer, reason(error))
                sock.close()
                return
            _serve(framework.Connection(wire, peer, None))

        def listen() -> None:
            while True:
                sock, (peer, *_) = listener.accept()
                faults.once(
                    "openflow",
                    f"call {peer}",
                    functools.partial(take, sock, peer),
                    lambda _, sock=sock: sock.close(),  # type: ignore[misc]
                )

        faults.lasting("listener", "listener", listen)

    def caller(self, connection: framework.Connection) -> str | None:
        """Return the name of the bridge that has dialled us, by its datapath id.

        None: no attached bridge has this datapath id. The first such connection is logged.
        """
        datapath_id = f"{connection.id:016x}"
        with self._lock:
            dialers = sorted(self._dialers.items())
        for bridge, dialer in dialers:
            record = self._record(bridge)
            if record is not None and record.datapath_id == datapath_id:
                dialer.yield_to(connection)
                return bridge
        if connection.id not in self._strangers:
            self._strangers.add(connection.id)
            found = f"{connection.address}: datapath id {datapath_id}"
            LOG.warning("%s -> the datapath id of an attached bridge", found)
        return None


def _serve(connection: framework.Connection) -> None:
    try:
        connection.serve()
    except OSError as error:
        LOG.warning("%s: the connection ended: %s", connection.address, reason(error))
    except Exception as error:
        faults.report("openflow", error, f"connection {connection.address}")
