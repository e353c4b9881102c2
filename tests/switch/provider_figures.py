"""Loads that jump among VMs of OVN behind one patch port: what each contender makes of them.

`python -m tests.switch.provider_figures --out docs/results/ovn/provider.json`

Three of six VMs of a VLAN send 30 Mbit/s and three 5, over two uplinks of 100. Each jump makes those
busy that leave by one uplink, so that it has 90 Mbit/s and more, and the other one 15 or less. At first
each uplink has three. Meanwhile the tenant's VMs ping the outside, through the router and from a
floating IP: addresses that are nearly idle, and have no reason to move.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import share
from tests.switch import frames
from tests.switch.bed import run
from tests.switch.bench import RECEIVED, SENT_BYTES, Bench, Run, Shown, counters, table
from tests.switch.ovn.host import EXTERNAL, UPLINKS, Host, Vm
from tests.switch.ovn.provider import FLOATING_IP, VLAN, Place, provider
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

VMS, UPLINK_MBPS, HOT_MBPS, COLD_MBPS = 6, 100, 30, 5
FLOW_PPS, MTU_BYTES = 1000, 9000
PHASES, PHASE_S, LOOKS_EVERY_S, RATE_OVER_S = 4, 12.0, 0.1, 1.0
# Three and three are 60 and 45 Mbit/s at best; all that is above this is not relieved.
RELIEVED_RATIO = 0.75
# The end of a phase, in which nothing should change any more.
END_S = 5.0
PINGS_PER_S = 5
REPEAT = 5
OF_PHASES: dict[str, Shown] = {
    "fullest at the end, %": lambda one: 100 * max(one["uplinks_at_end"].values()),
    "relieved after, s": "relieved_after_s",
    "relieved": lambda one: "relieved" if one["relieved"] else "not relieved",
    "lost, %": lambda one: 100 * one["lost_frames"] / one["sent_frames"],
}
OF_RUNS: dict[str, Shown] = {
    "moves": "moves",
    "moves of idle": lambda one: len(one.get("moves_of_idle", ())),
    "pings lost": lambda one: sum(one["pings_lost"].values()),
}


@dataclass(frozen=True, slots=True)
class Contender:
    """`bond`: the interval at which Open vSwitch's bond rebalances. `policy`: one of ours, with keys."""

    name: str
    bond_interval_s: int | None = None
    policy: tuple[str, ...] = ()


CONTENDERS = (
    Contender("balance-slb", bond_interval_s=10),
    Contender("balance-slb, every 1 s", bond_interval_s=1),
    Contender("load-based, window-s=2", policy=("policy=load-based", "window-s=2")),
    Contender("adaptive", policy=("policy=adaptive",)),
    Contender("load-based", policy=("policy=load-based",)),
)


def main() -> int:
    """Measure, and write what was found. Runs are added to those that the file has."""
    bench = Bench("provider_figures", __doc__, "out/ovn/provider.json", REPEAT, adds=True)
    bench.tell = lambda run: print(_tables([run]), flush=True)
    add = bench.parser.add_argument
    add("--contenders", type=int, nargs="+", default=[0, 1, 2, 3], help="by number")
    add("--phase-s", type=float, default=PHASE_S, help=f"({PHASE_S:g})")
    options = bench.options
    with bench.begun() as tor, provider(tor, VMS) as place:
        _prepare(place)
        for repetition in range(options.repeat):
            for one in (CONTENDERS[number] for number in options.contenders):
                case = {"contender": one.name, "repetition": repetition}
                bench.run(case, _measure, place, one, options.phase_s)
    print(_tables(bench.runs))
    return 0


def _prepare(place: Place) -> None:
    """Frames are large, so that few are enough."""
    host, outside = place.host, place.outside()
    host.start_service()
    host.limit_uplinks(UPLINK_MBPS)
    for ovs in (host.ovs, host.tor.ovs):
        share.give(ovs.pid("ovs-vswitchd"))
    devices = [(host.name, name) for name in UPLINKS]
    devices += [(host.tor.netns, uplink.upstream_end.interface) for uplink in host.uplinks]
    for vm in place.vlan.vms:
        devices += [(host.name, vm.port), (vm.name, "eth0")]
    devices += [(host.tor.netns, outside.port), (outside.name, "eth0")]
    for netns, device in devices:
        run("ip", "-n", netns, "link", "set", device, "mtu", str(MTU_BYTES))


