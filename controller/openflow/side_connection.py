"""Requests that need OpenFlow 1.0 or 1.5 (port flags, select groups), on separate connections.

Only OpenFlow 1.0 can set and report the port flag `no-flood`: NORMAL does not flood to such a port.

Only group mods of OpenFlow 1.5 can set a selection method. Without a selection method, Open vSwitch
uses its own hash, which ignores UDP ports. The bridge's OpenFlow 1.3 connection reports such a
group with type SELECT, and can remove it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

from controller.api.engine_commands import AddSelectGroup, SetPortFlags
from controller.api.events import PortFlagsSet, SelectGroupAdded
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import Bucket, GroupSpec
from controller.host import faults
from controller.host.sockets import READ_BYTES, BridgeSocket
from controller.openflow import framing
from controller.openflow.codec import encode_action
from controller.openflow.framing import HEADER
from controller.text.wording import Refused, quoted

TIMEOUT_S = 5.0
# Limits how long a switch that sends other messages, or a byte at a time, can block the thread.
ANSWER_TIMEOUT_S = 30.0

# These message types are the same in every version of OpenFlow.
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY = 0, 1, 2, 3
# The type, or the type and code, of errors about the version. To a switch, a hello without a list of
# versions means that the sender supports all earlier versions as well.
HELLO_FAILED, BAD_VERSION = b"\0\0", b"\0\1\0\0"

# OpenFlow 1.0.0, sections 5.1 to 5.3.
OPENFLOW_10 = 0x01
FEATURES_REQUEST, FEATURES_REPLY, PORT_MOD, BARRIER_REQUEST_10, BARRIER_REPLY_10 = 5, 6, 15, 18, 19
NO_FLOOD = 1 << 4
FEATURES_BYTES = 24  # the bytes before the ports in a features reply
PORT = struct.Struct("!H6s16sIIIIII")
PORT_CHANGE = struct.Struct("!H6sIII4x")

# OpenFlow 1.5.1, sections 7.1 to 7.3. OFPGC_ADD_OR_MOD is an extension of Open vSwitch 2.6 and later.
OPENFLOW_15 = 0x06
GROUP_MOD, BARRIER_REQUEST_15, BARRIER_REPLY_15 = 15, 20, 21
ADD_OR_MODIFY, SELECT = 0x8000, 1
ALL_BUCKETS = 0xFFFFFFFF
GROUP = struct.Struct("!HBxIH2xI")
BUCKET = struct.Struct("!HHI")
WEIGHT = struct.Struct("!HHH2x")
# The property ntr_group_prop_selection_method, from Open vSwitch's netronome-ext.h.
METHOD = struct.Struct("!HHII4x16sQ")
EXPERIMENTER, NETRONOME, SELECTION_METHOD = 0xFFFF, 0x0000154D, 1
# The upper half of the method's parameter is the algorithm, and the lower half is the basis. Every
# datapath has algorithm 0 (L4).
L4 = 0


class SideConnection:
    """A connection for requests in one OpenFlow version. The constructor sends the hello message.

    `version`: the number in headers. `protocol`: the version's name in Open vSwitch. `request`: a
    description of the request for error messages, which also propose how `bridge` can allow the version.

    The constructor and all methods raise:
        Refused: the switch does not support the version, or answers with an error.
        OSError: the connection failed, a read or write took longer than `TIMEOUT_S`, or a reply took
            longer than `ANSWER_TIMEOUT_S`.
    """

    def __init__(
        self, stream: BridgeSocket, bridge: str, version: int, protocol: str, request: str
    ) -> None:
        self._stream = stream
        self._version = version
        self._request = request
        # All that the service needs: the first value in an empty column forbids all other versions.
        allow = f"ovs-vsctl add bridge {quoted(bridge)} protocols OpenFlow10 OpenFlow13 OpenFlow15"
        self._closed = f"the switch does not support {protocol}; to allow it: {allow}"
        self._received = bytearray()
        stream.settimeout(TIMEOUT_S)
        self.send([self.message(HELLO)])

    def message(self, kind: int, body: bytes = b"", xid: int = 0) -> bytes:
        return HEADER.pack(self._version, kind, HEADER.size + len(body), xid) + body

    def send(self, messages: Iterable[bytes]) -> None:
        try:
            self._stream.sendall(b"".join(messages))
        except (BrokenPipeError, ConnectionResetError):
            raise Refused(self._closed) from None

    def ask(self, request: int, reply: int) -> bytes:
        """Send a request of type `request`, and return the body of the reply of type `reply`.

        If an OpenFlow error arrives before the reply, even for an earlier message, raise Refused.
        """
        self.send([self.message(request)])
        until_s = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            for _, kind, xid, message in framing.complete(self._received):
                body = message[HEADER.size :]
                if kind == reply:
                    return body
                if kind == ERROR and (body[:2] == HELLO_FAILED or body[:4] == BAD_VERSION):
                    raise Refused(self._closed)
                if kind == ERROR:
                    raise Refused(
                        f"the switch refused {self._request}: OpenFlow error {body[:4].hex()}"
                    )
                if kind == ECHO_REQUEST:
                    self.send([self.message(ECHO_REPLY, body, xid)])
            if not (part := self._stream.recv(READ_BYTES)):
                raise Refused(self._closed)
            if time.monotonic() > until_s:
                raise TimeoutError(f"the switch did not reply within {ANSWER_TIMEOUT_S:g} s")
            self._received += part


def start(
    dial: Callable[[], BridgeSocket],
    command: SetPortFlags | AddSelectGroup,
    submit: Callable[[PortFlagsSet | SelectGroupAdded], None],
) -> None:
    """Carry out `command` on a new thread, over a connection from `dial`.

    `submit` receives the answer, or the error if the request fails.
    """
    bridge, number = command.bridge, command.number

    def carry_out() -> PortFlagsSet | SelectGroupAdded:
        with closing(dial()) as wire:
            if isinstance(command, AddSelectGroup):
                add_select_group(wire, bridge)
                return SelectGroupAdded(bridge, number)
            no_flood, before = set_port_flags(wire, bridge, command.no_flood, command.flood)
            return PortFlagsSet(bridge, number, no_flood, before=before)

    def failed(error: str) -> PortFlagsSet | SelectGroupAdded:
        if isinstance(command, AddSelectGroup):
            return SelectGroupAdded(bridge, number, error)
        return PortFlagsSet(bridge, number, frozenset(), error)

    what = "select group" if isinstance(command, AddSelectGroup) else "port flags"
    faults.answered(what.replace(" ", "-"), f"{what} {bridge}", carry_out, failed, submit)


def set_port_flags(
    sock: BridgeSocket, bridge: str, no_flood: frozenset[int], flood: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Set the flag `no-flood` on the ports in `no_flood`, and clear it on the ports in `flood`.

    Ports that already have the wanted setting are not modified. Return the ports in `no_flood` that
    exist on the bridge, and all ports that had the flag before.

    Raises:
        Refused: the switch does not support OpenFlow 1.0, or refuses a change.
        OSError: the connection failed, or a read or write took longer than `TIMEOUT_S`.
    """
    wire = SideConnection(sock, bridge, OPENFLOW_10, "OpenFlow10", "to set no-flood")
    ports = list(_ports(wire.ask(FEATURES_REQUEST, FEATURES_REPLY)))
    changes = [
        wire.message(PORT_MOD, PORT_CHANGE.pack(number, address, wanted, NO_FLOOD, 0))
        for number, address, config in ports
        if number in no_flood | flood
        for wanted in [NO_FLOOD if number in no_flood else 0]
        if config & NO_FLOOD != wanted
    ]
    if changes:
        wire.send(changes)
        wire.ask(BARRIER_REQUEST_10, BARRIER_REPLY_10)
    before = frozenset(number for number, _, config in ports if config & NO_FLOOD)
    return no_flood & {number for number, _, _ in ports}, before


