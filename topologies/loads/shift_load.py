"""Steady datagrams of all VMs, until their rates change at once, and what that costs them."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.compare.samples import interface_counters
from topologies.graph.layout import Layout, Role
from topologies.graph.ports import own_interface, upstream_interface
from topologies.loads import paced
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import Heard
from topologies.loads.settling import Reading, settle_s
from topologies.network import processes

PORT = 7100
PAYLOAD_BYTES = 1400
FRAME_BITS = (PAYLOAD_BYTES + paced.HEADERS_BYTES) * 8
# Of the counters that tell when the uplinks have settled.
READ_EVERY_S = 0.01
# Before the change a part of the even load is shown.
LEAD_S = 2.0
# After it, what is under way arrives.
LINGER_S = 0.5
# To read the change, which is a file.
READY_S = 0.3
# So long nobody has moved: bonds rebalance every 10 s at most.
STILL_S = 3.0
SETTLE_TIMEOUT_S = 45.0
END_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Rates:
    """What each VM sends, as links count it: all alike, then those of one uplink, and the others."""

    even_bps: float
    hot_bps: float
    cold_bps: float


def hot_vms(uplinks: Mapping[str, str], count: int) -> list[str]:
    """The VMs whose load is to rise: so many of the uplink that has most, by name."""
    counts = Counter(uplinks.values())
    most = min(counts, key=lambda uplink: (-counts[uplink], uplink))
    return sorted(vm for vm, uplink in uplinks.items() if uplink == most)[:count]


class ShiftLoad(Load):
    """The load changes once the team has placed the even one, at a moment nobody can know.

    `start` waits for that placement: the upstream switch tells by which uplink it sees each
    VM. The four whose load rises are then the same for every team: those of one uplink.
    """

    def __init__(
        self, stage: Stage, rates: Rates, *, longest_wait_s: float, watched_s: float
    ) -> None:
        self._stage = stage
        self._rates = rates
        self._longest_wait_s = longest_wait_s
        self.load_s = LEAD_S + watched_s + LINGER_S
        self.measured_s = (LEAD_S, LEAD_S + watched_s)
        # What is even when all has settled.
        self.steady_s = (LEAD_S + watched_s / 2, LEAD_S + watched_s)
        self._vms = stage.layout.nodes(Role.VM)
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._readings: list[Reading] = []
        self._ended = threading.Event()
        self._reader: threading.Thread | None = None
        self.hot: list[str] = []
        self.still_s = STILL_S
        self.settle_timeout_s = SETTLE_TIMEOUT_S

    def start(self) -> None:
        """Start the even load, wait until it is placed, and announce the change."""
        plan = self._stage.directory / "paced.json"
        plan.write_text(json.dumps(self._plan()))
        for what in ("hear", "send"):
            script = str(Path(paced.__file__).resolve())
            command = [sys.executable, "-P", script, what, str(plan), str(self._results(what))]
            self._programs[what] = processes.start(command, self._log(what))
        rates_bps = self._rates_after(self._await_placement())
        time.sleep(random.uniform(0, self._longest_wait_s))
        self.start_s = time.monotonic() + READY_S
        change = {
            "at_s": self.start_s + self.measured_s[0],
            "end_s": self.start_s + self.measured_s[1],
            "rates_bps": rates_bps,
            "after_s": self._starts_s(),
        }
        path = self._stage.directory / paced.CHANGE
        path.with_suffix(".new").write_text(json.dumps(change))
        path.with_suffix(".new").replace(path)
        self._programs["send"].send_signal(signal.SIGUSR1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def finish(self) -> Outcome:
        """What became of the datagrams and the uplinks since the change."""
        self._ended.wait(max(0.0, self.start_s + self.load_s - time.monotonic()))
        self._ended.set()
        assert self._reader is not None
        self._reader.join()
        sent = self._ended_well("send")["flows"]
        self._programs["hear"].send_signal(signal.SIGTERM)
        arrived = self._ended_well("hear")["flows"]
        from_s, to_s = self.measured_s
        span_s = to_s - from_s
        flows = [
            since(one["first"], one["sent"], heard["numbers"], heard["times_s"])
            for one, heard in zip(sent, arrived, strict=True)
        ]
        received = sum(one.received for one in flows)
        offered = sum(one.sent for one in flows)
        layout = self._stage.layout
        capacities_bps = {up: layout.capacity_bps(up) for up in layout.nodes(Role.UPLINK)}
        figures = {
            **self._settled(capacities_bps, flows),
            "loss_ratio": (offered - received) / max(1, offered),
            "reordered_ratio": sum(one.reordered for one in flows) / max(1, received),
            "duplicated": float(sum(one.duplicated for one in flows)),
            "offered_bps": offered * FRAME_BITS / span_s,
        }
        return Outcome(
            received_bytes=sum(len(one["numbers"]) for one in arrived) * PAYLOAD_BYTES,
            throughput_bps=received * PAYLOAD_BYTES * 8 / span_s,
            figures=figures,
            details={
                "shift_s": from_s,
                "hot": self.hot,
                "latest_s": max(one["latest_s"] for one in sent),
                "left_out": sum(one["left_out"] for one in sent),
                "sent": {vm: one.sent for vm, one in zip(self._vms, flows, strict=True)},
                "lost": {vm: one.lost for vm, one in zip(self._vms, flows, strict=True)},
                "readings": [[r.at_s, r.sent_bytes] for r in self._readings],
                **self._more(flows),
            },
        )

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        for process in self._programs.values():
            processes.end(process)

    def _rates_before(self) -> list[float]:
        """What each VM sends at first."""
        return [self._rates.even_bps] * len(self._vms)

    def _rates_after(self, uplinks: Mapping[str, str]) -> list[float]:
        """What each VM sends from the change on, by where the team has placed them."""
        self.hot = hot_vms(uplinks, len(self._vms) // 2)
        return [self._rates.hot_bps if vm in self.hot else self._rates.cold_bps for vm in self._vms]

    def _starts_s(self) -> list[float]:
        """How long after the change each VM's own is."""
        return [0.0] * len(self._vms)

    def _settled(
        self, capacities_bps: Mapping[str, int], _flows: Sequence[Heard]
    ) -> dict[str, float]:
        """How long the change mattered."""
        return {"settle_s": settle_s(self._readings, capacities_bps, *self.measured_s)}

    def _more(self, _flows: Sequence[Heard]) -> dict[str, Any]:
        """Further details, in the end."""
        return {}

    def _placed(self, uplinks: Mapping[str, str]) -> bool:
        """Whether a placement that lasts is what the change may come to."""
        return balanced(self._stage.layout, uplinks, self._vms)

    def _plan(self) -> dict[str, Any]:
        layout, pids = self._stage.layout, self._stage.host_pids
        clients = layout.nodes(Role.CLIENT)
        flows = []
        rates_bps = self._rates_before()
        for number, vm in enumerate(self._vms):
            client = clients[number % len(clients)]
            flows.append(
                {
                    "sender_pid": pids[vm],
                    "receiver_pid": pids[client],
                    "address": layout.address(client),
                    "port": PORT + number,
                    "rate_bps": rates_bps[number],
                }
            )
        longest_s = SETTLE_TIMEOUT_S + self._longest_wait_s + self.load_s + END_TIMEOUT_S
        return {"payload_bytes": PAYLOAD_BYTES, "longest_s": longest_s, "flows": flows}

    def _await_placement(self) -> dict[str, str]:
        """The uplink of each VM, once as many are at each and none has moved for a while.

        A team that never gets there is taken as it is in the end.
        """
        place = Place(self._stage, self._vms)
        deadline_s = time.monotonic() + self.settle_timeout_s
        since_s, uplinks = time.monotonic(), place.uplinks()
        while (now_s := time.monotonic()) < deadline_s:
            for what, program in self._programs.items():
                if program.poll() is not None:
                    raise RuntimeError(f"{what}: ended -> runs; {self._log_end(what)}")
            if (found := place.uplinks()) != uplinks:
                since_s, uplinks = now_s, found
            if now_s - since_s >= self.still_s and self._placed(uplinks):
                break
            time.sleep(0.2)
        if not uplinks:
            raise RuntimeError("upstream: no VM was seen -> every VM by an uplink")
        return uplinks

    def _read(self) -> None:
        """Read the uplinks' counters until the end."""
        layout, prefix = self._stage.layout, self._stage.prefix
        names = {up: own_interface(layout, prefix, up) for up in layout.nodes(Role.UPLINK)}
        due_s = self.start_s
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            before_s = time.monotonic()
            counters = interface_counters()
            at_s = (before_s + time.monotonic()) / 2 - self.start_s
            sent = {uplink: counters[name].sent_bytes for uplink, name in names.items()}
            self._readings.append(Reading(at_s, sent))
            due_s = max(due_s + READ_EVERY_S, before_s)

    def _ended_well(self, what: str) -> dict[str, Any]:
        try:
            status: int | None = self._programs[what].wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        if status != 0:
            found = "still runs" if status is None else f"exit {status}"
            raise RuntimeError(f"datagrams, {what}: {found} -> exit 0; {self._log_end(what)}")
        results: dict[str, Any] = json.loads(self._results(what).read_text())
        return results

    def _log_end(self, what: str) -> str:
        return f"its log ends: {self._log(what).read_text(errors='replace')[-500:]}"

    def _results(self, what: str) -> Path:
        return self._stage.directory / f"paced.{what}.json"

    def _log(self, what: str) -> Path:
        return self._stage.directory / f"paced.{what}.log"


