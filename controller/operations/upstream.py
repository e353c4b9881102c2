"""Finds problems in the upstream network from a bridge's counters, for `check`.

Without a LAG, broadcasts from the network arrive on every uplink, and broadcasts from local VMs
return on all other uplinks. On a LAG, broadcasts from the network arrive once, and those from VMs do not return.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.dataplane.tables import Register, Table
from controller.features.flooded import ENOUGH_TO_COMPARE, same_by_all
from controller.operations.findings import NOTE, WARNING, Finding
from controller.text.show_view import JsonObject
from controller.text.wording import quoted
from policies.model import Teaming

# The columns that are read for each uplink in the database.
COLUMNS = "name,mtu,link_speed,statistics"
# A lower number of frames may be due to chance: a link has just come up, or has just failed.
ENOUGH_FRAMES = 10
ENOUGH_ON_A_LAG = 10_000
ONE_NETWORK = "connect all uplinks to one network"
_FLOW = re.compile(r" table=(\d+), n_packets=(\d+),.* priority=\d+(?:,(\S*))? actions=")
_MULTICAST = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"


@dataclass(frozen=True, slots=True)
class Port:
    """The record of an uplink in the database. A value is None if it is unknown or not counted."""

    mtu: int | None = None
    speed_bps: int | None = None
    rx_packets: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """An ovs-lbt flow: its table, its number of frames, and the parts of its match."""

    table: int
    packets: int
    match: tuple[str, ...]

    @property
    def registers(self) -> dict[Register, int]:
        """The registers that the flow matches without a mask, with their values."""
        exact = (re.fullmatch(r"(reg\d+)=(0x[0-9a-f]+|\d+)", word) for word in self.match)
        return {Register(m[1]): int(m[2], 0) for m in exact if m}


def ports_of(listed: str) -> dict[str, Port]:
    """Return the uplinks, keyed by name, from the output of `ovs-vsctl` for `COLUMNS`."""

    def number(value: object) -> int | None:
        return value if isinstance(value, int) else None

    return {
        name: Port(number(mtu), number(speed), number(dict(statistics).get("rx_packets")))
        for name, mtu, speed, (_, statistics) in json.loads(listed)["data"]
    }


def parse(dumped: str) -> list[Counted]:
    """Return the flows in the output of `ovs-ofctl dump-flows`."""
    found = map(_FLOW.search, dumped.splitlines())
    return [Counted(int(m[1]), int(m[2]), tuple((m[3] or "").split(","))) for m in found if m]


def findings(
    team: JsonObject, ports: Mapping[str, Port], flows: Sequence[Counted]
) -> Iterator[Finding]:
    """Report problems in the upstream network that a bridge's counters show.

    `team`: the bridge in the answer of `check`. `ports`: its uplinks. `flows`: the ovs-lbt flows.
    """
    up = {uplink["name"]: int(uplink["ofport"]) for uplink in team["uplinks"] if uplink["up"]}
    on_a_lag = team.get("teaming") in (Teaming.STATIC, Teaming.LACP)
    known = {name: ports[name] for name in up if name in ports}
    found = [*_differences(known, on_a_lag), *_deaf(known, on_a_lag)]
    # The number of flooded frames received on each uplink, without local VMs' frames.
    counted = [(f.registers.get(Register.UPLINK), f) for f in flows if f.table == Table.DELIVERY]
    came = {name: sum(f.packets for by, f in counted if by == no) for name, no in up.items()}
    if on_a_lag:
        found += _returned(team, flows, came)
    elif len(up) > 1:
        found += [*_never_returned(team, flows, came), *_vlans(up, flows)]
    for finding in found:
        yield replace(finding, bridge=str(team["name"]))


def _differences(ports: Mapping[str, Port], on_a_lag: bool) -> Iterator[Finding]:
    """Report differences between uplinks in MTU and speed."""
    mtus = {name: port.mtu for name, port in ports.items() if port.mtu}
    if len(set(mtus.values())) > 1:
        found = f"uplinks differ in MTU ({_each(mtus)}), so large frames are lost on some uplinks"
        yield Finding(WARNING, "mtu", f"{found}; set the same MTU on all uplinks")
    speeds = {n: f"{p.speed_bps / 1e6:g} Mbit/s" for n, p in ports.items() if p.speed_bps}
    if len(set(speeds.values())) > 1:
        text = f"uplinks differ in speed ({_each(speeds)})"
        if on_a_lag:
            text += "; a LAG requires the same speed on all uplinks"
        yield Finding(WARNING if on_a_lag else NOTE, "speed", text)


def _deaf(ports: Mapping[str, Port], on_a_lag: bool) -> Iterator[Finding]:
    """Report uplinks whose link is up, but which have never received a frame.

    On a LAG with few conversations, a hash may select the same member for all of them.
    """
    enough = ENOUGH_ON_A_LAG if on_a_lag else ENOUGH_FRAMES
    most = max((port.rx_packets or 0 for port in ports.values()), default=0)
    for name, port in ports.items():
        if port.rx_packets == 0 and most >= enough:
            text = (
                f"uplink {name} is up, but has never received a frame;"
                " connect this uplink to a forwarding switch port in its network"
            )
            yield Finding(WARNING, "receives-nothing", text)


def _returned(
    team: JsonObject, flows: Sequence[Counted], came: Mapping[str, int]
) -> Iterator[Finding]:
    """Report uplinks that are configured as a LAG, but are separate ports on the upstream switch.

    On a LAG, a frame counts as our own only if this host has just flooded a frame from its source address.
    """
    locked = (flow for flow in flows if flow.registers.get(Register.LOCKED) == 1)
    departures = (flow for flow in locked if flow.table == Table.DEPARTURE)
    count = sum(f.packets for f in departures if f.registers.get(Register.LOCAL) != 0)
    found = ""
    if count >= ENOUGH_FRAMES:
        found = f"{count} broadcasts from local VMs returned on another member"
    elif team.get("teaming") == Teaming.STATIC and same_by_all(came):
        found = f"all members receive the same number of broadcasts ({_each(came)}), so each broadcast arrives twice"
    if found:
        change = _set_teaming(team, "switch-independent")
        separate = f"if the uplinks are separate ports on that switch: {change}"
        text = f"LAG: {found}; configure one LAG on the upstream switch, or, {separate}"
        yield Finding(WARNING, "no-lag", text)


def _set_teaming(team: JsonObject, teaming: str) -> str:
    return f"ovs-lbt set bridge {quoted(team['name'])} teaming={teaming}"


def _never_returned(
    team: JsonObject, flows: Sequence[Counted], came: Mapping[str, int]
) -> Iterator[Finding]:
    # Broadcasts of VMs that have migrated away pass another table, and are not counted.
    of_our_vms = [f for f in flows if _MULTICAST in f.match]
    sent, came_back = (
        sum(f.packets for f in of_our_vms if f.table == table)
        for table in (Table.DESTINATION, Table.PRESENT)
    )
    if sent < ENOUGH_FRAMES or came_back > 0:
        return
    text = f"none of {sent} broadcasts from local VMs returned on another uplink"
    if same := same_by_all(came):
        text += ", but all uplinks receive other hosts' broadcasts, so upstream ports are isolated"
    elif max(came.values()) < ENOUGH_TO_COMPARE:
        text += f"; {ONE_NETWORK}; other hosts' broadcasts will show whether this is a LAG"
    else:
        static = _set_teaming(team, "static")
        text += f"; {ONE_NETWORK}; if the upstream switch has a LAG: {static}, or use LACP"
    yield Finding(NOTE if same else WARNING, "not-one-network", text)


def _vlans(up: Mapping[str, int], flows: Sequence[Counted]) -> Iterator[Finding]:
    """Report VLANs whose broadcasts arrive on some uplinks, but never on other uplinks."""
    came: Counter[tuple[int, int]] = Counter()
    for flow in flows:
        registers = flow.registers
        if flow.table == Table.DELIVERY and {Register.VLAN, Register.UPLINK} <= registers.keys():
            came[registers[Register.VLAN], registers[Register.UPLINK]] += flow.packets
    for vlan in sorted({vlan for vlan, _ in came}):
        bring = [name for name, ofport in up.items() if came[vlan, ofport] >= ENOUGH_FRAMES]
        never = [name for name, ofport in up.items() if came[vlan, ofport] == 0]
        if bring and never:
            text = (
                f"{f'VLAN {vlan}' if vlan else 'untagged'} broadcasts arrive on {', '.join(bring)}, but never on"
                f" {', '.join(never)}; configure the VLAN on the switch port of every uplink"
            )
            yield Finding(WARNING, "vlan", text)


def _each(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
