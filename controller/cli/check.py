"""`ovs-lbt check`: asks the service, adds what counters show of the network, and prints a line for each finding.

Exit status: 0 all is well, 1 something asks for attention, 2 it could not be checked.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ovs.dirs

from controller.cli import answers
from controller.dataplane.specs import COOKIE_PREFIX
from controller.dataplane.tables import COOKIE_PREFIX_MASK, Register, Table
from controller.host import client
from controller.host.programs import run
from controller.load.repeated import ENOUGH_TO_COMPARE, same_by_all
from controller.operations import check
from controller.operations.findings import NOTE, WARNING, Finding
from controller.text import terminal
from controller.text.show_view import JsonObject
from controller.text.wording import Refused, quoted
from policies.model import Teaming

WELL, FOUND, UNKNOWN = 0, 1, 2
COLUMNS = "name,mtu,link_speed,statistics"
# Fewer frames may be chance: a link that has just come up, or one that was just lost.
ENOUGH_FRAMES = 10
ENOUGH_ON_A_LAG = 10_000
_FLOW = re.compile(r" table=(\d+), n_packets=(\d+),.* priority=\d+(?:,(\S*))? actions=")
_MULTICAST = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"


def main(words: Sequence[str], json_wanted: bool) -> int:
    """Check bridges, or whether one is fit to attach. Returns the exit status."""
    try:
        answer = json.loads(client.request("check", [*words, "--json"]))
    except Refused as why:
        return answers.failed(str(why), UNKNOWN)
    for team in answer["bridges"]:
        answer["findings"] += [found.as_json() for found in _upstream(team)]
    well = not check.problems(answer)
    if json_wanted:
        print(json.dumps({"well": well, **answer}, indent=2))
    else:
        sys.stdout.write(terminal.written(check.lines(answer)))
    return WELL if well else FOUND


def _upstream(team: Mapping[str, Any]) -> list[Finding]:
    """What counters show of the network upstream of a bridge; nothing of a bridge of another host."""
    name = team["name"]
    if not team["uplinks"] or not (Path(ovs.dirs.RUNDIR) / f"{name}.mgmt").is_socket():
        return []
    ours = f"cookie={COOKIE_PREFIX:#x}/{COOKIE_PREFIX_MASK:#x}"
    try:
        dumped = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", name, ours)
        ports = _ports([uplink["name"] for uplink in team["uplinks"]])
    except Refused as why:
        return [Finding(NOTE, "upstream", f"counters of the network: not read: {why}", name)]
    return list(findings(team, ports, parse(dumped)))


def _ports(uplinks: Sequence[str]) -> dict[str, Port]:
    """The uplinks as the database has them."""
    listed = json.loads(
        run("ovs-vsctl", "--format=json", f"--columns={COLUMNS}", "list", "Interface", *uplinks)
    )
    return {row[0]: _port(*row[1:]) for row in listed["data"]}


def _port(mtu: object, speed_bps: object, statistics: Sequence[Any]) -> Port:
    counted = dict(statistics[1]).get("rx_packets")
    return Port(
        mtu if isinstance(mtu, int) else None,
        speed_bps if isinstance(speed_bps, int) else None,
        counted if isinstance(counted, int) else None,
    )


# ---- what counters show of the network -------------------------------------------------
#
# Without a LAG, what one port of a network broadcasts comes by every uplink, also what our own VMs
# broadcast by another one. On a LAG it comes by one member, and nothing comes back.


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
        exact = (re.fullmatch(r"(reg\d+)=(0x[0-9a-f]+|\d+)", word) for word in self.match)
        return {Register(m[1]): int(m[2], 0) for m in exact if m}


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
    # How many frames each uplink has flooded to us, without those of our own VMs.
    counted = [(f.registers.get(Register.UPLINK), f) for f in flows if f.table == Table.DELIVERY]
    came = {name: sum(f.packets for by, f in counted if by == no) for name, no in up.items()}
    if on_a_lag:
        found += _returned(team, flows, came)
    elif len(up) > 1:
        found += [*_never_returned(team, flows, came), *_vlans(up, flows)]
    for finding in found:
        yield replace(finding, bridge=str(team["name"]))


def _differences(ports: Mapping[str, Port], on_a_lag: bool) -> Iterator[Finding]:
    """Members that differ in what they should have in common."""
    mtus = {name: port.mtu for name, port in ports.items() if port.mtu}
    if len(set(mtus.values())) > 1:
        text = f"MTU of uplinks: {_each(mtus)} -> one MTU; larger frames are lost on some of them"
        yield Finding(WARNING, "mtu", text)
    speeds = {n: f"{p.speed_bps / 1e6:g} Mbit/s" for n, p in ports.items() if p.speed_bps}
    if len(set(speeds.values())) > 1:
        text = f"speed of uplinks: {_each(speeds)}"
        if on_a_lag:
            text += " -> one speed, which a LAG requires"
        yield Finding(WARNING if on_a_lag else NOTE, "speed", text)


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


def _returned(
    team: JsonObject, flows: Sequence[Counted], came: Mapping[str, int]
) -> Iterator[Finding]:
    """Uplinks that are configured as a LAG, and are separate ports upstream.

    On a LAG, only what the same address has flooded from here a moment ago is a frame of ours.
    """
    locked = (flow for flow in flows if flow.registers.get(Register.LOCKED) == 1)
    departures = (flow for flow in locked if flow.table == Table.DEPARTURE)
    count = sum(f.packets for f in departures if f.registers.get(Register.LOCAL) != 0)
    found = ""
    if count >= ENOUGH_FRAMES:
        found = f"{count} broadcasts of our own VMs came back by another member"
    elif team.get("teaming") == Teaming.STATIC and same_by_all(came):
        found = f"all members receive the same number of broadcasts ({_each(came)}), so each arrives twice"
    if found:
        change = _set_teaming(team, "switch-independent")
        separate = f"if the uplinks are separate ports there: {change}"
        yield Finding(WARNING, "no-lag", f"LAG: {found} -> one LAG upstream; {separate}")


def _set_teaming(team: JsonObject, teaming: str) -> str:
    return f"ovs-lbt set bridge {quoted(team['name'])} teaming={teaming}"


def _never_returned(
    team: JsonObject, flows: Sequence[Counted], came: Mapping[str, int]
) -> Iterator[Finding]:
    # Broadcasts of VMs that have left do not count: they pass another table.
    sent, came_back = (_multicasts(flows, table) for table in (Table.DESTINATION, Table.PRESENT))
    if sent < ENOUGH_FRAMES or came_back > 0:
        return
    text = f"of {sent} broadcasts of our VMs, none came back by another uplink"
    if same := same_by_all(came):
        text += ", but all receive the same broadcasts from other hosts: isolated ports upstream"
    elif max(came.values()) < ENOUGH_TO_COMPARE:
        text += " -> uplinks of one network; other hosts' broadcasts will show if they are a LAG"
    else:
        static = _set_teaming(team, "static")
        text += f" -> uplinks of one network; if they are a LAG upstream: {static}, or LACP"
    yield Finding(NOTE if same else WARNING, "not-one-network", text)


def _multicasts(flows: Sequence[Counted], table: Table) -> int:
    """The broadcasts of our own VMs that met this table."""
    return sum(f.packets for f in flows if f.table == table and _MULTICAST in f.match)


def _vlans(up: Mapping[str, int], flows: Sequence[Counted]) -> Iterator[Finding]:
    """VLANs in which some uplinks bring broadcasts, and others never do."""
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
                f"{f'VLAN {vlan}' if vlan else 'untagged frames'}: come by {', '.join(bring)}, never by"
                f" {', '.join(never)} -> the VLAN on every switch port of an uplink"
            )
            yield Finding(WARNING, "vlan", text)


def _each(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
