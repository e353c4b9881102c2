"""Whether path checks find faults where there are none: `make bench-quiet-paths`.

`python -m tests.switch.path_quiet_figures --out docs/results/paths/quiet.json`

Three cases, one after another, in which nothing is wrong with any uplink:

`storm`: a host upstream sends broadcasts as fast as it can, so that both switches are busy with nothing else;
and the same with a cable upstream that makes a loop, in which each broadcast goes round for ever.

`hosts`: many hosts with two or three uplinks each, and all switches upstream joined to one segment. Their
services, each with a key of its own, have some of the hosts each. The VMs and a host upstream talk to each
other. In the end, one uplink of one host is cut off, and only that host may find something.

`load`: shaped uplinks, full in both directions: a minute of TCP streams, a minute of more datagrams than
uplinks carry, and so on. Each of them begins with idle uplinks.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import documents
from tests.switch import datapath, frames, iperf
from tests.switch.bed import PLAIN, Bed, BedSpec, Upstream, run
from tests.switch.bench import (
    RECEIVED,
    RECEIVED_BYTES,
    SENT_BYTES,
    Bench,
    Run,
    counters,
)
from tests.switch.path_faults import Talk, blocked, checking, faults, found_after_s, told_faults
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream, inside
from topologies.network.private_ovs import PrivateOvs

STORM, LOOP, HOSTS, LOAD = "storm", "loop", "hosts", "load"
CASES = (STORM, LOOP, HOSTS, LOAD)
TITLES = {
    STORM: "a storm of broadcasts",
    LOOP: "a loop",
    HOSTS: "many hosts on one segment",
    LOAD: "all uplinks full",
}
SECONDS = {STORM: 60.0, LOOP: 60.0, HOSTS: 600.0, LOAD: 3600.0}
MANY_HOSTS, SERVICES = 32, 4
# More than Python can send, and what comes of it at least.
STORM_PPS, STORM_LEAST_PPS = 1e6, 2000
# VMs of many hosts talk so that all of it is little for the machine.
TALK_PPS = 2.0
TALK_END_S = 5.0
# What an uplink of the case `load` carries, what is sent, and for how long each kind of load lasts.
CAPACITY_MBPS, OVERLOAD_RATIO, PHASE_S = 4.0, 1.6, 60.0
# Its queue has room for 0.1 s, as that of a switch port.
QUEUE_FRAMES = 33
# What a busy machine had no time to send is sent afterwards.
BURST_BYTES = 50_000
TCP, DATAGRAMS = "TCP", "datagrams"
KINDS = (TCP, DATAGRAMS)
OF_STORM = BedSpec(PLAIN, 3, (None, None), addresses=True)
OF_LOAD = BedSpec(PLAIN, 3, (None, None, None), (None, None, None), addresses=True)
FULL_FRAME_BYTES = 1514
TCP_STREAMS = 4
# Uplinks are idle that long before a kind of load begins.
IDLE_S = 2.0
# A fault that has begun is found within this time, and what follows from it would be seen.
AFTER_S = 4.0
# Where the figures are told.
PUBLISHED, PAGE = (
    documents.ROOT / "docs/results/paths/quiet.json",
    documents.ROOT / "docs/reliability/path-checks.md",
)
BEGIN, END = "<!-- quiet: begin -->", "<!-- quiet: end -->"
SOURCE = (
    "*Source:* [`results/paths/quiet.json`](../results/paths/quiet.json); `make bench-quiet-paths`."
)
HEAD = (
    *("case", "hosts", "uplinks", "minutes", "rounds judged", "void", "probes sent", "lost"),
    *("lost on a full uplink", "faults found", "load average"),
)
# What is counted is written so often.
PART_S = 300.0
COUNTED = re.compile(r'ovslbt_path_(rounds|frames)_total\{.*result="(\w+)"')


class Host:
    """Some hosts: their bridges are on one Open vSwitch in a network of its own, with one service."""

    def __init__(self, number: int, tor: Upstream) -> None:
        self._netns = f"q{os.getpid() & 0xFFFFF:05x}{number:x}"
        self._tor = tor
        self._running = contextlib.ExitStack()
        self.beds: list[Bed] = []

    def __enter__(self) -> Host:
        with contextlib.ExitStack() as building:
            run("ip", "netns", "add", self._netns)
            building.callback(run, "ip", "netns", "del", self._netns)
            with self.entered():
                run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
                run("ip", "link", "set", "lo", "up")
                self.ovs = building.enter_context(PrivateOvs(prefix="ovs-lbt-quiet-"))
                self.service = Service(self.ovs)
                building.callback(self.service.kill)
                self.service.start()
            self._running = building.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self.entered():
            self._running.close()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and what it starts, is in these hosts' network."""
        with inside(self._netns):
            yield

    def add(self, spec: BedSpec) -> Bed:
        """One more host."""
        with self.entered():
            bed = self._running.enter_context(Bed(self.ovs, self._tor, spec))
            self.beds.append(bed)
            bed.set("bridge", bed.bridge, failback_delay_s=1)
            self.service.attach(bed, "--policy", "originating-port")
        return bed


