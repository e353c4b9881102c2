"""Scenarios of connections to `--listen`, each run in a process of its own by test_listener.

The framework is one per process and leaves threads behind. Prints what was seen as JSON.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.config.rows import BridgeRow
from controller.host import faults
from controller.host.sockets import Reach
from controller.openflow import connections, framework
from controller.openflow.connections import Dialers
from tests.wire.fake_switch import FakeSwitch, message

HOST, DATAPATH_ID = "127.0.0.1", 0xB0
Seen = dict[str, Any]


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

    def seen(self, **more: Any) -> Seen:
        at_start = [line for line in self.log if line.startswith("--listen")]
        told = [line for line in self.log if line not in at_start]
        seen = {"events": [*self.events], "log": told, "at_start": at_start}
        return {"crashes": self.crashes, **seen, **more}


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


def own_connection(directory: Path) -> Seen:
    """The service has reached the bridge. Somebody else calls as that bridge, three times."""
    switch, service = FakeSwitch(directory / "br0.mgmt"), Service(directory)
    switch.accept()
    switch.shake_hands()
    live = soon(lambda: service.connections)
    own = service.connections["br0"]
    refused = [is_refused(service.caller(directory / f"{n}")) for n in range(3)]
    return service.seen(live=live, refused=refused, stays=service.connections["br0"] is own)


def _called(directory: Path, target: str) -> Seen:
    service = Service(directory, target)
    switch = service.caller(directory / "caller")
    try:
        switch.shake_hands()
        live = soon(lambda: service.connections)
    except (EOFError, OSError):
        live = False
    return service.seen(live=live)


def no_connection(directory: Path) -> Seen:
    """The service cannot reach the bridge, which calls; then somebody else does, then the service can."""
    service = Service(directory)
    caller = service.caller(directory / "caller")
    caller.shake_hands()
    called = soon(lambda: service.connections)
    first = service.connections.get("br0")
    refused = is_refused(service.caller(directory / "second"))
    stays = service.connections.get("br0") is first
    switch = FakeSwitch(directory / "br0.mgmt")
    switch.accept()
    switch.shake_hands()
    own = soon(lambda: service.connections.get("br0") not in (None, first))
    return service.seen(called=called, refused=refused, stays=stays, own=own)


def strangers(directory: Path) -> Seen:
    """Callers with many datapath ids."""
    service = Service(directory)
    refused = [is_refused(service.caller(directory / f"{n}", 1000 + n)) for n in range(40)]
    return service.seen(refused=all(refused))


def silent_callers(directory: Path) -> Seen:
    """More callers than may be unidentified say nothing, and go on calling; the bridge calls, too."""
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
    caller = service.caller(directory / "caller")
    caller.shake_hands()
    called = soon(lambda: service.connections)
    over.set()
    return service.seen(called=called, threads=threads, calls=len(silent))


def slow_caller(directory: Path) -> Seen:
    """A caller sends a byte of its hello at a time; another one more than anybody needs to."""
    framework.ECHO_INTERVAL_S = 0.2
    service = Service(directory)
    slow, started_s = socket.create_connection(service.address, timeout=10), time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - started_s < 10:
            slow.sendall(b"\4")
            time.sleep(0.05)
    slow_s = time.monotonic() - started_s
    loud, sent = socket.create_connection(service.address, timeout=1), 0
    with contextlib.suppress(OSError):
        while sent < 1 << 26:
            sent += loud.send(message(2, 1) * 1000)
    return service.seen(slow_s=slow_s, sent=sent)


SCENARIOS: dict[str, Callable[[Path], Seen]] = {
    "own-connection": own_connection,
    "no-connection": no_connection,
    "strangers": strangers,
    "silent-callers": silent_callers,
    "slow-caller": slow_caller,
}

if __name__ == "__main__":
    status = 1
    try:
        name, directory = sys.argv[1], Path(sys.argv[2])
        found = _called(directory, name) if ":" in name else SCENARIOS[name](directory)
        print(json.dumps(found), flush=True)
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)  # the framework's threads would keep the process