def _ports(features: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield the number, the hardware address and the configuration bits of each port."""
    whole = len(features) - (len(features) - FEATURES_BYTES) % PORT.size
    for offset in range(FEATURES_BYTES, whole, PORT.size):
        number, address, _, config, *_ = PORT.unpack_from(features, offset)
        yield number, address, config


def add_select_group(sock: BridgeSocket, bridge: str) -> None:
    """Add the group `SELECT_GROUP`. If a group with this ID exists, replace that group.

    Raises:
        Refused: the switch does not support OpenFlow 1.5, or refuses the group.
        OSError: the connection failed, or a read or write took longer than `TIMEOUT_S`.
    """
    what = "a group with selection method dp_hash"
    wire = SideConnection(sock, bridge, OPENFLOW_15, "OpenFlow15", what)
    wire.send([wire.message(GROUP_MOD, group_mod(SELECT_GROUP))])
    wire.ask(BARRIER_REQUEST_15, BARRIER_REPLY_15)


def group_mod(group: GroupSpec) -> bytes:
    """Return the body of a group mod that adds or changes `group`, with selection method dp_hash."""
    buckets = b"".join(_bucket(number, bucket) for number, bucket in enumerate(group.buckets))
    head = GROUP.pack(ADD_OR_MODIFY, SELECT, group.group_id, len(buckets), ALL_BUCKETS)
    by_dp_hash = METHOD.pack(
        EXPERIMENTER, METHOD.size, NETRONOME, SELECTION_METHOD, b"dp_hash", L4 << 32
    )
    return head + buckets + by_dp_hash


def _bucket(number: int, bucket: Bucket) -> bytes:
    actions = bytearray()
    for action in bucket.actions:
        # These actions are encoded as in OpenFlow 1.3.
        message: Any = encode_action(action)
        message.serialize(actions, len(actions))
    weight = WEIGHT.pack(0, WEIGHT.size, 1)
    length = BUCKET.size + len(actions) + len(weight)
    return BUCKET.pack(length, len(actions), number) + actions + weight
