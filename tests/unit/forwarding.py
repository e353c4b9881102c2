"""What a pipeline does with one frame: its flows and groups carried out, as the switch does.

Look-ups that the switch learns are empty. What Open vSwitch hashes is hashed otherwise here,
by the same fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from controller.dataplane.hashing import CONNECTION
from controller.dataplane.specs import (
    Action,
    CopyBits,
    FlowSpec,
    Learn,
    LoadBits,
    Multipath,
    Output,
    Pipeline,
    PopVlan,
    PushVlan,
    Resubmit,
    SetField,
    ToGroup,
)
from controller.dataplane.tables import VLAN_PRESENT

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
    return list(_act(installed, ToGroup(group_id), dict(sent), alive))


def through_table(
    installed: Pipeline, table: int, sent: Mapping[str, int], alive: Collection[int]
) -> list[Copy]:
    return list(_look_up(installed, table, dict(sent), alive))


def _look_up(
    installed: Pipeline, table: int, now: dict[str, int], alive: Collection[int]
) -> Iterator[Copy]:
    found = [f for f in installed.flows.values() if f.table == table and matches(f, now)]
    if not found:
        return
    highest = max(flow.priority for flow in found)
    (flow,) = [flow for flow in found if flow.priority == highest]
    for action in flow.actions:
        yield from _act(installed, action, now, alive)
    if flow.goto is not None:
        yield from _look_up(installed, flow.goto, now, alive)


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


def _act(
    installed: Pipeline, action: Action, now: dict[str, int], alive: Collection[int]
) -> Iterator[Copy]:
    match action:
        case Output(port=port):
            yield Copy(port, dict(now))
        case ToGroup(group_id=group_id):
            group = installed.groups[group_id]
            buckets = [b for b in group.buckets if b.watch_port is None or b.watch_port in alive]
            if group.kind == "ff":
                buckets = buckets[:1]
            elif group.kind == "select":
                # Not as multipath does.
                buckets = [buckets[(_hashed(CONNECTION, now) + now["eth_type"]) % len(buckets)]]
            for bucket in buckets:
                inside = dict(now)
                for inner in bucket.actions:
                    yield from _act(installed, inner, inside, alive)
        case SetField(field=field, value=value):
            now[field] = as_number(field, value)
        case CopyBits(source=source, source_bit=source_bit, target=target, bits=bits):
            taken = now[source] >> source_bit & (1 << bits) - 1
            now[target] = _with_bits(now.get(target, 0), action.target_bit, bits, taken)
        case LoadBits(target=target, target_bit=bit, bits=bits, value=value):
            now[target] = _with_bits(now.get(target, 0), bit, bits, value)
        case PushVlan():
            now["vlan_vid"] = VLAN_PRESENT
        case PopVlan():
            now["vlan_vid"] = 0
        case Resubmit(table=table):
            yield from _look_up(installed, table, now, alive)
        case Multipath(fields=fields, buckets=buckets, target=target, basis=basis):
            now[target] = (_hashed(fields, now) + basis) % buckets
        case Learn():
            pass


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
