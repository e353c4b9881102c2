"""Steady datagrams from all VMs until each VM's rate jumps at its own time.

A seed or a file defines the jump: the uplinks, and each VM's home, rates and time. Each VM is on
its home uplink before the jump. Contenders that place by port number put it there by themselves,
and the load places the VMs on a bond.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies.graph import parts
from topologies.graph.layout import Layout, Role
from topologies.loads.load import Stage
from topologies.loads.probing import FlowResult
from topologies.loads.settling import settle_s
from topologies.loads.shift_load import FRAME_BITS, Rates, ShiftLoad, UpstreamFdb
from topologies.network import processes
from topologies.seeds.figures import SPAN_S, gaps, highest_ratio, relieved_s, series, stalls
from topologies.seeds.instance import Instance

# The jump comes at a random phase of the polls: a bond polls every second, ovs-lbt every 0.1 s.
MAX_WAIT_S = 1.0
# A placement is stable once no VM has moved for this long.
STABLE_S = 2.0
# After this time the load starts with the VMs where they are.
HOME_TIMEOUT_S = 8.0
# A real-time priority below the switch's, because a sender that has to wait sends a burst.
SENDER_PRIORITY = 1
# The service's history file, in the directory of Open vSwitch's logs.
HISTORY = "ovs-lbt-history.jsonl"
NAME = "shift_seeds"


class SeededLoad(ShiftLoad):
    """A jump, or with `jumps` false its control run, in which no rate changes.

    The control run offers the total load of the jump, spread so that all uplinks are used equally.
    """

    def __init__(
        self, stage: Stage, instance: Instance, *, watched_s: float, jumps: bool = True
    ) -> None:
        super().__init__(stage, Rates(0.0, 0.0, 0.0), max_wait_s=MAX_WAIT_S, watched_s=watched_s)
        self.stable_s = STABLE_S
        self.settle_timeout_s = HOME_TIMEOUT_S
        self._instance = instance
        self._jumps = jumps
        uplinks = stage.layout.nodes(Role.UPLINK)
        self._homes = {
            vm: uplinks[one.home] for vm, one in zip(self._vms, instance.vms, strict=True)
        }
        self._uplinks_before: dict[str, str] = {}
        self._steal_before_s = 0.0
        self._fdb = UpstreamFdb(stage, self._vms)

    def start(self) -> None:
        """Place every VM on its home, and start."""
        for vm, uplink in self._homes.items():
            self._stage.place(vm, uplink)
        super().start()
        for role in ("receive", "send"):
            processes.set_realtime_priority(self._programs[role].pid, SENDER_PRIORITY)
        self._steal_before_s = steal_time_s()

    def _rates_before(self) -> list[float]:
        if self._jumps:
            return [vm.before_bps for vm in self._instance.vms]
        return self._control_rates_bps()

    def _rates_after(self, uplinks: Mapping[str, str]) -> list[float]:
        self._uplinks_before = dict(uplinks)
        return self._final_rates_bps()

    def _final_rates_bps(self) -> list[float]:
        if self._jumps:
            return [vm.after_bps for vm in self._instance.vms]
        return self._control_rates_bps()

    def _control_rates_bps(self) -> list[float]:
        instance = self._instance
        mean_ratio = instance.offered_bps / sum(instance.capacities_bps)
        used = instance.home_utilizations()
        return [vm.after_bps * mean_ratio / used[vm.home] for vm in instance.vms]

    def _change_delays_s(self) -> list[float]:
        return [vm.start_s if self._jumps else 0.0 for vm in self._instance.vms]

    def _is_placed(self, uplinks: Mapping[str, str]) -> bool:
        return dict(uplinks) == self._homes

    def _settling_figures(
        self, capacities_bps: Mapping[str, int], flows: Sequence[FlowResult]
    ) -> dict[str, float]:
        from_s, to_s = self.measured_s
        last_start_s = from_s + max(self._change_delays_s())
        rates_bps = dict(zip(self._vms, self._final_rates_bps(), strict=True))
        offered_bps = dict.fromkeys(capacities_bps, 0.0)
        for vm, uplink in self._uplinks_before.items():
            offered_bps[uplink] += rates_bps[vm]
        planned = sum(self._planned_bits()) / FRAME_BITS
        return {
            "settle_s": settle_s(self._readings, capacities_bps, from_s, to_s),
            "relieved_s": relieved_s(self._readings, capacities_bps, last_start_s, to_s),
            "highest_ratio": highest_ratio(self._readings, capacities_bps, last_start_s + 1, to_s),
            # The highest load of an uplink if no VM moved.
            "jump_ratio": max(offered_bps[up] / bps for up, bps in capacities_bps.items()),
            "strangers": float(
                sum(self._uplinks_before.get(vm) != up for vm, up in self._homes.items())
            ),
            "sent_ratio": sum(one.sent for one in flows) / planned,
        }

    def _planned_bits(self) -> list[float]:
        """The amount that each VM has to send in the measured part."""
        watched_s = self.measured_s[1] - self.measured_s[0]
        planned = zip(self._rates_before(), self._final_rates_bps(), strict=True)
        return [
            before * start_s + after * (watched_s - start_s)
            for (before, after), start_s in zip(planned, self._change_delays_s(), strict=True)
        ]

    def _extra_details(self, flows: Sequence[FlowResult]) -> dict[str, Any]:
        layout = self._stage.layout
        capacities_bps = {up: layout.capacity_bps(up) for up in layout.nodes(Role.UPLINK)}
        return {
            "jumped_at": time.time() - (time.monotonic() - self.start_s - self.measured_s[0]),
            "found_at": self._uplinks_before,
            "left_at": self._fdb.uplinks(),
            "span_s": SPAN_S,
            "series": series(self._readings, capacities_bps, self.measured_s[0]),
            "lost_at": self._lost_at(flows),
            "stalls": stalls(self._readings, self.measured_s[0]),
            "stolen_s": steal_time_s() - self._steal_before_s,
            "history": self._history(),
        }

    def _lost_at(self, flows: Sequence[FlowResult]) -> list[list[Any]]:
        """The losses: the approximate time after the jump, the VM, and the number of datagrams."""
        found = []
        for vm, flow in zip(self._vms, flows, strict=True):
            jumped_s = self.start_s + self.measured_s[0]
            lost = gaps([(number, at_s - jumped_s) for number, at_s in flow.arrivals], flow.sent)
            found += [[round(at_s, 3), vm, count] for at_s, count in lost]
        return sorted(found)

    def _history(self) -> list[Any]:
        """The decisions in the service's history; empty for contenders without the service."""
        path = self._stage.ovs.rundir / HISTORY
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]


def steal_time_s() -> float:
    """The CPU time that the hypervisor has given to other machines, summed over all cores."""
    ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def layout_of(instance: Instance) -> Layout:
    """The layout of an instance. Placement by port number puts each VM on its home."""
    draft = parts.Draft(NAME)
    draft.switches("server", role=Role.SERVER_BRIDGE)
    draft.switches("upstream")
    uplinks = len(instance.capacities_bps)
    speeds_mbps = [bps // 10**6 for bps in instance.capacities_bps]
    draft.uplinks("server", ["upstream"], speeds_mbps)
    for number, vm in enumerate(instance.vms):
        draft.vnic(
            f"vm{number + 1}",
            "server",
            address=f"10.1.0.{number + 1}/16",
            ofport=uplinks * (10 + number) + vm.home,
            home=f"uplink{vm.home + 1}",
        )
    draft.clients("upstream", 2, network="10.1.1")
    return draft.layout()