def main() -> int:
    """Run the cases, and write what was found. Runs are added to those that the file has.

    The result is 1 if path checks found a fault where none was, or not the one that was.
    """
    bench = Bench("path_quiet_figures", __doc__, "out/paths/quiet.json", adds=True)
    add = bench.parser.add_argument
    add("--cases", nargs="+", choices=CASES, default=CASES)
    add("--seconds", type=float, help="of each case")
    add("--hosts", type=int, default=MANY_HOSTS, help="of the case `hosts`")
    told = "put what these files have together in docs/results, and its table in docs/reliability/path-checks.md"
    add("--publish", type=Path, nargs="+", metavar="FILE", help=told)
    options, made = bench.options, list[Run]()
    if options.publish:
        publish([json.loads(path.read_text()) for path in options.publish])
        return 0
    with bench.begun() as tor:
        for case in options.cases:
            left_s = options.seconds or SECONDS[case]
            with bed_of(case, tor, options.hosts) as watch:
                for part in range(math.ceil(left_s / PART_S)):
                    seconds = min(PART_S, left_s - part * PART_S)
                    made.append(bench.run({"case": case, "part": part}, watch, seconds))
    print(table(bench.runs))
    return 1 if any(one["findings"] or not found_alone(one) for one in made) else 0


@contextlib.contextmanager
def bed_of(case: str, tor: Upstream, hosts: int = MANY_HOSTS) -> Iterator[Callable[[float], Run]]:
    """What runs a case for some seconds, on a bed that stays for all of its runs."""
    if case == HOSTS:
        with segment(tor, hosts, SERVICES) as many:
            yield lambda seconds: many_hosts_and_faults(many, seconds)
        return
    spec = OF_LOAD if case == LOAD else OF_STORM
    with Host(0, tor) as host:
        bed = host.add(spec)
        with host.entered(), checking(host.service, bed, bed.hosts[0].ip):
            if case == LOAD:
                fill(host, bed)
                yield lambda seconds: full_load(
                    host, bed, seconds, min(PHASE_S, seconds / len(KINDS))
                )
            else:
                yield lambda seconds: storm(host, bed, seconds, loops=case == LOOP)


