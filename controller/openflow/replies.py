"""Puts the parts of statistics replies together, and makes events of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from controller.api.events import (
    Event,
    InboundRead,
    InstalledRead,
    LearnedRead,
    PortStatsRead,
    UnitCountersRead,
)
from controller.dataplane.specs import GroupSpec
from controller.openflow import framing
from controller.openflow.counters import (
    bucket_counters,
    inbound_counters,
    port_counters,
    unit_counters,
)
from controller.openflow.decode import (
    Flows,
    flooded,
    installed_flows,
    installed_groups,
    lasting,
    read_flow,
)
from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser
from controller.openflow.learned import learned_addresses, learned_elsewhere, learned_from_normal
from controller.openflow.xids import Asked

# Longer replies are refused. No bridge has so many flows or ports.
MOST_BYTES = 1 << 26
STATISTICS = {Asked.PORTS: parser.OFPPortStatsReply, Asked.GROUPS: parser.OFPGroupDescStatsReply}
R = TypeVar("R")


class _Read(Generic[R]):
    """Decodes the replies to one kind of request, and each only if it differs from the last one."""

    def __init__(self, decode: Callable[[list[bytes]], R]) -> None:
        self._decode = decode
        self._last: tuple[bytes, R] | None = None

    def of(self, parts: list[bytes]) -> R:
        """Return the decoded reply: the same object for as long as the reply stays the same."""
        # Each part begins with its length.
        digest = hashlib.blake2b(b"".join(parts), digest_size=16).digest()
        if self._last is None or self._last[0] != digest:
            self._last = digest, self._decode(parts)
        return self._last[1]


class Replies:
    """Collects the statistics replies of one connection, and makes events of them.

    A reply comes in parts, and some events need several replies. `InstalledRead` needs flows and
    groups. `UnitCountersRead` needs the flows of both directions, because each counts one.
    """

    def __init__(self) -> None:
        self._bodies: dict[int, list[bytes]] = {asked: [] for asked in Asked}
        self._sizes: dict[int, int] = dict.fromkeys(Asked, 0)
        self._installed = _Read[Flows](installed_flows)
        self._groups = _Read[tuple[GroupSpec, ...]](installed_groups)

    def event(self, bridge: str, message: Any) -> Event | None:
        """Take a part of a reply, and return the event that it completes. None: it completes none.

        Raises:
            Malformed: lengths inside the reply do not agree, or its type is not the requested one.
            ValueError: the reply is longer than `MOST_BYTES`, or cannot be decoded.
        """
        if message.xid not in self._bodies:
            return None
        expected = STATISTICS.get(message.xid, parser.OFPFlowStatsReply)
        if type(message) is not expected:
            found = f"statistics of type {message.cls_stats_type}"
            raise framing.Malformed(f"{found} -> type {expected.cls_stats_type}")
        self._bodies[message.xid].append(message.body)
        self._sizes[message.xid] += len(message.body)
        if self._sizes[message.xid] > MOST_BYTES:
            raise ValueError(f"a reply of more than {MOST_BYTES} bytes -> at most {MOST_BYTES}")
        if message.flags & ofp.OFPMPF_REPLY_MORE:
            return None
        match message.xid:
            case Asked.GROUPS:
                body = self._take(Asked.FLOWS)
                flows, foreign, by_default = self._installed.of(lasting(body))
                groups = self._groups.of(list(framing.groups(self._take(Asked.GROUPS))))
                return InstalledRead(bridge, flows, groups, foreign, by_default, flooded(body))
            case Asked.PORTS:
                return PortStatsRead(bridge, port_counters(self._take(Asked.PORTS)))
            case Asked.FROM_VM:
                counters = unit_counters(self._take(Asked.TO_VM), self._take(Asked.FROM_VM))
                buckets = bucket_counters(self._take(Asked.BUCKETS))
                to, sent = self._take(Asked.TO_ADDRESS), self._take(Asked.FROM_ADDRESS)
                return UnitCountersRead(bridge, counters, buckets, unit_counters(to, sent))
            case Asked.INBOUND:
                return InboundRead(bridge, inbound_counters(self._take(Asked.INBOUND)))
            case Asked.LEARNED:
                learned = [read_flow(flow) for flow in framing.flows(self._take(Asked.LEARNED))]
                return LearnedRead(
                    bridge,
                    learned_addresses(learned),
                    learned_from_normal(learned),
                    learned_elsewhere(learned),
                )
        return None

    def _take(self, asked: Asked) -> bytes:
        body, self._bodies[asked] = b"".join(self._bodies[asked]), []
        self._sizes[asked] = 0
        return body
