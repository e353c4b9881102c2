"""Builds frames that the service sends: RARP, ARP, neighbour advertisements, IGMP and MLD queries."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

BROADCAST = b"\xff" * 6
ETH_VLAN, ETH_ARP, ETH_RARP, ETH_IPV4, ETH_IPV6 = 0x8100, 0x0806, 0x8035, 0x0800, 0x86DD
ARP_REQUEST, ARP_REPLY, REVERSE_REQUEST = 1, 2, 3
# The structure of an ARP message (RFC 826), and its first fields for IPv4 over Ethernet.
ARP, OF_ETHERNET = struct.Struct("!HHBBH6s4s6s4s"), (1, ETH_IPV4, 6, 4)
MINIMUM_BYTES = 60

# A locally administered address that no other host has. Only the queried VM receives frames from it.
QUERIER = bytes.fromhex("02006c627400")
# Hosts answer within this time, which is short enough for a move or failover, and long enough to
# distribute the answers of all VMs on a failed uplink.
RESPONSE_TIME_S = 0.2
# The defaults of every querier (RFC 3376 section 8, RFC 3810 section 9).
ROBUSTNESS, QUERY_INTERVAL_S = 2, 125
IGMP, IGMP_QUERY, ALL_HOSTS = 2, 0x11, IPv4Address("224.0.0.1")
ICMPV6, MLD_QUERY, ALL_NODES = 58, 130, IPv6Address("ff02::1")
ND_SOLICITATION, ND_SOURCE_ADDRESS = 135, 1
ND_ADVERTISEMENT, ND_OVERRIDE, ND_TARGET_ADDRESS, ND_HOPS = 136, 0x20000000, 2, 255
# The first bytes of solicited-node multicast groups' Ethernet addresses (RFC 4291 section 2.7.1).
SOLICITED_NODE = b"\x33\x33\xff"
# The highest link-local address. The querier with the lowest address is elected, so a VM that is a
# querier continues to send queries.
LINK_LOCAL = IPv6Address("fe80::ffff:ffff:ffff:ffff")


def rarp(mac: str, vlan: int | None = None, *, to_itself: bool = False) -> bytes:
    """Return a learning packet: a broadcast RARP request (RFC 903) from which switches learn `mac`.

    Hosts do not answer this request. Hypervisors send the same frame when a VM arrives. `vlan`: the VLAN
    in the tag; None or 0: untagged. `to_itself`: address the frame to `mac`, so that a switch that learns
    from the frame does not forward the frame.
    """
    source = octets(mac)
    body = ARP.pack(*OF_ETHERNET, REVERSE_REQUEST, source, bytes(4), source, bytes(4))
    return frame(source if to_itself else BROADCAST, source, vlan, ETH_RARP, body)


def garp(mac: str, address: IPv4Address, vlan: int | None = None) -> bytes:
    """Return a gratuitous ARP request (RFC 5227 section 3), which announces `address` at `mac`."""
    source, about = octets(mac), address.packed
    body = ARP.pack(*OF_ETHERNET, ARP_REQUEST, source, about, bytes(6), about)
    return frame(BROADCAST, source, vlan, ETH_ARP, body)


def advertisement(mac: str, address: IPv6Address, peer: IPv6Address) -> bytes:
    """Return a neighbour advertisement (RFC 4861 section 7.2.6) of `address` at `mac`, for `peer`.

    Open vSwitch's userspace datapath ignores advertisements to all nodes, but accepts those to its own
    address. The MAC address of `peer` is unknown, so the frame is addressed to the solicited-node group
    of `peer`.
    """
    source = octets(mac)
    body = struct.pack("!BBHI", ND_ADVERTISEMENT, 0, 0, ND_OVERRIDE) + address.packed
    body += struct.pack("!BB", ND_TARGET_ADDRESS, 1) + source
    packet = _icmpv6(address.packed + peer.packed, body)
    return frame(SOLICITED_NODE + peer.packed[-3:], source, None, ETH_IPV6, packet)


def igmp_query(vlan: int | None = None) -> bytes:
    """Return an IGMPv3 general query, which a VM answers with the VM's IPv4 multicast groups.

    The version is 3, because hosts use an older version for minutes after a query with that version.
    Hosts that lack version 3 treat the query like one of a version that they know. The source is
    0.0.0.0, which no querier uses, so hosts and switches neither elect us nor treat us as a router
    (RFC 4541 section 2.1.1). `vlan`: the VLAN in the tag; None or 0: untagged.
    """
    query = struct.pack("!BBH4s", IGMP_QUERY, round(RESPONSE_TIME_S * 10), 0, bytes(4))
    query += struct.pack("!BBH", ROBUSTNESS, QUERY_INTERVAL_S, 0)
    query = query[:2] + _checksum(query) + query[4:]
    router_alert = b"\x94\x04\x00\x00"
    head = struct.pack("!BBHHHBBH", 0x46, 0xC0, 24 + len(query), 0, 0, 1, IGMP, 0)
    head += bytes(4) + ALL_HOSTS.packed + router_alert
    head = head[:10] + _checksum(head) + head[12:]
    group = b"\x01\x00\x5e" + (int(ALL_HOSTS) & 0x7FFFFF).to_bytes(3, "big")
    return frame(group, QUERIER, vlan, ETH_IPV4, head + query)


def mld_query(vlan: int | None = None) -> bytes:
    """Return an MLDv2 general query, which a VM answers with the VM's IPv6 multicast groups.

    The version is 2, because hosts use an older version for minutes after a query with that version.
    Hosts accept only link-local sources (RFC 3810 section 5.1.14), so the source is the link-local
    address that loses every querier election. `vlan`: the VLAN in the tag; None or 0: untagged.
    """
    milliseconds = round(RESPONSE_TIME_S * 1000)
    query = struct.pack("!BBHHH16s", MLD_QUERY, 0, 0, milliseconds, 0, bytes(16))
    query += struct.pack("!BBH", ROBUSTNESS, QUERY_INTERVAL_S, 0)
    router_alert = struct.pack("!BBBBHBB", ICMPV6, 0, 5, 2, 0, 1, 0)
    packet = _icmpv6(LINK_LOCAL.packed + ALL_NODES.packed, query, 1, 0, router_alert)
    group = b"\x33\x33" + ALL_NODES.packed[-4:]
    return frame(group, QUERIER, vlan, ETH_IPV6, packet)


def solicitation(mac: bytes, address: IPv6Address) -> bytes:
    """Return an IPv6 packet that asks for the MAC address of `address` (RFC 4861 section 7.2.2).

    The packet's source is the link-local address derived from `mac` (RFC 4291 appendix A).
    """
    identifier = bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    source = b"\xfe\x80" + bytes(6) + identifier
    group = bytes.fromhex("ff0200000000000000000001ff") + address.packed[-3:]
    body = struct.pack("!BBHI", ND_SOLICITATION, 0, 0, 0) + address.packed
    body += struct.pack("!BB", ND_SOURCE_ADDRESS, 1) + mac
    return _icmpv6(source + group, body)


def _icmpv6(
    addresses: bytes, body: bytes, hops: int = ND_HOPS, kind: int = ICMPV6, options: bytes = b""
) -> bytes:
    """Return an IPv6 packet with an ICMPv6 message. `kind`: the type of the first header."""
    pseudo = addresses + struct.pack("!II", len(body), ICMPV6)
    body = body[:2] + _checksum(pseudo + body) + body[4:]
    length = len(options) + len(body)
    return struct.pack("!IHBB", 6 << 28, length, kind, hops) + addresses + options + body


def octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def frame(
    destination: bytes, source: bytes, vlan: int | None, ethertype: int, body: bytes
) -> bytes:
    """Return an Ethernet frame of at least 60 bytes. `vlan`: the tag's VLAN; None or 0: untagged."""
    assert len(destination) == len(source) == 6, "MAC addresses have 6 bytes"
    assert vlan is None or 0 <= vlan < 4096, "a VLAN, without other bits of the tag"
    tag = struct.pack("!HH", ETH_VLAN, vlan) if vlan else b""
    whole = destination + source + tag + struct.pack("!H", ethertype) + body
    return whole.ljust(MINIMUM_BYTES, b"\0")


def _checksum(data: bytes) -> bytes:
    """Return the internet checksum (RFC 1071) of an even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)