def watched(case: str, hosts: Sequence[Host], during: Callable[[], Run]) -> Run:
    """What path checks count and find meanwhile, and until all that has followed would be seen.

    `rounds`, `frames`: as the metrics `path_rounds_total` and `path_frames_total` have them, by result.
    `findings`: what the history says of faults. `more`: what only one case has.
    """
    before, began_at, began_s = counted(hosts), time.time(), time.monotonic()
    more = during()
    time.sleep(AFTER_S)
    beds = [bed for host in hosts for bed in host.beds]
    now = counted(hosts)
    found: Run = {"case": case, "hosts": len(beds), "uplinks": sum(len(b.uplinks) for b in beds)}
    found |= {"seconds": round(time.monotonic() - began_s, 1), "rounds": {}, "frames": {}}
    for of, result in now:
        found[of][result] = now[of, result] - before[of, result]
    told = [one["why"] for host in hosts for one in told_faults(host.ovs, began_at)]
    return found | {"findings": told, "more": more}


def counted(hosts: Sequence[Host]) -> Counter[tuple[str, str]]:
    """The rounds and frames of all path checks, by result."""
    found = Counter[tuple[str, str]]()
    for host in hosts:
        with host.entered():
            samples = host.service.metrics()
        for name, value in samples.items():
            if of := COUNTED.match(name):
                found[of[1], of[2]] += int(value)
    assert found, "no path checks are counted"
    return found


# ---- storm -------------------------------------------------------------------------------


def storm(host: Host, bed: Bed, seconds: float, loops: bool) -> Run:
    """Broadcasts keep both switches busy. `loops`: they go round, instead of being sent."""

    def during() -> Run:
        vm, sender = bed.vms[0], bed.hosts[0]
        before = received([vm.point.interface], vm.point.netns)
        of_uplinks = received([uplink.name for uplink in bed.uplinks])
        with contextlib.ExitStack() as stack:
            if loops:
                stack.enter_context(loop(bed))
                bed.introduce()
            else:
                frame = frames.broadcast(sender.mac, 0, 0)
                flows = [(sender.point, frame)]
                stack.enter_context(Stream(flows, STORM_PPS, catch_up_s=0.0))
            time.sleep(seconds)
        to_vm = received([vm.point.interface], vm.point.netns) - before
        by_uplinks = received([uplink.name for uplink in bed.uplinks]) - of_uplinks
        assert by_uplinks > STORM_LEAST_PPS * seconds * len(bed.uplinks), "that was no storm"
        return {
            "per_s_by_each_uplink": round(by_uplinks / len(bed.uplinks) / seconds),
            "per_s_to_a_vm": round(to_vm / seconds),
        }

    return watched(LOOP if loops else STORM, [host], during)


@contextlib.contextmanager
def loop(bed: Bed) -> Iterator[None]:
    """A cable joins two ports of the switch upstream in this block."""
    ends, netns, ovs = (f"{bed.prefix}l0", f"{bed.prefix}l1"), bed.tor.netns, bed.tor.ovs
    lines = [f"link add {ends[0]} type veth peer {ends[1]}", *(f"link set {e} up" for e in ends)]
    run("ip", "-n", netns, "-batch", "-", stdin="\n".join(lines))
    try:
        words = [word for end in ends for word in ("--", "add-port", bed.upstream, end)]
        ovs.vsctl(*words[1:])
        yield
    finally:
        run("ip", "-n", netns, "link", "del", ends[0])
        for end in ends:
            ovs.vsctl("--if-exists", "del-port", bed.upstream, end)


def received(interfaces: Sequence[str], netns: str | None = None) -> int:
    """How many frames interfaces have received."""
    now = counters(netns)
    return sum(now[name][RECEIVED] for name in interfaces)


# ---- many hosts --------------------------------------------------------------------------


@contextlib.contextmanager
def segment(tor: Upstream, count: int, services: int) -> Iterator[list[Host]]:
    """So many hosts on one segment, with two or three uplinks each, which probe each other.

    Each asks the first one's host upstream, too.
    """
    name = f"q{os.getpid() & 0xFFFFF:05x}seg"
    with contextlib.ExitStack() as stack:
        tor.ovs.vsctl("add-br", name, "--", "set", "bridge", name, datapath.SETTING)
        stack.callback(tor.ovs.vsctl, "--if-exists", "del-br", name)
        hosts = [stack.enter_context(Host(number, tor)) for number in range(services)]
        for number in range(count):
            first = number == 0
            spec = BedSpec(PLAIN, 2 + number % 2, (None,), (None,) * first, addresses=first)
            bed = hosts[number % services].add(spec)
            join(tor, name, bed)
        asked = hosts[0].beds[0].hosts[0].ip
        for host in hosts:
            for bed in host.beds:
                with host.entered():
                    bed.introduce()
                stack.enter_context(checking(host.service, bed, asked))
        yield hosts


