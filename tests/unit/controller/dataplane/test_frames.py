"""Our own frames, byte for byte; checksums as Wireshark reckons them."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import frames

VLANS = st.none() | st.integers(0, 4094)


def test_a_learning_packet() -> None:
    expected = (
        "ffffffffffff 525400123456 8035 0001 0800 06 04 0003"
        "525400123456 00000000 525400123456 00000000"
    )
    assert frames.rarp("52:54:00:12:34:56") == padded(expected)


def test_an_igmp_query() -> None:
    ip = "46 c0 0024 0000 0000 01 02 4413 00000000 e0000001 94040000"
    query = "11 02 ec80 00000000 02 7d 0000"
    assert frames.igmp_query() == padded(f"01005e000001 02006c627400 0800 {ip} {query}")


def test_an_mld_query() -> None:
    source, destination = "fe80000000000000ffffffffffffffff", "ff020000000000000000000000000001"
    ip = f"60000000 0024 00 01 {source} {destination} 3a 00 0502 0000 01 00"
    query = f"82 00 7cdf 00c8 0000 {'00' * 16} 02 7d 0000"
    assert frames.mld_query() == padded(f"333300000001 02006c627400 86dd {ip} {query}")


def test_an_advertisement_is_for_one_neighbour() -> None:
    own, peer = IPv6Address("2001:db8::1"), IPv6Address("2001:db8::99:8877")
    frame = frames.advertisement("52:54:00:12:34:56", own, peer)
    target = f"{own.packed.hex()} 02 01 525400123456"
    ip = f"60000000 0020 3a ff {own.packed.hex()} {peer.packed.hex()}"
    ethernet = "3333ff998877 525400123456 86dd"
    without_checksum = frame[:56] + bytes(2) + frame[58:]
    assert without_checksum == padded(f"{ethernet} {ip} 88 00 0000 20000000 {target}")
    body = frame[54:]
    words = own.packed + peer.packed + struct.pack("!II", len(body), 58) + body
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    assert total % 0xFFFF == 0, "the checksum covers all"


@given(VLANS)
def test_a_vlan_is_a_tag_and_nothing_else(vlan: int | None) -> None:
    for make in (
        frames.igmp_query,
        frames.mld_query,
        lambda v: frames.rarp("52:54:00:00:00:01", v),
        lambda v: frames.garp("52:54:00:00:00:01", IPv4Address(1), v),
    ):
        plain, tagged = make(None), make(vlan)
        if vlan:
            assert tagged[12:16] == struct.pack("!HH", 0x8100, vlan)
            tagged = tagged[:12] + tagged[16:]
        assert tagged == plain[: len(tagged)]
        assert set(plain[len(tagged) :]) <= {0}, "only padding"


def padded(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", "")).ljust(60, b"\0")
