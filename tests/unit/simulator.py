"""What a pipeline does with frames: its flows and groups carried out, and learned, as the switch does.

What Open vSwitch hashes is hashed otherwise here, by the same fields. tests/switch/test_simulator.py holds
this against Open vSwitch.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from controller.dataplane.hashing import CONNECTION
from controller.dataplane.specs import (
    Action,
    Bucket,
    CopyBits,
    FlowSpec,
    GroupSpec,
    Learn,
    LearnLoad,
    LoadBits,
    Match,
    MatchValue,
    Multipath,
    Output,
    Pipeline,
    PopVlan,
    PushVlan,
    Resubmit,
    SetField,
    ToGroup,
)
from controller.dataplane.tables import OFPP_NORMAL, VLAN_PRESENT, Table

# What a switch knows of a frame, and the frame itself has not.
INSIDE = ("reg", "metadata", "pkt_mark")
PORTS = {6: ("tcp_src", "tcp_dst"), 17: ("udp_src", "udp_dst"), 132: ("sctp_src", "sctp_dst")}


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the frame: the port it leaves by, and the frame as it then is."""

    port: int
    frame: Mapping[str, int]


def frame(**fields: int | str) -> dict[str, int]:
    """A frame from its fields, named as in matches; registers may be among them."""
    made = {"eth_src": 0, "eth_dst": 0, "eth_type": 0, "vlan_vid": 0}
    return {**made, **{name: as_number(name, value) for name, value in fields.items()}}


def fields_of(sent: bytes) -> dict[str, int]:
    """The fields of a frame: Ethernet, one tag, ARP, IP, and the ports or the type behind it."""
    made = frame(eth_dst=sent[:6].hex(":"), eth_src=sent[6:12].hex(":"))
    made["eth_type"], body = int.from_bytes(sent[12:14], "big"), sent[14:]
    if made["eth_type"] == 0x8100:
        tci = int.from_bytes(body[:2], "big")
        made |= {"vlan_vid": VLAN_PRESENT | tci & 0xFFF, "vlan_pcp": tci >> 13}
        made["eth_type"], body = int.from_bytes(body[2:4], "big"), body[4:]
    where = {
        0x0806: {"arp_op": (6, 8), "arp_spa": (14, 18), "arp_tpa": (24, 28)},
        0x0800: {"ip_proto": (9, 10), "ipv4_src": (12, 16), "ipv4_dst": (16, 20)},
        0x86DD: {"ip_proto": (6, 7), "ipv6_src": (8, 24), "ipv6_dst": (24, 40)},
    }.get(made["eth_type"], {})
    made |= {name: int.from_bytes(body[a:b], "big") for name, (a, b) in where.items()}
    behind = body[20:] if made["eth_type"] == 0x0800 else body[40:]
    for name, place in zip(PORTS.get(made.get("ip_proto", 0), ()), (0, 2), strict=False):
        made[name] = int.from_bytes(behind[place : place + 2], "big")
    if made.get("ip_proto") == 58:
        made["icmpv6_type"] = behind[0]
    return made


def as_number(field: str, value: int | str) -> int:
    if isinstance(value, int):
        return value
    if field.startswith("eth_"):
        return int(value.replace(":", ""), 16)
    return int(IPv4Address(value) if field.startswith("ipv4_") else IPv6Address(value))


def through_group(
    installed: Pipeline, group_id: int, sent: Mapping[str, int], alive: Collection[int]
) -> list[Copy]:
    """The copies of a frame that is given to a group while these ports are alive."""
    return list(Simulator(installed, alive).act(ToGroup(group_id), dict(sent)))


def through_table(
    installed: Pipeline, table: int, sent: Mapping[str, int], alive: Collection[int]
) -> list[Copy]:
    return list(Simulator(installed, alive).look_up(table, dict(sent)))


