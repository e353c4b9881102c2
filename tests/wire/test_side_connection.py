"""Exchanges in other versions of OpenFlow, against a switch made of a socket: port flags, and a group."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Mapping

import pytest

from controller.api.engine_commands import AddSelectGroup, SetPortFlags
from controller.api.events import PortFlagsSet, SelectGroupAdded
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import Bucket, GroupSpec, Resubmit, SetField
from controller.host.sockets import BridgeSocket
from controller.openflow import side_connection
from controller.text.wording import Refused
from policies.classifiers import BUCKETS

DOWN, NO_FLOOD = 1, 16
HELLO_FAILED = struct.pack("!HH", 0, 0)
BAD_VERSION = struct.pack("!HH", 1, 0)
BAD_PORT = struct.pack("!HH", 7, 0)
BAD_GROUP = struct.pack("!HH", 6, 5)


class Switch:
    """Answers one exchange; changes are refused by this error if there is one.

    `ports`: the configuration of each port, to one who speaks OpenFlow 1.0.
    """

    def __init__(
        self, version: int, ports: Mapping[int, int] | None = None, error: bytes | None = None
    ) -> None:
        self.ports = dict(ports or {})
        self.changes: list[bytes] = []
        ours, self._theirs = socket.socketpair()
        self.ours = BridgeSocket(ours)
        self._version, self._error = version, error
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._theirs, self._theirs.makefile("rb") as stream:
            self._theirs.sendall(struct.pack("!BBHI", 6, 0, 8, 9))  # a hello of another version
            while head := stream.read(8):
                version, kind, length, _ = struct.unpack("!BBHI", head)
                assert version == self._version
                body = stream.read(length - 8)
                if kind == 5:
                    self._answer(2, b"echo")
                    self._answer(6, bytes(24) + b"".join(map(self._described, self.ports)))
                elif kind == 15:
                    self._change(body)
                elif kind == (18 if version == 1 else 20):
                    self._answer(kind + 1)

    def _change(self, body: bytes) -> None:
        self.changes.append(body)
        if self._error is not None:
            self._answer(1, self._error)
        elif self._version == 1:
            number, _, config, mask, _ = struct.unpack("!H6sIII4x", body)
            self.ports[number] = self.ports[number] & ~mask | config & mask

    def _described(self, number: int) -> bytes:
        name = f"port{number}".encode()
        config = self.ports[number]
        return struct.pack("!H6s16sIIIIII", number, bytes(6), name, config, 0, 0, 0, 0, 0)

    def _answer(self, kind: int, body: bytes = b"") -> None:
        message = struct.pack("!BBHI", self._version, kind, 8 + len(body), 0) + body
        self._theirs.sendall(message)


def set_flags(
    wire: BridgeSocket, no_flood: set[int], flood: frozenset[int] = frozenset()
) -> tuple[frozenset[int], frozenset[int]]:
    return side_connection.set_port_flags(wire, "br0", frozenset(no_flood), flood)


def test_only_what_differs_is_changed_and_only_this_flag() -> None:
    switch = Switch(1, {1: DOWN, 2: NO_FLOOD, 3: NO_FLOOD | DOWN, 4: NO_FLOOD, 0xFFFE: 0})
    # Port 9 is not there.
    found, before = set_flags(switch.ours, {1, 2, 9, 0xFFFE}, frozenset({3, 8}))
    assert found == {1, 2, 0xFFFE}
    assert before == {2, 3, 4}
    assert switch.ports == {1: DOWN | NO_FLOOD, 2: NO_FLOOD, 3: DOWN, 4: NO_FLOOD, 0xFFFE: NO_FLOOD}
    assert len(switch.changes) == 3


def test_a_group_is_what_open_vswitch_documents() -> None:
    """ofp15_group_mod, ofp15_bucket with a weight, and ntr_group_prop_selection_method."""
    actions = (SetField("reg12", 7), Resubmit(11))
    body = side_connection.group_mod(GroupSpec(0x6CF30000, "select", (Bucket(actions),)))
    # set_field of NXM_NX_REG12, and NXAST_RESUBMIT_TABLE that keeps the ingress port
    acts = bytes.fromhex("0019 0010 00011804 00000007 00000000")
    acts += bytes.fromhex("ffff 0010 00002320 000e fff8 0b 000000")
    bucket = struct.pack("!HHI", 48, 32, 0) + acts + struct.pack("!HHHxx", 0, 8, 1)
    head = struct.pack("!HBxIHxxI", 0x8000, 1, 0x6CF30000, 48, 0xFFFFFFFF)
    method = struct.pack("!HHIIxxxx16sQ", 0xFFFF, 40, 0x154D, 1, b"dp_hash", 0)
    assert body == head + bucket + method


def test_the_group_has_all_buckets_and_fits_a_message() -> None:
    switch = Switch(6)
    side_connection.add_select_group(switch.ours, "br0")
    (body,) = switch.changes
    assert len(body) + 8 < 1 << 16
    assert [b.actions[0] for b in SELECT_GROUP.buckets] == [
        SetField("reg12", bucket) for bucket in range(BUCKETS)
    ]
    assert body == side_connection.group_mod(SELECT_GROUP)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HELLO_FAILED, "OpenFlow15; to allow it: ovs-vsctl add bridge br0 protocols OpenFlow10"),
        (BAD_VERSION, "OpenFlow15; to allow it: ovs-vsctl add bridge br0 protocols OpenFlow10"),
        (BAD_GROUP, "refused a group with selection method dp_hash: OpenFlow error 00060005"),
    ],
)
def test_a_switch_that_refuses_the_group(error: bytes, expected: str) -> None:
    with pytest.raises(Refused, match=expected):
        side_connection.add_select_group(Switch(6, error=error).ours, "br0")


def test_a_switch_that_refuses_flags() -> None:
    with pytest.raises(Refused, match="refused to set no-flood: OpenFlow error 00070000"):
        set_flags(Switch(1, {1: 0}, BAD_PORT).ours, {1})


def test_a_switch_that_hangs_up() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(
        Refused, match="OpenFlow10; to allow it: ovs-vsctl add bridge br0 protocols "
    ):
        set_flags(BridgeSocket(ours), {1})


def test_a_switch_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_connection, "TIMEOUT_S", 0.05)
    ours, _theirs = socket.socketpair()
    with pytest.raises(TimeoutError):
        set_flags(BridgeSocket(ours), {1})


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
    with ours, pytest.raises(TimeoutError):
        set_flags(BridgeSocket(ours), {1})


FLAGS, GROUP = SetPortFlags("br0", 7, frozenset({1}), frozenset()), AddSelectGroup("br0", 7)
AWAY = "br0: no such bridge -> a bridge"


@pytest.mark.parametrize(
    ("version", "command", "answer"),
    [
        (1, FLAGS, PortFlagsSet("br0", 7, frozenset({1}))),
        (None, FLAGS, PortFlagsSet("br0", 7, frozenset(), AWAY)),
        (6, GROUP, SelectGroupAdded("br0", 7)),
        (None, GROUP, SelectGroupAdded("br0", 7, AWAY)),
    ],
)
def test_whoever_waits_is_answered(
    version: int | None,
    command: SetPortFlags | AddSelectGroup,
    answer: PortFlagsSet | SelectGroupAdded,
) -> None:
    def dial() -> BridgeSocket:
        if version is None:
            raise Refused(AWAY)
        return Switch(version, {1: 0}).ours

    answers: queue.SimpleQueue[PortFlagsSet | SelectGroupAdded] = queue.SimpleQueue()
    side_connection.start(dial, command, answers.put)
    assert answers.get(timeout=5) == answer
