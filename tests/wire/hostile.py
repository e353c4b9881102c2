"""A switch that attacks the service: what it sends once the service is its master, without end."""

from __future__ import annotations

import contextlib
import itertools
import select
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from controller.dataplane.tables import Kind, cookie
from controller.openflow.messages import Asked
from tests.wire.fake_switch import (
    ECHO_REPLY,
    ECHO_REQUEST,
    ERROR,
    MODIFY,
    MULTIPART_REPLY,
    PORT_STATS,
    PORT_STATUS,
    FakeSwitch,
    message,
    port,
)

FLOW, PACKET_IN, ADD, MORE = 1, 10, 0, 1
LINK_DOWN, LIVE = 1, 4
FLOWS_A_MESSAGE = 500
Attack = Callable[[], Iterator[bytes]]


def multipart(xid: int, kind: int, body: bytes, more: bool) -> bytes:
    return message(MULTIPART_REPLY, xid, struct.pack("!HH4x", kind, MORE if more else 0) + body)


def flow(number: int, value: int, table: int = 100, timeout_s: int = 0) -> bytes:
    """A flow for one address, different for each number: 80 bytes."""
    mac = b"\x02" + number.to_bytes(5, "big")
    # eth_dst, and no instructions.
    match = struct.pack("!HHI6s2x", 1, 14, 0x80000606, mac)
    fixed = struct.pack(
        "!HBxIIHHHH4xQQQ", 48 + len(match), table, 1, 0, 5, 0, timeout_s, 0, value, 1, 1
    )
    return fixed + match


def flows(xid: int, of_an_answer: int, value: int = 7, table: int = 100) -> Iterator[bytes]:
    """Answers with so many flows, all different."""
    numbers = itertools.count()
    while True:
        for at in range(0, of_an_answer, FLOWS_A_MESSAGE):
            body = b"".join(flow(next(numbers), value, table) for _ in range(FLOWS_A_MESSAGE))
            more = at + FLOWS_A_MESSAGE < of_an_answer
            yield multipart(xid, FLOW, body, more)
        if xid == Asked.FLOWS:
            yield multipart(Asked.GROUPS, 7, b"", False)


def endless_flows() -> Iterator[bytes]:
    """One answer of 1,100,000 flows."""
    return flows(Asked.FLOWS, 1_100_000)


def many_flows() -> Iterator[bytes]:
    """Answers with 25,000 flows, none of which has been seen before."""
    return flows(Asked.FLOWS, 25_000)


def learned() -> Iterator[bytes]:
    """Answers with 60,000 learned addresses."""
    return flows(Asked.LEARNED, 60_000, cookie(Kind.LEARNED, 10))


def endless_learned() -> Iterator[bytes]:
    return flows(Asked.LEARNED, 1_100_000, cookie(Kind.LEARNED, 10))


def stale() -> Iterator[bytes]:
    """Answers with 25,000 flows of ours that should not be there."""
    return flows(Asked.FLOWS, 25_000, cookie(Kind.TO_VM, 10))


def counters() -> Iterator[bytes]:
    """Counters of 20,000 ports that nobody has asked for, again and again."""
    row = struct.pack("!I4x12QII", 10, *range(12), 1, 0)
    while True:
        for number in range(40):
            yield multipart(Asked.PORTS, PORT_STATS, row * 500, number < 39)


def unit_counters() -> Iterator[bytes]:
    """Counters of as many units as an answer may have."""
    return flows(Asked.FROM_VM, 25_000, cookie(Kind.FROM_VM, 10))


def heavy_flows() -> Iterator[bytes]:
    """Answers with flows of 60,000 bytes each: actions that output to ports."""
    for number in itertools.count():
        outputs = b"".join(struct.pack("!HHIH6x", 0, 16, port, 0) for port in range(3700))
        for at in range(40):
            head = flow(number * 40 + at, cookie(Kind.TO_VM, 10))
            actions = struct.pack("!HH4x", 4, 8 + len(outputs)) + outputs
            whole = struct.pack("!H", len(head) + len(actions)) + head[2:] + actions
            yield multipart(Asked.FLOWS, FLOW, whole, at < 39)
        yield multipart(Asked.GROUPS, 7, b"", False)


