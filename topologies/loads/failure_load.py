"""Steady datagrams of all VMs, of which one uplink loses its carrier, and what that costs them."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from topologies.graph.ports import upstream_interface
from topologies.loads.load import Stage
from topologies.loads.probing import Heard
from topologies.loads.settling import Reading, shares
from topologies.loads.shift_load import LEAD_S, Rates, ShiftLoad

# Above what the best placement on the rest would have: nearer than this is as good.
NEAR_RATIO = 1.1
# A share is the median over this.
SPAN_S = 0.5


class FailureLoad(ShiftLoad):
    """Rates stay what they are; the upstream switch takes a link down.

    `rates_bps` is what each VM sends, and `failing` the uplink. It fails once nobody has
    moved for `still_s`, or that has taken too long.
    """

    def __init__(
        self,
        stage: Stage,
        rates_bps: Sequence[float],
        failing: str,
        *,
        still_s: float,
        longest_wait_s: float,
        watched_s: float,
    ) -> None:
        super().__init__(
            stage, Rates(0.0, 0.0, 0.0), longest_wait_s=longest_wait_s, watched_s=watched_s
        )
        self._rates_bps = list(rates_bps)
        self._failing = failing
        self._link = upstream_interface(stage.layout, stage.prefix, failing)
        self.still_s = still_s
        self._cutter: threading.Thread | None = None
        self._cut_s: float | None = None

    def start(self) -> None:
        """Start the load, wait until it is placed, and have the link fail at its time."""
        super().start()
        self._cutter = threading.Thread(target=self._cut, daemon=True)
        self._cutter.start()

    def _cut(self) -> None:
        if not self._ended.wait(max(0.0, self.start_s + LEAD_S - time.monotonic())):
            subprocess.run(["ip", "link", "set", self._link, "down"], check=True)
            self._cut_s = time.monotonic()

    def _rates_before(self) -> list[float]:
        return self._rates_bps

    def _rates_after(self, _uplinks: Mapping[str, str]) -> list[float]:
        return self._rates_bps

    def _placed(self, uplinks: Mapping[str, str]) -> bool:
        return set(uplinks) == set(self._vms)

    def _settled(
        self, capacities_bps: Mapping[str, int], flows: Sequence[Heard]
    ) -> dict[str, float]:
        """From when on nothing is lost, and the rest is used as well as it can be."""
        if self._cut_s is None:
            raise RuntimeError(f"{self._link}: still up -> taken down")
        from_s, to_s = self.measured_s
        rest_bps = {up: bps for up, bps in capacities_bps.items() if up != self._failing}
        offered_bps = sum(self._rates_bps)
        whole_s = lossless_s(flows, self.start_s + from_s, to_s - from_s)
        placed = placed_s(self._readings, rest_bps, offered_bps, from_s, to_s)
        return {
            "lossless_s": whole_s,
            "placed_s": placed,
            "restored_s": max(whole_s, placed),
        }


def lossless_s(flows: Sequence[Heard], failed_s: float, watched_s: float) -> float:
    """How long after a failure the last of its losses was over; all of the time, if never.

    A flow's loss is over when a datagram arrives that was sent after the last lost one.
    """
    ends_s = [0.0]
    for flow in flows:
        first_s: dict[int, float] = {}
        for number, at_s in flow.arrivals:
            first_s.setdefault(number, at_s)
        missing = set(range(flow.sent)) - set(first_s)
        if missing:
            later = [at_s for number, at_s in first_s.items() if number > max(missing)]
            ends_s.append(min(later) - failed_s if later else watched_s)
    return min(max(ends_s), watched_s)


def placed_s(
    readings: Sequence[Reading],
    capacities_bps: Mapping[str, int],
    offered_bps: float,
    from_s: float,
    to_s: float,
) -> float:
    """How long after `from_s` each uplink has about the share that its capacity is of the rest.

    That is, of all that is offered no more than `NEAR_RATIO` of what it would have in the best
    placement; all of the time, where that is not so in the end. By shares, since a machine that
    stops for a moment stops all uplinks. What lasts less than half of `SPAN_S` is not seen.
    """
    most_ratio = NEAR_RATIO * offered_bps / sum(capacities_bps.values())
    last_s = to_s - SPAN_S / 2
    used = [
        (at_s, max(split[up] * offered_bps / bps for up, bps in capacities_bps.items()))
        for at_s, split in shares(readings, SPAN_S)
        if from_s <= at_s <= last_s
    ]
    above = [number for number, (_, worst) in enumerate(used) if worst > most_ratio]
    if not above:
        return 0.0
    after = used[above[-1] + 1 :]
    return after[0][0] - from_s if after else to_s - from_s
