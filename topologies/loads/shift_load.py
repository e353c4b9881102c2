"""Steady datagrams from all VMs until their rates change at once, or an uplink loses its carrier."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from topologies.graph.layout import Role
from topologies.graph.ports import own_interface, upstream_interface
from topologies.loads.load import Load, Outcome, Stage, set_links
from topologies.loads.probing import Datagrams, Flow, FlowResult
from topologies.loads.settling import Reading, placed_s, settle_s
from topologies.loads.traffic import HEADERS_BYTES, LINGER_S
from topologies.network.private_network import interface_counters

PORT = 7100
PAYLOAD_BYTES = 1400
FRAME_BITS = (PAYLOAD_BYTES + HEADERS_BYTES) * 8
# The interval between two readings of the uplinks' counters.
READ_INTERVAL_S = 0.01
# The part of the even load before the change that the reports show.
LEAD_S = 2.0
# Time for the sender to read its orders.
READY_S = 0.3
# A placement is stable once no VM has moved for this long.
STABLE_S = 3.0
SETTLE_TIMEOUT_S = 45.0
END_TIMEOUT_S = 15.0


class DatagramsLoad(Load):
    """All VMs send datagrams, until something changes at a random time after the team has placed the load.

    `start` waits for that placement, which it reads from the upstream switch's FDB. `before_bps` has the
    rate of each VM on the wire; it also has the rates after the change, unless a subclass has others.
    """

    stable_s = STABLE_S
    settle_timeout_s = SETTLE_TIMEOUT_S

    def __init__(
        self, stage: Stage, before_bps: Sequence[float], *, max_wait_s: float, watched_s: float
    ) -> None:
        super().__init__(stage)
        self._before_bps = self._after_bps = before_bps
        # The delay of each VM's own change after the start of the change.
        self._delays_s = [0.0] * len(before_bps)
        self._max_wait_s = max_wait_s
        self.load_s = LEAD_S + watched_s + LINGER_S
        self.measured_s = (LEAD_S, LEAD_S + watched_s)
        # The load is steady once the team has settled.
        self.steady_s = (LEAD_S + watched_s / 2, LEAD_S + watched_s)
        self._vms = stage.layout.nodes(Role.VM)
        self._programs = self._programs_of("datagrams")
        clients = stage.layout.nodes(Role.CLIENT)
        receivers = [clients[number % len(clients)] for number, _ in enumerate(self._vms)]
        flows = [
            Flow(vm, receiver, stage.layout.address(receiver), rate_bps)
            for vm, receiver, rate_bps in zip(self._vms, receivers, before_bps, strict=True)
        ]
        self._datagrams = Datagrams(
            *(self._programs, stage.host_pids, flows, PAYLOAD_BYTES, PORT), probes=False
        )
        self._readings: list[Reading] = []
        # The uplink of each VM before the change.
        self._placement: dict[str, str] = {}

    def start(self) -> None:
        """Start the load, wait until the team has placed it, and schedule the change."""
        now_s = time.monotonic()
        # An order ends it earlier.
        longest_s = SETTLE_TIMEOUT_S + self._max_wait_s + self.load_s + END_TIMEOUT_S
        self._datagrams.start(now_s, now_s + longest_s)
        self._placement = self._await_placement()
        time.sleep(random.uniform(0, self._max_wait_s))
        self.start_s = time.monotonic() + READY_S
        at_s, end_s = (self.start_s + at_s for at_s in self.measured_s)
        self._datagrams.change(at_s, end_s, self._rates_after(), after_s=self._delays_s)
        self._run(self._read)

    def finish(self) -> Outcome:
        """The figures of the datagrams and of the uplinks from the change on."""
        self._join("uplinks", self._left_s() + END_TIMEOUT_S)
        from_s, to_s = self.measured_s
        span_s = to_s - from_s
        flows = [*self._datagrams.finish().values()]
        received = sum(one.received for one in flows)
        offered = sum(one.sent for one in flows)
        layout = self._stage.layout
        figures = {
            **self._settling_figures(layout.capacities_bps, flows),
            "loss_ratio": (offered - received) / max(1, offered),
            "reordered_ratio": sum(one.reordered for one in flows) / max(1, received),
            "duplicated": float(sum(one.duplicated for one in flows)),
            "offered_bps": offered * FRAME_BITS / span_s,
        }
        return Outcome(
            received_bytes=self._datagrams.arrived(self.start_s) * PAYLOAD_BYTES,
            throughput_bps=received * PAYLOAD_BYTES * 8 / span_s,
            figures=figures,
            details={
                "shift_s": from_s,
                **self._details(),
                "readings": [[r.at_s, r.sent_bytes] for r in self._readings],
            },
        )

    def _rates_after(self) -> Sequence[float]:
        """Each VM's rate after the change, which may depend on the team's placement."""
        return self._after_bps

    def _details(self) -> dict[str, Any]:
        """Further details of the outcome."""
        return {}

    def _settling_figures(
        self, capacities_bps: Mapping[str, int], _flows: Sequence[FlowResult]
    ) -> dict[str, float]:
        """The figures of how long the team took to settle after the change."""
        return {"settle_s": settle_s(self._readings, capacities_bps, *self.measured_s)}

    def _is_placed(self, uplinks: Mapping[str, str]) -> bool:
        """Whether the load may change, once this placement is stable."""
        return set(uplinks) == set(self._vms)

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
        while due_s < self.start_s + self.load_s:
            self._pause(due_s - time.monotonic())
            before_s = time.monotonic()
            counters = interface_counters()
            at_s = (before_s + time.monotonic()) / 2 - self.start_s
            sent = {uplink: counters[name].sent_bytes for uplink, name in names.items()}
            self._readings.append(Reading(at_s, sent))
            due_s = max(due_s + READ_INTERVAL_S, before_s)


class ShiftLoad(DatagramsLoad):
    """All VMs send at the rate `even_bps`. Then the hot VMs send at `hot_bps`, and the others at `cold_bps`.

    The hot VMs are half of the VMs, all on one uplink, whichever team placed them: the first ones, by
    name, of the uplink that has the most.
    """

    def __init__(
        self, stage: Stage, even_bps: float, hot_bps: float, cold_bps: float, **times_s: float
    ) -> None:
        super().__init__(stage, [even_bps] * len(stage.layout.nodes(Role.VM)), **times_s)
        self._hot_bps, self._cold_bps = hot_bps, cold_bps
        self._hot: list[str] = []

    def _rates_after(self) -> list[float]:
        counts = Counter(self._placement.values())
        most = min(counts, key=lambda uplink: (-counts[uplink], uplink))
        on_it = sorted(vm for vm, uplink in self._placement.items() if uplink == most)
        self._hot = on_it[: len(self._vms) // 2]
        return [self._hot_bps if vm in self._hot else self._cold_bps for vm in self._vms]

    def _details(self) -> dict[str, Any]:
        return {"hot": self._hot}

    def _is_placed(self, uplinks: Mapping[str, str]) -> bool:
        """Also, the uplinks' numbers of VMs differ by one at most."""
        counter = Counter(uplinks.values())
        counts = [counter[uplink] for uplink in self._stage.layout.nodes(Role.UPLINK)]
        return super()._is_placed(uplinks) and max(counts) - min(counts) <= 1


