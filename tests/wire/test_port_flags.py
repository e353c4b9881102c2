"""The OpenFlow 1.0 exchange about port flags, against a switch made of a socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path

import pytest

from controller.api.engine_commands import SetPortFlags
from controller.api.events import PortFlagsSet, SelectGroupAdded
from controller.host.sockets import BridgeSocket, Reach
from controller.openflow import side_connection
from controller.text.wording import Refused

DOWN, NO_FLOOD = 1, 16


class Switch:
    """Answers one exchange. `ports`: the configuration of each port."""

    def __init__(self, ports: dict[int, int], refuses: bool = False) -> None:
        self.ports = ports
        self.refuses = refuses
        self.changes = 0
        ours, self._theirs = socket.socketpair()
        self.ours = BridgeSocket(ours)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._theirs, self._theirs.makefile("rb") as stream:
            self._theirs.sendall(struct.pack("!BBHI", 6, 0, 8, 9))  # a hello of another version
            while head := stream.read(8):
                _, kind, length, _ = struct.unpack("!BBHI", head)
                body = stream.read(length - 8)
                if kind == 5:
                    self._answer(2, b"echo")
                    self._answer(6, bytes(24) + b"".join(map(self._described, self.ports)))
                elif kind == 15:
                    self._change(*struct.unpack("!H6sIII4x", body))
                elif kind == 18:
                    self._answer(19)

    def _change(self, number: int, _address: bytes, config: int, mask: int, _: int) -> None:
        self.changes += 1
        if self.refuses:
            self._answer(1, struct.pack("!HH", 7, 0))
        else:
            self.ports[number] = self.ports[number] & ~mask | config & mask

    def _described(self, number: int) -> bytes:
        name = f"port{number}".encode()
        config = self.ports[number]
        return struct.pack("!H6s16sIIIIII", number, bytes(6), name, config, 0, 0, 0, 0, 0)

    def _answer(self, kind: int, body: bytes = b"") -> None:
        self._theirs.sendall(struct.pack("!BBHI", 1, kind, 8 + len(body), 0) + body)


def test_only_what_differs_is_changed_and_only_this_flag() -> None:
    switch = Switch({1: DOWN, 2: NO_FLOOD, 3: NO_FLOOD | DOWN, 4: NO_FLOOD, 0xFFFE: 0})
    wanted, back = frozenset({1, 2, 0xFFFE}), frozenset({3})
    assert side_connection.set_port_flags(switch.ours, wanted, back) == (
        wanted,
        frozenset({2, 3, 4}),
    )
    assert switch.ports == {1: DOWN | NO_FLOOD, 2: NO_FLOOD, 3: DOWN, 4: NO_FLOOD, 0xFFFE: NO_FLOOD}
    assert switch.changes == 3


def test_a_port_that_is_not_there_has_no_flag() -> None:
    assert side_connection.set_port_flags(Switch({1: 0}).ours, frozenset({1, 2}), frozenset({3}))[
        0
    ] == {1}


def test_a_refusal_is_one_line() -> None:
    with pytest.raises(Refused, match="OpenFlow error 00070000 -> a switch that sets no-flood"):
        side_connection.set_port_flags(
            Switch({1: 0}, refuses=True).ours, frozenset({1}), frozenset()
        )


def test_a_switch_that_hangs_up() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(Refused, match="-> OpenFlow10 among the bridge's protocols"):
        side_connection.set_port_flags(BridgeSocket(ours), frozenset({1}), frozenset())


def test_a_switch_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_connection, "TIMEOUT_S", 0.05)
    ours, _theirs = socket.socketpair()
    with pytest.raises(TimeoutError):
        side_connection.set_port_flags(BridgeSocket(ours), frozenset({1}), frozenset())


def test_a_switch_that_is_away_is_an_event_with_an_error(tmp_path: Path) -> None:
    answered = threading.Event()
    answers: list[PortFlagsSet | SelectGroupAdded] = []

    def submit(event: PortFlagsSet | SelectGroupAdded) -> None:
        answers.append(event)
        answered.set()

    command = SetPortFlags("br0", 7, frozenset({1}), frozenset())
    reach = Reach("unix:db.sock", tmp_path)
    side_connection.start(lambda: reach.dial("br0", ()), command, submit)
    assert answered.wait(5)
    (answer,) = answers
    assert isinstance(answer, PortFlagsSet)
    assert (answer.bridge, answer.number, answer.no_flood) == ("br0", 7, frozenset())
    assert answer.error is not None


def test_a_switch_that_sends_something_else_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(side_connection, "ANSWER_TIMEOUT_S", 0.1)
    ours, theirs = socket.socketpair()

    def say() -> None:
        with theirs, contextlib.suppress(OSError):
            while True:
                theirs.sendall(struct.pack("!BBHI", 1, side_connection.ECHO_REPLY, 8, 0))

    threading.Thread(target=say, daemon=True).start()
    with ours:
        wire = BridgeSocket(ours)
        asked = side_connection.SideConnection(wire, 1, "OpenFlow10", "a switch")
        with pytest.raises(TimeoutError):
            asked.ask(5, 6)
