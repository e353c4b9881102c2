"""A connection that ends is noticed, leaves nothing behind, and is dialled again.

The framework's own connections never end: see `controller.openflow.framework.Connection`.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.api.events import Event, PortChanged, PortRemoved, PortStatsRead
from controller.host import faults
from controller.host.sockets import BridgeSocket, Reach
from controller.openflow import connections, framework
from controller.openflow.connections import Dialer
from controller.openflow.messages import Asked
from tests.wire import hostile
from tests.wire.alone import expect, in_a_process
from tests.wire.fake_switch import (
    ADD,
    DELETE,
    ECHO_REPLY,
    ECHO_REQUEST,
    ERROR,
    EXPERIMENTER,
    FEATURES_REQUEST,
    HELLO,
    MODIFY,
    MULTIPART_REPLY,
    MULTIPART_REQUEST,
    NO_GENERATION,
    NOCHANGE,
    PORT_STATS,
    PORT_STATUS,
    ROLE_REQUEST,
    ROLE_STATUS,
    SET_ASYNC,
    SLAVE,
    FakeSwitch,
    message,
    port,
)

CONNECTED, GONE, NOTHING = "SwitchConnected", "SwitchGone", "nothing"


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

    def __init__(self, directory: Path) -> None:
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
        reach = Reach("unix:db.sock", directory)
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

    def take(self, switch: FakeSwitch) -> None:
        """Become the master of a switch."""
        switch.accept()
        switch.shake_hands()
        expect(self.next_event(), CONNECTED)

    def end(self, *switches: FakeSwitch) -> None:
        """Stop; nothing failed, and no more threads are left than before the first connection."""
        for switch in switches:
            switch.stop()
        self.dialer.stop()
        self.dialer._thread.join(5)
        until_s = time.monotonic() + 5
        while threading.active_count() > self.threads_before and time.monotonic() < until_s:
            time.sleep(0.02)
        expect(threading.active_count() - self.threads_before, 0)
        expect(self.crashes, [])


def connected(directory: Path) -> tuple[FakeSwitch, Service]:
    """A switch, and a service that is its master."""
    switch, service = FakeSwitch(directory / "br0.mgmt"), Service(directory)
    service.take(switch)
    return switch, service


@in_a_process
def test_every_disconnect_is_noticed(directory: Path) -> None:
    connections.BRIEF_S = 0.0
    switch, service = FakeSwitch(directory / "br0.mgmt"), Service(directory)
    for _ in range(20):
        service.take(switch)
        switch.hang_up()
        expect(service.next_event(), GONE)
    service.end(switch)
    expect(service.connections, {})


@in_a_process
def test_disconnect_during_handshake_sends_no_event(directory: Path) -> None:
    switch, service = FakeSwitch(directory / "br0.mgmt"), Service(directory)
    for _ in range(5):
        switch.accept()
        switch.hang_up()
    service.take(switch)
    service.end(switch)


@in_a_process
def test_connection_without_echo_replies_is_closed(directory: Path) -> None:
    framework.ECHO_INTERVAL_S = 0.05
    (switch, service), echoes = connected(directory), 0
    with contextlib.suppress(EOFError, ConnectionResetError):
        while True:
            kind, _, _ = switch.receive()
            echoes += kind == ECHO_REQUEST
    expect((service.next_event(), echoes), (GONE, 3))
    service.end(switch)


@in_a_process
def test_connection_stays_open_while_the_service_is_late(directory: Path) -> None:
    framework.ECHO_INTERVAL_S, goes_on = 0.1, threading.Event()
    switch, service = connected(directory)
    service.before = lambda _: goes_on.wait(10)
    status = struct.pack("!B7x", MODIFY) + port(7, "eth7")
    switch.connection.sendall(message(PORT_STATUS, 0, status))
    for _ in range(4):
        kind, xid, body = switch.receive()
        while kind != ECHO_REQUEST:
            kind, xid, body = switch.receive()
        switch.connection.sendall(message(ECHO_REPLY, xid, body))
    goes_on.set()
    expect(service.next_event(), "PortChanged")
    expect([*service.connections], ["br0"])
    framework.ECHO_INTERVAL_S = 60.0
    service.end(switch)


@pytest.mark.slow
@in_a_process
def test_connection_with_echo_replies_stays_open(directory: Path) -> None:
    framework.ECHO_INTERVAL_S = 0.05
    (switch, service), answered = connected(directory), 0
    while answered < 12:
        kind, xid, body = switch.receive()
        if kind == ECHO_REQUEST:
            switch.connection.sendall(message(ECHO_REPLY, xid, body))
            answered += 1
    expect(service.next_event(timeout_s=0.1), NOTHING)
    expect([*service.connections], ["br0"])
    service.end(switch)


@pytest.mark.slow
@in_a_process
def test_malformed_message_closes_connection_and_delays_redial(directory: Path) -> None:
    connections.RETRY_REFUSED_S = 0.5
    switch, service, dialled_s = FakeSwitch(directory / "br0.mgmt"), Service(directory), []
    for _ in range(3):
        service.take(switch)
        dialled_s.append(time.monotonic())
        switch.connection.sendall(message(MULTIPART_REPLY, 1, b"\x00"))
        expect(service.next_event(), GONE)
    pauses_s = [after - before for before, after in itertools.pairwise(dialled_s)]
    assert min(pauses_s) >= 0.5, pauses_s
    service.end(switch)


@in_a_process
def test_brief_connections_are_redialled_with_backoff(directory: Path) -> None:
    connections.BRIEF_S = 60.0
    switch, service, dialled_s = FakeSwitch(directory / "br0.mgmt"), Service(directory), []
    for _ in range(5):
        service.take(switch)
        dialled_s.append(time.monotonic())
        switch.hang_up()
        expect(service.next_event(), GONE)
    _, *pauses_s = (after - before for before, after in itertools.pairwise(dialled_s))
    least_s = connections.RETRY_REMOTE_S
    assert all(
        pause_s >= at_least_s for pause_s, at_least_s in zip(pauses_s, least_s, strict=False)
    )
    service.end(switch)


@pytest.mark.slow
@in_a_process
def test_role_request_uses_next_generation_id(directory: Path) -> None:
    """Switches whose last master had these generations, none, the greatest, any."""
    switch, service, claimed = FakeSwitch(directory / "br0.mgmt"), Service(directory), []
    for generation in (NO_GENERATION, NO_GENERATION - 1, 41):
        switch.accept()
        switch.generation = generation
        switch.shake_hands(grants=False)
        # Nothing but its request is heard before it is granted.
        expect(service.next_event(timeout_s=0.2), NOTHING)
        claimed.append(switch.generation)
        switch.grant()
        expect(service.next_event(), CONNECTED)
        switch.hang_up()
        expect(service.next_event(), GONE)
    expect(claimed, [0, NO_GENERATION, 42])
    asked = {HELLO, EXPERIMENTER, FEATURES_REQUEST, MULTIPART_REQUEST, ROLE_REQUEST, SET_ASYNC}
    expect(switch.heard - {ECHO_REQUEST}, asked)
    service.end(switch)


@in_a_process
def test_service_without_lead_requests_no_master_role(directory: Path) -> None:
    """Another service leads, or nobody knows, on a switch where somebody has been master."""
    connections.RETRY_REFUSED_S = 0.2
    switch, service = FakeSwitch(directory / "br0.mgmt"), Service(directory)
    for leads in (False, None):
        service.leads = leads
        switch.accept()
        switch.generation = 41
        with contextlib.suppress(EOFError, ConnectionResetError):
            switch.shake_hands()
            raise AssertionError("it has become master")
        expect(switch.asked_for, [NOCHANGE])
    # It may lead on, where nobody has been master since it was.
    service.leads = True
    service.take(switch)
    switch.hang_up()
    expect(service.next_event(), GONE)
    service.leads = None
    service.take(switch)
    service.end(switch)


@in_a_process
def test_losing_master_role_closes_connection(directory: Path) -> None:
    """It says so at once, or when it refuses something."""
    connections.RETRY_REFUSED_S = 0.2
    switch, service = FakeSwitch(directory / "br0.mgmt"), Service(directory)
    status = struct.pack("!IIIB3xQ", 0x4F4E4600, ROLE_STATUS, SLAVE, 0, 1)
    is_slave = struct.pack("!HH", 1, 10) + bytes(64)
    for told in (message(EXPERIMENTER, 0, status), message(ERROR, 9, is_slave)):
        service.take(switch)
        switch.connection.sendall(told)
        expect(service.next_event(), GONE)
    service.end(switch)


@in_a_process
def test_send_to_slow_switch_does_not_block_and_keeps_order(directory: Path) -> None:
    framework.ECHO_INTERVAL_S = 60.0
    switch, service = connected(directory)
    connection = service.connections["br0"]
    parts = [bytes([number]) * 1_000_000 for number in range(8)]
    started_s = time.monotonic()
    for part in parts:
        connection.send(part)
    assert time.monotonic() - started_s < 5
    expected, received = b"".join(parts), b""
    while len(received) < len(expected):
        received += switch.connection.recv(1 << 20)
    assert received == expected, "not in order"
    connection.send(b"again")
    expect(switch.connection.recv(100), b"again")
    service.end(switch)


@in_a_process
def test_slow_message_keeps_its_place_and_the_connection(directory: Path) -> None:
    framework.ECHO_INTERVAL_S = 0.05
    (switch, service), goes_on = connected(directory), threading.Event()
    connection = service.connections["br0"]

    def make() -> bytes:
        goes_on.wait(10)
        return b"first, "

    expect([connection.send_made(make), connection.send_made(make)], [True, False])
    connection.send(b"second")
    # Longer than a switch may leave echo requests unanswered.
    expect(service.next_event(timeout_s=0.5), NOTHING)
    framework.ECHO_INTERVAL_S = 60.0
    goes_on.set()
    received = b""
    # An echo request may follow.
    while b"second" not in received:
        received += switch.connection.recv(1000)
    assert b"first, second" in received, received
    service.end(switch)


@in_a_process
def test_unread_echo_replies_use_bounded_memory(directory: Path) -> None:
    framework.ECHO_INTERVAL_S = 60.0
    switch, service = connected(directory)
    connection, most = service.connections["br0"], 0
    for _ in range(1000):
        switch.connection.sendall(message(ECHO_REQUEST, 1, bytes(60_000)))
        most = max(most, len(connection._unsent or b""))
    # One more message may be under way.
    assert most <= framework.UNSENT_BYTES + (1 << 17), most
    switch.hang_up()
    expect(service.next_event(), GONE)
    service.end(switch)


def late_write(directory: Path, end: Callable[[FakeSwitch, Service], object]) -> None:
    """A connection that ends is not closed while somebody is about to write to it.

    The descriptor's number would be another connection's, which would get the message.
    """
    framework.ECHO_INTERVAL_S = 60.0
    switch, service = connected(directory)
    (wire,) = service.wires
    wire.holds = True
    connection = service.connections["br0"]
    writing = threading.Thread(target=connection.send, args=(message(ECHO_REQUEST, 1),))
    ending = threading.Thread(target=end, args=(switch, service))
    writing.start()
    assert wire.reached.wait(10), "nobody writes"
    ending.start()
    # As long as a loop that receives takes to end, and more.
    time.sleep(0.3)
    assert wire.is_open(), "closed meanwhile"
    wire.released.set()
    expect(service.next_event(), GONE)
    service.end(switch)
    assert not wire.is_open(), "open at the end"


@pytest.mark.slow
@in_a_process
def test_socket_stays_open_during_write_after_disconnect(directory: Path) -> None:
    late_write(directory, lambda switch, _: switch.hang_up())


@pytest.mark.slow
@in_a_process
def test_socket_stays_open_during_write_after_dialer_stops(directory: Path) -> None:
    late_write(directory, lambda _, service: service.dialer.stop())


@in_a_process
def test_port_status_does_not_wait_for_counters_of_another_switch(directory: Path) -> None:
    other = FakeSwitch(directory / "br1.mgmt")
    (switch, service), reached, goes_on = connected(directory), threading.Event(), threading.Event()
    dialer = Dialer("br1", lambda: Reach("unix:db.sock", directory).dial("br1", ()))
    service.take(other)

    def hold(event: Event) -> None:
        if isinstance(event, PortStatsRead):
            reached.set()
            goes_on.wait(10)

    service.before = hold
    counters = struct.pack("!HH4x", PORT_STATS, 0)
    switch.connection.sendall(message(MULTIPART_REPLY, Asked.PORTS, counters))
    assert reached.wait(10), "the counters are not held up"
    status = struct.pack("!B7x", MODIFY) + port(1, "eth1")
    other.connection.sendall(message(PORT_STATUS, 0, status))
    expect(service.next_event(timeout_s=5), "PortChanged")
    goes_on.set()
    expect(service.next_event(), "PortStatsRead")
    dialer.stop()
    service.end(switch, other)
    dialer._thread.join(5)


@in_a_process
def test_port_events_have_port_numbers(directory: Path) -> None:
    switch, service = connected(directory)
    for reason in (MODIFY, DELETE):
        status = struct.pack("!B7x", reason) + port(7, "eth7")
        switch.connection.sendall(message(PORT_STATUS, 0, status))
    changed, removed = (service.events.get(timeout=10) for _ in range(2))
    assert isinstance(changed, PortChanged), changed
    expect((changed.bridge, changed.port.ofport), ("br0", 7))
    expect(removed, PortRemoved("br0", 7))
    service.end(switch)


@in_a_process
def test_link_failure_does_not_wait_for_end_of_long_reply(directory: Path) -> None:
    """A removed port waits, and so does what comes after it: the port's number may be used again."""
    switch, service = connected(directory)
    reply = b"".join(itertools.islice(hostile.flows(Asked.FLOWS, 3000), 7))
    status = (
        message(PORT_STATUS, 0, struct.pack("!B7x", reason) + port(7, "eth7"))
        for reason in (MODIFY, DELETE, ADD)
    )
    switch.connection.sendall(reply + b"".join(status))
    told = [service.next_event() for _ in range(4)]
    expect(told, ["PortChanged", "InstalledRead", "PortRemoved", "PortChanged"])
    service.end(switch)


@in_a_process
def test_long_reply_is_handled_although_nothing_follows(directory: Path) -> None:
    """With Ryu's green threads, the search for later reports must not wait for them."""
    framework.ECHO_INTERVAL_S = 60.0
    switch, service = connected(directory)
    switch.connection.sendall(b"".join(itertools.islice(hostile.flows(Asked.FLOWS, 3000), 7)))
    expect(service.next_event(timeout_s=20), "InstalledRead")
    service.end(switch)


@in_a_process
def test_too_many_ports_close_connection(directory: Path) -> None:
    framework.MOST_PORTS, framework.ECHO_INTERVAL_S = 20, 3600.0
    switch, service = connected(directory)
    # The service may hang up before all are sent.
    with contextlib.suppress(ConnectionError):
        for number in range(10, 50):
            status = struct.pack("!B7x", ADD) + port(number, f"n{number}")
            switch.connection.sendall(message(PORT_STATUS, 0, status))
    expect([service.next_event() for _ in range(20)], ["PortChanged"] * 19 + [GONE])
    service.end(switch)