def join(tor: Upstream, segment_name: str, bed: Bed) -> None:
    """Join the switch upstream of a host to the segment."""
    patches = (f"{bed.prefix}sg", f"{bed.prefix}gs")
    for bridge, patch, peer in (
        (segment_name, *patches),
        (bed.upstream, *reversed(patches)),
    ):
        setting = ["--", "set", "interface", patch, "type=patch", f"options:peer={peer}"]
        tor.ovs.vsctl("add-port", bridge, patch, *setting)


def many_hosts(hosts: Sequence[Host], seconds: float, pps: float = TALK_PPS) -> Run:
    """All VMs talk to a host upstream."""
    beds = [bed for host in hosts for bed in host.beds]

    def during() -> Run:
        with Talk([bed.vms[0] for bed in beds], beds[0].hosts[0], pps) as talk:
            talk.go_on(seconds)
            talk.stop()
        silent = talk.silent(min(TALK_END_S, seconds))
        return {"sent": talk.sent, "lost": sum(map(len, talk.lost_at)), "silent": silent}

    return watched(HOSTS, hosts, during)


def many_hosts_and_faults(hosts: Sequence[Host], seconds: float) -> Run:
    """The same; then an uplink of a host with two is cut off, and one of a host with three."""
    quiet = many_hosts(hosts, seconds)
    last = quiet["hosts"] - 1
    quiet["more"]["faults"] = [one_fault(hosts, number) for number in (last - 1, last)]
    return quiet


