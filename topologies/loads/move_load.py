"""TCP and datagrams of one VM, in both directions, while the team moves it between uplinks."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from topologies.graph.layout import Role
from topologies.loads import probing
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import FlowResult
from topologies.loads.shift_load import UpstreamFdb, steady_datagrams
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow

# Far below the capacity of an uplink, so that all loss and retransmissions come from the moves.
STREAMS, STREAM_BPS = 2, 15_000_000
BUFFER_BYTES = 4 * 1024
PROBES_PPS = 500.0
WARM_UP_S, COOL_DOWN_S = 2.0, 1.0
END_TIMEOUT_S = 15.0
# After a move, the upstream switch must learn the VM at its new uplink within this time.
LEARNED_TIMEOUT_S = 3.0
# The kernel's counters of retransmitted segments and of segments received out of order.
RETRANSMITTED, DISORDERED = "RetransSegs", "TCPOFOQueue"
# The costs that are reported per move.
PER_MOVE = ("retransmissions", "tcp_disordered", "lost", "reordered")
# TCP counters, summed over both end systems.
Counts = Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One move of the VM, with the times of the request and of the answer since the load's start."""

    origin: str
    requested_s: float
    answered_s: float


class MoveLoad(Load):
    """A baseline without moves, and a part of the same length in which the team moves the VM.

    The moves are `interval_s` apart. With `busy_bps`, another VM sends at this rate by the last
    uplink all the time, and the figures cover only the moves away from that uplink.
    """

    def __init__(
        self, stage: Stage, *, moves: int, interval_s: float, busy_bps: float = 0.0
    ) -> None:
        super().__init__(stage)
        self._count, self._interval_s, self._busy_bps = moves, interval_s, busy_bps
        layout = stage.layout
        self._vm, self._client = layout.nodes(Role.VM)[0], layout.nodes(Role.CLIENT)[0]
        self._moving_s = WARM_UP_S + moves * interval_s
        self.load_s = self._moving_s + moves * interval_s + COOL_DOWN_S
        directions = [
            (sender, receiver, layout.addresses_of(receiver)[0])
            for sender, receiver in ((self._vm, self._client), (self._client, self._vm))
        ]
        flows = [
            Flow(
                *ends,
                duration_s=self.load_s,
                streams=STREAMS,
                rate_bps=STREAM_BPS,
                buffer_bytes=BUFFER_BYTES,
            )
            for ends in directions
        ]
        self._streams = StreamLoad(stage, flows, (WARM_UP_S, self.load_s - COOL_DOWN_S))
        self._resources.callback(self._streams.close)
        self.measured_s = self._streams.measured_s
        self.steady_s = (WARM_UP_S, self._moving_s)
        probes = [probing.Flow(*ends) for ends in directions]
        programs = self._programs_of("probes")
        self._probes = probing.Probes(programs, stage.host_pids, probes, PROBES_PPS)
        self._moves: list[Move] = []
        # Before and after the baseline, and before and after each move.
        self._counts: list[Counts] = []

    def start(self) -> None:
        """Start all programs; the moves begin after the baseline."""
        # The baseline must not share an uplink with the other VM.
        self._stage.move(self._vm, self._stage.layout.nodes(Role.UPLINK)[0])
        if self._busy_bps:
            self._start_other_vm()
        self._streams.start()
        self.start_s = self._streams.start_s
        self._probes.start(self.start_s + WARM_UP_S / 2, self.start_s + self.load_s)
        self._run(self._move_all)

    def finish(self) -> Outcome:
        """The mean cost of a move, and the baseline of the same time without moves."""
        self._join("move", self._left_s() + LEARNED_TIMEOUT_S)
        outcome = self._streams.finish()
        probes = list(self._probes.finish().values())
        busy_uplink = self._stage.layout.nodes(Role.UPLINK)[-1]
        calm, *spent = [
            {name: after[name] - before[name] for name in before}
            for before, after in pairwise(self._counts)
        ]
        costs = [
            self._cost(move, counts, probes)
            for move, counts in zip(self._moves, spent[-self._count :], strict=True)
            if move.origin == busy_uplink or not self._busy_bps
        ]
        figures = {
            **{
                f"{name}_per_move": statistics.fmean(one[name] for one in costs)
                for name in PER_MOVE
            },
            "calm_retransmissions": calm[RETRANSMITTED] / self._count,
            "duplicated": sum(one["duplicated"] for one in costs),
            "silence_ms": statistics.median(one["silence_ms"] for one in costs),
            "worst_silence_ms": max(one["silence_ms"] for one in costs),
        }
        return dataclasses.replace(
            outcome,
            figures={**outcome.figures, **figures},
            details={
                "moves": [[one.origin, one.requested_s, one.answered_s] for one in self._moves],
                "costs": costs,
                "latest_s": max(one.max_delay_s for one in probes),
                "calm": calm,
            },
        )

    def _start_other_vm(self) -> None:
        """Start the second VM's traffic on the last uplink.

        With two uplinks, placement by port number puts that VM there, too.
        """
        layout = self._stage.layout
        sender, receiver = layout.nodes(Role.VM)[1], layout.nodes(Role.CLIENT)[-1]
        self._stage.move(sender, layout.nodes(Role.UPLINK)[-1])
        ends = [(sender, receiver, layout.address(receiver), self._busy_bps)]
        plan = steady_datagrams(self._stage, ends, self.load_s + END_TIMEOUT_S)
        self._programs_of("busy").start(probing.ROLE, plan)

    def _move_all(self) -> None:
        """Make the moves, and read the TCP counters before, between and after them."""
        fdb = UpstreamFdb(self._stage, [self._vm])
        uplinks = self._stage.layout.nodes(Role.UPLINK)
        self._pause_until(WARM_UP_S)
        self._counts.append(self._read_counts())
        self._pause_until(self._moving_s)
        self._counts.append(self._read_counts())
        uplink = fdb.uplinks()[self._vm]
        for number in range(self._count):
            self._pause_until(self._moving_s + number * self._interval_s)
            origin, uplink = uplink, uplinks[(uplinks.index(uplink) + 1) % len(uplinks)]
            self._counts.append(self._read_counts())
            requested_s = time.monotonic() - self.start_s
            self._stage.move(self._vm, uplink)
            self._moves.append(Move(origin, requested_s, time.monotonic() - self.start_s))
            # Reading the FDB costs the switch CPU time, so do it well after the move.
            self._pause_until(requested_s + self._interval_s * 0.7)
            self._require_learned(fdb, uplink)
        self._pause_until(self._moving_s + self._count * self._interval_s)
        self._counts.append(self._read_counts())

    def _require_learned(self, fdb: UpstreamFdb, uplink: str) -> None:
        deadline_s = time.monotonic() + LEARNED_TIMEOUT_S
        while (found := fdb.uplinks().get(self._vm)) != uplink:
            if time.monotonic() > deadline_s:
                raise RuntimeError(
                    f"the upstream switch has learned {self._vm} on {found}; expected {uplink}"
                )
            self._pause(0.05)

    def _read_counts(self) -> Counts:
        """The TCP counters of both end systems together."""
        found = dict.fromkeys((RETRANSMITTED, DISORDERED), 0)
        for name in (self._vm, self._client):
            net = Path(f"/proc/{self._stage.host_pids[name]}/net")
            counters = tcp_counters("".join((net / t).read_text() for t in ("snmp", "netstat")))
            for counter in found:
                found[counter] += counters[counter]
        return found

    def _cost(self, move: Move, counts: Counts, flows: Sequence[FlowResult]) -> dict[str, float]:
        """The cost of one move until the next one, summed over both directions."""
        from_s = move.requested_s + self.start_s
        to_s = from_s + self._interval_s
        probes = [flow.part(from_s, to_s) for flow in flows]
        return {
            "retransmissions": counts[RETRANSMITTED],
            "tcp_disordered": counts[DISORDERED],
            "lost": sum(one.lost for one in probes),
            "reordered": sum(one.reordered for one in probes),
            "duplicated": sum(one.duplicated for one in probes),
            "silence_ms": max(flow.longest_gap_s(from_s, to_s) for flow in flows) * 1000,
        }


def tcp_counters(text: str) -> dict[str, int]:
    """Parse `/proc/net/snmp` and `netstat`: a line of names, then a line of values."""
    lines = text.splitlines()
    return {
        name: int(value)
        for names, values in zip(lines[::2], lines[1::2], strict=True)
        for name, value in zip(names.split()[1:], values.split()[1:], strict=True)
    }
