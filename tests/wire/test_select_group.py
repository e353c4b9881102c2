"""The OpenFlow 1.5 exchange about the group that selects by the datapath's hash."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from controller.api.engine_commands import AddSelectGroup
from controller.api.events import SelectGroupAdded
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import Bucket, GroupSpec, Resubmit, SetField
from controller.host.sockets import BridgeSocket
from controller.openflow import side_connection
from controller.text.wording import Refused
from policies.classifiers import BUCKETS

WAIT_S = 5.0
HELLO_FAILED = struct.pack("!HH", 0, 0)
BAD_VERSION = struct.pack("!HH", 1, 0)
BAD_GROUP = struct.pack("!HH", 6, 5)


class Switch:
    """Answers one exchange: the barrier, after an error of this type and code if there is one."""

    def __init__(self, error: bytes | None = None) -> None:
        self.groups: list[bytes] = []
        ours, self._theirs = socket.socketpair()
        self.ours = BridgeSocket(ours)
        self._error = error
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._theirs, self._theirs.makefile("rb") as stream:
            self._theirs.sendall(struct.pack("!BBHI", 6, 0, 8, 9))
            while head := stream.read(8):
                version, kind, length, _ = struct.unpack("!BBHI", head)
                assert version == 6
                body = stream.read(length - 8)
                if kind == 15:
                    self.groups.append(body)
                elif kind == 20:
                    if self._error is not None:
                        self._answer(1, self._error)
                    self._answer(21)

    def _answer(self, kind: int, body: bytes = b"") -> None:
        self._theirs.sendall(struct.pack("!BBHI", 6, kind, 8 + len(body), 0) + body)


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
    switch = Switch()
    side_connection.add_select_group(switch.ours)
    (body,) = switch.groups
    assert len(body) + 8 < 1 << 16
    assert [b.actions[0] for b in SELECT_GROUP.buckets] == [
        SetField("reg12", bucket) for bucket in range(BUCKETS)
    ]
    assert body == side_connection.group_mod(SELECT_GROUP)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HELLO_FAILED, "-> OpenFlow15 among the bridge's protocols"),
        (BAD_VERSION, "-> OpenFlow15 among the bridge's protocols"),
        (BAD_GROUP, "OpenFlow error 00060005 -> a switch that has the selection method dp_hash"),
    ],
)
def test_a_switch_that_refuses(error: bytes, expected: str) -> None:
    with pytest.raises(Refused, match=expected):
        side_connection.add_select_group(Switch(error).ours)


def test_whoever_waits_is_answered() -> None:
    def unreachable() -> object:
        raise Refused("br0: no such bridge -> a bridge")

    for dial, error in (
        (lambda: Switch().ours, None),
        (unreachable, "br0: no such bridge -> a bridge"),
    ):
        answers: list[SelectGroupAdded] = []
        done = threading.Event()

        def submit(
            event: SelectGroupAdded,
            answers: list[SelectGroupAdded] = answers,
            done: threading.Event = done,
        ) -> None:
            answers.append(event)
            done.set()

        side_connection.start(dial, AddSelectGroup("br0", 7), submit)  # type: ignore[arg-type]
        assert done.wait(WAIT_S)
        assert answers == [SelectGroupAdded("br0", 7, error)]
