"""VMs that migrate from the first host to the second, and a client upstream that notices.

The hosts' own stacks copy the memory (memory_copy.py), we move the ports as a hypervisor
does, and probes between the client and every VM, both ways, tell for how long each was
out of reach.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topologies.graph.layout import Layout, Role
from topologies.graph.ports import own_interface
from topologies.loads import memory_copy, probing
from topologies.loads.handover import Guest, Moved, counterparts
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import Flow, Heard, Probing
from topologies.network import processes

PORT = 6600
ALLOWED_BLACKOUT_S = 0.3
MOST_ROUNDS = 30
# Programs start before the load does; probes a moment before it, to teach the switches.
READY_S, PROBED_BEFORE_S = 1.5, 0.5
# Afterwards until the last VM has been announced, and has been heard or not.
PROBED_AFTER_S = 1.5
# A gap that begins later has another cause than the handover.
AFTER_HANDOVER_S = 3.0
LISTEN_TIMEOUT_S = 10.0
LONGEST_S = 180.0


@dataclass(frozen=True, slots=True)
class Migrations:
    """Which migrations there are.

    Attributes:
        at_once: how many VMs migrate together; all of the first host's VMs do in the end.
        connections: of each VM.
        networks: how many of the hosts' networks, one for each uplink, carry them.
        memory_bytes: of each VM; `dirty_bps`: how much of it the VM writes in a second.
    """

    memory_bytes: int
    dirty_bps: float
    at_once: int = 8
    connections: int = 1
    networks: int = 1


class MigrationLoad(Load):
    """All VMs of the layout's first host migrate to its second one."""

    def __init__(self, stage: Stage, migrations: Migrations) -> None:
        self._stage = stage
        self._migrations = migrations
        layout = stage.layout
        (self._source,), (self._destination,) = layout.senders, layout.receivers
        self._vms = layout.nodes(Role.VM)
        here, there = (
            layout.server_of(layout.vnics_of(host)[0]) for host in (self._source, self._destination)
        )
        self._bridges = counterparts(stage.bridges, here, there)
        # Until it is known how long the migrations take.
        self.load_s = LONGEST_S
        self._resources = contextlib.ExitStack()
        self._flows = [flow for vm in self._vms for flow in _both_ways(layout, vm)]
        self._probing = Probing(stage.host_pids, self._flows, stage.directory)
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._mover: Mover | None = None

    def start(self) -> None:
        """Start the programs; the first VMs migrate at `start_s`."""
        guests = {vm: self._resources.enter_context(self._guest(vm)) for vm in self._vms}
        path = self._stage.directory / "mover"
        self._mover = self._resources.enter_context(Mover(path, guests, self._bridges))
        self._program("receive", self._destination, str(PORT))
        self._await_listening()
        self.start_s = time.monotonic() + READY_S
        probed_s = self.start_s - PROBED_BEFORE_S
        self._probing.start(probed_s, self.start_s + LONGEST_S)
        plan = self._stage.directory / "migrations.json"
        plan.write_text(json.dumps(asdict(self._plan(path))))
        self._program("send", self._source, str(plan), str(self._results))
        threading.Thread(target=self._await_end, daemon=True).start()

    def finish(self) -> Outcome:
        """Wait for the migrations and the probes; `details` is both, VM by VM."""
        program = self._programs["send"]
        try:
            status = program.wait(max(0.0, self.start_s + LONGEST_S - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"migrations: not done after {LONGEST_S:g} s -> done") from None
        assert self._mover is not None
        if status:
            failure = self._mover.failure or self._log("send").read_text(errors="replace")[-500:]
            raise RuntimeError(f"migrations: exit {status} -> 0; {failure}")
        time.sleep(PROBED_AFTER_S)
        self._probing.stop()
        heard = self._probing.finish()
        migrated = json.loads(self._results.read_text())
        return outcome(migrated, self._mover.moved, heard, self.start_s)

    def close(self) -> None:
        """End all programs."""
        self._probing.close()
        for program in self._programs.values():
            processes.end(program)
        self._resources.close()

    def _plan(self, mover: Path) -> memory_copy.Plan:
        wanted = self._migrations
        addresses = self._stage.layout.addresses_of(self._destination)
        return memory_copy.Plan(
            networks=addresses[: wanted.networks],
            port=PORT,
            vms=self._vms,
            at_once=wanted.at_once,
            connections=wanted.connections,
            memory_bytes=wanted.memory_bytes,
            dirty_bps=wanted.dirty_bps,
            allowed_blackout_s=ALLOWED_BLACKOUT_S,
            most_rounds=MOST_ROUNDS,
            mover=str(mover),
            start_s=self.start_s,
        )

    @contextlib.contextmanager
    def _guest(self, vm: str) -> Iterator[Guest]:
        layout = self._stage.layout
        (vnic,) = layout.vnics_of(vm)
        port = own_interface(layout, self._stage.prefix, vnic)
        vlan = layout.attributes(vnic).get("vlan")
        pid = self._stage.host_pids[vm]
        with contextlib.closing(Guest(self._stage.ovs, port, f"{vm}-eth0", pid, vlan)) as guest:
            yield guest

    def _await_end(self) -> None:
        """Let the load be over when the migrations are, however they ended."""
        self._programs["send"].wait()
        lasted_s = time.monotonic() - self.start_s
        self.measured_s = self.steady_s = (0.0, lasted_s)
        self.load_s = lasted_s

    def _await_listening(self) -> None:
        deadline_s = time.monotonic() + LISTEN_TIMEOUT_S
        while memory_copy.LISTENING not in (said := self._log("receive").read_text()):
            ended = self._programs["receive"].poll() is not None
            if ended or time.monotonic() > deadline_s:
                raise RuntimeError(f"receiver of memory: {said[-500:]!r} -> listens")
            time.sleep(0.02)

    def _program(self, role: str, host: str, *words: str) -> None:
        script = str(Path(memory_copy.__file__).resolve())
        command = [sys.executable, "-P", script, role, *words]
        pid = self._stage.host_pids[host]
        self._programs[role] = processes.start_in(pid, command, self._log(role))

    @property
    def _results(self) -> Path:
        return self._stage.directory / "migrated.json"

    def _log(self, role: str) -> Path:
        return self._stage.directory / f"migrations.{role}.log"


class Mover:
    """Moves ports for whoever names a VM on a Unix socket; a context manager.

    Attributes:
        moved: what it has moved, by VM.
        failure: why a port could not be moved; empty if all could.
    """

    def __init__(self, path: Path, guests: Mapping[str, Guest], bridges: Mapping[str, str]) -> None:
        self.moved: dict[str, Moved] = {}
        self.failure = ""
        self._guests = guests
        self._bridges = bridges
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.fspath(path))
        self._listener.listen(len(guests))

    def __enter__(self) -> Mover:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            # Unlike close, it wakes the thread that waits in accept.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asked, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _answer(self, asked: socket.socket) -> None:
        with asked, asked.makefile() as lines:
            vm = lines.readline().strip()
            guest = self._guests[vm]
            try:
                self.moved[vm] = guest.move(self._bridges)
            except RuntimeError as failure:
                self.failure = str(failure)
                return
            announcing = threading.Thread(target=guest.announce, daemon=True)
            announcing.start()
            asked.sendall(b"+")
            announcing.join()


