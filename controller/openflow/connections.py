"""OpenFlow connections to bridges: dials bridges, retries, and accepts incoming connections.

With `--listen`, bridges dial the service. Any host that can reach the listener's port can connect and
claim any datapath id. So an incoming connection never replaces another connection, and is accepted only
for a bridge whose controller record contains the listener's address.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.config import controllers
from controller.config.rows import PREFIX, BridgeRow
from controller.host import faults, sockets
from controller.openflow import framework
from controller.text.wording import STARTED, Refused, in_words

LOG = logging.getLogger(__name__)

# The pauses between attempts to connect on this host, in seconds. After a restart of the switch, plain
# uplinks forward nothing until the pipeline is installed again. So the first pauses are short, and there
# are enough of them to outlast a restart.
QUICK_RETRY_S, SLOW_RETRY_S = 0.01, 0.1
QUICK_RETRIES = 500
# The most attempts per second for all bridges together. They use a tenth of a core.
RETRIES_PER_S = 1000
# The pauses between attempts over TCP; the last pause is repeated.
RETRY_REMOTE_S = (0.05, 0.1, 0.2, 0.5, 1.0)
# The most connections to the listener with unknown datapath ids. Each has a thread. If the handshake is
# not completed, the connection is closed as if the switch did not answer echo requests.
MOST_UNIDENTIFIED = 32
# The pause after each accepted connection, because the handshake delays other connections.
ACCEPT_PAUSE_S = 0.005
# The pause after a switch sent an unreadable message, which the switch will probably send again.
RETRY_REFUSED_S = 5.0
# Each new connection of a bridge delays other bridges. After two or more connections in a row that ended
# within this time, pause as between attempts over TCP. After one, the switch may be restarting.
BRIEF_S = 1.0
# The most bytes for a VM port's flows, groups and counters in replies: twice the usual number, and more
# for each VLAN that the port carries and for each character of the port's attached addresses.
PORT_BYTES, VLAN_BYTES, ADDRESS_BYTES = 8_000, 300, 50
# The most bytes for a VM port with `unit=source-mac`: flows and groups of 256 addresses, with 8 uplinks.
UNITS_BYTES = 600_000


def retry_pause_s(failures: int, bridges: int | None = 1) -> float:
    """Return the pause after `failures` successive failed attempts to connect to the same bridge.

    `bridges`: the number of dialled bridges on this host; None: the bridge is dialled over TCP.
    """
    if bridges is None:
        return RETRY_REMOTE_S[min(failures, len(RETRY_REMOTE_S) - 1)]
    if failures >= QUICK_RETRIES:
        return SLOW_RETRY_S
    return min(max(QUICK_RETRY_S, bridges / RETRIES_PER_S), SLOW_RETRY_S)


def brief_pause_s(brief: int) -> float:
    """Return the pause after `brief` successive connections that each ended within `BRIEF_S`."""
    return RETRY_REMOTE_S[min(brief - 2, len(RETRY_REMOTE_S) - 1)] if brief > 1 else 0.0


def room(bridge: BridgeRow | None) -> int:
    """Return how many bytes a bridge's ports can add to its replies; 0 if `bridge` is None."""
    if bridge is None:
        return 0
    vlans = sum(len(port.trunks) for port in bridge.ports)
    named = sum(len(i.external_ids.get("attached-mac", "")) for i in bridge.interfaces)
    keys = [bridge.external_ids, *(interface.external_ids for interface in bridge.interfaces)]
    units = sum(list(ids.values()).count("source-mac") for ids in keys)
    if bridge.external_ids.get(PREFIX + "patch-unit") == "source-mac":
        units += sum(interface.kind == "patch" for interface in bridge.interfaces)
    of_ports = PORT_BYTES * len(bridge.ports) + UNITS_BYTES * units
    return of_ports + VLAN_BYTES * vlans + ADDRESS_BYTES * named


