"""What happens, and when, from a VM's port leaving one host until the VM is in reach at another.

    python -m topologies.measure.arrivals --runs 3 --out out

On the layout `live_migration` the VMs go over one by one, without their memory. For each VM and
contender, `OUT/arrivals.json` says when the switch had its port, the flows of the port and what it
learned, when announcements and frames left by an uplink, and when probes arrived again, both ways.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies import layouts
from topologies.compare import contenders
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
from topologies.measure.captured import ETH_IPV4, Capture, Frame
from topologies.measure.runs import Measurement, run_details
from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs

NAME = "arrivals"
CONTENDERS = ("balance-slb", "load-based", "dynamic", "dynamic/lacp")
RATE_PPS = 200.0
# Between two VMs: the last announcement is sent 0.8 s after a port has moved.
EACH_S = 2.5
LEAD_S, END_S = 2.0, 1.5
# The tables where the switch gets a port's first flow, and where it learns, by docs/architecture.md.
CLASSIFY_TABLE, LOCATION_TABLE = 0, 20
_ADDED = re.compile(r"event=ADDED .*?table=(?P<table>\d+)")


class ArrivalLoad(Load):
    """The VMs of the first host go to the second, one after another."""

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
        """Start to watch and to probe; the first VM goes `LEAD_S` later."""
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
        """Wait for the last VM; `details` is what happened to each of them."""
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
    """When flows come to a bridge's tables; a context manager.

    Attributes:
        added: the time of each, on the monotonic clock, and its table.
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
    """What the switch got and what left by uplinks for one VM, in seconds since its port left.

    `installed`, `learned`: the first flow of a port, and the first one that was learned.
    `announcement_out`: all announcements of the VM. `own_out`: the first datagram from its own
    address. `ours_out`: the first one of its datagrams with another source address.
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


def main(arguments: Sequence[str]) -> int:
    """Measure, and write what was found.

    Returns:
        0: it ran; 1: it could not; 2: wrong usage.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m topologies.measure.{NAME}", description=__doc__
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each contender")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR")
    options = parser.parse_args(arguments)
    measurement = Measurement(NAME, "vms", _measured)
    if not measurement.is_permitted():
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    made: list[dict[str, Any]] = []
    measurement.repeat(
        range(1, options.runs + 1),
        options.contenders,
        arguments,
        made,
        options.out / f"{NAME}.json",
        lambda one: print(_line(one["contender"], one["vms"]), flush=True),
    )
    print(*_lines(made), sep="\n")
    return 0


def _measured(name: str) -> list[dict[str, Any]]:
    scenario = Scenario(NAME, "", layouts.live_migration(), ArrivalLoad, (name,))
    found: list[dict[str, Any]] = run_details(scenario, contenders.by_name(name))
    return found


def _lines(made: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for name in dict.fromkeys(one["contender"] for one in made):
        vms = [vm for one in made if one["contender"] == name for vm in one["vms"]]
        yield _line(name, vms)


def _line(name: str, vms: Sequence[Mapping[str, Any]]) -> str:
    """Medians and ranges over VMs, in ms since the port left."""
    cells = []
    for what in ("port_arrived", "installed", "learned", "own_out", "ours_out"):
        cells.append(f"{what} {_spread([_first(vm[f'{what}_ms']) for vm in vms])}")
    cells.append(f"announced {_spread([_first(vm['announcement_out_ms']) for vm in vms])}")
    for way in ("to", "from"):
        cells.append(f"blackout {way} {_spread([vm['blackout_ms'][way] for vm in vms])}")
    cells.append(f"twice {sum(vm['twice'] for vm in vms)}")
    return f"{name} (n = {len(vms)}): {'; '.join(cells)}"


def _first(found: float | Sequence[float]) -> float | None:
    if isinstance(found, float | int):
        return float(found)
    return found[0] if found else None


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "never"
    missing = f", {len(values) - len(known)} never" if len(known) < len(values) else ""
    middle = statistics.median(known)
    return f"{middle:.0f} ({min(known):.0f} to {max(known):.0f}{missing})"


def _ms(span_s: float) -> float:
    return round(span_s * 1000, 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
