"""Steady flows while a whole upstream switch, or a single link, fails and returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from topologies.graph.layout import Layout, Role
from topologies.graph.ports import joining_interface, upstream_interface
from topologies.loads import probing
from topologies.loads.load import Outcome, Stage, set_links
from topologies.loads.pace import Pace
from topologies.loads.streams import Flow, StreamLoad

PROBES_DELAY_S = 1.0


class OutageLoad(StreamLoad):
    """TCP flows and probes in both directions, while links go down and up.

    `failing`: the switch whose links fail, or the only uplink that fails. `pace` has the times.
    """

    def __init__(self, stage: Stage, flows: Sequence[Flow], failing: str, pace: Pace) -> None:
        end_s = max(flow.begin_s + flow.duration_s for flow in flows)
        super().__init__(stage, flows, (1.0, end_s - 1), may_fail=True)
        self._links = interfaces_of(stage.layout, stage.prefix, failing)
        self._fails_s, self._returns_s, _ = pace.outage_s
        self.steady_s = (1.0, self._fails_s)
        probes = []
        for flow in flows:
            probes.append(probing.Flow(flow.sender, flow.receiver, flow.address))
            back = _address(stage.layout, flow.sender)
            probes.append(probing.Flow(flow.receiver, flow.sender, back))
        self._probes = probing.Probes(self._programs_of("probes"), stage.host_pids, probes)

    def start(self) -> None:
        """Start the flows and the probes, and let the links go down and up."""
        super().start()
        self._probes.start(self.start_s + PROBES_DELAY_S, self.start_s + self.load_s)
        self._run(self._fail)

    def finish(self) -> Outcome:
        """`failover_ms` and `failback_ms` are the longest gaps of any probe flow."""
        self._join("links", self._left_s() + probing.END_TIMEOUT_S)
        outcome = super().finish()
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
        return dataclasses.replace(outcome, figures=figures)

    def _fail(self) -> None:
        self._pause_until(self._fails_s)
        set_links(self._links, "down")
        self._pause_until(self._returns_s)
        set_links(self._links, "up")


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
