"""Steady flows while a whole upstream switch, or a single link, fails and returns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from subprocess import Popen

from topologies.graph.layout import Layout, Role
from topologies.graph.ports import joining_interface, upstream_interface
from topologies.loads import probing
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow
from topologies.network import processes

PROBES_DELAY_S = 1.0


class OutageLoad(Load):
    """TCP flows and probes in both directions, while links go down and up.

    `failing`: the switch whose links fail, or the only uplink that fails.
    """

    def __init__(
        self,
        stage: Stage,
        flows: Sequence[Flow],
        failing: str,
        *,
        fails_s: float,
        returns_s: float,
    ) -> None:
        self._stage = stage
        self._failing = failing
        self._fails_s, self._returns_s = fails_s, returns_s
        self.load_s = max(flow.begin_s + flow.duration_s for flow in flows)
        self._streams = StreamLoad(stage, flows, (1.0, self.load_s - 1), may_fail=True)
        self.measured_s, self.steady_s = self._streams.measured_s, (1.0, fails_s)
        layout = stage.layout
        probes = []
        for flow in flows:
            probes.append(probing.Flow(flow.sender, flow.receiver, flow.address))
            probes.append(probing.Flow(flow.receiver, flow.sender, _address(layout, flow.sender)))
        self._probes = probing.Probes(stage.host_pids, probes, stage.directory)
        self._outage: Popen[bytes] | None = None

    def start(self) -> None:
        """Start the flows, the probes, and the script that takes the links down and up."""
        self._streams.start()
        self.start_s = self._streams.start_s
        end_s = self.start_s + self.load_s
        self._probes.start(self.start_s + PROBES_DELAY_S, end_s)
        # Relative to the load's start: the measurement would miss a failure that comes too early.
        fails_in_s = max(0.0, self.start_s + self._fails_s - time.monotonic())
        script = "; ".join(
            [
                *(f"sleep {fails_in_s:.3f}", *self._links("down")),
                *(f"sleep {self._returns_s - self._fails_s:g}", *self._links("up")),
            ]
        )
        log = self._stage.directory / "outage.log"
        self._outage = processes.start(["sh", "-c", script], log)

    def finish(self) -> Outcome:
        """`failover_ms` and `failback_ms` are the longest gaps of any probe flow."""
        outcome = self._streams.finish()
        results = list(self._probes.finish().values())
        fails_s, returns_s = self.start_s + self._fails_s, self.start_s + self._returns_s
        end_s = self.start_s + self.load_s - 1
        failover_end_s = fails_s + 2 / 3 * (returns_s - fails_s)
        failover_s = [one.longest_gap_s(fails_s, failover_end_s) for one in results]
        failback_s = [one.longest_gap_s(returns_s, end_s) for one in results]
        figures = {
            **outcome.figures,
            **probing.figures(results),
            "failover_ms": max(failover_s) * 1000,
            "failback_ms": max(failback_s) * 1000,
        }
        return Outcome(outcome.received_bytes, outcome.throughput_bps, figures, outcome.details)

    def close(self) -> None:
        """Stop all programs."""
        if self._outage is not None:
            processes.end(self._outage)
        self._probes.close()
        self._streams.close()

    def _links(self, state: str) -> list[str]:
        """The commands that set all failing links up or down."""
        interfaces = interfaces_of(self._stage.layout, self._stage.prefix, self._failing)
        return [f"ip link set {interface} {state}" for interface in interfaces]


def interfaces_of(layout: Layout, prefix: str, failing: str) -> list[str]:
    """The upstream ends of an uplink's link, or of all links of a switch."""
    if layout.attributes(failing)["role"] == Role.UPLINK:
        return [upstream_interface(layout, prefix, failing)]
    return [
        upstream_interface(layout, prefix, node)
        if layout.attributes(node)["role"] == Role.UPLINK
        else joining_interface(layout, prefix, failing, node)
        for node in layout.graph.adj[failing]
    ]


def _address(layout: Layout, vm: str) -> str:
    """An address of a VM. Its vNIC may carry none of the load that was published."""
    loaded = layout.addresses_of(vm)
    return loaded[0] if loaded else layout.address(layout.vnics_of(vm)[0])