class Dialer:
    """Maintains the connection to one bridge: after each loss, dials the bridge again, until `stop`.

    `dial` makes a connection. `pause_s` returns the pause after a number of successive failures.
    `tried` is called after the first attempt, even if the attempt failed.
    """

    def __init__(
        self,
        bridge: str,
        dial: Callable[[], sockets.BridgeSocket],
        pause_s: Callable[[int], float] = retry_pause_s,
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

    def accept(self, caller: framework.Connection) -> bool:
        """Use `caller`, a connection from the bridge, until the service has dialled the bridge.

        Return False if the bridge has a connection already. If the existing connection has failed,
        the service soon detects this, and the bridge dials again.
        """
        with self._lock:
            if self._connection is not None:
                return False
            if self._caller is not None and self._caller.is_active:
                return False
            self._caller = caller
            return True

    def _run(self) -> None:
        failures = brief = 0
        while not self._stopped.is_set():
            wire = self._attempt()
            begun_s = time.monotonic()
            if wire is None:
                self._stopped.wait(self._pause_s(failures))
                failures += 1
                continue
            connection = self._serve(wire)
            failures = 0 if connection.id is not None else failures + 1
            brief = brief + 1 if time.monotonic() - begun_s < BRIEF_S else 0
            again_s = max(self._pause_s(failures), brief_pause_s(brief))
            self._stopped.wait(RETRY_REFUSED_S if connection.refused else again_s)

    def _attempt(self) -> sockets.BridgeSocket | None:
        try:
            return self._dial()
        except (Refused, ValueError) as error:
            self._complain(str(error))
            return None
        finally:
            if not self.was_tried:
                self.was_tried = True
                self._tried()

    def _complain(self, complaint: str) -> None:
        """Log a warning, unless the previous warning was the same."""
        if complaint != self._complaint:
            LOG.warning("%s", complaint)
            self._complaint = complaint

    def _serve(self, wire: sockets.BridgeSocket) -> framework.Connection:
        """Serve a connection until it ends. Return the connection; `id` is None if no switch answered."""
        connection = framework.Connection(wire, self._bridge, self._bridge)
        with self._lock:
            self._connection = connection
            unwanted = self._stopped.is_set()
            if self._caller is not None:
                framework.hang_up(self._caller)
        if unwanted:
            framework.hang_up(connection)
        _serve(connection)
        with self._lock:
            self._connection = None
        if connection.id is not None:
            self._complaint = ""
        elif not unwanted and not connection.refused:
            # With TLS 1.3, a switch that rejects our certificate closes the connection.
            found = f"{self._bridge}: the switch closed the connection immediately"
            self._complain(f"{found}; check that the switch trusts this service's certificate")
        return connection


@dataclass(frozen=True, slots=True)
class Call:
    """An accepted connection: its number, and the scheme and address that the switch dialled."""

    number: int
    scheme: str
    address: tuple[str, int]

    def is_to(self, target: str) -> bool:
        """Whether `target`, from a controller record, is the address to which the switch connected."""
        with contextlib.suppress(OSError, ValueError):
            host, port = controllers.place_of(target)
            if (target.partition(":")[0], port) == (self.scheme, self.address[1]):
                found = socket.getaddrinfo(host, None)
                return self.address[0] in {str(info[4][0]) for info in found}
        return False


@dataclass(eq=False)
class Dialers:
    """Dials all bridges that the service manages, and accepts connections from bridges.

    `record` returns the database row of a bridge, or None if there is no such row. `is_current` returns
    whether these rows are up to date. `tried` is called after the first attempt to reach each bridge.
    """

    reach: sockets.Reach
    record: Callable[[str], BridgeRow | None]
    is_current: Callable[[], bool]
    tried: Callable[[], None]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _dialers: dict[str, Dialer] = field(default_factory=dict, init=False)
    # Functions that close the connections to the listener whose datapath ids are unknown, by number.
    _unidentified: dict[int, Callable[[], None]] = field(default_factory=dict, init=False)
    # Warnings about connections to the listener.
    _warnings: framework.Warnings = field(default_factory=framework.Warnings, init=False)

    @property
    def bridges(self) -> set[str]:
        with self._lock:
            return set(self._dialers)

    @property
    def all_tried(self) -> bool:
        """Whether the service has tried to connect to every bridge at least once."""
        with self._lock:
            return all(dialer.was_tried for dialer in self._dialers.values())

    def dial(self, bridge: str) -> sockets.BridgeSocket:
        """Make a new connection to a bridge.

        Bridges are not dialled while Open vSwitch's scripts restore flows: the scripts fail if another
        program adds groups. For the same reason, Open vSwitch does not connect to controllers during
        this time. While the database is unreachable, it is unknown whether the scripts are running.
        A bridge that does not allow our OpenFlow version is not dialled: it would disconnect.

        Raises:
            Refused: the bridge must not be dialled now, or cannot be reached.
        """
        if not self.is_current():
            raise Refused(f"{bridge}: ovsdb-server is unreachable; {STARTED}")
        record = self.record(bridge)
        if record is not None and record.restores_flows:
            found = f"{bridge}: Open vSwitch is waiting for its scripts to restore the flows"
            raise Refused(f"{found} and remove Open_vSwitch other_config:flow-restore-wait")
        if record is not None and (unspoken := controllers.refusal(record)):
            raise Refused(unspoken)
        return self.reach.dial(bridge, record.controllers if record else ())

    def open(self, bridge: str) -> None:
        def pause_s(failures: int) -> float:
            return retry_pause_s(failures, len(self._dialers) if self.reach.local else None)

        with self._lock:
            assert bridge not in self._dialers, "two threads would dial the same bridge"
            dial = functools.partial(self.dial, bridge)
            self._dialers[bridge] = Dialer(bridge, dial, pause_s, self.tried)

    def close(self, bridge: str) -> None:
        with self._lock:
            dialer = self._dialers.pop(bridge)
        dialer.stop()

    def listen(self, address: tuple[str, int], tls: sockets.TlsFiles | None) -> None:
        """Accept connections from bridges on `address`; with `tls`, over TLS.

        Raises:
            OSError: the address cannot be bound.
            ValueError: a TLS file is invalid, or connections would not be encrypted.
        """
        host, port = address
        if tls is None:
            sockets.refuse_plain(f"--listen {host}:{port}", host, sockets.TLS_OPTIONS)
        context = tls.context(server_side=True) if tls else None
        try:
            listener = socket.create_server(
                address,
                family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                backlog=sockets.DEFERRED_MAX,
            )
            sockets.defer(listener)
        except OSError as error:
            raise OSError(f"--listen {host}:{port}: {in_words(error)}") from error
        if tls is None:
            who = "any host that can connect can impersonate a switch that has this controller"
            LOG.warning(
                "--listen %s:%d has no TLS: %s; set %s", host, port, who, sockets.TLS_OPTIONS
            )

        def take(sock: socket.socket, peer: str, number: int) -> None:
            try:
                wire = (
                    sockets.TlsSocket(sock, context, server_side=True)
                    if context
                    else sockets.BridgeSocket(sock)
                )
                reached = sock.getsockname()[:2]
            except OSError as error:
                self._identified(number)
                self._warnings.log(f"connection from {peer} failed: {sockets.reason(error)}")
                sock.close()
                return
            connection = framework.Connection(wire, peer, None)
            connection.warnings = self._warnings
            connection.call = Call(number, "ssl" if context else "tcp", reached)
            self._called(number, lambda: framework.hang_up(connection))
            _serve(connection)
            self._identified(number)

        def listen() -> None:
            for number in itertools.count():
                sock, (peer, *_) = listener.accept()
                try:
                    sockets.refuse_silent(sock)
                except OSError:
                    continue
                sock.settimeout(sockets.CONNECT_TIMEOUT_S)
                self._called(number, functools.partial(sock.shutdown, socket.SHUT_RDWR))
                faults.once(
                    "openflow",
                    f"call {peer}",
                    functools.partial(take, sock, peer, number),
                    lambda _, sock=sock: sock.close(),  # type: ignore[misc]
                )
                time.sleep(ACCEPT_PAUSE_S)

        faults.lasting("listener", "listener", listen)

    def _called(self, number: int, hang_up: Callable[[], None]) -> None:
        """Record a connection with an unknown datapath id. If there are too many, close the oldest one.

        If the newest one were closed instead, a few idle connections could keep all others out.
        """
        with self._lock:
            self._unidentified[number] = hang_up
            if len(self._unidentified) > MOST_UNIDENTIFIED:
                with contextlib.suppress(OSError):
                    self._unidentified.pop(min(self._unidentified))()

    def _identified(self, number: int) -> None:
        """Remove a connection from the record: it was closed, or its datapath id is now known."""
        with self._lock:
            self._unidentified.pop(number, None)

    def caller(self, connection: framework.Connection) -> str | None:
        """Return the name of the bridge that connected to the service, based on the datapath id.

        Refuse the connection and return None if no attached bridge with this datapath id has the
        listener as a controller, or if the bridge is already connected.
        """
        self._identified(connection.call.number)
        datapath_id = f"{connection.id:016x}"
        why = f"no attached bridge has datapath id {datapath_id}"
        with self._lock:
            dialers = sorted(self._dialers.items())
        for bridge, dialer in dialers:
            record = self.record(bridge)
            if record is None or record.datapath_id != datapath_id:
                continue
            if not any(map(connection.call.is_to, record.controllers)):
                reached = f"{connection.call.scheme}:{':'.join(map(str, connection.call.address))}"
                found = f"controllers of bridge {bridge}: {', '.join(record.controllers) or 'none'}"
                why = f"{found}; expected {reached}, to which the switch connected"
            elif dialer.accept(connection):
                return bridge
            else:
                why = f"bridge {bridge} is connected already"
        connection.refuse(why)
        return None


def _serve(connection: framework.Connection) -> None:
    try:
        connection.serve()
    except OSError as error:
        LOG.warning("%s: the connection ended: %s", connection.address, sockets.reason(error))
    except Exception as error:
        faults.report("openflow", error, f"connection {connection.address}")