def outcome(
    migrated: Sequence[Mapping[str, Any]],
    moved: Mapping[str, Moved],
    heard: Mapping[Flow, Heard],
    start_s: float,
) -> Outcome:
    """The figures of all migrations, and of the probes beside them."""
    copied_bytes = {
        one["vm"]: sum(part["copied_bytes"] for part in one["rounds"]) for one in migrated
    }
    first_s = min(one["start_s"] for one in migrated)
    blackouts_ms = {
        vm: {way: gap_s * 1000 for way, gap_s in blackouts_s(vm, moved[vm], heard).items()}
        for vm in copied_bytes
    }
    worse_ms = [max(both.values()) for both in blackouts_ms.values()]
    total_bytes = sum(copied_bytes.values())
    throughput_bps = total_bytes * 8 / (max(one["copied_s"] for one in migrated) - first_s)

    def median(of: Callable[[Mapping[str, Any]], float]) -> float:
        return statistics.median(of(one) for one in migrated)

    return Outcome(
        received_bytes=total_bytes,
        throughput_bps=throughput_bps,
        figures={
            "migration_s": median(lambda one: one["moved_s"] - one["start_s"]),
            "total_s": max(one["moved_s"] for one in migrated) - first_s,
            "precopy_rounds": median(lambda one: len(one["rounds"]) - 1),
            "stopped_ms": median(lambda one: one["copied_s"] - one["stopped_s"]) * 1000,
            "blackout_ms": statistics.median(worse_ms),
            "worst_blackout_ms": max(worse_ms),
            **probing.figures(list(heard.values())),
        },
        details=[
            {
                "vm": one["vm"],
                **{key: round(one[key] - start_s, 4) for key in one if key.endswith("_s")},
                "copied_bytes": copied_bytes[one["vm"]],
                "rounds": [
                    {
                        "copied_bytes": part["copied_bytes"],
                        "lasted_s": round(part["end_s"] - part["start_s"], 4),
                    }
                    for part in one["rounds"]
                ],
                "port_left_s": round(moved[one["vm"]].left_s - start_s, 4),
                "port_arrived_s": round(moved[one["vm"]].arrived_s - start_s, 4),
                "blackout_ms": {w: round(ms, 1) for w, ms in blackouts_ms[one["vm"]].items()},
            }
            for one in migrated
        ],
    )


def blackouts_s(vm: str, moved: Moved, heard: Mapping[Flow, Heard]) -> dict[str, float]:
    """For how long nothing came to a VM, and nothing from it, when its port moved."""
    gaps_s = {
        flow: of_flow.longest_gap_s(moved.left_s, moved.arrived_s + AFTER_HANDOVER_S)
        for flow, of_flow in heard.items()
    }
    return {
        "to": max(gap_s for flow, gap_s in gaps_s.items() if flow.receiver == vm),
        "from": max(gap_s for flow, gap_s in gaps_s.items() if flow.sender == vm),
    }


def _both_ways(layout: Layout, vm: str) -> tuple[Flow, Flow]:
    client = layout.nodes(Role.CLIENT)[0]
    return (
        Flow(client, vm, layout.address(layout.vnics_of(vm)[0])),
        Flow(vm, client, layout.address(client)),
    )
