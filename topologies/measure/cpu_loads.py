"""A load that is the same for every contender, and the counters and CPU times of switch and service."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topologies.graph.layout import Role
from topologies.graph.ports import upstream_interface
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.programs import Programs
from topologies.loads.shift_load import datagrams
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow
from topologies.network import processes
from topologies.network.interface_counters import interface_counters
from topologies.network.private_ovs import PrivateOvs

# One line of `coverage/show`: an event, its rates, and how often it happened since the start.
_EVENT = re.compile(r"^(?P<name>\w+)\s.*\stotal: (?P<total>\d+)$", re.MULTILINE)
# One line of `dpif-netdev/pmd-stats-show`; a share in parentheses may follow.
_STATISTIC = re.compile(r"^\s+(?P<name>[\w .\-]+): (?P<value>[\d.]+)(?: \(.*\))?$", re.MULTILINE)
# The kernel cuts names of threads off.
_NAME = re.compile(r"^(revalidator|handler|urcu|pmd|dpdk_watchdog)")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class SwitchCounters:
    """One reading of counters, all of which only grow.

    Attributes:
        cpu_s: the CPU time of each kind of thread; `main` forwards on the userspace datapath.
        sleeps: how often the main thread has waited for work.
        packets: packets by the main thread's action, under Open vSwitch's names.
        events: events under Open vSwitch's names.
    """

    cpu_s: Mapping[str, float]
    sleeps: int
    packets: Mapping[str, float]
    events: Mapping[str, int]


def read(ovs: PrivateOvs) -> SwitchCounters:
    """The counters of a running switch."""
    pid = ovs.pid("ovs-vswitchd")
    return SwitchCounters(
        cpu_s=threads_cpu_s(pid),
        sleeps=_sleeps(pid),
        packets=main_thread(ovs.run("ovs-appctl", "dpif-netdev/pmd-stats-show")),
        events=events(ovs.run("ovs-appctl", "coverage/show")),
    )


def events(shown: str) -> dict[str, int]:
    """The number of each event, from the output of `coverage/show`."""
    return {found["name"]: int(found["total"]) for found in _EVENT.finditer(shown)}


def main_thread(shown: str) -> dict[str, float]:
    """Packets by the main thread's action, from the output of `dpif-netdev/pmd-stats-show`.

    Means of two readings cannot be subtracted, so `subtable lookups` is the number of all look-ups
    instead of the mean number for each hit.
    """
    _, _, of_main = shown.partition("main thread:")
    of_main = re.split(r"^\S", of_main, maxsplit=1, flags=re.MULTILINE)[0]
    counted = {
        found["name"].strip(): float(found["value"]) for found in _STATISTIC.finditer(of_main)
    }
    means = {name: counted.pop(name) for name in list(counted) if name.startswith("avg.")}
    each = means.get("avg. subtable lookups per megaflow hit", 0.0)
    return {**counted, "subtable lookups": each * counted.get("megaflow hits", 0.0)}


def threads_cpu_s(pid: int) -> dict[str, float]:
    """The CPU time of a switch by kind of thread: `main`, `revalidator`, `handler` and others."""
    found: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            before, _, after = (task / "stat").read_text().rpartition(")")
            fields, name = after.split(), before.partition("(")[2]
            kind = "main" if int(task.name) == pid else "other"
            if kind == "other" and (known := _NAME.match(name)):
                kind = known[1]
            used_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
            found[kind] = found.get(kind, 0.0) + used_s
    return found


def difference(before: SwitchCounters, after: SwitchCounters) -> SwitchCounters:
    """The differences between two readings; events that did not happen are absent."""
    return SwitchCounters(
        cpu_s={kind: after.cpu_s[kind] - before.cpu_s.get(kind, 0.0) for kind in after.cpu_s},
        sleeps=after.sleeps - before.sleeps,
        packets={n: after.packets[n] - before.packets.get(n, 0.0) for n in after.packets},
        events={
            name: more
            for name, total in after.events.items()
            if (more := total - before.events.get(name, 0))
        },
    )


def _sleeps(pid: int) -> int:
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    (found,) = re.findall(r"^voluntary_ctxt_switches:\s*(\d+)$", status, flags=re.MULTILINE)
    return int(found)


UDP, TCP = "udp", "tcp"
# Together 80 of 200 Mbit/s: no queue fills, whatever the placement is.
UDP_VM_BPS = 10e6
# From the beginning of a load until it is measured: switches have cached its flows, TCP is at its rate.
LEAD_S = 2.0
READY_S = 1.0
END_TIMEOUT_S = 10.0


class MeasuredLoads(Load):
    """UDP at a fixed rate, then TCP as fast as links allow, from every VM to a client.

    `begin` is called just before. `pids`: the programs whose CPU time counts in addition to the switch's.
    `profile`: the directory for `perf` profiles of the switch, which make its CPU time unusable.
    """

    def __init__(
        self,
        stage: Stage,
        kinds: tuple[str, ...],
        span_s: float,
        begin: Callable[[], None],
        pids: Callable[[], Mapping[str, int]],
        profile: Path | None = None,
    ) -> None:
        self._stage = stage
        self._span_s = span_s
        self._begin = begin
        self._pids = pids
        self._profile = profile
        self._each_s = READY_S + LEAD_S + span_s + 1.0
        self.load_s = len(kinds) * self._each_s
        self.measured_s = self.steady_s = (0.0, self.load_s)
        self._kinds = kinds
        self._found: dict[str, dict[str, Any]] = {}
        self._failure = ""
        self._thread: threading.Thread | None = None
        self._programs = Programs(stage.directory, "datagrams")
        self._streams: list[StreamLoad] = []

    def start(self) -> None:
        """Place the VMs alike, and begin."""
        layout = self._stage.layout
        uplinks = layout.nodes(Role.UPLINK)
        for number, vm in enumerate(layout.nodes(Role.VM)):
            self._stage.place(vm, uplinks[number % len(uplinks)])
        self._begin()
        self.start_s = time.monotonic() + 0.5
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> Outcome:
        """Wait for the end; `details` has the measurements of each kind of load."""
        assert self._thread is not None
        self._thread.join()
        if self._failure:
            raise RuntimeError(self._failure)
        bits = sum(one["delivered_bits"] for one in self._found.values())
        return Outcome(
            received_bytes=int(bits / 8),
            throughput_bps=bits / (len(self._found) * self._span_s),
            details=self._found,
        )

    def close(self) -> None:
        """End everything."""
        self._programs.close()
        for streams in self._streams:
            streams.close()

    def _run(self) -> None:
        begin = {UDP: self._datagrams, TCP: self._connections}
        try:
            for number, kind in enumerate(self._kinds):
                begin_s = self.start_s + number * self._each_s
                time.sleep(max(0.0, begin_s - time.monotonic()))
                begin[kind]()
                time.sleep(max(0.0, begin_s + READY_S + LEAD_S - time.monotonic()))
                self._found[kind] = self._measure(kind)
                self.close()
        except (RuntimeError, OSError, subprocess.SubprocessError) as failure:
            self._failure = f"measuring: {failure}"

    def _measure(self, kind: str) -> dict[str, Any]:
        """The bits that are delivered in the span, and their cost."""
        ovs = self._stage.ovs
        pids = {"ovsdb-server": ovs.pid("ovsdb-server"), **self._pids()}
        before, bits_before = read(ovs), self._delivered_bits()
        cpu_before_s = {name: processes.cpu_s(pid) for name, pid in pids.items()}
        begin_s = time.monotonic()
        self._look(kind)
        time.sleep(max(0.0, begin_s + self._span_s - time.monotonic()))
        cpu_s = {name: processes.cpu_s(pid) - cpu_before_s[name] for name, pid in pids.items()}
        bits = self._delivered_bits() - bits_before
        span_s = time.monotonic() - begin_s
        counted = difference(before, read(ovs))
        cached = ovs.run("ovs-appctl", "dpctl/dump-flows", "-m").count("\n")
        return {
            "span_s": span_s,
            "delivered_bits": bits,
            "cpu_s": cpu_s,
            "switch": asdict(counted),
            "cached_flows": cached,
        }

    def _look(self, kind: str) -> None:
        if self._profile is None:
            return
        self._profile.mkdir(parents=True, exist_ok=True)
        pid = self._stage.ovs.pid("ovs-vswitchd")
        path = self._profile / f"{kind}.perf"
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-g", "-p", str(pid)]
        command += ["-o", str(path), "--", "sleep", f"{self._span_s:g}"]
        subprocess.run(command, check=True, capture_output=True)

    def _delivered_bits(self) -> int:
        """The bits that the network has delivered to the clients, headers included."""
        layout, counters = self._stage.layout, interface_counters()
        ports = (
            upstream_interface(layout, self._stage.prefix, c) for c in layout.nodes(Role.CLIENT)
        )
        return sum(counters[port].sent_bytes for port in ports) * 8

    def _datagrams(self) -> None:
        vms = self._stage.layout.nodes(Role.VM)
        clients = itertools.cycle(self._stage.layout.nodes(Role.CLIENT))
        ends = list(zip(vms, clients, strict=False))
        longest_s = self._each_s + END_TIMEOUT_S
        plan = datagrams(self._stage, ends, [UDP_VM_BPS] * len(vms), longest_s)
        for role in ("receive", "send"):
            self._programs.start(role, plan)

    def _connections(self) -> None:
        layout = self._stage.layout
        clients = layout.nodes(Role.CLIENT)
        flows = [
            Flow(vm, client, layout.address(client), duration_s=self._each_s + END_TIMEOUT_S)
            for vm, client in zip(
                layout.nodes(Role.VM), clients * len(layout.nodes(Role.VM)), strict=False
            )
        ]
        streams = StreamLoad(self._stage, flows, (0.0, self._span_s), may_fail=True)
        self._streams.append(streams)
        streams.start()
