"""Callers of `--listen`: none replaces a connection, and many do not block bridges."""

from __future__ import annotations

import contextlib
import logging
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.config.rows import BridgeRow
from controller.host import faults
from controller.host.sockets import Reach
from controller.openflow import connections, framework
from controller.openflow.connections import Call, Dialers
from tests.said import says
from tests.wire.alone import expect, in_a_process
from tests.wire.fake_switch import FakeSwitch, message

# Opens 2,000 connections a second, and resets each of them.
RESETS = """
import socket, struct, sys, time
begun_s = time.monotonic()
for number in range(60_000):
    caller = socket.socket()
    caller.setblocking(False)
    caller.connect_ex(("127.0.0.1", int(sys.argv[1])))
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()
    time.sleep(max(0.0, begun_s + number / 2000 - time.monotonic()))
"""
HOST, DATAPATH_ID = "127.0.0.1", 0xB0


class Service:
    """As much of the service as keeps the connections of br0, whose controller is the listener."""

    def __init__(self, directory: Path, target: str = "tcp:127.0.0.1:{}") -> None:
        self.dialers: Dialers
        self.events: list[str] = []
        self.connections: dict[str, Any] = {}
        self.crashes: list[str] = []
        faults.LEDGER._end = lambda: self.crashes.append("a handler failed")
        self.log: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.log.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)
        framework.start(
            "controller.openflow.app",
            submit=lambda event: self.events.append(type(event).__name__),
            connections=self.connections,
            caller=lambda connection: self.dialers.caller(connection),
            confirm=lambda then: then(True),
        )
        with contextlib.closing(socket.create_server((HOST, 0))) as free:
            self.address: tuple[str, int] = free.getsockname()
        row = BridgeRow(
            "br0",
            controllers=(target.format(self.address[1]),),
            datapath_id=f"{DATAPATH_ID:016x}",
        )
        self.dialers = Dialers(
            Reach("unix:db.sock", directory), lambda _: row, lambda: True, lambda: None
        )
        self.dialers.listen(self.address, None)
        self.threads_before = threading.active_count()
        self.dialers.open("br0")

    def caller(self, path: Path, datapath_id: int = DATAPATH_ID) -> FakeSwitch:
        """A switch that dials the listener."""
        switch = FakeSwitch(path)
        switch.datapath_id = datapath_id
        switch.call(self.address)
        return switch

    def told(self) -> list[str]:
        """The warnings since the start; no handler has failed."""
        expect(self.crashes, [])
        return [line for line in self.log if not line.startswith("--listen")]


def soon(holds: Callable[[], object]) -> bool:
    until_s = time.monotonic() + 10
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.01)
    return bool(holds())


def is_refused(switch: FakeSwitch) -> bool:
    try:
        switch.shake_hands()
        while True:
            switch.receive()
    except TimeoutError:
        return False
    except (EOFError, OSError):
        return True


@in_a_process
def test_caller_does_not_replace_outgoing_connection(directory: Path) -> None:
    switch, service = FakeSwitch(directory / "br0.mgmt"), Service(directory)
    (at_start,) = service.log
    assert says(at_start, "--listen", "has no TLS", "can impersonate a switch"), at_start
    switch.accept()
    switch.shake_hands()
    assert soon(lambda: service.connections)
    own = service.connections["br0"]
    expect([is_refused(service.caller(directory / f"{n}")) for n in range(3)], [True] * 3)
    assert service.connections["br0"] is own
    expect(service.events, ["SwitchConnected"])
    (line,) = service.told()
    assert says(line, "127.0.0.1: bridge br0 is connected already", "closing the connection"), line


@in_a_process
def test_only_an_outgoing_connection_replaces_a_caller(directory: Path) -> None:
    service = Service(directory)
    caller = service.caller(directory / "caller")
    caller.shake_hands()
    assert soon(lambda: service.connections)
    first = service.connections["br0"]
    assert is_refused(service.caller(directory / "second"))
    assert service.connections["br0"] is first
    switch = FakeSwitch(directory / "br0.mgmt")
    switch.accept()
    switch.shake_hands()
    assert soon(lambda: service.connections.get("br0") not in (None, first))
    expect(service.events, ["SwitchConnected", "SwitchGone", "SwitchConnected"])
    service.told()


