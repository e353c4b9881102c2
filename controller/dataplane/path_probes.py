"""Probes between uplinks: how the switch hands them to the service, and the frames.

Table: CLASSIFY.

Invariant: while an uplink is probed, no frame of a probe's EtherType, and none to or from an address
that probes use, reaches a VM port or another uplink. The service gets only frames to the probed
uplink's own address: probes, and answers of the hosts that it asks.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from controller.dataplane import frames
from controller.dataplane.specs import FlowSpec, ToController, match
from controller.dataplane.tables import (
    ETH_ARP,
    ETH_IPV6,
    ICMPV6,
    ND_ADVERTISEMENT,
    Kind,
    Table,
    cookie,
    openflow_port,
)
from controller.dataplane.team import Team

# IEEE 802's "Local Experimental EtherType 2".
ETH_PROBE = 0x88B6
ARP_REPLY = 2
# The length of an Ethernet header without a tag.
HEADER_BYTES = 14
MAGIC = b"LBTP\x01"
_BODY = struct.Struct("!5s1xHHHHI")
_TAG_BYTES = 16
ND_BYTES = 64
_ARP = struct.Struct("!HHBBH6s4s6s4s")
PROBE_COOKIE = cookie(Kind.PROBE, 0)


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe from one uplink to another, both by ofport. Both are the same in a probe of the switch.

    `vlan`: 0 for an untagged frame. `mtu`: the MTU that the frame fills; 0 for the shortest frame.
    """

    sender: int
    receiver: int
    vlan: int
    mtu: int
    round: int


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """A host has answered by an uplink (an ofport). `tag`: that of its frame; 0: none.

    `mac`: the address that its frame came from.
    """

    uplink: int
    address: str
    tag: int
    mac: str


def flows(team: Team) -> Iterator[FlowSpec]:
    to_us = (ToController(),)
    for uplink, mac in team.probe_macs.items():
        probe = match(in_port=openflow_port(uplink), eth_dst=mac, eth_type=ETH_PROBE)
        yield FlowSpec(Table.CLASSIFY, 131, probe, to_us, cookie=PROBE_COOKIE)
    nd = {"eth_type": ETH_IPV6, "ip_proto": ICMPV6, "icmpv6_type": ND_ADVERTISEMENT}
    for uplink, mac in team.question_macs.items():
        for answer in ({"eth_type": ETH_ARP, "arp_op": ARP_REPLY}, nd):
            taken = match(in_port=openflow_port(uplink), eth_dst=mac, **answer)
            yield FlowSpec(Table.CLASSIFY, 131, taken, to_us, cookie=PROBE_COOKIE)
    for mac in (*team.probe_macs.values(), *team.question_macs.values()):
        yield FlowSpec(Table.CLASSIFY, 130, match(eth_dst=mac))
        yield FlowSpec(Table.CLASSIFY, 130, match(eth_src=mac))
    if team.probe_macs:
        yield FlowSpec(Table.CLASSIFY, 129, match(eth_type=ETH_PROBE))


# ---- frames ----------------------------------------------------------------------------


def probe_frame(probe: Probe, source: str, target: str, tag: int, key: bytes) -> bytes:
    """A probe between these addresses. Only who has `key` can make one (HMAC-SHA256, RFC 2104)."""
    body = _BODY.pack(MAGIC, probe.sender, probe.receiver, probe.vlan, probe.mtu, probe.round)
    return frames.frame(
        frames.octets(target),
        frames.octets(source),
        tag,
        ETH_PROBE,
        (body + _signed(body, key)).ljust(probe.mtu, b"\0"),
    )


def question_frame(source: str, host: str, tag: int, mtu: int, mac: str | None = None) -> bytes:
    """Ask a host for its address, in a frame that fills `mtu` (0: the shortest frame).

    `mac`: the address to which the frame goes; None: to all.

    IPv4: an ARP probe (RFC 5227 section 2.1.1), whose sender has no address, so no host changes its
    cache by it. IPv6: a neighbour solicitation from a link-local address made of `source`. The answer
    comes to `source` alone. Hosts ignore what follows in a longer frame.
    """
    own, address = frames.octets(source), ip_address(host)
    if isinstance(address, IPv4Address):
        body = _ARP.pack(
            1, 0x0800, 6, 4, frames.ARP_REQUEST, own, bytes(4), bytes(6), address.packed
        )
        destination, ethertype = frames.BROADCAST, ETH_ARP
    else:
        destination, ethertype = frames.SOLICITED_NODE + address.packed[-3:], ETH_IPV6
        body = frames.solicitation(own, address)
    to = destination if mac is None else frames.octets(mac)
    return frames.frame(to, own, tag, ethertype, body.ljust(mtu, b"\0"))


def parse(frame: bytes, uplink: int, key: bytes) -> Probe | HostAnswer | None:
    """What an uplink has received; None: neither a probe of this service nor an answer."""
    ethertype, tag, at = _header(frame)
    body = frame[at:]
    if ethertype == ETH_PROBE:
        return _probe(body, uplink, key)
    if ethertype == ETH_ARP and len(body) >= _ARP.size:
        found = _ARP.unpack_from(body)
        if found[:5] == (1, 0x0800, 6, 4, ARP_REPLY):
            return HostAnswer(uplink, str(IPv4Address(found[6])), tag, frame[6:12].hex(":"))
    # 40 bytes of IPv6 (RFC 8200), then type, code, checksum, flags and target (RFC 4861 section 4.4).
    is_ipv6 = ethertype == ETH_IPV6 and len(body) >= ND_BYTES and body[0] >> 4 == 6
    if is_ipv6 and (body[6], body[7], body[40]) == (ICMPV6, frames.ND_HOPS, ND_ADVERTISEMENT):
        return HostAnswer(uplink, str(IPv6Address(body[48:64])), tag, frame[6:12].hex(":"))
    return None


def _probe(body: bytes, uplink: int, key: bytes) -> Probe | None:
    if len(body) < _BODY.size + _TAG_BYTES:
        return None
    fixed, tag = body[: _BODY.size], body[_BODY.size : _BODY.size + _TAG_BYTES]
    if not hmac.compare_digest(_signed(fixed, key), tag):
        return None
    magic, sender, receiver, vlan, mtu, number = _BODY.unpack(fixed)
    if magic != MAGIC or receiver != uplink or len(body) < mtu:
        return None
    return Probe(sender, receiver, vlan, mtu, number)


def _signed(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, hashlib.sha256)[:_TAG_BYTES]


def _header(frame: bytes) -> tuple[int, int, int]:
    """The EtherType, the VLAN of the tag (0: none), and where the payload begins; 0, 0, 0: too short."""
    if len(frame) < HEADER_BYTES:
        return 0, 0, 0
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    if ethertype != frames.ETH_VLAN:
        return ethertype, 0, HEADER_BYTES
    if len(frame) < HEADER_BYTES + 4:
        return 0, 0, 0
    control, ethertype = struct.unpack_from("!HH", frame, 14)
    return ethertype, control & 0xFFF, HEADER_BYTES + 4
