"""Ethernet frames for probing a switch. Each ends in a trailer that names it.

The trailer lies behind the payload, where every protocol ignores it, so that copies of any
kind of frame can be counted by their id.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

BROADCAST = "ff:ff:ff:ff:ff:ff"
MULTICAST = "01:00:5e:01:02:03"
ND_MULTICAST = "33:33:ff:00:00:63"
ALL_NODES = "33:33:00:00:00:01"
UNKNOWN_MAC = bytes.fromhex("02dd")

ETH_ARP, ETH_IPV4, ETH_IPV6 = 0x0806, 0x0800, 0x86DD
ETH_VLAN, ETH_RARP, ETH_EXPERIMENT = 0x8100, 0x8035, 0x88B5
IGMP, TCP, UDP, ICMPV6 = 2, 6, 17, 58
QUERY, REPORT, LEAVE = 0x11, 0x16, 0x17  # of IGMPv2
UDP_PORT = 47600

MAGIC = b"lbt!"
TRAILER = struct.Struct("!4sQ")

Builder = Callable[[str, int, int], bytes]


def trailer_id(frame: bytes) -> int | None:
    """The id of one of our frames; None for anybody else's."""
    if frame[-TRAILER.size : -8] != MAGIC:
        return None
    return int.from_bytes(frame[-8:], "big")


def ethernet(
    source: str,
    destination: str,
    ethertype: int,
    body: bytes,
    vlan: int = 0,
    frame_id: int = 0,
    minimum_bytes: int = 60,
) -> bytes:
    """A frame; `vlan` 0 leaves it untagged."""
    tag = struct.pack("!HH", ETH_VLAN, vlan) if vlan else b""
    head = mac_bytes(destination) + mac_bytes(source) + tag + struct.pack("!H", ethertype)
    padding = bytes(max(0, minimum_bytes - len(head) - len(body) - TRAILER.size))
    return head + body + padding + TRAILER.pack(MAGIC, frame_id)


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def plain(
    source: str, destination: str, vlan: int = 0, frame_id: int = 0, ethertype: int = ETH_EXPERIMENT
) -> bytes:
    """A frame of a protocol that nobody answers."""
    return ethernet(source, destination, ethertype, b"", vlan, frame_id)


def to(destination: str) -> Builder:
    """Builds such frames to one address."""

    def build(source: str, vlan: int, frame_id: int) -> bytes:
        return plain(source, destination, vlan, frame_id)

    return build


def udp(
    source: str,
    destination: str,
    *,
    source_ip: str = "192.0.2.1",
    destination_ip: str = "198.51.100.1",
    vlan: int = 0,
    frame_id: int = 0,
    frame_bytes: int = 60,
) -> bytes:
    """An IPv4 UDP datagram in a frame of `frame_bytes` (tag not counted), without checksum."""
    payload = bytes(max(0, frame_bytes - 14 - 20 - 8 - TRAILER.size))
    datagram = struct.pack("!HHHH", UDP_PORT, UDP_PORT, 8 + len(payload), 0) + payload
    addresses = IPv4Address(source_ip).packed + IPv4Address(destination_ip).packed
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0x4000, 64, UDP, 0)
    head = head[:10] + _checksum(head + addresses) + addresses
    return ethernet(source, destination, ETH_IPV4, head + datagram, vlan, frame_id)


def segment(
    source: str,
    destination: str,
    *,
    source_ip: str,
    destination_ip: str,
    ports: tuple[int, int],
    protocol: int = TCP,
    vlan: int = 0,
    frame_id: int = 0,
) -> bytes:
    """A frame of a TCP or UDP connection over IPv4 or IPv6, without checksums behind IP's."""
    if protocol == TCP:
        data = struct.pack("!HHIIHHHH", *ports, 1, 1, 0x5010, 8192, 0, 0)
    else:
        data = struct.pack("!HHHH", *ports, 8, 0)
    addresses = ip_address(source_ip).packed + ip_address(destination_ip).packed
    if ip_address(source_ip).version == 6:
        head = struct.pack("!IHBB", 6 << 28, len(data), protocol, 64) + addresses
        return ethernet(source, destination, ETH_IPV6, head + data, vlan, frame_id)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(data), 0, 0x4000, 64, protocol, 0)
    head = head[:10] + _checksum(head + addresses) + addresses
    return ethernet(source, destination, ETH_IPV4, head + data, vlan, frame_id)


def fragments(
    source: str, destination: str, source_ip: str, destination_ip: str, vlan: int = 0
) -> tuple[Callable[[int], bytes], Callable[[int], bytes]]:
    """The first and the last fragment of an IPv4 UDP datagram, each to be given an id."""
    addresses = IPv4Address(source_ip).packed + IPv4Address(destination_ip).packed
    first, last = struct.pack("!HHHH", UDP_PORT, UDP_PORT, 72, 0) + bytes(32), bytes(32)
    more, offset = 0x2000, len(first) // 8

    def fragment(place: int, data: bytes, frame_id: int) -> bytes:
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(data), 1, place, 64, UDP, 0)
        head = head[:10] + _checksum(head + addresses) + addresses
        return ethernet(source, destination, ETH_IPV4, head + data, vlan, frame_id)

    return functools.partial(fragment, more, first), functools.partial(fragment, offset, last)


def igmp_report(source: str, vlan: int, frame_id: int) -> bytes:
    """An IGMPv3 report that joins 239.1.2.3."""
    group = IPv4Address("239.1.2.3").packed
    body = struct.pack("!BxHxxH", 0x22, 0, 1) + struct.pack("!BBH4s", 4, 0, 0, group)
    return _igmp(source, "224.0.0.22", body, vlan, frame_id)


