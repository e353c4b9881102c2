"""Steady flows while a whole upstream switch fails and returns, and what it costs them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from subprocess import Popen

from topologies.graph.layout import Role
from topologies.graph.ports import joining_interface, upstream_interface
from topologies.loads import probing
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow
from topologies.network import processes

PROBES_AHEAD_S = 1.0


class OutageLoad(Load):
    """TCP flows and probes beside them; one switch's links go down, and up again."""

    def __init__(
        self,
        stage: Stage,
        flows: Sequence[Flow],
        switch: str,
        *,
        fails_s: float,
        returns_s: float,
    ) -> None:
        self._stage = stage
        self._switch = switch
        self._fails_s, self._returns_s = fails_s, returns_s
        self.load_s = max(flow.begin_s + flow.duration_s for flow in flows)
        self._streams = StreamLoad(stage, flows, (1.0, self.load_s - 1), may_fail=True)
        self.measured_s, self.steady_s = self._streams.measured_s, (1.0, fails_s)
        layout = stage.layout
        probes = []
        for flow in flows:
            back = layout.addresses_of(flow.sender)[0]
            probes.append(probing.Flow(flow.sender, flow.receiver, flow.address))
            probes.append(probing.Flow(flow.receiver, flow.sender, back))
        self._probing = probing.Probing(stage.host_pids, probes, stage.directory)
        self._outage: Popen[bytes] | None = None

    def start(self) -> None:
        """Start flows, probes, and what will take the links down and up."""
        self._streams.start()
        self.start_s = self._streams.start_s
        end_s = self.start_s + self.load_s
        self._probing.start(self.start_s + PROBES_AHEAD_S, end_s)
        # Not from now: a failure before its time would not be measured.
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
        """`failover_ms`: the longest silence that the failure caused any flow."""
        outcome = self._streams.finish()
        heard = self._probing.finish().values()
        fails_s, returns_s = self.start_s + self._fails_s, self.start_s + self._returns_s
        end_s = self.start_s + self.load_s - 1
        # The links go down within some milliseconds of their time.
        gaps_s = [
            one.longest_gap_s(fails_s, fails_s + 2 / 3 * (returns_s - fails_s)) for one in heard
        ]
        back_s = [one.longest_gap_s(returns_s, end_s) for one in heard]
        figures = {
            **outcome.figures,
            **probing.figures(list(heard)),
            "failover_ms": max(gaps_s) * 1000,
            "failback_ms": max(back_s) * 1000,
        }
        return Outcome(outcome.received_bytes, outcome.throughput_bps, figures, outcome.details)

    def close(self) -> None:
        """End everything."""
        if self._outage is not None:
            processes.end(self._outage)
        self._probing.close()
        self._streams.close()

    def _links(self, state: str) -> list[str]:
        """The commands that take all links of the switch down, or up."""
        layout, prefix = self._stage.layout, self._stage.prefix
        interfaces = []
        for node in layout.graph.adj[self._switch]:
            if layout.attributes(node)["role"] == Role.UPLINK:
                interfaces.append(upstream_interface(layout, prefix, node))
            else:
                interfaces.append(joining_interface(layout, prefix, self._switch, node))
        return [f"ip link set {interface} {state}" for interface in interfaces]