class Simulator:
    """A bridge's flows and groups at work: what it has learned, and the ports that are alive."""

    def __init__(self, installed: Pipeline, alive: Collection[int]) -> None:
        self.groups = installed.groups
        self.alive = alive
        self.now_s = 0.0
        # What the switch has learned, and until when it keeps it.
        self.learned: dict[tuple[int, int, Match], tuple[FlowSpec, float]] = {}
        # What it learns from a frame, it looks up with the next one.
        self._known = self.learned
        self._tables: dict[int, list[FlowSpec]] = {}
        for flow in sorted(installed.flows.values(), key=lambda flow: -flow.priority):
            self._tables.setdefault(flow.table, []).append(flow)

    def receive(self, ofport: int, sent: Mapping[str, int]) -> list[Copy]:
        """The copies of a frame that comes in by a port; none goes back by it, or by a port that is down."""
        self._known = dict(self.learned)
        outside = {name: value for name, value in sent.items() if not name.startswith(INSIDE)}
        found = self.look_up(Table.CLASSIFY, {**outside, "in_port": ofport})
        return [
            copy
            for copy in found
            if copy.port == OFPP_NORMAL or (copy.port != ofport and copy.port in self.alive)
        ]

    def look_up(self, table: int, now: dict[str, int]) -> Iterator[Copy]:
        found = list(itertools.islice(self._matching(table, now), 2))
        if not found:
            return
        flow = found[0]
        assert len(found) == 1 or found[1].priority < flow.priority, found
        for action in flow.actions:
            yield from self.act(action, now)
        if flow.goto is not None:
            yield from self.look_up(flow.goto, now)

    def _matching(self, table: int, now: Mapping[str, int]) -> Iterator[FlowSpec]:
        """The flows of a table that a frame matches, the highest priority first."""
        learned = [
            flow
            for flow, until_s in self._known.values()
            if flow.table == table and until_s > self.now_s and matches(flow, now)
        ]
        installed = (flow for flow in self._tables.get(table, ()) if matches(flow, now))
        learned.sort(key=lambda flow: -flow.priority)
        return heapq.merge(learned, installed, key=lambda flow: -flow.priority)

    def act(self, action: Action, now: dict[str, int]) -> Iterator[Copy]:
        match action:
            case Output(port=port):
                yield Copy(port, dict(now))
            case ToGroup(group_id=group_id):
                for bucket in self._buckets(self.groups[group_id], now):
                    inside = dict(now)
                    for inner in bucket.actions:
                        yield from self.act(inner, inside)
            case SetField(field=field, value=value):
                now[field] = as_number(field, value)
            case CopyBits(source=source, source_bit=source_bit, target=target, bits=bits):
                taken = _value(source, now) >> source_bit & (1 << bits) - 1
                now[target] = _with_bits(now.get(target, 0), action.target_bit, bits, taken)
            case LoadBits(target=target, target_bit=bit, bits=bits, value=value):
                now[target] = _with_bits(now.get(target, 0), bit, bits, value)
            case PushVlan():
                now["vlan_vid"] = VLAN_PRESENT
            case PopVlan():
                now["vlan_vid"] = 0
            case Resubmit(table=table):
                yield from self.look_up(table, now)
            case Multipath(fields=fields, buckets=buckets, target=target, basis=basis):
                now[target] = (_hashed(fields, now) + basis) % buckets
            case Learn():
                exists = self._learn(action, now)
                if action.success is not None:
                    now[action.success] = int(exists)

    def _buckets(self, group: GroupSpec, now: Mapping[str, int]) -> Sequence[Bucket]:
        """Those that a frame is given to. A group of kind `all` does not ask whether they are live."""
        if group.kind == "all":
            return group.buckets
        live = [bucket for bucket in group.buckets if self._lives(bucket)]
        if group.kind == "ff" or not live:
            return live[:1]
        # Not as multipath does.
        return [live[(_hashed(CONNECTION, now) + now["eth_type"]) % len(live)]]

    def _lives(self, bucket: Bucket) -> bool:
        if bucket.watch_group is not None:
            watched = self.groups.get(bucket.watch_group)
            return watched is not None and any(map(self._lives, watched.buckets))
        return bucket.watch_port is None or bucket.watch_port in self.alive

    def _learn(self, action: Learn, now: Mapping[str, int]) -> bool:
        """Add, replace or refresh a flow. Whether it is there then.

        At the limit of flows with its cookie, the switch only refreshes what is there unchanged.
        """
        match: dict[str, MatchValue] = {}
        loads: list[Action] = []
        for spec in action.specs:
            whole = (1 << spec.bits) - 1
            value = spec.source if isinstance(spec.source, int) else _value(spec.source, now)
            if isinstance(spec, LearnLoad):
                loads.append(LoadBits(spec.target, 0, spec.bits, value & whole))
            elif spec.target.startswith("reg"):
                match[spec.target] = (value & whole, whole)
            else:
                match[spec.target] = value & whole
        flow = FlowSpec(
            action.table,
            action.priority,
            tuple(sorted(match.items())),
            tuple(loads),
            cookie=action.cookie,
        )
        self.forget(lambda old, until_s: until_s <= self.now_s)
        alike = sum(
            (known.table, known.cookie) == (flow.table, flow.cookie)
            for known, _ in self.learned.values()
        )
        unchanged = self.learned.get(flow.key, (None, 0))[0] == flow
        if action.limit and not unchanged and alike >= action.limit:
            return False
        self.learned[flow.key] = flow, self.now_s + (action.hard_timeout_s or math.inf)
        return True

    def forget(self, condition: Callable[[FlowSpec, float], bool]) -> None:
        """Remove learned flows for which a condition of the flow, and of when it expires, is true."""
        kept = {key: one for key, one in self.learned.items() if not condition(*one)}
        self.learned = kept


def matches(flow: FlowSpec, now: Mapping[str, int]) -> bool:
    """Whether a frame has what a flow matches; a field that a frame has not is 0 or no match."""
    for name, wanted in flow.match:
        absent = 0 if name.startswith("reg") or name in ("vlan_pcp", "ip_frag") else None
        if (value := now.get(name, absent)) is None:
            return False
        if isinstance(wanted, tuple):
            if value & as_number(name, wanted[1]) != as_number(name, wanted[0]):
                return False
        elif value != as_number(name, wanted):
            return False
    return True


def _value(field: str, now: Mapping[str, int]) -> int:
    """A field of a frame; 0 where a frame has none."""
    if field == "vlan_tci":
        return now["vlan_vid"] | now.get("vlan_pcp", 0) << 13
    return now.get(field, 0)


def _with_bits(value: int, bit: int, bits: int, new: int) -> int:
    mask = (1 << bits) - 1 << bit
    return value & ~mask | new << bit


def _hashed(fields: str, now: Mapping[str, int]) -> int:
    if fields == "eth_src":
        return now["eth_src"]
    assert fields == CONNECTION
    version = {0x0800: "ipv4", 0x86DD: "ipv6"}.get(now["eth_type"])
    if version is None:
        return now["eth_src"] ^ now["eth_dst"]
    pair = now[f"{version}_src"] ^ now[f"{version}_dst"]
    source, destination = PORTS.get(now.get("ip_proto", 0), ("", ""))
    return pair ^ now.get(source, 0) ^ now.get(destination, 0)