def igmp(
    source: str, vlan: int, frame_id: int, kind: int, group: str, destination: str = ""
) -> bytes:
    """A message of IGMPv2 about a group, to the group if no destination is given."""
    asked = bytes(4) if group == "224.0.0.1" else IPv4Address(group).packed
    return _igmp(
        source, destination or group, struct.pack("!BBH", kind, 100, 0) + asked, vlan, frame_id
    )


def _igmp(source: str, destination: str, body: bytes, vlan: int, frame_id: int) -> bytes:
    body = body[:2] + _checksum(body) + body[4:]
    to = IPv4Address(destination).packed
    addresses = IPv4Address("192.0.2.1").packed + to
    head = struct.pack("!BBHHHBBH", 0x45, 0xC0, 20 + len(body), 0, 0x4000, 1, IGMP, 0)
    head = head[:10] + _checksum(head + addresses) + addresses
    mac = f"01:00:5e:{to[1] & 0x7F:02x}:{to[2]:02x}:{to[3]:02x}"
    return ethernet(source, mac, ETH_IPV4, head + body, vlan, frame_id)


# What floods, each kind as (source MAC, VLAN, id) -> frame.


def broadcast(source: str, vlan: int, frame_id: int) -> bytes:
    return plain(source, BROADCAST, vlan, frame_id)


def multicast(source: str, vlan: int, frame_id: int) -> bytes:
    return udp(source, MULTICAST, destination_ip="239.1.2.3", vlan=vlan, frame_id=frame_id)


def unknown_unicast(source: str, vlan: int, frame_id: int) -> bytes:
    """To an address that no other frame has used."""
    nobody = UNKNOWN_MAC + frame_id.to_bytes(4, "big")
    return plain(source, nobody.hex(":"), vlan, frame_id)


def arp_reply(source: str, destination: str, vlan: int, frame_id: int) -> bytes:
    return _arp(source, "192.0.2.1", "192.0.2.2", vlan, frame_id, destination)


def arp_request(source: str, vlan: int, frame_id: int, target: str = "192.0.2.99") -> bytes:
    return _arp(source, "192.0.2.1", target, vlan, frame_id)


def gratuitous_arp(source: str, vlan: int, frame_id: int) -> bytes:
    return _arp(source, "192.0.2.1", "192.0.2.1", vlan, frame_id)


def rarp(source: str, vlan: int, frame_id: int) -> bytes:
    """What a hypervisor sends for a VM that has arrived."""
    body = struct.pack("!HHBBH", 1, ETH_IPV4, 6, 4, 3)
    body += (mac_bytes(source) + bytes(4)) * 2
    return ethernet(source, BROADCAST, ETH_RARP, body, vlan, frame_id)


def neighbour_solicitation(source: str, vlan: int, frame_id: int, number: int = 0x63) -> bytes:
    """A solicitation of fe80::`number`, which is at most 255."""
    target = IPv6Address(f"fe80::{number:x}").packed
    body = struct.pack("!BBHI", 135, 0, 0, 0) + target + b"\x01\x01" + mac_bytes(source)
    group = f"{ND_MULTICAST[:-2]}{number:02x}"
    return _icmpv6(source, group, f"ff02::1:ff00:{number:x}", body, vlan, frame_id)


def solicited_advertisement(source: str, destination: str, vlan: int, frame_id: int) -> bytes:
    own = IPv6Address("fe80::1").packed
    body = struct.pack("!BBHI", 136, 0, 0, 0x60000000) + own + b"\x02\x01" + mac_bytes(source)
    return _icmpv6(source, destination, "fe80::2", body, vlan, frame_id)


def unsolicited_advertisement(source: str, vlan: int, frame_id: int) -> bytes:
    own = IPv6Address("fe80::1").packed
    body = struct.pack("!BBHI", 136, 0, 0, 0x20000000) + own + b"\x02\x01" + mac_bytes(source)
    return _icmpv6(source, ALL_NODES, "ff02::1", body, vlan, frame_id)


FLOODED: dict[str, Builder] = {
    "broadcast": broadcast,
    "ARP request": arp_request,
    "multicast": multicast,
    "neighbour solicitation": neighbour_solicitation,
    "unknown unicast": unknown_unicast,
}
ANNOUNCEMENTS: dict[str, Builder] = {
    "gratuitous ARP": gratuitous_arp,
    "RARP": rarp,
    "unsolicited NA": unsolicited_advertisement,
}


def _arp(
    source: str, sender_ip: str, target_ip: str, vlan: int, frame_id: int, answered: str = ""
) -> bytes:
    """A request to everybody, or the answer to the address `answered`."""
    body = struct.pack("!HHBBH", 1, ETH_IPV4, 6, 4, 2 if answered else 1)
    body += mac_bytes(source) + IPv4Address(sender_ip).packed
    body += (mac_bytes(answered) or bytes(6)) + IPv4Address(target_ip).packed
    return ethernet(source, answered or BROADCAST, ETH_ARP, body, vlan, frame_id)


def _icmpv6(
    source: str, destination: str, destination_ip: str, body: bytes, vlan: int, frame_id: int
) -> bytes:
    addresses = IPv6Address("fe80::1").packed + IPv6Address(destination_ip).packed
    pseudo = addresses + struct.pack("!II", len(body), ICMPV6)
    body = body[:2] + _checksum(pseudo + body) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), ICMPV6, 255) + addresses
    return ethernet(source, destination, ETH_IPV6, head + body, vlan, frame_id)


def _checksum(data: bytes) -> bytes:
    """The internet checksum (RFC 1071)."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)
