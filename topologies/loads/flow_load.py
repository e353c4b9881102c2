"""Flows of published sizes from VMs to clients, started at random times in an open loop."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from topologies.graph.layout import Role
from topologies.loads import flow_plan
from topologies.loads.flow_plan import (
    SizeDistribution,
    ideal_s,
    offered_bps,
    plan_flows,
    popularity,
)
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.traffic import NOT_STARTED

# Chance decides which VMs are popular, when flows start, and in which order sizes follow. The first run
# of every contender has this seed, the second the next one.
SEED = 1
READY_S = 1.5
END_TIMEOUT_S = 15.0
PERCENTILES = (50, 95, 99)
# The bounds of the published classes, 100 kB and 10 MB, divided by ten as the sizes are.
SMALL_BYTES, LARGE_BYTES = 10_000, 1_000_000
SMALL, MIDDLE, LARGE = CLASSES = ("small", "middle", "large")


class FlowLoad(Load):
    """Clients request flows from VMs, at a share of the capacity of all uplinks together.

    The first `warm_up_s` are for teams to place the load. The flows that start in the next `watched_s`
    are measured. Then the load ends with the last flow, or after `drain_s` more.
    """

    def __init__(
        self,
        stage: Stage,
        distribution: SizeDistribution,
        load_bps: float,
        warm_up_s: float,
        watched_s: float,
        drain_s: float,
    ) -> None:
        super().__init__(stage)
        layout = stage.layout
        self.measured_s = self.steady_s = (warm_up_s, warm_up_s + watched_s)
        self.load_s = warm_up_s + watched_s + drain_s
        self._vms, self._clients = layout.nodes(Role.VM), layout.nodes(Role.CLIENT)
        spans = [(0.0, warm_up_s), self.measured_s]
        seed = SEED + stage.repetition - 1
        shares = popularity(len(self._vms), seed)
        self.flows = plan_flows(distribution, load_bps, spans, shares, seed)
        links_bps = [float(bps) for bps in layout.capacities_bps.values()]
        self._places = flow_plan.place(self.flows, links_bps)
        self._link_bps = max(links_bps)
        self._programs = self._programs_of("flows")

    def start(self) -> None:
        """Start the servers, then the clients. The first flow begins after `start_s`."""
        # The programs need this time to start and to read the plan.
        self.start_s = time.monotonic() + READY_S
        plan = self._plan()
        for role in ("serve", "request"):
            self._programs.start(role, plan)
        self._run(self._await_end)

    def finish(self) -> Outcome:
        """Wait for the flows to end. `details` has the fields of a `Completion` for each measured flow."""
        found = self._programs.results("request", self._left_s() + END_TIMEOUT_S)
        self._programs.stop("serve")
        self._programs.results("serve", END_TIMEOUT_S)
        self._join("flows", END_TIMEOUT_S)
        missed = sum(late_s == NOT_STARTED for late_s, _, _ in found["rows"])
        if missed:
            raise RuntimeError(f"{missed} of {len(self.flows)} flows never started")
        from_s, to_s = self.measured_s
        measured = [
            Completion(flow.size_bytes, flow.start_s, late_s, took_s, received == flow.size_bytes)
            for flow, (late_s, took_s, received) in zip(self.flows, found["rows"], strict=True)
            if from_s <= flow.start_s < to_s
        ]
        return Outcome(
            received_bytes=found["received_bytes"],
            throughput_bps=found["measured_bytes"] * 8 / (to_s - from_s),
            figures={
                **figures(measured, self._link_bps),
                **lateness_figures(measured),
                "offered_bps": offered_bps(self.flows, self.measured_s),
            },
            details=[list(one) for one in measured],
        )

    def _plan(self) -> dict[str, Any]:
        layout, pids = self._stage.layout, self._stage.host_pids
        servers = [layout.addresses_of(vm)[0] for vm in self._vms]
        ports = flow_plan.client_ports(
            [flow.vm % len(self._clients) for flow in self.flows], self._places
        )
        return {
            "start_s": self.start_s,
            "end_s": self.start_s + self.load_s,
            "measured_s": self.measured_s,
            "port": flow_plan.SERVER_PORT,
            "server_pids": [pids[vm] for vm in self._vms],
            "clients": [
                {"pid": pids[name], "address": layout.address(name)} for name in self._clients
            ],
            "flows": [
                {
                    "start_s": flow.start_s,
                    "client": flow.vm % len(self._clients),
                    "port": port,
                    "server": servers[flow.vm],
                    "size_bytes": flow.size_bytes,
                }
                for flow, port in zip(self.flows, ports, strict=True)
            ],
        }

    def _await_end(self) -> None:
        """Shorten the load when the last flow has ended."""
        self._programs["request"].wait()
        took_s = time.monotonic() - self.start_s
        self.load_s = min(self.load_s, max(self.measured_s[1], took_s))


class Completion(NamedTuple):
    """One flow that has ended.

    Attributes:
        size_bytes: the size that was requested.
        start_s: when the flow was due to start, in seconds since the start of the load.
        late_s: how much later than that it was started.
        duration_s: the time from its start to its last byte, or until it was aborted.
        complete: whether all bytes arrived.
    """

    size_bytes: int
    start_s: float
    late_s: float
    duration_s: float
    complete: bool = True


def size_class(size_bytes: int) -> str:
    """The class of a size. Both bounds are middle."""
    if size_bytes < SMALL_BYTES:
        return SMALL
    return LARGE if size_bytes > LARGE_BYTES else MIDDLE


def slowdown(flow: Completion, link_bps: float) -> float:
    """The duration of a flow divided by its duration on an idle link."""
    return flow.duration_s / ideal_s(flow.size_bytes, link_bps)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The lowest value that this percentage of all values does not exceed (nearest rank).

    None if no value is above it, because it would then be the maximum, which is random.
    """
    rank = math.ceil(len(values) * percent / 100)
    if rank < 1 or rank >= len(values):
        return None
    return sorted(values)[rank - 1]


def figures(flows: Sequence[Completion], link_bps: float) -> dict[str, float]:
    """The percentiles of completion times and slowdowns, and the number of flows.

    A flow that did not complete counts with the time until it was aborted, which is less than its
    full duration. A percentile for which there are too few flows is absent.
    """
    found: dict[str, float] = {}
    by_class: dict[str, list[Completion]] = {name: [] for name in CLASSES}
    for flow in flows:
        by_class[size_class(flow.size_bytes)].append(flow)
    for name, ones in by_class.items():
        found[f"flows_{name}"] = float(len(ones))
        found |= _percentiles(f"fct_{name}", [one.duration_s * 1000 for one in ones], "_ms")
        found |= _percentiles(f"slowdown_{name}", [slowdown(one, link_bps) for one in ones])
    found |= _percentiles("slowdown", [slowdown(one, link_bps) for one in flows])
    if flows:
        found["unfinished_ratio"] = sum(not one.complete for one in flows) / len(flows)
    return found


def lateness_figures(flows: Sequence[Completion]) -> dict[str, float]:
    """How much later than planned flows were started, which is due to the machine, not to a contender."""
    late_ms = [one.late_s * 1000 for one in flows]
    found = _percentiles("late", late_ms, "_ms", (99,))
    return {**found, "late_worst_ms": max(late_ms)} if late_ms else found


def _percentiles(
    name: str, values: Sequence[float], suffix: str = "", percents: Sequence[int] = PERCENTILES
) -> dict[str, float]:
    found = {f"{name}_p{percent}{suffix}": percentile(values, percent) for percent in percents}
    return {key: value for key, value in found.items() if value is not None}
