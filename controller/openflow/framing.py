"""Splits the data from a switch into OpenFlow messages, and checks the lengths inside a message.

The framework's parser trusts these lengths. If a length is zero, the parser loops forever. If a length
is too large, the parser parses the same bytes repeatedly.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

# Version, type, length and transaction id: the same in every version of OpenFlow.
HEADER = struct.Struct("!BBHI")
_MULTIPART_HEADER = 16
_HELLO, _PACKET_IN, _PORT_STATUS, _MULTIPART_REPLY = 0, 10, 12, 19
# OFPPR_DELETE
_REMOVED = 1
_PACKET_IN_MATCH, _PACKET_IN_PADDING = 24, 2
_PORT_BYTES = 64
_FLOW_FIXED, FLOW_LEAST_BYTES = 48, 56
GROUP_LEAST_BYTES = 8
_BUCKET_FIXED = 16
# The lengths of instructions with fixed lengths, by type, and the types of instructions with actions.
_INSTRUCTION_BYTES = {1: 8, 2: 24, 6: 8}
_WITH_ACTIONS = (3, 4, 5)
_ACTION_LEAST = 8
_OUTPUT, _OUTPUT_BYTES = 0, 16
_SET_FIELD, _EXPERIMENTER = 25, 0xFFFF
_PAIR = struct.Struct("!HH")


class Malformed(Exception):
    """Raised for a malformed message, for example if the lengths inside it are inconsistent."""


def complete(received: bytearray) -> Iterator[tuple[int, int, int, bytes]]:
    """Remove all complete messages from the received data, and yield the messages.

    For each message, yield version, type, transaction ID, and the message including the header.
    """
    while len(received) >= HEADER.size:
        version, kind, length, xid = HEADER.unpack_from(received)
        length = max(length, HEADER.size)
        if length > len(received):
            return
        message = bytes(received[:length])
        del received[:length]
        yield version, kind, xid, message


def changed_ports(received: bytearray) -> Iterator[tuple[int, int, int, bytes]]:
    """Remove complete reports of changed ports from the data, and yield them as `complete` does.

    Stop at the first report of a removed port, because a new port may have the removed port's number.
    """
    at = 0
    while at + HEADER.size < len(received):
        version, kind, length, xid = HEADER.unpack_from(received, at)
        until = at + max(length, HEADER.size)
        is_port = kind == _PORT_STATUS
        if until > len(received) or (is_port and received[at + HEADER.size] == _REMOVED):
            return
        if not is_port:
            at = until
            continue
        message = bytes(received[at:until])
        del received[at:until]
        yield version, kind, xid, message


def statistics(message: bytes) -> int:
    """Return the type of a multipart reply.

    Raises:
        Malformed: the message is too short.
    """
    if len(message) < _MULTIPART_HEADER:
        raise Malformed(
            f"a multipart reply of {len(message)} bytes; expected at least {_MULTIPART_HEADER} bytes"
        )
    kind, _ = _PAIR.unpack_from(message, HEADER.size)
    return int(kind)


def check(kind: int, message: bytes) -> None:
    """Check the lengths inside a complete message of type `kind`.

    A multipart reply must be a port description. For other multipart replies, see `check_flow`,
    `check_group` and `check_rows`.

    Raises:
        Malformed: lengths inside the message are inconsistent.
    """
    if kind == _HELLO:
        for _ in _parts(message, HEADER.size, len(message), 4, lengths_at=2):
            pass
    elif kind == _PACKET_IN:
        _check_packet_in(message)
    elif kind == _MULTIPART_REPLY:
        check_rows(len(message) - _MULTIPART_HEADER, _PORT_BYTES)


def _check_packet_in(message: bytes) -> None:
    room = len(message) - _PACKET_IN_MATCH - _PACKET_IN_PADDING
    if room < HEADER.size:
        raise Malformed(f"a packet-in of {len(message)} bytes; expected a match and a frame")
    _, length = _PAIR.unpack_from(message, _PACKET_IN_MATCH)
    if not 4 <= length <= room:
        raise Malformed(f"a match of {length} bytes; expected 4 to {room} bytes")


def split(body: bytes, least_bytes: int) -> Iterator[bytes]:
    """Split the body of a statistics reply into flows or groups. Each of them begins with a length.

    Raises:
        Malformed: the length of a part does not fit the body.
    """
    return (body[at:until] for at, until in _parts(body, 0, len(body), least_bytes))


def check_group(group: bytes) -> None:
    """Check the lengths inside a group description.

    Raises:
        Malformed: the lengths are inconsistent.
    """
    for bucket, ends in _parts(group, GROUP_LEAST_BYTES, len(group), _BUCKET_FIXED):
        _check_actions(group, bucket + _BUCKET_FIXED, ends)


def check_flow(message: bytes) -> None:
    """Check the lengths inside a flow's statistics.

    Raises:
        Malformed: the lengths are inconsistent.
    """
    match_at, until = _FLOW_FIXED, len(message)
    _, length = _PAIR.unpack_from(message, match_at)
    instructions_at = match_at + (length + 7) // 8 * 8
    if length < 4 or instructions_at > until:
        raise Malformed(f"a match of {length} bytes; expected 4 to {until - match_at} bytes")
    for instruction, ends in _parts(message, instructions_at, until, 8, lengths_at=2):
        kind, length = _PAIR.unpack_from(message, instruction)
        if kind in _WITH_ACTIONS:
            _check_actions(message, instruction + 8, ends)
        elif length != _INSTRUCTION_BYTES.get(kind, length):
            expected = _INSTRUCTION_BYTES[kind]
            raise Malformed(f"an instruction of type {kind}, {length} bytes; expected {expected}")


def _check_actions(message: bytes, at: int, until: int) -> None:
    for action, _ in _parts(message, at, until, _ACTION_LEAST, lengths_at=2):
        kind, length = _PAIR.unpack_from(message, action)
        expected = _OUTPUT_BYTES if kind == _OUTPUT else _ACTION_LEAST
        if length != expected and kind not in (_SET_FIELD, _EXPERIMENTER):
            raise Malformed(f"an action of type {kind}, {length} bytes; expected {expected} bytes")


def check_rows(found: int, each: int) -> None:
    if found % each:
        raise Malformed(f"port statistics of {found} bytes; expected {each} bytes for each port")


def _parts(
    message: bytes, at: int, end: int, least: int, lengths_at: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each structure in `message` between `at` and `end`.

    Each structure contains its own length, at `lengths_at` bytes after the start, and is at least
    `least` bytes long.
    """
    while at < end:
        room = end - at
        if room < least:
            raise Malformed(f"{room} bytes left in the message; expected at least {least}")
        length = _PAIR.unpack_from(message, at)[lengths_at // 2]
        if not least <= length <= room:
            raise Malformed(f"a structure of {length} bytes; expected {least} to {room}")
        yield at, at + length
        at += length