def since(first: int, sent: int, numbers: Sequence[int], times_s: Sequence[float]) -> Heard:
    """What became of a flow's datagrams from number `first` on."""
    arrivals = [
        (number - first, at_s)
        for number, at_s in zip(numbers, times_s, strict=True)
        if number >= first
    ]
    return Heard(sent - first, 0.0, 0.0, arrivals)


def balanced(layout: Layout, uplinks: Mapping[str, str], vms: Sequence[str]) -> bool:
    """Whether every VM is seen, and as many by each uplink as can be."""
    counts = Counter(uplinks.values())
    each = [counts[uplink] for uplink in layout.nodes(Role.UPLINK)]
    return set(uplinks) == set(vms) and max(each) - min(each) <= 1


class Place:
    """Where the upstream switch sees each VM, which is where its team has placed it."""

    def __init__(self, stage: Stage, vms: Sequence[str]) -> None:
        self._stage = stage
        layout, prefix = stage.layout, stage.prefix
        (switch,) = layout.nodes(Role.UPSTREAM_SWITCH)
        self._bridge = f"{prefix}{switch}"
        self._vms = {stage.mac_of(vm).lower(): vm for vm in vms}
        self._uplinks = {
            stage.ovs.vsctl(
                "get", "interface", upstream_interface(layout, prefix, up), "ofport"
            ): up
            for up in layout.nodes(Role.UPLINK)
        }

    def uplinks(self) -> dict[str, str]:
        """The uplink of every VM that is known upstream."""
        shown = self._stage.ovs.run("ovs-appctl", "fdb/show", self._bridge)
        return places(shown, self._uplinks, self._vms)


def places(shown: str, uplinks: Mapping[str, str], vms: Mapping[str, str]) -> dict[str, str]:
    """The uplinks of VMs by what `fdb/show` prints; by OpenFlow port number, and by address."""
    rows = (line.split() for line in shown.splitlines()[1:])
    return {
        vms[row[2]]: uplinks[row[0]]
        for row in rows
        if len(row) >= 4 and row[2] in vms and row[0] in uplinks
    }