def _measure(place: Place, contender: Contender, phase_s: float) -> dict[str, Any]:
    """One run from the start at which all that will be busy leaves by the first uplink."""
    host, vms = place.host, place.vlan.vms
    hot, cold = vms[::2], vms[1::2]
    with _attached(place, contender):
        _introduce(place)
        _start(place, contender, hot, cold)
        begun, log_bytes = time.time(), _vswitchd_log(host).stat().st_size
        pings = [
            _ping(vm.name, place.external)
            for vm in (*place.tenant.vms, place.external.outside)
            if vm
        ]
        phases = []
        for number in range(PHASES):
            busy = _on_one_uplink(place, contender, number)
            phases.append(_phase(place, busy, phase_s))
        lost = [_lost(ping) for ping in pings]
        names = ("floating IP, out", "router, out", "floating IP, in")
        made: Run = {"phases": phases, "pings_lost": dict(zip(names, lost, strict=True))}
        if contender.policy:
            return made | _decisions(place, begun)
        with _vswitchd_log(host).open("rb") as log:
            log.seek(log_bytes)
            return made | {"moves": len(re.findall(rb"bond bond0: shift", log.read()))}


@contextlib.contextmanager
def _attached(place: Place, contender: Contender) -> Iterator[None]:
    host = place.host
    if contender.bond_interval_s is not None:
        key = f"other_config:bond-rebalance-interval={1000 * contender.bond_interval_s}"
        host.ovs.vsctl("set", "port", "bond0", key)
        yield
        return
    place.attach()
    try:
        host.do("set", "bridge", EXTERNAL, *contender.policy)
        yield
    finally:
        host.do("detach", EXTERNAL)


def _introduce(place: Place) -> None:
    """Everybody speaks: all addresses are known, here and upstream."""
    host = place.host
    with _sending(place, dict.fromkeys(map(str, place.vlan.vms), 0.05), 20):
        if host.ovs.vsctl("--if-exists", "get", "bridge", EXTERNAL, "external_ids:ovs-lbt-policy"):
            wait_until(place.all_known, "all addresses are known")
        else:
            time.sleep(1.0)


def _start(place: Place, contender: Contender, hot: Sequence[Vm], cold: Sequence[Vm]) -> None:
    host = place.host
    for uplink, those in zip(UPLINKS, (hot, cold), strict=True):
        for vm in those:
            if contender.policy:
                host.do("move", f"{place.patch}/{vm.mac}%{VLAN}", uplink)
            else:
                number = host.ovs.run("ovs-appctl", "bond/hash", vm.mac, str(VLAN)).strip()
                host.ovs.run("ovs-appctl", "bond/migrate", "bond0", number, uplink)


