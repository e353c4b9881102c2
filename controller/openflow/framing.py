"""Whether the lengths in an OpenFlow message agree, before anybody reads by them.

The framework goes on by the lengths it finds: one of zero keeps it for ever, and one that is too
long has it read the same bytes again and again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = 8
_MULTIPART_HEADER = 16
_HELLO, _MULTIPART_REPLY = 0, 19
_PORT_STATS_BYTES, _PORT_BYTES = 112, 64
_FLOW_FIXED, _FLOW_LEAST = 48, 56
_GROUP_FIXED = 8
_BUCKET_FIXED = 16
# Instructions by type: those of one length, and those with actions.
_INSTRUCTION_BYTES = {1: 8, 2: 24, 6: 8}
_WITH_ACTIONS = (3, 4, 5)
_ACTION_LEAST = 8
_OUTPUT, _OUTPUT_BYTES = 0, 16
_SET_FIELD, _EXPERIMENTER = 25, 0xFFFF
_PAIR = struct.Struct("!HH")


class Malformed(Exception):
    """A message whose lengths do not agree: what was found and what is expected."""


def statistics(message: bytes) -> int:
    """The type of a multipart reply.

    Raises:
        Malformed: it has none.
    """
    if len(message) < _MULTIPART_HEADER:
        raise Malformed(f"a multipart reply of {len(message)} bytes -> {_MULTIPART_HEADER} or more")
    kind, _ = _PAIR.unpack_from(message, _HEADER)
    return int(kind)


def check(kind: int, message: bytes) -> None:
    """Look through a message of this type, of which all is there.

    Of multipart replies: one that describes ports. All others are looked through when they are read.

    Raises:
        Malformed: its lengths do not agree.
    """
    if kind == _HELLO:
        for _ in _parts(message, _HEADER, len(message), 4, lengths_at=2):
            pass
    elif kind == _MULTIPART_REPLY:
        _check_rows(len(message) - _MULTIPART_HEADER, _PORT_BYTES)


def flows(body: bytes) -> Iterator[bytes]:
    """The flows in statistics, each of which begins with its length.

    Raises:
        Malformed: that leads nowhere.
    """
    return (body[at:until] for at, until in _parts(body, 0, len(body), _FLOW_LEAST))


def groups(body: bytes) -> Iterator[bytes]:
    """The same of descriptions of groups."""
    return (body[at:until] for at, until in _parts(body, 0, len(body), _GROUP_FIXED))


def check_ports(body: bytes) -> None:
    """Look at statistics of ports.

    Raises:
        Malformed: they are not of whole ports.
    """
    _check_rows(len(body), _PORT_STATS_BYTES)


def check_group(group: bytes) -> None:
    """Look through one description.

    Raises:
        Malformed: its lengths do not agree.
    """
    for bucket, ends in _parts(group, _GROUP_FIXED, len(group), _BUCKET_FIXED):
        _check_actions(group, bucket + _BUCKET_FIXED, ends)


def check_flow(message: bytes) -> None:
    """Look through one flow.

    Raises:
        Malformed: its lengths do not agree.
    """
    match_at, until = _FLOW_FIXED, len(message)
    _, length = _PAIR.unpack_from(message, match_at)
    instructions_at = match_at + (length + 7) // 8 * 8
    if length < 4 or instructions_at > until:
        raise Malformed(f"a match of {length} bytes -> 4 to {until - match_at}")
    for instruction, ends in _parts(message, instructions_at, until, 8, lengths_at=2):
        kind, length = _PAIR.unpack_from(message, instruction)
        if kind in _WITH_ACTIONS:
            _check_actions(message, instruction + 8, ends)
        elif length != _INSTRUCTION_BYTES.get(kind, length):
            expected = _INSTRUCTION_BYTES[kind]
            raise Malformed(f"an instruction {kind} of {length} bytes -> {expected}")


def _check_actions(message: bytes, at: int, until: int) -> None:
    for action, _ in _parts(message, at, until, _ACTION_LEAST, lengths_at=2):
        kind, length = _PAIR.unpack_from(message, action)
        expected = _OUTPUT_BYTES if kind == _OUTPUT else _ACTION_LEAST
        if length != expected and kind not in (_SET_FIELD, _EXPERIMENTER):
            raise Malformed(f"an action {kind} of {length} bytes -> {expected}")


def _check_rows(found: int, each: int) -> None:
    if found % each:
        raise Malformed(f"statistics of {found} bytes -> {each} for each port")


def _parts(
    message: bytes, at: int, end: int, least: int, lengths_at: int = 0
) -> Iterator[tuple[int, int]]:
    """Where each part begins and ends, each with its length in it."""
    while at < end:
        room = end - at
        length = _PAIR.unpack_from(message, at)[lengths_at // 2] if room >= least else room
        if not least <= length <= room:
            raise Malformed(f"a part of {length} bytes -> {least} to {room}")
        yield at, at + length
        at += length