@in_a_process
def test_caller_whose_controller_is_the_listener_is_accepted(directory: Path) -> None:
    service = Service(directory, "tcp:localhost:{}")
    caller = service.caller(directory / "caller")
    caller.shake_hands()
    assert soon(lambda: service.connections)
    service.told()


@in_a_process
def test_caller_with_another_controller_is_refused(directory: Path) -> None:
    service = Service(directory, "tcp:127.0.0.1:1")
    assert is_refused(service.caller(directory / "caller"))
    assert not service.connections and not service.events
    found = "127.0.0.1: controllers of bridge br0: tcp:127.0.0.1:1; expected tcp:"
    assert any(line.startswith(found) for line in service.told()), service.log


@in_a_process
def test_warnings_about_unknown_callers_are_limited(directory: Path) -> None:
    """Callers with many datapath ids."""
    service = Service(directory)
    assert all(is_refused(service.caller(directory / f"{n}", 1000 + n)) for n in range(40))
    assert len(service.told()) <= framework.MOST_WARNINGS + 1, service.log


@in_a_process
def test_silent_callers_do_not_block_bridges(directory: Path) -> None:
    """More callers than may be unidentified, who go on calling; the bridge calls, too."""
    service, over, silent = Service(directory), threading.Event(), []

    def call() -> None:
        while not over.wait(0.02):
            with contextlib.suppress(OSError):
                silent.append(socket.create_connection(service.address, timeout=10))

    for _ in range(2 * connections.MOST_UNIDENTIFIED):
        silent.append(socket.create_connection(service.address, timeout=10))
    threading.Thread(target=call, daemon=True).start()
    time.sleep(0.5)
    threads = threading.active_count() - service.threads_before
    assert threads <= connections.MOST_UNIDENTIFIED + 5, threads
    caller = service.caller(directory / "caller")
    caller.shake_hands()
    assert soon(lambda: service.connections)
    over.set()
    service.told()


@in_a_process
def test_reset_connections_do_not_block_bridges(directory: Path) -> None:
    """More of them than are taken."""
    service = Service(directory)
    attacker = subprocess.Popen([sys.executable, "-c", RESETS, str(service.address[1])])
    time.sleep(2.0)
    took_s = []
    for number in range(5):
        began_s = time.monotonic()
        assert is_refused(service.caller(directory / f"{number}", 1000))
        took_s.append(time.monotonic() - began_s)
    # The kernel of a busy machine sends a lost SYN again after 1 s, so one may take longer.
    assert statistics.median(took_s) < 1.0 and max(took_s) < 4.0
    attacker.kill()
    attacker.wait()
    service.told()


@in_a_process
def test_caller_without_datapath_id_is_limited_in_time_and_bytes(directory: Path) -> None:
    """One sends a byte of its hello at a time; another one more than anybody needs to."""
    framework.ECHO_INTERVAL_S = 0.2
    service = Service(directory)
    slow, started_s = socket.create_connection(service.address, timeout=10), time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - started_s < 5:
            slow.sendall(b"\4")
            time.sleep(0.05)
        raise AssertionError("it has much time")
    loud, sent = socket.create_connection(service.address, timeout=1), 0
    with contextlib.suppress(OSError):
        while sent < 1 << 26:
            sent += loud.send(message(2, 1) * 1000)
    # Also what the sockets take before the connection is closed.
    assert sent < framework.UNIDENTIFIED_BYTES + (1 << 23), sent
    service.told()


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("tcp:127.0.0.1:6653", True),
        ("tcp:127.0.0.1", True),
        ("tcp:localhost:6653", True),
        ("ssl:127.0.0.1:6653", False),
        ("tcp:127.0.0.2:6653", False),
        ("tcp:127.0.0.1:6633", False),
        ("ptcp:6653:127.0.0.1", False),
        ("punix:/run/br0.sock", False),
        ("tcp:[::1]:6653", False),
        ("tcp:no.such.host.invalid:6653", False),
        ("", False),
    ],
)
def test_which_targets_name_a_listener(target: str, names: bool) -> None:
    assert Call(1, "tcp", ("127.0.0.1", 6653)).is_to(target) is names


@pytest.mark.parametrize("target", ["ssl:[::1]:6653", "ssl:[::1]", "ssl:[0:0::1]:6653"])
def test_targets_with_ipv6_addresses(target: str) -> None:
    assert Call(1, "ssl", ("::1", 6653)).is_to(target)
