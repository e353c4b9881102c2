"""Sets and clears the port flag `no-flood`, over an OpenFlow 1.0 connection made for this.

NORMAL does not flood to ports that have this flag. Only OpenFlow 1.0 can set and show it, so the
bridge's OpenFlow 1.3 connection cannot be used.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

from controller.api.events import PortFlagsSet, SetPortFlags
from controller.host import faults
from controller.host.sockets import BridgeSocket, Unreachable
from controller.openflow.side_connection import TIMEOUT_S, Refused, SideConnection, Stream
from controller.text.wording import because, one_line

LOG = logging.getLogger(__name__)


# OpenFlow 1.0.0, sections 5.1 to 5.3.
VERSION = 0x01
FEATURES_REQUEST, FEATURES_REPLY, PORT_MOD, BARRIER_REQUEST, BARRIER_REPLY = 5, 6, 15, 18, 19
NO_FLOOD = 1 << 4
FEATURES_BYTES = 24  # what precedes the ports in a features reply
PORT = struct.Struct("!H6s16sIIIIII")
PORT_CHANGE = struct.Struct("!H6sIII4x")


def start(
    dial: Callable[[], BridgeSocket], command: SetPortFlags, submit: Callable[[PortFlagsSet], None]
) -> None:
    """Carry out a command on a new thread, over a connection that `dial` makes.

    `submit` gets the answer, also when the exchange fails.
    """

    def run() -> None:
        answer = PortFlagsSet(command.bridge, command.number, frozenset())
        try:
            with closing(dial()) as wire:
                there, before = set_flags(wire, command.no_flood, command.flood)
                answer = replace(answer, no_flood=there, before=before)
        except (OSError, Refused, Unreachable, ValueError) as failure:
            answer = replace(answer, error=one_line(because(failure)) or type(failure).__name__)
        submit(answer)

    def failed(found: str) -> None:
        submit(PortFlagsSet(command.bridge, command.number, frozenset(), error=found))

    faults.once("port-flags", f"port flags {command.bridge}", run, failed)


def set_flags(
    sock: Stream, no_flood: frozenset[int], flood: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Set the flag of the ports in `no_flood`, and clear it for those in `flood`.

    Ports that have the wanted setting are not modified. Returns the ports of `no_flood` that the
    bridge has, and all ports that had the flag before.

    Raises:
        Refused: the switch does not support OpenFlow 1.0, or refuses a change.
        OSError: the connection failed, or a read or write took longer than `TIMEOUT_S`.
    """
    wire = SideConnection(sock, VERSION, "OpenFlow10", "a switch that sets no-flood", TIMEOUT_S)
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
        wire.ask(BARRIER_REQUEST, BARRIER_REPLY)
    before = frozenset(number for number, _, config in ports if config & NO_FLOOD)
    return no_flood & {number for number, _, _ in ports}, before


def _ports(features: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield the number, the hardware address and the configuration bits of each port."""
    whole = len(features) - (len(features) - FEATURES_BYTES) % PORT.size
    for offset in range(FEATURES_BYTES, whole, PORT.size):
        number, address, _, config, *_ = PORT.unpack_from(features, offset)
        yield number, address, config
