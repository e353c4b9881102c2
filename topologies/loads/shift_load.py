"""Steady datagrams from all VMs until their rates change at once."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.graph.layout import Layout, Role
from topologies.graph.ports import own_interface, upstream_interface
from topologies.loads import traffic
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import FlowResult
from topologies.loads.programs import Programs
from topologies.loads.settling import Reading, settle_s
from topologies.network.interface_counters import interface_counters

PORT = 7100
PAYLOAD_BYTES = 1400
FRAME_BITS = (PAYLOAD_BYTES + traffic.HEADERS_BYTES) * 8
# The interval between two readings of the uplinks' counters.
READ_INTERVAL_S = 0.01
# The part of the even load before the change that the reports show.
LEAD_S = 2.0
# Time for the last datagrams to arrive.
LINGER_S = 0.5
# Time for the sender to read the change from its file.
READY_S = 0.3
# A placement is stable once no VM has moved for this long.
STABLE_S = 3.0
SETTLE_TIMEOUT_S = 45.0
END_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of a VM on the wire: before the change, and after it if hot or cold."""

    even_bps: float
    hot_bps: float
    cold_bps: float


def hot_vms(uplinks: Mapping[str, str], count: int) -> list[str]:
    """The first `count` VMs, by name, of the uplink that has the most VMs."""
    counts = Counter(uplinks.values())
    most = min(counts, key=lambda uplink: (-counts[uplink], uplink))
    return sorted(vm for vm, uplink in uplinks.items() if uplink == most)[:count]