def everything() -> Iterator[bytes]:
    """As much of everything as the service takes, again and again."""
    yield from itertools.islice(new_ports(), 8000)
    groups = [struct.pack("!HBxI", 8, 0, 0x6C000000 + number) for number in range(8000)]
    attacks = flows(Asked.FLOWS, 20_000, cookie(Kind.TO_VM, 10)), learned(), unit_counters()
    for number in itertools.count():
        yield from itertools.islice(attacks[0], 40)
        yield multipart(Asked.GROUPS, 7, b"".join(groups[number % 7 :]), False)
        yield from itertools.islice(attacks[1], 120)
        yield from itertools.islice(attacks[2], 4)


def new_ports() -> Iterator[bytes]:
    for number in itertools.count(100):
        status = struct.pack("!B7x", ADD) + port(number & 0xFFFFFF, f"n{number}")
        yield message(PORT_STATUS, 0, status)


def flapping() -> Iterator[bytes]:
    """An uplink whose link goes up and down."""
    for number in itertools.count():
        described = bytearray(port(1, "s1u0"))
        struct.pack_into("!I", described, 36, LIVE if number % 2 else LINK_DOWN)
        yield message(PORT_STATUS, 0, struct.pack("!B7x", MODIFY) + bytes(described))


def frames() -> Iterator[bytes]:
    """Frames for path checks, each as long as a message."""
    match = struct.pack("!HHII4x", 1, 12, 0x80000004, 1)
    head = struct.pack("!IHBBQ", 0xFFFFFFFF, 60_000, 0, 0, cookie(Kind.PROBE, 0))
    one = message(PACKET_IN, 0, head + match + bytes(2) + bytes(60_000))
    return itertools.repeat(one)


def echoes() -> Iterator[bytes]:
    return itertools.repeat(message(ECHO_REQUEST, 1, bytes(60_000)))


def small_echoes() -> Iterator[bytes]:
    return itertools.repeat(message(ECHO_REQUEST, 1) * 1000)


def errors() -> Iterator[bytes]:
    return itertools.repeat(message(ERROR, 1, struct.pack("!HH", 1, 1) + bytes(64)) * 100)


OF_FLOWS = (endless_flows, many_flows, stale, heavy_flows, learned, endless_learned)
OF_COUNTERS = (counters, unit_counters)
OTHERS = (everything, new_ports, flapping, frames, echoes, small_echoes, errors)
ATTACKS: dict[str, Attack] = {a.__name__: a for a in (*OF_FLOWS, *OF_COUNTERS, *OTHERS)}


class HostileSwitch:
    """Attacks whoever dials it, from its own thread, after `begin`; a context manager.

    It connects again whenever the service closes the connection. `sent_bytes`: of the attack.
    """

    def __init__(self, path: Path, attack: Attack) -> None:
        self._switch, self._attack = FakeSwitch(path), attack
        self._begun, self._over = threading.Event(), threading.Event()
        self.connected = threading.Event()
        self.sent_bytes = 0

    def __enter__(self) -> HostileSwitch:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._begun.set()
        self._over.set()
        self._switch.stop()

    def begin(self) -> None:
        self._begun.set()

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError, EOFError):
                self._switch.accept()
                self._switch.shake_hands()
                self.connected.set()
                self._wait()
                for said in self._attack():
                    self._switch.connection.sendall(said)
                    self.sent_bytes += len(said)
                    if self._over.is_set():
                        break
            with contextlib.suppress(AssertionError):
                self._switch.hang_up()

    def _wait(self) -> None:
        """Do what is needed for the service not to close the connection."""
        while not self._begun.is_set():
            if select.select([self._switch.connection], [], [], 0.05)[0]:
                kind, xid, body = self._switch.receive()
                if kind == ECHO_REQUEST:
                    self._switch.connection.sendall(message(ECHO_REPLY, xid, body))
