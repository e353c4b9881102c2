"""Path-check probes between uplinks: encodes probes, and builds flows that send them to the service.

Table: CLASSIFY.

Invariant: while an uplink is probed, frames with the EtherType of probes, and frames to or from a probe
address, do not reach VM ports or other uplinks. On an uplink, the service receives only frames to the
uplink's own addresses (probes, and answers from queried hosts), copies of probes, and other hosts' frames
from probe addresses. A round's proof (a probe that the switch itself returns) never comes from a port.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from controller.dataplane import frames
from controller.dataplane.specs import FlowSpec, MatchValue, ToController, flow
from controller.dataplane.tables import OFPP_CONTROLLER, Kind, Table, cookie, icmpv6, openflow_port
from controller.dataplane.team import Team

# IEEE 802's "Local Experimental EtherType 2".
ETH_PROBE = 0x88B6
# The length of an Ethernet header without a tag.
HEADER_BYTES, ADDRESSES_BYTES = 14, 12
MAGIC = b"LBTP\x01"
_BODY = struct.Struct("!5s1xHHHHI")
_TAG_BYTES = 16
ND_BYTES = 64
ANSWERS = (
    {"eth_type": frames.ETH_ARP, "arp_op": frames.ARP_REPLY},
    icmpv6(frames.ND_ADVERTISEMENT),
)
_ADVERTISED = frames.ICMPV6, frames.ND_HOPS, frames.ND_ADVERTISEMENT
PROBE_COOKIE, AROUND_COOKIE = cookie(Kind.PROBE, 0), cookie(Kind.AROUND_PROBES, 0)
# Takes the place of an uplink: as the sender of proofs, and as the receiver of copies.
NO_UPLINK = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe from the uplink with ofport `sender` to the uplink with ofport `receiver`.

    `receiver`: NO_UPLINK in a copy, which all uplinks receive. `sender`: NO_UPLINK in a round's proof.
    `vlan`: 0 for an untagged frame. `mtu`: the MTU that the frame fills; 0 for the shortest frame.
    """

    sender: int
    receiver: int
    vlan: int
    mtu: int
    round: int


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """A queried host's answer. `uplink`: the ofport of the uplink that received the answer.

    `address`: the host's IP address. `tag`: the VLAN in the frame's tag; 0: untagged. `mac`: the frame's
    source address.
    """

    uplink: int
    address: str
    tag: int
    mac: str


def flows(team: Team) -> Iterator[FlowSpec]:
    if not team.probe_macs:
        return
    for uplink, mac in team.probe_macs.items():
        port = openflow_port(uplink)
        if (uplink, True) not in team.unheard:
            yield _heard(132, PROBE_COOKIE, in_port=port, eth_dst=mac, eth_type=ETH_PROBE)
            if (asks := team.question_macs.get(uplink)) is not None:
                for answer in ANSWERS:
                    yield _heard(132, PROBE_COOKIE, in_port=port, eth_dst=asks, **answer)
        if (uplink, False) not in team.unheard:
            group = team.probe_group
            yield _heard(132, AROUND_COOKIE, in_port=port, eth_dst=group, eth_type=ETH_PROBE)
            for own in team.probe_macs.values():
                yield _heard(130, AROUND_COOKIE, in_port=port, eth_src=own)
    yield _heard(132, AROUND_COOKIE, in_port=OFPP_CONTROLLER, eth_type=ETH_PROBE)
    for mac in (*team.probe_macs.values(), *team.question_macs.values()):
        # Above 130, because switches flood probes to unknown destinations.
        yield flow(Table.CLASSIFY, 131, {"eth_dst": mac})
        yield flow(Table.CLASSIFY, 129, {"eth_src": mac})
    yield flow(Table.CLASSIFY, 129, {"eth_type": ETH_PROBE})


def _heard(priority: int, marked: int, **matched: MatchValue) -> FlowSpec:
    """Return a flow that sends frames to the service. `marked`: the flow's cookie."""
    return flow(Table.CLASSIFY, priority, matched, ToController(), cookie=marked)


# ---- frames ----------------------------------------------------------------------------


