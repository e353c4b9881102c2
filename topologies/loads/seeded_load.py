"""Steady datagrams of all VMs, until each VM's rate jumps at a moment of its own.

The jump is one that a seed or a file has: uplinks, homes, rates and moments. Under whoever
places by number everybody is at home before it; a bond is told to have them there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx

from topologies.graph import parts
from topologies.graph.layout import Layout, Role
from topologies.loads.load import Stage
from topologies.loads.probing import Heard
from topologies.loads.settling import settle_s
from topologies.loads.shift_load import FRAME_BITS, Place, Rates, ShiftLoad
from topologies.network import processes
from topologies.seeds.figures import SPAN_S, gaps, highest_ratio, relieved_s, series, stalls
from topologies.seeds.instance import Instance

# Since it is chance when in an interval of a second a bond looks, or in 0.1 s we do.
LONGEST_WAIT_S = 1.0
# Nobody has moved for so long; polls are 0.1 s apart, and peaks are of 10 s.
STILL_S = 2.0
# Whoever does not keep them at home is taken as it is.
HOME_TIMEOUT_S = 8.0
# In real time, below the switch: what other work on the machine holds up comes as a burst.
SENDER_PRIORITY = 1
# As the service names its history, beside Open vSwitch's logs.
HISTORY = "ovs-lbt-history.jsonl"
NAME = "shift_seeds"


class SeededLoad(ShiftLoad):
    """A jump; with `jumps` false its control, in which nothing changes.

    The control's total is that of the jump, divided so that every uplink is used alike.
    """

    def __init__(
        self, stage: Stage, instance: Instance, *, watched_s: float, jumps: bool = True
    ) -> None:
        super().__init__(
            stage, Rates(0.0, 0.0, 0.0), longest_wait_s=LONGEST_WAIT_S, watched_s=watched_s
        )
        self.still_s = STILL_S
        self.settle_timeout_s = HOME_TIMEOUT_S
        self._instance = instance
        self._jumps = jumps
        uplinks = stage.layout.nodes(Role.UPLINK)
        self._homes = {
            vm: uplinks[one.home] for vm, one in zip(self._vms, instance.vms, strict=True)
        }
        self._found_at: dict[str, str] = {}
        self._stolen_before_s = 0.0
        self._place = Place(stage, self._vms)

    def start(self) -> None:
        """Have everybody at home, and start."""
        for vm, uplink in self._homes.items():
            self._stage.place(vm, uplink)
        super().start()
        for program in self._programs.values():
            processes.undisturb(program.pid, SENDER_PRIORITY)
        self._stolen_before_s = stolen_s()

    def _rates_before(self) -> list[float]:
        if self._jumps:
            return [vm.before_bps for vm in self._instance.vms]
        return self._even()

    def _rates_after(self, uplinks: Mapping[str, str]) -> list[float]:
        self._found_at = dict(uplinks)
        return self._after()

    def _after(self) -> list[float]:
        if self._jumps:
            return [vm.after_bps for vm in self._instance.vms]
        return self._even()

    def _even(self) -> list[float]:
        """The control's rates."""
        instance = self._instance
        mean_ratio = instance.offered_bps / sum(instance.capacities_bps)
        used = instance.home_utilizations()
        return [vm.after_bps * mean_ratio / used[vm.home] for vm in instance.vms]

    def _starts_s(self) -> list[float]:
        return [vm.start_s if self._jumps else 0.0 for vm in self._instance.vms]

    def _placed(self, uplinks: Mapping[str, str]) -> bool:
        return dict(uplinks) == self._homes

    def _settled(
        self, capacities_bps: Mapping[str, int], flows: Sequence[Heard]
    ) -> dict[str, float]:
        from_s, to_s = self.measured_s
        last_start_s = from_s + max(self._starts_s())
        rates_bps = dict(zip(self._vms, self._after(), strict=True))
        there = dict.fromkeys(capacities_bps, 0.0)
        for vm, uplink in self._found_at.items():
            there[uplink] += rates_bps[vm]
        planned = sum(self._planned_bits()) / FRAME_BITS
        return {
            "settle_s": settle_s(self._readings, capacities_bps, from_s, to_s),
            "relieved_s": relieved_s(self._readings, capacities_bps, last_start_s, to_s),
            "highest_ratio": highest_ratio(self._readings, capacities_bps, last_start_s + 1, to_s),
            # What the fullest uplink would carry if everybody stayed where they were.
            "jump_ratio": max(there[up] / bps for up, bps in capacities_bps.items()),
            "strangers": float(sum(self._found_at.get(vm) != up for vm, up in self._homes.items())),
            "sent_ratio": sum(one.sent for one in flows) / planned,
        }

    def _planned_bits(self) -> list[float]:
        """What each VM has to send from the jump's beginning on."""
        watched_s = self.measured_s[1] - self.measured_s[0]
        planned = zip(self._rates_before(), self._after(), strict=True)
        return [
            before * start_s + after * (watched_s - start_s)
            for (before, after), start_s in zip(planned, self._starts_s(), strict=True)
        ]

    def _more(self, flows: Sequence[Heard]) -> dict[str, Any]:
        layout = self._stage.layout
        capacities_bps = {up: layout.capacity_bps(up) for up in layout.nodes(Role.UPLINK)}
        return {
            "jumped_at": time.time() - (time.monotonic() - self.start_s - self.measured_s[0]),
            "found_at": self._found_at,
            "left_at": self._place.uplinks(),
            "span_s": SPAN_S,
            "series": series(self._readings, capacities_bps, self.measured_s[0]),
            "lost_at": self._lost_at(flows),
            "stalls": stalls(self._readings, self.measured_s[0]),
            "stolen_s": stolen_s() - self._stolen_before_s,
            "history": self._history(),
        }

    def _lost_at(self, flows: Sequence[Heard]) -> list[list[Any]]:
        """About when after the jump which VM has lost how many."""
        found = []
        for vm, flow in zip(self._vms, flows, strict=True):
            jumped_s = self.start_s + self.measured_s[0]
            lost = gaps([(number, at_s - jumped_s) for number, at_s in flow.arrivals], flow.sent)
            found += [[round(at_s, 3), vm, count] for at_s, count in lost]
        return sorted(found)

    def _history(self) -> list[Any]:
        """What the service says it has decided, where there is one."""
        path = self._stage.ovs.rundir / HISTORY
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]


def stolen_s() -> float:
    """The time that whoever runs this machine has given to others, on all cores together."""
    ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def layout_of(instance: Instance) -> Layout:
    """Its network: each VM port has a number that its home follows from."""
    graph = networkx.Graph()
    graph.add_node("server", role=Role.SERVER_BRIDGE)
    graph.add_node("upstream", role=Role.UPSTREAM_SWITCH)
    uplinks = len(instance.capacities_bps)
    speeds_mbps = [bps // 10**6 for bps in instance.capacities_bps]
    parts.add_uplinks(graph, "server", ["upstream"], speeds_mbps)
    for number, vm in enumerate(instance.vms):
        parts.add_vnic(
            graph,
            f"vm{number + 1}",
            "server",
            address=f"10.1.0.{number + 1}/16",
            ofport=uplinks * (10 + number) + vm.home,
            home=f"uplink{vm.home + 1}",
        )
    parts.add_clients(graph, "upstream", 2, network="10.1.1")
    return Layout(NAME, graph)
