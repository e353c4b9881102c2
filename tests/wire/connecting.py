"""Scenarios of connections, each run in a process of its own by test_disconnect.

The framework is one per process and leaves threads behind. Prints what was seen as JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.api.events import Event, PortChanged, PortRemoved, PortStatsRead
from controller.host import faults
from controller.host.sockets import BridgeSocket, Reach
from controller.openflow import connections, framework
from controller.openflow.connections import Dialer
from controller.openflow.messages import Asked
from tests.wire.fake_switch import (
    ADD,
    DELETE,
    ECHO_REPLY,
    ECHO_REQUEST,
    ERROR,
    EXPERIMENTER,
    MODIFY,
    MULTIPART_REPLY,
    NO_GENERATION,
    PORT_STATS,
    PORT_STATUS,
    ROLE_STATUS,
    SLAVE,
    FakeSwitch,
    message,
    port,
)

Seen = dict[str, Any]
RECONNECTS = 20


class HeldWire(BridgeSocket):
    """A connection on which whoever writes can be held up just before the write."""

    def __init__(self, wire: BridgeSocket) -> None:
        super().__init__(wire._socket)
        self.holds = False
        self.reached, self.released = threading.Event(), threading.Event()

    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def send_some(self, data: bytes) -> int:
        self._hold()
        return super().send_some(data)

    def sendall(self, data: bytes) -> None:
        self._hold()
        super().sendall(data)

    def _hold(self) -> None:
        if self.holds:
            self.reached.set()
            self.released.wait(10)


class Service:
    """As much of the service as keeps one connection."""

    def __init__(self, path: Path) -> None:
        # Whether it leads, as the database would say.
        self.leads: bool | None = True
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.connections: dict[str, Any] = {}
        self.crashes: list[str] = []
        faults.LEDGER._end = lambda: self.crashes.append("a handler failed")
        # Is called before an event is taken.
        self.before: Callable[[Event], object] = lambda _: None
        framework.start(
            "controller.openflow.app",
            submit=self._submit,
            connections=self.connections,
            caller=lambda _: None,
            confirm=lambda then: then(self.leads),
        )
        self.threads_before = threading.active_count()
        reach = Reach("unix:db.sock", path.parent)
        self.wires: list[HeldWire] = []

        def dial() -> HeldWire:
            self.wires.append(HeldWire(reach.dial("br0", ())))
            return self.wires[-1]

        self.dialer = Dialer("br0", dial)

    def _submit(self, event: Event) -> None:
        self.before(event)
        self.events.put(event)

    def next_event(self, timeout_s: float = 10) -> str:
        try:
            return type(self.events.get(timeout=timeout_s)).__name__
        except queue.Empty:
            return "nothing"

    def threads_left(self) -> int:
        """Threads more than before the first connection, once the dialer has stopped."""
        self.dialer.stop()
        self.dialer._thread.join(5)
        until_s = time.monotonic() + 5
        while threading.active_count() > self.threads_before and time.monotonic() < until_s:
            time.sleep(0.02)
        return threading.active_count() - self.threads_before

    def seen(self, **more: Any) -> Seen:
        connected = len(self.connections)
        return {"connections": connected, "crashes": self.crashes, **more}


def reconnects(path: Path) -> Seen:
    """The switch hangs up again and again."""
    switch, service, events = FakeSwitch(path), Service(path), []
    for _ in range(RECONNECTS):
        switch.accept()
        switch.shake_hands()
        events.append(service.next_event())
        switch.hang_up()
        events.append(service.next_event())
    switch.stop()
    return service.seen(events=events, threads_left=service.threads_left())


def half_a_handshake(path: Path) -> Seen:
    """The switch hangs up before it has said who it is."""
    switch, service = FakeSwitch(path), Service(path)
    for _ in range(5):
        switch.accept()
        switch.hang_up()
    switch.accept()
    switch.shake_hands()
    event = service.next_event()
    switch.stop()
    return service.seen(event=event, threads_left=service.threads_left())


def silence(path: Path) -> Seen:
    """The switch stops answering, and keeps the connection open."""
    framework.ECHO_INTERVAL_S = 0.05
    switch, service, echoes = FakeSwitch(path), Service(path), 0
    switch.accept()
    switch.shake_hands()
    events = [service.next_event()]
    try:
        while True:
            kind, _, _ = switch.receive()
            echoes += kind == ECHO_REQUEST
    except (EOFError, ConnectionResetError):
        events.append(service.next_event())
    switch.stop()
    return service.seen(events=events, echoes=echoes, threads_left=service.threads_left())


def answers(path: Path) -> Seen:
    """The switch answers its echo requests, and nothing else happens."""
    framework.ECHO_INTERVAL_S = 0.05
    switch, service, answered = FakeSwitch(path), Service(path), 0
    switch.accept()
    switch.shake_hands()
    event = service.next_event()
    while answered < 12:
        kind, xid, body = switch.receive()
        if kind == ECHO_REQUEST:
            switch.connection.sendall(message(ECHO_REPLY, xid, body))
            answered += 1
    after = service.next_event(timeout_s=0.1)
    connected = list(service.connections)
    switch.stop()
    return service.seen(
        event=event, after=after, connected=connected, threads_left=service.threads_left()
    )


def nonsense(path: Path) -> Seen:
    """The switch says what nobody can read, each time that it is dialled."""
    connections.RETRY_REFUSED_S = 0.5
    switch, service, events, dialled_s = FakeSwitch(path), Service(path), [], []
    for _ in range(3):
        switch.accept()
        dialled_s.append(time.monotonic())
        switch.shake_hands()
        events.append(service.next_event())
        switch.connection.sendall(message(MULTIPART_REPLY, 1, b"\x00"))
        events.append(service.next_event())
    pauses_s = [after - before for before, after in itertools.pairwise(dialled_s)]
    switch.stop()
    return service.seen(events=events, pauses_s=pauses_s, threads_left=service.threads_left())


def master(path: Path) -> Seen:
    """Switches whose last master had these generations, none, the greatest, any."""
    switch, service, events, claimed = FakeSwitch(path), Service(path), [], []
    for generation in (NO_GENERATION, NO_GENERATION - 1, 41):
        switch.accept()
        switch.generation = generation
        switch.shake_hands(grants=False)
        # Nothing but its request is heard before it is granted.
        events.append(service.next_event(timeout_s=0.2))
        claimed.append(switch.generation)
        switch.grant()
        events.append(service.next_event())
        switch.hang_up()
        events.append(service.next_event())
    switch.stop()
    heard = sorted(switch.heard)
    return service.seen(
        events=events, claimed=claimed, heard=heard, threads_left=service.threads_left()
    )


def not_leading(path: Path) -> Seen:
    """Another service leads, or nobody knows, on a switch where somebody has been master."""
    connections.RETRY_REFUSED_S = 0.2
    switch, service, roles = FakeSwitch(path), Service(path), []
    for leads in (False, None):
        service.leads = leads
        switch.accept()
        switch.generation = 41
        try:
            switch.shake_hands()
        except (EOFError, ConnectionResetError):
            roles.append(switch.asked_for)
    # It may lead on, where nobody has been master since it was.
    service.leads = True
    switch.accept()
    switch.shake_hands()
    events = [service.next_event()]
    switch.hang_up()
    events.append(service.next_event())
    service.leads = None
    switch.accept()
    switch.shake_hands()
    events.append(service.next_event())
    switch.stop()
    return service.seen(roles=roles, events=events, threads_left=service.threads_left())


def deposed(path: Path) -> Seen:
    """Another controller becomes master: said at once, or when something is refused."""
    connections.RETRY_REFUSED_S = 0.2
    switch, service, events = FakeSwitch(path), Service(path), []
    status = struct.pack("!IIIB3xQ", 0x4F4E4600, ROLE_STATUS, SLAVE, 0, 1)
    is_slave = struct.pack("!HH", 1, 10) + bytes(64)
    for told in (message(EXPERIMENTER, 0, status), message(ERROR, 9, is_slave)):
        switch.accept()
        switch.shake_hands()
        events.append(service.next_event())
        switch.connection.sendall(told)
        events.append(service.next_event())
    switch.stop()
    return service.seen(events=events, threads_left=service.threads_left())


def slow_reader(path: Path) -> Seen:
    """The switch reads nothing for a while; whoever sends does not wait for it."""
    framework.ECHO_INTERVAL_S = 60.0
    switch, service = FakeSwitch(path), Service(path)
    switch.accept()
    switch.shake_hands()
    service.next_event()
    connection = service.connections["br0"]
    parts = [bytes([number]) * 1_000_000 for number in range(8)]
    started_s = time.monotonic()
    for part in parts:
        connection.send(part)
    took_s = time.monotonic() - started_s
    expected, received = b"".join(parts), b""
    while len(received) < len(expected):
        received += switch.connection.recv(1 << 20)
    connection.send(b"again")
    again = switch.connection.recv(100)
    switch.stop()
    return service.seen(
        took_s=took_s,
        in_order=received == expected,
        again=again.decode(),
        threads_left=service.threads_left(),
    )


def made_later(path: Path) -> Seen:
    """What is to be sent takes long to make; what is sent meanwhile follows it."""
    framework.ECHO_INTERVAL_S = 0.05
    switch, service, goes_on = FakeSwitch(path), Service(path), threading.Event()
    switch.accept()
    switch.shake_hands()
    event = service.next_event()
    connection = service.connections["br0"]

    def make() -> bytes:
        goes_on.wait(10)
        return b"first, "

    taken = [connection.send_made(make), connection.send_made(make)]
    connection.send(b"second")
    # Longer than a switch may leave echo requests unanswered.
    after = service.next_event(timeout_s=0.5)
    framework.ECHO_INTERVAL_S = 60.0
    goes_on.set()
    received = b""
    while not received.endswith(b"second"):
        received += switch.connection.recv(1000)
    switch.stop()
    return service.seen(
        event=event,
        after=after,
        taken=taken,
        in_order=b"first, second" in received,
        threads_left=service.threads_left(),
    )


def echo_flood(path: Path) -> Seen:
    """The switch sends echo requests without end, and reads no reply."""
    framework.ECHO_INTERVAL_S = 60.0
    switch, service = FakeSwitch(path), Service(path)
    switch.accept()
    switch.shake_hands()
    service.next_event()
    connection, most = service.connections["br0"], 0
    for _ in range(1000):
        switch.connection.sendall(message(ECHO_REQUEST, 1, bytes(60_000)))
        most = max(most, len(connection._unsent or b""))
    switch.hang_up()
    event = service.next_event()
    switch.stop()
    return service.seen(most=most, event=event, threads_left=service.threads_left())


def late_write(path: Path, end: Callable[[FakeSwitch, Service], object]) -> Seen:
    """A connection ends while somebody is about to write to it."""
    framework.ECHO_INTERVAL_S = 60.0
    switch, service = FakeSwitch(path), Service(path)
    switch.accept()
    switch.shake_hands()
    events = [service.next_event()]
    (wire,) = service.wires
    wire.holds = True
    connection = service.connections["br0"]
    writing = threading.Thread(target=connection.send, args=(message(ECHO_REQUEST, 1),))
    ending = threading.Thread(target=end, args=(switch, service))
    writing.start()
    reached = wire.reached.wait(10)
    ending.start()
    # As long as a loop that receives takes to end, and more.
    time.sleep(0.3)
    open_meanwhile = wire.is_open()
    wire.released.set()
    events.append(service.next_event())
    switch.stop()
    threads_left = service.threads_left()
    return service.seen(
        reached=reached,
        open_meanwhile=open_meanwhile,
        open_at_the_end=wire.is_open(),
        events=events,
        threads_left=threads_left,
    )


def one_is_slow(path: Path) -> Seen:
    """Nobody takes the counters of one switch, while another one says that a link has failed."""
    switch, other = FakeSwitch(path), FakeSwitch(path.with_name("br1.mgmt"))
    service, reached, goes_on = Service(path), threading.Event(), threading.Event()
    dialer = Dialer("br1", lambda: Reach("unix:db.sock", path.parent).dial("br1", ()))
    events = []
    for one in (switch, other):
        one.accept()
        one.shake_hands()
        events.append(service.next_event())

    def hold(event: Event) -> None:
        if isinstance(event, PortStatsRead):
            reached.set()
            goes_on.wait(10)

    service.before = hold
    counters = struct.pack("!HH4x", PORT_STATS, 0)
    switch.connection.sendall(message(MULTIPART_REPLY, Asked.PORTS, counters))
    held = reached.wait(10)
    status = struct.pack("!B7x", MODIFY) + port(1, "eth1")
    other.connection.sendall(message(PORT_STATUS, 0, status))
    events.append(service.next_event(timeout_s=5))
    goes_on.set()
    events.append(service.next_event())
    switch.stop()
    other.stop()
    dialer.stop()
    dialer._thread.join(5)
    return service.seen(held=held, events=events, threads_left=service.threads_left())


def ports_change(path: Path) -> Seen:
    """A switch tells of a port that changes, and of one that goes."""
    switch, service, told = FakeSwitch(path), Service(path), []
    switch.accept()
    switch.shake_hands()
    service.next_event()
    for reason in (MODIFY, DELETE):
        status = struct.pack("!B7x", reason) + port(7, "eth7")
        switch.connection.sendall(message(PORT_STATUS, 0, status))
        event = service.events.get(timeout=10)
        assert isinstance(event, PortChanged | PortRemoved)
        number = event.port.ofport if isinstance(event, PortChanged) else event.ofport
        told.append([type(event).__name__, event.bridge, number])
    switch.stop()
    return service.seen(told=told, threads_left=service.threads_left())


def many_ports(path: Path) -> Seen:
    """The switch reports more ports than any bridge has."""
    framework.MOST_PORTS, framework.ECHO_INTERVAL_S = 20, 3600.0
    switch, service = FakeSwitch(path), Service(path)
    switch.accept()
    switch.shake_hands()
    service.next_event()
    # The service may hang up before all are sent.
    with contextlib.suppress(ConnectionError):
        for number in range(10, 50):
            status = struct.pack("!B7x", ADD) + port(number, f"n{number}")
            switch.connection.sendall(message(PORT_STATUS, 0, status))
    events = [service.next_event()]
    while events[-1] == "PortChanged":
        events.append(service.next_event())
    switch.stop()
    return service.seen(events=events, threads_left=service.threads_left())


SCENARIOS: dict[str, Callable[[Path], Seen]] = {
    "reconnects": reconnects,
    "half-a-handshake": half_a_handshake,
    "silence": silence,
    "answers": answers,
    "nonsense": nonsense,
    "master": master,
    "not-leading": not_leading,
    "deposed": deposed,
    "slow-reader": slow_reader,
    "made-later": made_later,
    "echo-flood": echo_flood,
    "late-write": lambda path: late_write(path, lambda switch, _: switch.hang_up()),
    "late-write-here": lambda path: late_write(path, lambda _, service: service.dialer.stop()),
    "one-is-slow": one_is_slow,
    "ports-change": ports_change,
    "many-ports": many_ports,
}

if __name__ == "__main__":
    status = 1
    try:
        print(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]) / "br0.mgmt")), flush=True)
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)  # the framework's threads would keep the process
