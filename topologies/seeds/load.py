"""Steady datagrams from all VMs until each VM's rate jumps at its own time.

Each VM is on its home uplink before the jump. Contenders that place by port number put it there by
themselves, and the load places the VMs on a bond.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from topologies.graph.layout import Role
from topologies.loads.load import Stage
from topologies.loads.probing import ROLE, FlowResult
from topologies.loads.settling import Reading, settle_s
from topologies.loads.shift_load import FRAME_BITS, Rates, ShiftLoad
from topologies.network import processes
from topologies.seeds.jumps import Jump

# The jump comes at a random phase of the polls: a bond polls every second, ovs-lbt every 0.1 s.
MAX_WAIT_S = 1.0
# A placement is stable once no VM has moved for this long.
STABLE_S = 2.0
# After this time the load starts with the VMs where they are.
HOME_TIMEOUT_S = 8.0
# A real-time priority below the switch's, because a sender that has to wait sends a burst.
SENDER_PRIORITY = 1
# Utilization is a mean over spans of this length.
SPAN_S = 0.5


class SeededLoad(ShiftLoad):
    """A jump, or with `jumps` false its control run, in which no rate changes.

    The control run offers the total load of the jump, spread so that all uplinks are used equally.
    """

    def __init__(self, stage: Stage, jump: Jump, *, watched_s: float, jumps: bool = True) -> None:
        super().__init__(stage, Rates(0.0, 0.0, 0.0), max_wait_s=MAX_WAIT_S, watched_s=watched_s)
        self.stable_s = STABLE_S
        self.settle_timeout_s = HOME_TIMEOUT_S
        uplinks = stage.layout.nodes(Role.UPLINK)
        self._homes = {vm: uplinks[home] for vm, home in zip(self._vms, jump.homes, strict=True)}
        self._uplinks_before: dict[str, str] = {}
        self._delays_s = [vm.start_s if jumps else 0.0 for vm in jump.vms]
        self._before_bps = [vm.before_bps for vm in jump.vms]
        self._after_bps = [vm.after_bps for vm in jump.vms]
        if not jumps:
            mean_ratio = jump.offered_bps / sum(jump.capacities_bps)
            used = jump.home_utilizations()
            self._after_bps = [vm.after_bps * mean_ratio / used[vm.home] for vm in jump.vms]
            self._before_bps = self._after_bps

    def start(self) -> None:
        """Place every VM on its home, and start."""
        for vm, uplink in self._homes.items():
            self._stage.place(vm, uplink)
        super().start()
        processes.set_realtime_priority(self._programs[ROLE].pid, SENDER_PRIORITY)

    def _rates_before(self) -> list[float]:
        return self._before_bps

    def _rates_after(self, uplinks: Mapping[str, str]) -> list[float]:
        self._uplinks_before = dict(uplinks)
        return self._after_bps

    def _change_delays_s(self) -> list[float]:
        return self._delays_s

    def _is_placed(self, uplinks: Mapping[str, str]) -> bool:
        return dict(uplinks) == self._homes

    def _settling_figures(
        self, capacities_bps: Mapping[str, int], flows: Sequence[FlowResult]
    ) -> dict[str, float]:
        from_s, to_s = self.measured_s
        settled_s = from_s + max(self._delays_s) + 1
        offered_bps = dict.fromkeys(capacities_bps, 0.0)
        for vm, bps in zip(self._vms, self._after_bps, strict=True):
            if vm in self._uplinks_before:
                offered_bps[self._uplinks_before[vm]] += bps
        planned = sum(
            before * start_s + after * (to_s - from_s - start_s)
            for before, after, start_s in zip(
                self._before_bps, self._after_bps, self._delays_s, strict=True
            )
        )
        return {
            "settle_s": settle_s(self._readings, capacities_bps, from_s, to_s),
            "highest_ratio": highest_ratio(self._readings, capacities_bps, settled_s, to_s),
            # The highest load of an uplink if no VM moved.
            "jump_ratio": max(offered_bps[up] / bps for up, bps in capacities_bps.items()),
            "strangers": float(
                sum(self._uplinks_before.get(vm) != up for vm, up in self._homes.items())
            ),
            "sent_ratio": sum(one.sent for one in flows) * FRAME_BITS / planned,
        }


def highest_ratio(
    readings: Sequence[Reading], capacities_bps: Mapping[str, int], from_s: float, to_s: float
) -> float:
    """The highest utilization of any uplink over any `SPAN_S` between these times."""
    within = [one for one in readings if from_s <= one.at_s <= to_s]
    times_s = [one.at_s for one in within]
    found = [0.0]
    for before in within:
        # Spans can be longer than `SPAN_S` by the interval between readings.
        last = bisect.bisect_left(times_s, before.at_s + SPAN_S)
        for after in within[last : last + 1]:
            found += [
                (after.sent_bytes[up] - before.sent_bytes[up])
                * 8
                / (after.at_s - before.at_s)
                / bps
                for up, bps in capacities_bps.items()
            ]
    return max(found)
