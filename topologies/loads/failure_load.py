"""Steady datagrams from all VMs while one uplink loses its carrier."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from topologies.graph.ports import upstream_interface
from topologies.loads.load import Stage
from topologies.loads.probing import FlowResult
from topologies.loads.settling import Reading, shares
from topologies.loads.shift_load import LEAD_S, Rates, ShiftLoad

# An uplink is well placed up to this multiple of its load in the best placement that is left.
NEAR_RATIO = 1.1
# The span of the median that gives an uplink's share.
SPAN_S = 0.5


class FailureLoad(ShiftLoad):
    """The upstream switch takes one link down; the VMs' rates stay the same.

    `rates_bps` has the rate of each VM. The uplink `failing` fails once no VM has moved for
    `stable_s`, or after a timeout.
    """

    def __init__(
        self,
        stage: Stage,
        rates_bps: Sequence[float],
        failing: str,
        *,
        stable_s: float,
        max_wait_s: float,
        watched_s: float,
    ) -> None:
        super().__init__(stage, Rates(0.0, 0.0, 0.0), max_wait_s=max_wait_s, watched_s=watched_s)
        self._rates_bps = list(rates_bps)
        self._failing = failing
        self._link = upstream_interface(stage.layout, stage.prefix, failing)
        self.stable_s = stable_s
        self._failure_thread: threading.Thread | None = None
        self._failed_s: float | None = None

    def start(self) -> None:
        """Start the load, wait until the team has placed it, and schedule the link failure."""
        super().start()
        self._failure_thread = threading.Thread(target=self._fail_link, daemon=True)
        self._failure_thread.start()

    def _fail_link(self) -> None:
        if not self._ended.wait(max(0.0, self.start_s + LEAD_S - time.monotonic())):
            subprocess.run(["ip", "link", "set", self._link, "down"], check=True)
            self._failed_s = time.monotonic()

    def _rates_before(self) -> list[float]:
        return self._rates_bps

    def _rates_after(self, _uplinks: Mapping[str, str]) -> list[float]:
        return self._rates_bps

    def _is_placed(self, uplinks: Mapping[str, str]) -> bool:
        return set(uplinks) == set(self._vms)

    def _settling_figures(
        self, capacities_bps: Mapping[str, int], flows: Sequence[FlowResult]
    ) -> dict[str, float]:
        """How long the loss lasted, and how long the other uplinks took to share the load."""
        if self._failed_s is None:
            raise RuntimeError(f"{self._link} was not set down")
        from_s, to_s = self.measured_s
        remaining_bps = {up: bps for up, bps in capacities_bps.items() if up != self._failing}
        offered_bps = sum(self._rates_bps)
        lossless = lossless_s(flows, self.start_s + from_s, to_s - from_s)
        placed = placed_s(self._readings, remaining_bps, offered_bps, from_s, to_s)
        return {
            "lossless_s": lossless,
            "placed_s": placed,
            "restored_s": max(lossless, placed),
        }


def lossless_s(flows: Sequence[FlowResult], failed_s: float, watched_s: float) -> float:
    """The time from a failure until the last flow has recovered; at most `watched_s`.

    A flow has recovered when a datagram arrives that was sent after the flow's last lost one.
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
    """The time from `from_s` until the load is spread over the uplinks by their capacities.

    An uplink may carry `NEAR_RATIO` times its load in the best placement. The result is the whole
    span if an uplink exceeds that in the end. The function compares shares and not rates, because
    a machine that stops for a moment stops all uplinks. It does not see a change that lasts less
    than half of `SPAN_S`.
    """
    max_ratio = NEAR_RATIO * offered_bps / sum(capacities_bps.values())
    last_s = to_s - SPAN_S / 2
    used = [
        (at_s, max(split[up] * offered_bps / bps for up, bps in capacities_bps.items()))
        for at_s, split in shares(readings, SPAN_S)
        if from_s <= at_s <= last_s
    ]
    above = [number for number, (_, worst) in enumerate(used) if worst > max_ratio]
    if not above:
        return 0.0
    after = used[above[-1] + 1 :]
    return after[0][0] - from_s if after else to_s - from_s