def one_fault(hosts: Sequence[Host], number: int) -> Run:
    """Cut off an uplink of one host: who finds what."""
    host = hosts[number % len(hosts)]
    bed = host.beds[number // len(hosts)]
    uplink, began_at = bed.uplinks[-1], time.time()
    with blocked(bed, uplink, "receive", "forward"):
        expected = (uplink.name, "unreachable", True, None)
        took_s = found_after_s(host.service, bed, expected)
        time.sleep(AFTER_S)
        told = [one for other in hosts for one in told_faults(other.ovs, began_at)]
    wait_until(lambda: not faults(host.service, bed), "the fault is over")
    others = sorted({one["bridge"] for one in told} - {bed.bridge})
    return {
        "uplinks": len(bed.uplinks),
        "found_after_s": round(took_s, 2),
        "found_elsewhere": others,
    }


def found_alone(one: Run) -> bool:
    """Whether real faults were found where they were, and nowhere else, and every VM was reached."""
    alone = not any(fault["found_elsewhere"] for fault in one["more"].get("faults", ()))
    return alone and not one["more"].get("silent")


# ---- full load ---------------------------------------------------------------------------


def fill(host: Host, bed: Bed) -> None:
    """Each VM has an uplink of its own, which carries little."""
    host.service.place(bed, *range(len(bed.uplinks)))
    for uplink in bed.uplinks:
        for interface, netns in (
            (uplink.name, None),
            (uplink.upstream_end.interface, uplink.upstream_end.netns),
        ):
            run("ip", "link", "set", interface, "txqueuelen", str(QUEUE_FRAMES), netns=netns)
    bed.limit_uplinks(CAPACITY_MBPS, BURST_BYTES)


def full_load(host: Host, bed: Bed, seconds: float, phase_s: float) -> Run:
    """All uplinks are full in both directions, by one kind of load after another."""

    def during() -> Run:
        end_s, phases = time.monotonic() + seconds, list[Run]()
        for kind in itertools.cycle(KINDS):
            if time.monotonic() >= end_s:
                return {"phases": phases}
            time.sleep(IDLE_S)
            before = carried_bytes(bed)
            began_s = time.monotonic()
            (streams if kind == TCP else overload)(bed, phase_s)
            took_s, now = time.monotonic() - began_s, carried_bytes(bed)
            of = CAPACITY_MBPS * 1e6 / 8 * took_s
            ratios = [round((b - a) / of, 3) for a, b in zip(before, now, strict=True)]
            phases.append({"kind": kind, "carried_ratios": ratios})
        return {}

    return watched(LOAD, [host], during)


def streams(bed: Bed, seconds: float) -> None:
    """TCP streams between each VM and a host of its own, in both directions."""
    with contextlib.ExitStack() as stack:
        pairs = list(zip(bed.vms, bed.hosts, strict=True))
        for _, host in pairs:
            stack.enter_context(iperf.server(host))
        options = ("--bidir", "--parallel", str(TCP_STREAMS))
        clients = [
            stack.enter_context(iperf.client(vm, host, round(seconds), *options))
            for vm, host in pairs
        ]
        for one in clients:
            iperf.end(one, round(seconds))


def overload(bed: Bed, seconds: float) -> None:
    """More datagrams between each VM and a host of its own than uplinks carry, in both directions."""
    ways = [
        w for vm, host in zip(bed.vms, bed.hosts, strict=True) for w in ((vm, host), (host, vm))
    ]
    flows = [(a.point, frames.udp(a.mac, b.mac, frame_bytes=FULL_FRAME_BYTES)) for a, b in ways]
    pps = OVERLOAD_RATIO * CAPACITY_MBPS * 1e6 / (8 * FULL_FRAME_BYTES)
    with Stream(flows, pps):
        time.sleep(seconds)


def carried_bytes(bed: Bed) -> list[int]:
    """What each uplink has sent and received."""
    now = counters()
    return [now[u.name][way] for u in bed.uplinks for way in (SENT_BYTES, RECEIVED_BYTES)]


# ---- what it comes to --------------------------------------------------------------------


def publish(reports: Sequence[Mapping[str, Any]]) -> None:
    """Write the reports as one of docs/results, and the table of docs/reliability/path-checks.md."""
    whole = {of: [one for report in reports for one in report[of]] for of in ("origins", "runs")}
    PUBLISHED.write_text(json.dumps(whole, indent=1) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), whole["runs"]))


def with_table(text: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """The text with the table of these runs between its marks."""
    return documents.with_made(text, BEGIN, END, f"\n{table(runs)}\n\n{SOURCE}\n")


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """All runs of each case together, as a table in Markdown."""
    rows = []
    for case in CASES:
        of = [one for one in runs if one["case"] == case]
        if not of:
            continue
        rounds, sent = summed(of, "rounds"), summed(of, "frames")
        loads = [one["load_average"] for one in of]
        row = (
            TITLES[case],
            of[0]["hosts"],
            of[0]["uplinks"],
            round(sum(one["seconds"] for one in of) / 60),
            rounds["judged"],
            rounds["void"],
            sum(sent.values()),
            sent["lost"],
            sent["full"],
            sum(len(one["findings"]) for one in of),
            f"{min(loads):.1f} to {max(loads):.1f}",
        )
        rows.append(row)
    head, *lines = (f"| {' | '.join(map(str, cells))} |" for cells in (HEAD, *rows))
    return "\n".join([head, f"|---|{'---:|' * (len(HEAD) - 1)}", *lines])


def summed(runs: Sequence[Mapping[str, Any]], of: str) -> Counter[str]:
    """What was counted in all of these runs, by result."""
    return sum((Counter(one[of]) for one in runs), Counter[str]())


if __name__ == "__main__":
    sys.exit(main())
