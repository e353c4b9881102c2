"""The events and times from a VM port's removal on one host until the VM is reachable on another.

    ovs-lbt bench arrivals --repeat 3 --out out

On the layout `live_migration`, the VMs migrate one by one, without their memory. For each VM and
contender, `OUT/arrivals.json` has the times when the switch had its port, the port's flows and the
learned addresses, when announcements and frames left on an uplink, and when probes arrived again in
both directions.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies import bench, layouts
from topologies.compare import contenders, rows
from topologies.compare.rows import Row, Rows
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Role
from topologies.graph.ports import own_interface
from topologies.loads.handover import (
    ANNOUNCEMENT_WAITS_S,
    ETH_RARP,
    Handover,
    VmPort,
    bridge_counterparts,
)
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.migration_load import blackouts_s
from topologies.loads.probing import PORT as PROBE_PORT
from topologies.loads.probing import Flow, Probes
from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.markdown import Shown, runs_table

_FILE = struct.Struct("=IHHiIII")
_RECORD = struct.Struct("=IIII")
MAGIC_NS = 0xA1B23C4D
SNAP_BYTES = 64
ETH_IPV4 = 0x0800
START_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; `source_ip` is empty except for IPv4."""

    at_s: float
    source: str
    eth_type: int
    source_ip: str = ""


