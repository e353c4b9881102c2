"""Adds the group that selects by the datapath's hash, over an OpenFlow 1.5 connection made for this.

Only group mods of OpenFlow 1.5 can name a selection method. Without a name, Open vSwitch uses a hash
of its own, which ignores the ports of UDP. The bridge's OpenFlow 1.3 connection sees the group as
one of type SELECT, and can remove it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import closing
from typing import Any

from controller.api.events import AddSelectGroup, SelectGroupAdded
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import Bucket, GroupSpec
from controller.host import faults
from controller.host.sockets import BridgeSocket, Unreachable
from controller.openflow.encode import encode_action
from controller.openflow.side_connection import TIMEOUT_S, Refused, SideConnection, Stream
from controller.text.wording import because, one_line

# OpenFlow 1.5.1, sections 7.1 to 7.3. OFPGC_ADD_OR_MOD is Open vSwitch's, since release 2.6.
VERSION = 0x06
GROUP_MOD, BARRIER_REQUEST, BARRIER_REPLY = 15, 20, 21
ADD_OR_MODIFY, SELECT = 0x8000, 1
ALL_BUCKETS = 0xFFFFFFFF
GROUP = struct.Struct("!HBxIH2xI")
BUCKET = struct.Struct("!HHI")
WEIGHT = struct.Struct("!HHH2x")
# The property ntr_group_prop_selection_method of Open vSwitch's netronome-ext.h.
METHOD = struct.Struct("!HHII4x16sQ")
EXPERIMENTER, NETRONOME, SELECTION_METHOD = 0xFFFF, 0x0000154D, 1
# The parameter has the algorithm in its upper half and the basis in its lower one. Algorithm 0 (L4)
# is in every datapath.
L4 = 0


def start(
    dial: Callable[[], BridgeSocket],
    command: AddSelectGroup,
    submit: Callable[[SelectGroupAdded], None],
) -> None:
    """Carry out a command on a new thread, over a connection that `dial` makes.

    `submit` gets the answer, also when the exchange fails.
    """

    def run() -> None:
        error = None
        try:
            with closing(dial()) as wire:
                add(wire)
        except (OSError, Refused, Unreachable, ValueError) as failure:
            error = one_line(because(failure)) or type(failure).__name__
        submit(SelectGroupAdded(command.bridge, command.number, error))

    def failed(found: str) -> None:
        submit(SelectGroupAdded(command.bridge, command.number, found))

    faults.once("select-group", f"select group {command.bridge}", run, failed)


def add(sock: Stream) -> None:
    """Add the group, or give the group with its number its buckets and its selection method.

    Raises:
        Refused: the switch does not support OpenFlow 1.5, or refuses the group.
        OSError: the connection failed, or a read or write took longer than `TIMEOUT_S`.
    """
    wire = SideConnection(
        sock, VERSION, "OpenFlow15", "a switch that has the selection method dp_hash", TIMEOUT_S
    )
    wire.send([wire.message(GROUP_MOD, group_mod(SELECT_GROUP))])
    wire.ask(BARRIER_REQUEST, BARRIER_REPLY)


def group_mod(group: GroupSpec) -> bytes:
    """The body of the group mod that adds a group, or changes it, to select by the datapath's hash."""
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