class FailureLoad(DatagramsLoad):
    """The upstream switch takes the link of the uplink `failing` down; the VMs' rates stay the same."""

    def __init__(
        self,
        stage: Stage,
        rates_bps: Sequence[float],
        failing: str,
        stable_s: float,
        **times_s: float,
    ) -> None:
        super().__init__(stage, rates_bps, **times_s)
        self._failing = failing
        self._link = upstream_interface(stage.layout, stage.prefix, failing)
        self.stable_s = stable_s

    def start(self) -> None:
        """Start the load, wait until the team has placed it, and schedule the link failure."""
        super().start()
        self._run(self._fail_link)

    def _fail_link(self) -> None:
        self._pause_until(LEAD_S)
        set_links([self._link], "down")

    def _settling_figures(
        self, capacities_bps: Mapping[str, int], flows: Sequence[FlowResult]
    ) -> dict[str, float]:
        """How long the loss lasted, and how long the other uplinks took to share the load."""
        from_s, to_s = self.measured_s
        remaining_bps = {up: bps for up, bps in capacities_bps.items() if up != self._failing}
        lossless = lossless_s(flows, self.start_s + from_s, to_s - from_s)
        placed = placed_s(self._readings, remaining_bps, sum(self._before_bps), from_s, to_s)
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


class UpstreamFdb:
    """The upstream switch's FDB, which shows the uplink that the team has placed each VM on."""

    def __init__(self, stage: Stage, vms: Sequence[str]) -> None:
        self._ovs = stage.ovs
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
        shown = self._ovs.run("ovs-appctl", "fdb/show", self._bridge)
        rows = (line.split() for line in shown.splitlines()[1:])
        return {
            self._vms[row[2]]: self._uplinks[row[0]]
            for row in rows
            if len(row) >= 4 and row[2] in self._vms and row[0] in self._uplinks
        }
