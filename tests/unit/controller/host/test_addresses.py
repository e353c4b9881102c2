"""The addresses of devices, as the kernel's messages carry them."""

from __future__ import annotations

import socket

import pytest

from controller.host import addresses
from controller.host.addresses import ADDRESS, ATTRIBUTE, IFA_ADDRESS, IFA_LOCAL, MESSAGE

UNIVERSE, LINK, HOST = 0, 253, 254


def attribute(kind: int, text: str) -> bytes:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    value = socket.inet_pton(family, text)
    return ATTRIBUTE.pack(ATTRIBUTE.size + len(value), kind) + value


def body(*attributes: bytes, family: int = socket.AF_INET, scope: int = UNIVERSE) -> bytes:
    return ADDRESS.pack(family, 24, 0, scope, 5) + b"".join(attributes)


IPV6 = socket.AF_INET6
MESSAGES = {
    "its own address, not its peer's": (
        body(attribute(IFA_ADDRESS, "192.0.2.9"), attribute(IFA_LOCAL, "192.0.2.1")),
        (5, "192.0.2.1"),
    ),
    "IPv6": (body(attribute(IFA_ADDRESS, "2001:db8::1"), family=IPV6), (5, "2001:db8::1")),
    "scope host": (body(attribute(IFA_LOCAL, "127.0.0.1"), scope=HOST), None),
    "scope link": (body(attribute(IFA_ADDRESS, "fe80::1"), family=IPV6, scope=LINK), None),
    "no address": (body(), None),
    "attribute too short": (body(b"\x03\x00\x02\x00"), None),
    "attribute too long": (body(b"\xff\x00\x02\x00"), None),
}


@pytest.mark.parametrize(("message", "found"), MESSAGES.values(), ids=MESSAGES)
def test_an_address_in_a_message(message: bytes, found: tuple[int, str] | None) -> None:
    assert addresses.address(message) == found


def test_messages_in_a_datagram_are_aligned() -> None:
    data = MESSAGE.pack(MESSAGE.size + 1, 20, 0, 1, 0) + b"a" + bytes(3)
    data += MESSAGE.pack(MESSAGE.size, 3, 0, 1, 0)
    assert list(addresses.parts(data, MESSAGE)) == [(20, b"a"), (3, b"")]


@pytest.mark.parametrize("length", [0, MESSAGE.size - 1, MESSAGE.size + 1])
def test_a_message_with_a_wrong_length_ends_the_datagram(length: int) -> None:
    assert list(addresses.parts(MESSAGE.pack(length, 20, 0, 1, 0), MESSAGE)) == []


def test_the_kernel_is_asked() -> None:
    # Whatever devices there are: loopback's address is of the host only.
    assert "127.0.0.1" not in addresses.read_addresses().devices.get("lo", ())
