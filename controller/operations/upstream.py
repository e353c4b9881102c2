"""What counters show of the network upstream: uplinks that it does not use as they are meant.

Without a LAG, what one port of a network broadcasts comes by every uplink, also what our own VMs
broadcast by another one. On a LAG it comes by one member, and nothing comes back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.dataplane.tables import Register, Table
from controller.operations.check import Finding
from controller.text.check_view import NOTE, WARNING, JsonObject
from policies.model import Teaming

# Fewer frames may be chance: a link that has just come up, or one that was just lost.
ENOUGH_FRAMES = 10
ENOUGH_ON_A_LAG = 10_000
ENOUGH_TWICE = 100
# The VLANs that flows do not name, because most VM ports carry them.
THE_REST = -1
_FLOW = re.compile(r" table=(\d+), n_packets=(\d+),.* priority=\d+(?:,(\S*))? actions=")
_MULTICAST = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"


@dataclass(frozen=True, slots=True)
class Port:
    """An uplink as the database has it. None: not known, or not counted."""

    mtu: int | None = None
    speed_bps: int | None = None
    rx_packets: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """A flow of ours: its table, its frames, and its match in words."""

    table: int
    packets: int
    match: tuple[str, ...]

    @property
    def registers(self) -> dict[Register, int]:
        """The registers that it matches as a whole."""
        exact = (re.fullmatch(r"reg(\d+)=(0x[0-9a-f]+|\d+)", word) for word in self.match)
        return {Register(int(m[1])): int(m[2], 0) for m in exact if m}


def parse(dumped: str) -> list[Counted]:
    """The flows in what `ovs-ofctl dump-flows` prints."""
    found = map(_FLOW.search, dumped.splitlines())
    return [Counted(int(m[1]), int(m[2]), tuple((m[3] or "").split(","))) for m in found if m]


def findings(
    team: JsonObject, ports: Mapping[str, Port], flows: Sequence[Counted]
) -> Iterator[Finding]:
    """What is wrong upstream of a bridge, as far as its counters show it.

    `team`: the bridge in the answer of `check`. `ports`: its uplinks. `flows`: those of ours.
    """
    up = {uplink["name"]: int(uplink["ofport"]) for uplink in team["uplinks"] if uplink["up"]}
    on_a_lag = team.get("teaming") in (Teaming.STATIC, Teaming.LACP)
    known = {name: ports[name] for name in up if name in ports}
    found = [*_differences(known, on_a_lag), *_deaf(known, on_a_lag)]
    if on_a_lag:
        found += [*_returned(flows), *_twice(up, flows)]
    elif len(up) > 1:
        found += [*_never_returned(flows), *_vlans(up, flows)]
    for finding in found:
        yield Finding(finding.severity, finding.check, finding.text, str(team["name"]))


def _differences(ports: Mapping[str, Port], on_a_lag: bool) -> Iterator[Finding]:
    """Members that differ in what they should have in common."""
    mtus = {name: port.mtu for name, port in ports.items() if port.mtu}
    if len(set(mtus.values())) > 1:
        text = f"MTU of uplinks: {_each(mtus)} -> one MTU; larger frames are lost on some of them"
        yield Finding(WARNING, "mtu", text)
    speeds = {n: f"{p.speed_bps / 1e6:g} Mbit/s" for n, p in ports.items() if p.speed_bps}
    if len(set(speeds.values())) > 1:
        if on_a_lag:
            text = f"speed of uplinks: {_each(speeds)} -> one speed, which a LAG requires"
            yield Finding(WARNING, "speed", text)
        else:
            yield Finding(NOTE, "speed", f"speed of uplinks: {_each(speeds)}")


def _deaf(ports: Mapping[str, Port], on_a_lag: bool) -> Iterator[Finding]:
    """Uplinks with a link that have never received anything.

    On a LAG, a hash may well choose one member for a few conversations.
    """
    enough = ENOUGH_ON_A_LAG if on_a_lag else ENOUGH_FRAMES
    most = max((port.rx_packets or 0 for port in ports.values()), default=0)
    for name, port in ports.items():
        if port.rx_packets == 0 and most >= enough:
            text = (
                f"uplink {name}: has a link, and has never received a frame"
                " -> a port of the same network that is not blocked"
            )
            yield Finding(WARNING, "receives-nothing", text)


def _returned(flows: Sequence[Counted]) -> Iterator[Finding]:
    """On a LAG, only what the same address has flooded from here a moment ago is a frame of ours."""
    locked = (flow for flow in flows if flow.registers.get(Register.LOCKED) == 1)
    departures = (flow for flow in locked if flow.table == Table.DEPARTURE)
    count = sum(f.packets for f in departures if f.registers.get(Register.LOCAL) != 0)
    if count >= ENOUGH_FRAMES:
        text = (
            f"LAG: {count} broadcasts of our own VMs came back by another member"
            " -> one LAG upstream; if the uplinks are separate ports there: teaming=switch-independent"
        )
        yield Finding(WARNING, "no-lag", text)


def _twice(up: Mapping[str, int], flows: Sequence[Counted]) -> Iterator[Finding]:
    """VLANs in which all members of a LAG bring the same number of broadcasts: each of them all.

    A hash over members that are one link seldom comes that close to equal shares.
    """
    for vlan, by in sorted(_broadcasts(flows).items()):
        counts = [by[ofport] for ofport in up.values()]
        if len(counts) > 1 and min(counts) >= ENOUGH_TWICE and max(counts) - min(counts) <= 1:
            text = (
                f"{_vlan(vlan)}: all members of the LAG bring the same number of broadcasts, {counts[0]}, so VMs"
                " may get each of them several times -> one LAG upstream; if the uplinks are separate"
                " ports there: teaming=switch-independent"
            )
            yield Finding(WARNING, "twice", text)


def _never_returned(flows: Sequence[Counted]) -> Iterator[Finding]:
    sent = sum(
        flow.packets
        for flow in flows
        if flow.table == Table.DESTINATION and _MULTICAST in flow.match
    )
    if sent >= ENOUGH_FRAMES and _came_back(flows) == 0:
        text = (
            f"of {sent} broadcasts of our VMs, none came back by another uplink"
            " -> uplinks of one network; if they are a LAG upstream: teaming=static, or LACP"
        )
        yield Finding(WARNING, "not-one-network", text)


def _came_back(flows: Sequence[Counted]) -> int:
    """The broadcasts of our own VMs that came back from the network. Those that have left do not count."""
    return sum(
        flow.packets for flow in flows if flow.table == Table.PRESENT and _MULTICAST in flow.match
    )


def _vlans(up: Mapping[str, int], flows: Sequence[Counted]) -> Iterator[Finding]:
    """VLANs in which some uplinks bring broadcasts, and others never do."""
    for vlan, came in sorted(_broadcasts(flows).items()):
        if vlan == THE_REST:
            continue
        bring = [name for name, ofport in up.items() if came[ofport] >= ENOUGH_FRAMES]
        never = [name for name, ofport in up.items() if came[ofport] == 0]
        if bring and never:
            text = (
                f"{_vlan(vlan)}: come by {', '.join(bring)}, never by"
                f" {', '.join(never)} -> the VLAN on every switch port of an uplink"
            )
            yield Finding(WARNING, "vlan", text)


def _broadcasts(flows: Sequence[Counted]) -> dict[int, Counter[int]]:
    """By VLAN, or `THE_REST` of them: how many broadcasts each uplink has brought, by its number."""
    came: dict[int, Counter[int]] = {}
    for flow in flows:
        registers = flow.registers
        by_uplink = flow.table == Table.DELIVERY and Register.UPLINK in registers
        if by_uplink and (Register.VLAN in registers or len(flow.match) == 1):
            of_vlan = came.setdefault(registers.get(Register.VLAN, THE_REST), Counter())
            of_vlan[registers[Register.UPLINK]] += flow.packets
    return came


def _vlan(vlan: int) -> str:
    if vlan == THE_REST:
        return "most VLANs"
    return f"VLAN {vlan}" if vlan else "untagged frames"


def _each(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