class Capture:
    """The frames on one interface, in both directions; a context manager.

    Raises:
        RuntimeError: tcpdump did not start.
    """

    def __init__(self, interface: str, expression: str, directory: Path) -> None:
        self._interface = interface
        self._path = directory / f"{interface}.pcap"
        self._log = directory / f"{interface}.tcpdump"
        self._command = [
            *("tcpdump", "-i", interface, "-w", str(self._path), "-s", str(SNAP_BYTES), "-U"),
            *("--immediate-mode", "--time-stamp-precision=nano", "-n", expression),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        # tcpdump prints wall-clock time.
        self._monotonic_s = time.monotonic() - time.time()

    def __enter__(self) -> Capture:
        self._process = processes.start(self._command, self._log)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while "listening on" not in (said := self._log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"tcpdump does not listen on {self._interface}: {said!r}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        if self._process is not None:
            processes.end(self._process)
            self._process = None

    def frames(self) -> list[Frame]:
        """All frames in order, after the end."""
        return list(parse(self._path.read_bytes(), self._monotonic_s))


def parse(content: bytes, monotonic_s: float) -> Iterator[Frame]:
    """The frames of a capture; `monotonic_s` is added to their times.

    Raises:
        ValueError: this is not a capture with times in nanoseconds, in this machine's byte order.
    """
    if len(content) < _FILE.size or _FILE.unpack_from(content)[0] != MAGIC_NS:
        raise ValueError(
            f"the file begins with {content[:4].hex()}; expected a capture with times in nanoseconds"
        )
    at = _FILE.size
    while at + _RECORD.size <= len(content):
        second, nanosecond, captured, _ = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        frame = content[at : at + captured]
        at += captured
        if len(frame) < 14 or len(frame) < captured:
            return  # the last one, cut off
        (eth_type,) = struct.unpack_from("!H", frame, 12)
        is_ip = eth_type == ETH_IPV4 and len(frame) >= 30
        yield Frame(
            at_s=second + nanosecond / 1e9 + monotonic_s,
            source=frame[6:12].hex(":"),
            eth_type=eth_type,
            source_ip=".".join(map(str, frame[26:30])) if is_ip else "",
        )


NAME = "arrivals"
CONTENDERS = ("balance-slb", "load-based", "dynamic", "dynamic/lacp")
RATE_PPS = 200.0
# Between two VMs: the last announcement is sent 0.8 s after a port has moved.
EACH_S = 2.5
LEAD_S, END_S = 2.0, 1.5
# The tables of a port's first flow and of learned addresses, according to docs/architecture.md.
CLASSIFY_TABLE, LOCATION_TABLE = 0, 20
_ADDED = re.compile(r"event=ADDED .*?table=(?P<table>\d+)")


class ArrivalLoad(Load):
    """The VMs of the first host migrate to the second host, one after another."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        layout = stage.layout
        self._vms = layout.nodes(Role.VM)
        self.load_s = LEAD_S + EACH_S * len(self._vms) + END_S
        self.measured_s = self.steady_s = (0.0, self.load_s)
        (self._client,) = layout.nodes(Role.CLIENT)
        (source,), (destination,) = layout.senders, layout.receivers
        here, there = (layout.server_of(layout.vnics_of(h)[0]) for h in (source, destination))
        self._there = there
        self._bridges = bridge_counterparts(stage.bridges, here, there)
        self._flows = [flow for vm in self._vms for flow in self._both_ways(vm)]
        self._probes = Probes(stage.host_pids, self._flows, stage.directory, RATE_PPS)
        self._resources = contextlib.ExitStack()
        self._moved: dict[str, Handover] = {}
        self._announced_s: dict[str, list[float]] = {}
        self._failure = ""
        self._mover = threading.Thread(target=self._move_all, daemon=True)
        self._vm_ports: dict[str, VmPort] = {}
        self._captures: list[Capture] = []
        self._watches: list[FlowWatch] = []

    def start(self) -> None:
        """Start the captures and the probes; the first VM migrates `LEAD_S` later."""
        stage, layout = self._stage, self._stage.layout
        for vm in self._vms:
            (vnic,) = layout.vnics_of(vm)
            port = own_interface(layout, stage.prefix, vnic)
            vm_port = VmPort(stage.ovs, port, f"{vm}-eth0", stage.host_pids[vm])
            self._vm_ports[vm] = self._resources.enter_context(contextlib.closing(vm_port))
        last_port = PROBE_PORT + len(self._flows) - 1
        expression = f"udp portrange {PROBE_PORT}-{last_port} or ether proto {ETH_RARP:#x}"
        for uplink in layout.uplinks_of(self._there):
            name = own_interface(layout, stage.prefix, uplink)
            capture = Capture(name, expression, stage.directory)
            self._captures.append(self._resources.enter_context(capture))
        for bridge in stage.bridges[self._there]:
            watch = FlowWatch(stage.ovs, bridge)
            self._watches.append(self._resources.enter_context(watch))
        self.start_s = time.monotonic() + 1.5
        self._probes.start(self.start_s, self.start_s + self.load_s)
        self._mover.start()

    def finish(self) -> Outcome:
        """Wait for the last VM; `details` has the events of each VM."""
        self._mover.join()
        if self._failure:
            raise RuntimeError(f"arrivals: {self._failure}")
        heard = self._probes.finish()
        for capture in self._captures:
            capture.end()
        frames = sorted(
            (frame for capture in self._captures for frame in capture.frames()),
            key=lambda frame: frame.at_s,
        )
        added = sorted(event for watch in self._watches for event in watch.added)
        details = []
        for vm in self._vms:
            moved = self._moved[vm]
            address = self._stage.layout.address(self._stage.layout.vnics_of(vm)[0])
            times = timeline(moved, self._stage.mac_of(vm).lower(), address, frames, added)
            to_vm, from_vm = self._both_ways(vm)
            for name, flow in (("probe_to_vm", to_vm), ("probe_from_vm", from_vm)):
                later = [at_s for _, at_s in heard[flow].arrivals if at_s > moved.arrived_s]
                times[name] = [at_s - moved.left_s for at_s in later[:1]]
            details.append(
                {
                    "vm": vm,
                    "port_arrived_ms": _ms(moved.arrived_s - moved.left_s),
                    "announced_ms": [_ms(at_s - moved.left_s) for at_s in self._announced_s[vm]],
                    **{f"{name}_ms": [_ms(at_s) for at_s in at] for name, at in times.items()},
                    "blackout_ms": {
                        way: _ms(gap_s) for way, gap_s in blackouts_s(vm, moved, heard).items()
                    },
                    "twice": sum(heard[flow].duplicated for flow in (to_vm, from_vm)),
                }
            )
        received = sum(one.received for one in heard.values())
        return Outcome(received_bytes=received, throughput_bps=0.0, details=details)

    def close(self) -> None:
        """End everything."""
        self._probes.close()
        self._resources.close()

    def _both_ways(self, vm: str) -> tuple[Flow, Flow]:
        layout = self._stage.layout
        return (
            Flow(self._client, vm, layout.address(layout.vnics_of(vm)[0])),
            Flow(vm, self._client, layout.address(self._client)),
        )

    def _move_all(self) -> None:
        try:
            for number, vm in enumerate(self._vms):
                at_s = self.start_s + LEAD_S + number * EACH_S
                time.sleep(max(0.0, at_s - time.monotonic()))
                self._moved[vm] = self._vm_ports[vm].move(self._bridges)
                self._announced_s[vm] = []
                for wait_s in ANNOUNCEMENT_WAITS_S:
                    time.sleep(wait_s)
                    self._announced_s[vm].append(time.monotonic())
                    self._vm_ports[vm].announce((0.0,))
        except (RuntimeError, OSError) as failure:
            self._failure = str(failure)


class FlowWatch:
    """When flows are added to a bridge's tables; a context manager.

    Attributes:
        added: the time of each flow on the monotonic clock, and its table.
    """

    def __init__(self, ovs: PrivateOvs, bridge: str) -> None:
        self.added: list[tuple[float, int]] = []
        self._ovs = ovs
        self._bridge = bridge
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> FlowWatch:
        command = ["ovs-ofctl", "monitor", self._bridge, "watch:!initial"]
        self._process = subprocess.Popen(
            [*processes.DIES_WITH_PARENT, *command],
            env=self._ovs.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,  # where it tells what it sees
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None and self._reader is not None
        self._process.terminate()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        for line in self._process.stderr:
            now_s = time.monotonic()
            self.added += [(now_s, int(found["table"])) for found in _ADDED.finditer(line)]


def timeline(
    moved: Handover,
    mac: str,
    address: str,
    frames: Iterable[Frame],
    added: Iterable[tuple[float, int]],
) -> dict[str, list[float]]:
    """One VM's events on the switch and on its uplinks, in seconds since its port was removed.

    `installed`, `learned`: the first flow of a port, and the first learned flow.
    `announcement_out`: all announcements of the VM. `own_out`: the first datagram from its own
    address. `ours_out`: its first datagram with another source address.
    """
    mine = [(at_s - moved.left_s, table) for at_s, table in added if at_s > moved.left_s]
    later = [frame for frame in frames if frame.at_s > moved.left_s]
    datagrams = [one for one in later if one.eth_type == ETH_IPV4 and one.source_ip == address]

    def first(times_s: Iterable[float]) -> list[float]:
        return list(times_s)[:1]

    return {
        "installed": first(at_s for at_s, table in mine if table == CLASSIFY_TABLE),
        "learned": first(at_s for at_s, table in mine if table == LOCATION_TABLE),
        "announcement_out": [
            one.at_s - moved.left_s
            for one in later
            if one.eth_type == ETH_RARP and one.source == mac and one.at_s - moved.left_s < EACH_S
        ],
        "own_out": first(one.at_s - moved.left_s for one in datagrams if one.source == mac),
        "ours_out": first(one.at_s - moved.left_s for one in datagrams if one.source != mac),
    }


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    return bench.other_parser(NAME, str(__doc__), CONTENDERS, "/lacp", runs=3)


def run(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Measure, and write the report. Returns 0 if every run completed, else 1."""
    path = options.out / f"{NAME}.json"
    kept = Rows(path, "runs", {}, command, functools.partial(print, flush=True))
    report = kept.run(options.contenders, options.repeat, _measured, options.anew)
    print(table(report["runs"]), path, sep="\n\n")
    return 1 if "failed" in report else 0


def _measured(name: str) -> dict[str, Any]:
    scenario = Scenario(NAME, "", layouts.live_migration(), ArrivalLoad, (name,))
    return {"vms": rows.run_details(scenario, contenders.by_name(name))}


def table(made: Sequence[Row]) -> str:
    """Medians and ranges over VMs, in ms since the port was removed."""
    columns: dict[str, Shown] = {
        what: functools.partial(_first, what=f"{what}_ms")
        for what in (
            "port_arrived",
            "installed",
            "learned",
            "own_out",
            "ours_out",
            "announcement_out",
        )
    }
    columns |= {
        "blackout to": lambda vm: vm["blackout_ms"]["to"],
        "blackout from": lambda vm: vm["blackout_ms"]["from"],
        "twice": "twice",
    }
    vms = [{"contender": row["contender"], **vm} for row in made for vm in row["vms"]]
    return runs_table(vms, ("contender",), columns)


def _first(vm: Mapping[str, Any], what: str) -> float | None:
    found = vm[what]
    return found if isinstance(found, float | int) else next(iter(found), None)


def _ms(span_s: float) -> float:
    return round(span_s * 1000, 2)


if __name__ == "__main__":
    sys.exit(bench.main([NAME, *sys.argv[1:]]))