def _on_one_uplink(place: Place, contender: Contender, number: int) -> list[Vm]:
    """Three VMs of the uplink that most leave by; the uplinks take turns if it is half of them."""
    used = place.uplinks() if contender.policy else _by_bond(place)
    there = {name: [vm for vm in place.vlan.vms if used[vm.mac] == name] for name in UPLINKS}
    turn = UPLINKS[number % 2]
    fullest = max(UPLINKS, key=lambda name: (len(there[name]), name == turn))
    return there[fullest][: VMS // 2]


def _by_bond(place: Place) -> dict[str, str]:
    """The member that the bond has for each VM."""
    host, member = place.host, ""
    found: dict[str, str] = {}
    hashes = {
        host.ovs.run("ovs-appctl", "bond/hash", vm.mac, str(VLAN)).strip(): vm.mac
        for vm in place.vlan.vms
    }
    for line in host.ovs.run("ovs-appctl", "bond/show", "bond0").splitlines():
        if begins := re.match(r"(?:member|slave) (\w+):", line):
            member = begins[1]
        elif entry := re.match(r"\s*hash (\d+):", line):
            found[hashes.get(entry[1], "")] = member
    return found


def _phase(place: Place, busy: Sequence[Vm], phase_s: float) -> dict[str, Any]:
    """The busy ones send 30 Mbit/s and the others 5, all to the outside."""
    host, outside = place.host, place.outside()
    mbps = {str(vm): float(HOT_MBPS if vm in busy else COLD_MBPS) for vm in place.vlan.vms}
    before = _received(outside)
    looks: list[tuple[float, dict[str, int]]] = []
    with _sending(place, mbps, FLOW_PPS) as stream:
        begun_s = time.monotonic()
        while (passed_s := time.monotonic() - begun_s) < phase_s:
            now = counters(host.name)
            looks.append((passed_s, {name: now[name][SENT_BYTES] for name in UPLINKS}))
            time.sleep(LOOKS_EVERY_S)
        sent = stream.stop()
    wait_until(lambda: _is_quiet(outside), "the last frame has come")
    sent_frames = sent.count * len(mbps) - sum(sent.refused)
    rates = _rates(looks)
    above = [at for at, of in rates if max(of.values()) > RELIEVED_RATIO]
    at_end = [of for at, of in rates if at > phase_s - END_S]
    return {
        "busy": [str(vm) for vm in busy],
        "sent_frames": sent_frames,
        "sender_late_s": round(sent.latest_s, 3),
        "lost_frames": max(0, sent_frames - (_received(outside) - before)),
        # The first rate is over the first second: a jump is above from the beginning.
        "relieved_after_s": round(above[-1], 2) if above else 0.0,
        "relieved": not any(max(of.values()) > RELIEVED_RATIO for of in at_end),
        "uplinks_at_end": {
            name: round(statistics.mean(of[name] for of in at_end), 3) for name in UPLINKS
        },
        "utilization": [
            [round(at, 1), *(round(of[name], 3) for name in UPLINKS)] for at, of in rates
        ][::5],
    }


def _sending(place: Place, mbps: dict[str, float], pps: float) -> Stream:
    outside = place.outside()
    flows = []
    for vm in place.vlan.vms:
        size = max(60, round(mbps[str(vm)] * 1e6 / 8 / pps))
        frame = frames.udp(
            vm.mac, outside.mac, source_ip=vm.ip, destination_ip=outside.ip, frame_bytes=size
        )
        flows.append((vm.point, frame))
    return Stream(flows, pps)


# ---- what is read ------------------------------------------------------------------------


def _received(vm: Vm) -> int:
    return counters(vm.name)["eth0"][RECEIVED]


def _is_quiet(vm: Vm) -> bool:
    before = _received(vm)
    time.sleep(0.2)
    return _received(vm) - before <= 1


def _rates(looks: Sequence[tuple[float, dict[str, int]]]) -> list[tuple[float, dict[str, float]]]:
    """Each uplink's load over the last second, as a share of its capacity."""
    found, first = [], 0
    for at, bytes_ in looks:
        while looks[first + 1][0] <= at - RATE_OVER_S and first + 1 < len(looks):
            first += 1
        since, then = looks[first]
        if at - since < RATE_OVER_S / 2:
            continue
        bps = UPLINK_MBPS * 1e6 * (at - since)
        found.append((at, {name: 8 * (bytes_[name] - then[name]) / bps for name in UPLINKS}))
    return found


def _ping(netns: str, network: Any) -> subprocess.Popen[str]:
    outside = network.outside
    to = FLOATING_IP if netns == outside.name else outside.ip
    return subprocess.Popen(
        ["ip", "netns", "exec", netns, "ping", "-q", "-i", str(1 / PINGS_PER_S), to],
        stdout=subprocess.PIPE,
        text=True,
    )


def _lost(ping: subprocess.Popen[str]) -> int:
    """Pings without an answer; the one on its way does not count."""
    ping.send_signal(2)
    said, _ = ping.communicate(timeout=30)
    numbers = re.search(r"(\d+) packets transmitted, (\d+) received", said)
    assert numbers, said
    return max(0, int(numbers[1]) - int(numbers[2]) - 1)


def _vswitchd_log(host: Host) -> Path:
    return host.ovs.rundir / "ovs-vswitchd.log"


def _decisions(place: Place, begun: float) -> dict[str, Any]:
    """What the history says since: the moves, which of them are of idle addresses, and its words."""
    host, asked = place.host, ("history", EXTERNAL, "--last", "1000")
    moves = []
    for entry in map(json.loads, host.do(*asked, "--json").splitlines()):
        if entry["event"] == "moved" and entry["at"] >= begun:
            moves += entry.get("moves", ())
    busy = {vm.mac for vm in place.vlan.vms}
    idle = [one for one in moves if not any(mac in one.get("port", "") for mac in busy)]
    words = host.do(*asked).splitlines()
    return {"moves": len(moves), "moves_of_idle": idle, "all_moves": moves, "history": words}


# ---- what it comes to --------------------------------------------------------------------


def _tables(runs: list[Run]) -> str:
    """Medians and ranges over the runs, and over their phases."""
    phases = [{**one, **phase} for one in runs for phase in one["phases"]]
    return "\n\n".join(
        (table(phases, ("contender",), OF_PHASES), table(runs, ("contender",), OF_RUNS))
    )


if __name__ == "__main__":
    sys.exit(main())