class ShiftLoad(Load):
    """The load changes at a random time after the team has placed the even load.

    `start` waits for that placement, which it reads from the upstream switch's FDB. The hot VMs are
    half of the VMs, all on one uplink, whichever team placed them.
    """

    def __init__(self, stage: Stage, rates: Rates, *, max_wait_s: float, watched_s: float) -> None:
        self._stage = stage
        self._rates = rates
        self._max_wait_s = max_wait_s
        self.load_s = LEAD_S + watched_s + LINGER_S
        self.measured_s = (LEAD_S, LEAD_S + watched_s)
        # The load is steady once the team has settled.
        self.steady_s = (LEAD_S + watched_s / 2, LEAD_S + watched_s)
        self._vms = stage.layout.nodes(Role.VM)
        self._programs = Programs(stage.directory, "datagrams")
        self._readings: list[Reading] = []
        self._ended = threading.Event()
        self._reader: threading.Thread | None = None
        self.hot: list[str] = []
        self.stable_s = STABLE_S
        self.settle_timeout_s = SETTLE_TIMEOUT_S

    def start(self) -> None:
        """Start the even load, wait until the team has placed it, and schedule the change."""
        for role in ("receive", "send"):
            self._programs.start(role, self._plan())
        rates_bps = self._rates_after(self._await_placement())
        time.sleep(random.uniform(0, self._max_wait_s))
        self.start_s = time.monotonic() + READY_S
        change = {
            "at_s": self.start_s + self.measured_s[0],
            "end_s": self.start_s + self.measured_s[1],
            "rates_bps": rates_bps,
            "after_s": self._change_delays_s(),
        }
        path = self._stage.directory / traffic.CHANGE
        path.with_suffix(".new").write_text(json.dumps(change))
        path.with_suffix(".new").replace(path)
        self._programs.signal("send", signal.SIGUSR1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def finish(self) -> Outcome:
        """The figures of the datagrams and of the uplinks from the change on."""
        self._ended.wait(max(0.0, self.start_s + self.load_s - time.monotonic()))
        self._ended.set()
        assert self._reader is not None
        self._reader.join()
        sent = self._programs.results("send", END_TIMEOUT_S)["flows"]
        self._programs.signal("receive", signal.SIGTERM)
        arrived = self._programs.results("receive", END_TIMEOUT_S)["flows"]
        from_s, to_s = self.measured_s
        span_s = to_s - from_s
        flows = [
            flow_result(one["first"], one["sent"], other["numbers"], other["times_s"])
            for one, other in zip(sent, arrived, strict=True)
        ]
        received = sum(one.received for one in flows)
        offered = sum(one.sent for one in flows)
        layout = self._stage.layout
        capacities_bps = {up: layout.capacity_bps(up) for up in layout.nodes(Role.UPLINK)}
        figures = {
            **self._settling_figures(capacities_bps, flows),
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
                "latest_s": max(one["max_delay_s"] for one in sent),
                "left_out": sum(one["skipped"] for one in sent),
                "sent": {vm: one.sent for vm, one in zip(self._vms, flows, strict=True)},
                "lost": {vm: one.lost for vm, one in zip(self._vms, flows, strict=True)},
                "readings": [[r.at_s, r.sent_bytes] for r in self._readings],
                **self._extra_details(flows),
            },
        )

    def close(self) -> None:
        """Stop all programs."""
        self._ended.set()
        self._programs.close()

    def _rates_before(self) -> list[float]:
        """Each VM's rate before the change."""
        return [self._rates.even_bps] * len(self._vms)

    def _rates_after(self, uplinks: Mapping[str, str]) -> list[float]:
        """Each VM's rate after the change, by the team's placement."""
        self.hot = hot_vms(uplinks, len(self._vms) // 2)
        return [self._rates.hot_bps if vm in self.hot else self._rates.cold_bps for vm in self._vms]

    def _change_delays_s(self) -> list[float]:
        """The delay of each VM's own change after the start of the change."""
        return [0.0] * len(self._vms)

    def _settling_figures(
        self, capacities_bps: Mapping[str, int], _flows: Sequence[FlowResult]
    ) -> dict[str, float]:
        """The figures of how long the team took to settle after the change."""
        return {"settle_s": settle_s(self._readings, capacities_bps, *self.measured_s)}

    def _extra_details(self, _flows: Sequence[FlowResult]) -> dict[str, Any]:
        """The further details of a subclass."""
        return {}

    def _is_placed(self, uplinks: Mapping[str, str]) -> bool:
        """Whether the load may change, once this placement is stable."""
        return is_balanced(self._stage.layout, uplinks, self._vms)

    def _plan(self) -> dict[str, Any]:
        clients = self._stage.layout.nodes(Role.CLIENT)
        ends = [(vm, clients[number % len(clients)]) for number, vm in enumerate(self._vms)]
        longest_s = SETTLE_TIMEOUT_S + self._max_wait_s + self.load_s + END_TIMEOUT_S
        return datagrams(self._stage, ends, self._rates_before(), longest_s)

    def _await_placement(self) -> dict[str, str]:
        """Wait for a stable placement, or the timeout. Returns the uplink of each VM."""
        fdb = UpstreamFdb(self._stage, self._vms)
        deadline_s = time.monotonic() + self.settle_timeout_s
        changed_s, uplinks = time.monotonic(), fdb.uplinks()
        while (now_s := time.monotonic()) < deadline_s:
            self._programs.require_running()
            if (found := fdb.uplinks()) != uplinks:
                changed_s, uplinks = now_s, found
            if now_s - changed_s >= self.stable_s and self._is_placed(uplinks):
                break
            time.sleep(0.2)
        if not uplinks:
            raise RuntimeError("the upstream switch has learned no VM")
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
            due_s = max(due_s + READ_INTERVAL_S, before_s)


def datagrams(
    stage: Stage, ends: Sequence[tuple[str, str]], rates_bps: Sequence[float], longest_s: float
) -> dict[str, Any]:
    """The plan of a flow of datagrams from each sender to each receiver of `ends`."""
    return {
        "payload_bytes": PAYLOAD_BYTES,
        "longest_s": longest_s,
        "flows": [
            {
                "sender_pid": stage.host_pids[sender],
                "receiver_pid": stage.host_pids[receiver],
                "address": stage.layout.address(receiver),
                "port": PORT + number,
                "rate_bps": rate_bps,
            }
            for number, ((sender, receiver), rate_bps) in enumerate(
                zip(ends, rates_bps, strict=True)
            )
        ],
    }


def flow_result(
    first: int, sent: int, numbers: Sequence[int], times_s: Sequence[float]
) -> FlowResult:
    """The result of a flow's datagrams from number `first` on, renumbered from 0."""
    arrivals = [
        (number - first, at_s)
        for number, at_s in zip(numbers, times_s, strict=True)
        if number >= first
    ]
    return FlowResult(sent - first, 0.0, 0.0, arrivals)


def is_balanced(layout: Layout, uplinks: Mapping[str, str], vms: Sequence[str]) -> bool:
    """Whether every VM has an uplink, and the uplinks' numbers of VMs differ by one at most."""
    counter = Counter(uplinks.values())
    counts = [counter[uplink] for uplink in layout.nodes(Role.UPLINK)]
    return set(uplinks) == set(vms) and max(counts) - min(counts) <= 1


class UpstreamFdb:
    """The upstream switch's FDB, which shows the uplink that the team has placed each VM on."""

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
        """The uplink of every VM in the FDB."""
        output = self._stage.ovs.run("ovs-appctl", "fdb/show", self._bridge)
        return parse_fdb(output, self._uplinks, self._vms)


def parse_fdb(output: str, uplinks: Mapping[str, str], vms: Mapping[str, str]) -> dict[str, str]:
    """Each VM's uplink in the output of `fdb/show`.

    `uplinks` has names by OpenFlow port number, and `vms` by MAC address.
    """
    rows = (line.split() for line in output.splitlines()[1:])
    return {
        vms[row[2]]: uplinks[row[0]]
        for row in rows
        if len(row) >= 4 and row[2] in vms and row[0] in uplinks
    }
