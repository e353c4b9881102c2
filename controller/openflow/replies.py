"""Assembles the parts of statistics replies from switches, and converts them to events."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from controller.api import events
from controller.dataplane import tables
from controller.dataplane.drops import Dropped
from controller.dataplane.specs import LoadBits, MatchValue
from controller.openflow import codec, counters, framing
from controller.openflow.codec import lasting
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser
from controller.openflow.messages import Asked, asked_of

# The most bytes in a bridge's incomplete replies, without learned flows and in addition to the bytes that
# the bridge's ports need. Decoded replies take up to eight times as much memory.
MOST_BYTES = 6_000_000
# The most bytes in any reply. In replies with learned flows, only some addresses are kept. A VM port may
# have 1024 addresses, each in up to five tables.
MOST_READ_BYTES = 1 << 26
# The most ports or units with counters in a reply, and the additional bytes (`room`) that allow one more.
# The engine needs 20 us for each port or unit.
MOST_COUNTED, ROOM_PER_COUNTED = 2_000, 2_000
# The most addresses kept for a port once the bridge has `KEPT_OF_ALL` addresses, and the most in all. VMs
# can make up addresses, and the engine needs time for each.
KEPT_OF_A_PORT, KEPT_OF_ALL, MOST_KEPT = 64, 1 << 14, 1 << 15
COOKIE = struct.Struct("!24xQ")
STATISTICS: dict[int, Any] = {
    Asked.PORTS: parser.OFPPortStatsReply,
    Asked.GROUPS: parser.OFPGroupDescStatsReply,
}
# After decoding this number of flows, look for a report of a failed link, which must not wait for all.
SLICE = 64
SHARED_FLOWS = WeakValueDictionary[bytes, Any]()
SHARED_GROUPS = WeakValueDictionary[bytes, Any]()
R = TypeVar("R")
C = TypeVar("C")
P = TypeVar("P")


class _Read(Generic[P, R]):
    """Decodes replies to one kind of request. A reply equal to the last one is not decoded again.

    `combine` returns the decoded reply, given the reply's parts and a function that decodes a part.
    `shared`: the decoded parts of the last replies on all connections, by hash. Bridges with similar ports
    have mostly the same flows, so that parts are decoded, and take memory, only once.
    `between` is called after every `SLICE` parts.
    """

    def __init__(
        self,
        combine: Callable[[list[bytes], Callable[[bytes], P]], R],
        decode: Callable[[bytes], P],
        shared: WeakValueDictionary[bytes, Any],
        between: Callable[[], None],
    ) -> None:
        self._combine = combine
        self._decode = decode
        self._shared = shared
        self._between = between
        self._last: tuple[bytes, R] | None = None

    def read_of(self, parts: list[bytes]) -> R:
        """Return the decoded reply: the same object as before if the reply has not changed."""
        # Each part begins with its length.
        hashed = _hash_of(b"".join(parts))
        if self._last is None or self._last[0] != hashed:
            numbers = itertools.count()

            def decode(part: bytes) -> P:
                if next(numbers) % SLICE == 0:
                    self._between()
                key = _hash_of(part)
                found: P | None = self._shared.get(key)
                if found is not None:
                    return found
                decoded = self._decode(part)
                if decoded is not None:
                    self._shared[key] = decoded
                return decoded

            self._last = hashed, self._combine(parts, decode)
        return self._last[1]


def _hash_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(slots=True)
class Learned:
    """The addresses in learned flows. Flows are added one by one, because there may be many.

    `addresses`: (ofport, MAC, VLAN) of addresses on VM ports. `from_normal`: (ofport, MAC, VLAN) of
    addresses on ports that only NORMAL serves; VLAN None: untagged. `elsewhere`: (MAC, VLAN) of addresses
    that were on a VM port and were then announced from outside the bridge.
    """

    addresses: set[tuple[int, str, int]] = field(default_factory=set)
    from_normal: set[tuple[int, str, int | None]] = field(default_factory=set)
    elsewhere: set[tuple[str, int]] = field(default_factory=set)
    _of_port: Counter[int] = field(default_factory=Counter)
    _of_all: int = 0

    def add_part(self, stats: bytes) -> None:
        """Add the address in one flow.

        Raises:
            Malformed: lengths inside the flow are inconsistent.
            ValueError: the flow does not match exactly one address.
        """
        (found,) = COOKIE.unpack_from(stats)
        ofport = tables.cookie_ofport(found)
        most = MOST_KEPT if self._of_port[ofport] < KEPT_OF_A_PORT else KEPT_OF_ALL
        if tables.cookie_kind(found) is not tables.Kind.LEARNED or self._of_all >= most:
            return
        self._of_port[ofport] += 1
        self._of_all += 1
        flow = codec.read_flow(stats)
        fields = dict(codec.decode_match(flow.match))
        mac, vlan = fields.get("eth_dst"), fields.get(tables.Register.VLAN)
        if not isinstance(mac, str):
            raise ValueError(f"a learned flow has eth_dst {mac}; expected one MAC address")
        if found & tables.FROM_NORMAL:
            tag = None if vlan is None else _exact(vlan)
            for action in codec.decode_flow(flow).actions:
                if isinstance(action, LoadBits) and action.target == tables.Register.TARGET:
                    self.from_normal.add((action.value, mac, tag))
        elif ofport:
            self.addresses.add((ofport, mac, _exact(vlan or 0)))
        elif found == tables.cookie(tables.Kind.LEARNED, 0):
            self.elsewhere.add((mac, _exact(vlan or 0)))

    def event(self, bridge: str) -> events.LearnedRead:
        """Return the event with all added addresses."""
        from_normal = sorted(self.from_normal, key=lambda a: (a[0], a[1], a[2] or 0))
        return events.LearnedRead(
            bridge, tuple(sorted(self.addresses)), tuple(from_normal), tuple(sorted(self.elsewhere))
        )


class Replies:
    """Collects the statistics replies on one connection, and converts them to events.

    A reply arrives in parts, and some events need several replies: `InstalledRead` needs flows and
    groups. `UnitCountersRead` needs the flows of both directions, because a flow counts only one
    direction. `room` returns how many bytes are added to the size limit of replies. While a long
    reply is decoded, `between` is called after every `SLICE` flows or groups.
    """

    def __init__(
        self, room: Callable[[], int] = lambda: 0, between: Callable[[], None] = lambda: None
    ) -> None:
        self._room = room
        self._bodies: dict[int, list[bytes]] = {asked: [] for asked in Asked}
        # The number of bytes of each reply that have arrived, and the number of bytes that are kept.
        self._read: dict[int, int] = dict.fromkeys(Asked, 0)
        self._kept: dict[int, int] = dict.fromkeys(Asked, 0)
        self._learned = Learned()
        # The number of frames of each flow in `codec.COUNTED`, in the order of the flows.
        self._counted: list[int] = []
        self._installed = _Read(codec.installed_flows, codec.installed_flow, SHARED_FLOWS, between)
        self._groups = _Read(codec.installed_groups, codec.installed_group, SHARED_GROUPS, between)

    def event(self, bridge: str, message: Any) -> events.Event | None:
        """Add a part of a reply. Return an event if all replies for it are complete, else None.

        Raises:
            Malformed: lengths inside the reply are inconsistent, or the reply is too long or of a
                different type than requested.
            ValueError: the reply cannot be decoded.
        """
        asked, number = asked_of(message.xid)
        if asked not in self._bodies:
            return None
        expected = STATISTICS.get(asked, parser.OFPFlowStatsReply)
        if type(message) is not expected:
            found = f"statistics of type {message.cls_stats_type}"
            raise framing.Malformed(f"{found}; expected type {expected.cls_stats_type}")
        self._keep(asked, message.body)
        if message.flags & ofp.OFPMPF_REPLY_MORE:
            return None
        match asked:
            case Asked.GROUPS:
                flows = self._installed.read_of(self._take_parts(Asked.FLOWS))
                counted, self._counted = self._counted, []
                by_uplink, dropped = Counter[int](), Counter[Dropped]()
                for what, frames in zip(flows.counting, counted, strict=True):
                    if isinstance(what, int):
                        by_uplink[what] += frames
                    elif what is not None:
                        dropped[what] += frames
                groups = self._groups.read_of(
                    list(framing.split(self._take(Asked.GROUPS), framing.GROUP_LEAST_BYTES))
                )
                read = flows.ours, groups, flows.foreign, flows.by_default
                return events.InstalledRead(bridge, *read, by_uplink, dropped, number)
            case Asked.PORTS:
                return events.PortStatsRead(
                    bridge, self._few(counters.port_counters(self._take(Asked.PORTS)))
                )
            case Asked.FROM_VM:
                units = counters.unit_counters(self._take(Asked.TO_VM), self._take(Asked.FROM_VM))
                buckets = counters.bucket_counters(self._take(Asked.BUCKETS))
                to, sent = self._take(Asked.TO_ADDRESS), self._take(Asked.FROM_ADDRESS)
                return events.UnitCountersRead(
                    bridge, self._few(units), buckets, self._few(counters.unit_counters(to, sent))
                )
            case Asked.INBOUND:
                return events.InboundRead(
                    bridge, counters.inbound_counters(self._take(Asked.INBOUND))
                )
            case Asked.LEARNED:
                learned, self._learned = self._learned, Learned()
                self._take_parts(Asked.LEARNED)
                return learned.event(bridge)
        return None

    def _keep(self, asked: int, body: bytes) -> None:
        """Store the bytes that are needed from a part of a reply.

        Raises:
            Malformed: the reply is too long.
        """
        self._read[asked] += len(body)
        parts = [body]
        if asked == Asked.FLOWS:
            parts, counted = lasting(body)
            self._counted += counted
        elif asked == Asked.LEARNED:
            parts = []
            for flow in framing.split(body, framing.FLOW_LEAST_BYTES):
                self._learned.add_part(flow)
        self._bodies[asked] += parts
        self._kept[asked] += sum(map(len, parts))
        for found, most in (
            (sum(self._kept.values()), MOST_BYTES),
            (self._read[asked], MOST_READ_BYTES),
        ):
            if found > most and found > (most := most + self._room()):
                raise framing.Malformed(f"the reply has more than {most} bytes")

    def _few(self, counted: tuple[C, ...]) -> tuple[C, ...]:
        """Return `counted`, the counters in a reply, after checking how many there are.

        Raises:
            Malformed: there are counters for too many ports or units.
        """
        if len(counted) > MOST_COUNTED:
            most = MOST_COUNTED + self._room() // ROOM_PER_COUNTED
            if len(counted) > most:
                raise framing.Malformed(f"{len(counted)} counters; expected at most {most}")
        return counted

    def _take(self, asked: Asked) -> bytes:
        return b"".join(self._take_parts(asked))

    def _take_parts(self, asked: Asked) -> list[bytes]:
        parts, self._bodies[asked] = self._bodies[asked], []
        self._read[asked] = self._kept[asked] = 0
        return parts


def _exact(value: MatchValue) -> int:
    """Return the value of a field, without the mask if the switch reports one."""
    found = value[0] if isinstance(value, tuple) else value
    return int(found)