def probe_frame(probe: Probe, source: str, target: str, tag: int, key: bytes) -> bytes:
    """Encode a probe from `source` to `target`, signed with `key` (HMAC-SHA256, RFC 2104).

    The signature covers both addresses, but not the tag, because switches with native VLANs change tags.
    """
    assert key, "without a key, any host could sign probes"
    body = _BODY.pack(MAGIC, probe.sender, probe.receiver, probe.vlan, probe.mtu, probe.round)
    to, own = frames.octets(target), frames.octets(source)
    signed = body + _signature(to + own + body, key)
    return frames.frame(to, own, tag, ETH_PROBE, signed.ljust(probe.mtu, b"\0"))


def question_frame(source: str, host: str, tag: int, mtu: int, mac: str | None = None) -> bytes:
    """Encode a query for the MAC address of `host`, in a frame that fills `mtu` (0: the shortest frame).

    `mac`: the destination address; None: the broadcast address, or a multicast address for IPv6.

    For IPv4, this is an ARP probe (RFC 5227 section 2.1.1) without the sender's IP address, so that hosts
    do not change their caches; for IPv6, a neighbour solicitation from a link-local address derived from
    `source`. The host sends its answer to `source` only. Hosts ignore the padding of a longer frame.
    """
    own, address = frames.octets(source), ip_address(host)
    if isinstance(address, IPv4Address):
        asked = frames.ARP_REQUEST, own, bytes(4), bytes(6), address.packed
        body = frames.ARP.pack(*frames.OF_ETHERNET, *asked)
        destination, ethertype = frames.BROADCAST, frames.ETH_ARP
    else:
        destination, ethertype = frames.SOLICITED_NODE + address.packed[-3:], frames.ETH_IPV6
        body = frames.solicitation(own, address)
    to = destination if mac is None else frames.octets(mac)
    return frames.frame(to, own, tag, ethertype, body.ljust(mtu, b"\0"))


def parse(frame: bytes, uplink: int, key: bytes) -> Probe | HostAnswer | None:
    """Decode a probe or a host's answer that `uplink` has received; return None for other frames."""
    ethertype, tag, at = _header(frame)
    body = frame[at:]
    if ethertype == ETH_PROBE:
        return _probe(frame[:ADDRESSES_BYTES], body, uplink, key)
    if ethertype == frames.ETH_ARP and len(body) >= frames.ARP.size:
        found = frames.ARP.unpack_from(body)
        if found[:5] == (*frames.OF_ETHERNET, frames.ARP_REPLY):
            return HostAnswer(uplink, str(IPv4Address(found[6])), tag, frame[6:12].hex(":"))
    # 40 bytes of IPv6 (RFC 8200), then type, code, checksum, flags and target (RFC 4861 section 4.4).
    is_ipv6 = ethertype == frames.ETH_IPV6 and len(body) >= ND_BYTES and body[0] >> 4 == 6
    if is_ipv6 and (body[6], body[7], body[40]) == _ADVERTISED:
        return HostAnswer(uplink, str(IPv6Address(body[48:64])), tag, frame[6:12].hex(":"))
    return None


def tag_of(frame: bytes) -> int:
    """Return the VLAN in a frame's tag; 0 if the frame is untagged."""
    return _header(frame)[1]


def _probe(addresses: bytes, body: bytes, uplink: int, key: bytes) -> Probe | None:
    if len(body) < _BODY.size + _TAG_BYTES:
        return None
    fixed, tag = body[: _BODY.size], body[_BODY.size : _BODY.size + _TAG_BYTES]
    if not hmac.compare_digest(_signature(addresses + fixed, key), tag):
        return None
    magic, sender, receiver, vlan, mtu, number = _BODY.unpack(fixed)
    if magic != MAGIC or receiver not in (uplink, NO_UPLINK) or len(body) < mtu:
        return None
    return Probe(sender, receiver, vlan, mtu, number)


def _signature(text: bytes, key: bytes) -> bytes:
    return hmac.digest(key, text, hashlib.sha256)[:_TAG_BYTES]


def _header(frame: bytes) -> tuple[int, int, int]:
    """Return a frame's EtherType, VLAN (0: untagged) and payload offset; all 0 if it is too short."""
    if len(frame) < HEADER_BYTES:
        return 0, 0, 0
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    if ethertype != frames.ETH_VLAN:
        return ethertype, 0, HEADER_BYTES
    if len(frame) < HEADER_BYTES + 4:
        return 0, 0, 0
    control, ethertype = struct.unpack_from("!HH", frame, 14)
    return ethertype, control & 0xFFF, HEADER_BYTES + 4
