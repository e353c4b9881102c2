"""Lengths in OpenFlow messages that lead nowhere, found before the framework follows them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from controller.openflow import codec, counters, framing
from tests.unit.controller.openflow import switch_bytes
from tests.unit.fuzz import session

MULTIPART = 19
FLOWS, GROUPS, PORTS = 1, 7, 4
BODY_AT = 16
# Whoever reads statistics, which come as they were sent.
READERS: dict[int, Callable[[bytes], object]] = {
    FLOWS: lambda body: codec.installed_flows(codec.lasting(body)[0]),
    GROUPS: lambda body: codec.installed_groups(framing.split(body, framing.GROUP_LEAST_BYTES)),
    PORTS: counters.port_counters,
}


def look_through(message: bytes) -> None:
    """As it is done with what a switch sends."""
    kind = message[1]
    if kind == MULTIPART and (reader := READERS.get(framing.statistics(message))):
        reader(message[BODY_AT:])
    else:
        framing.check(kind, message)


def reply(kind: int, body: bytes) -> bytes:
    return switch_bytes.message(MULTIPART, 1, struct.pack("!HH4x", kind, 0) + body)


def flow(length: int, match_length: int = 4, instructions: bytes = b"") -> bytes:
    return struct.pack("!H46x", length) + struct.pack("!HH4x", 1, match_length) + instructions


def instruction(kind: int, length: int, rest: bytes = b"") -> bytes:
    return struct.pack("!HH4x", kind, length) + rest


def acting(action: bytes) -> bytes:
    """A flow with one action."""
    return flow(80, instructions=instruction(4, 24, action))


FOUND = {
    "a flow of nothing": (FLOWS, flow(0), "a structure of 0 bytes; expected 56 to 56"),
    "a flow too long": (FLOWS, flow(57), "a structure of 57 bytes; expected 56 to 56"),
    "half a flow": (FLOWS, bytes(9), "9 bytes left in the message; expected at least 56"),
    "no match": (FLOWS, flow(56, 0), "a match of 0 bytes; expected 4 to 8"),
    "a match too long": (FLOWS, flow(56, 12), "a match of 12 bytes; expected 4 to 8"),
    "an instruction of nothing": (
        *(FLOWS, flow(64, instructions=instruction(4, 0))),
        "a structure of 0 bytes; expected 8 to 8",
    ),
    "an instruction over all that follows": (
        *(FLOWS, flow(64, instructions=instruction(4, 60000))),
        "a structure of 60000 bytes; expected 8 to 8",
    ),
    "a goto with something behind it": (
        *(FLOWS, flow(72, instructions=instruction(1, 16, bytes(8)))),
        "an instruction of type 1, 16 bytes; expected 8",
    ),
    "an action of nothing": (
        *(FLOWS, acting(struct.pack("!HH12x", 25, 0))),
        "a structure of 0 bytes; expected 8 to 16",
    ),
    "half an output": (
        *(FLOWS, acting(struct.pack("!HH12x", 0, 8))),
        "an action of type 0, 8 bytes; expected 16",
    ),
    "a group of nothing": (GROUPS, bytes(8), "a structure of 0 bytes; expected 8 to 8"),
    "a bucket of nothing": (
        *(GROUPS, struct.pack("!HBxI", 24, 3, 5) + bytes(16)),
        "a structure of 0 bytes; expected 16 to 16",
    ),
    "half a port": (PORTS, bytes(111), "port statistics of 111 bytes; expected 112"),
}


@pytest.mark.parametrize(("kind", "body", "found"), FOUND.values(), ids=FOUND)
def test_lengths_that_do_not_agree_are_found(kind: int, body: bytes, found: str) -> None:
    with pytest.raises(framing.Malformed, match=rf"^{found}\b"):
        look_through(reply(kind, body))


def test_a_hello_whose_element_is_nothing_is_found() -> None:
    with pytest.raises(framing.Malformed, match="a structure of 0 bytes; expected 4 to 4"):
        look_through(switch_bytes.message(0, 1, bytes(4)))


def test_all_that_a_good_switch_says_is_well() -> None:
    for message in (*session.handshake(), *session.answers()):
        look_through(message)
