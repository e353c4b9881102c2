"""TCP and datagrams of one VM, in both directions, while the team moves it between uplinks."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.graph.layout import Role
from topologies.loads import probing
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import FlowResult
from topologies.loads.programs import Programs
from topologies.loads.shift_load import UpstreamFdb, datagrams
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
# TCP counters by end system.
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Move:
    """One move of the VM, with the times of the request and of the answer.

    Times are relative to the load's start. `counts` are the TCP counters before the move.
    """

    origin: str
    requested_s: float
    answered_s: float
    counts: Counts


class MoveLoad(Load):
    """A baseline without moves, and a part of the same length in which the team moves the VM.

    The moves are `interval_s` apart. With `busy_bps`, another VM sends at this rate by the last
    uplink all the time, and the figures cover only the moves away from that uplink.
    """

    def __init__(
        self, stage: Stage, *, moves: int, interval_s: float, busy_bps: float = 0.0
    ) -> None:
        self._stage = stage
        self._count, self._interval_s, self._busy_bps = moves, interval_s, busy_bps
        self._busy = Programs(stage.directory, "busy")
        layout = stage.layout
        self._vm, self._client = layout.nodes(Role.VM)[0], layout.nodes(Role.CLIENT)[0]
        self._moving_s = WARM_UP_S + moves * interval_s
        self.load_s = self._moving_s + moves * interval_s + COOL_DOWN_S
        directions = [(self._vm, self._client), (self._client, self._vm)]
        addresses = {name: layout.addresses_of(name)[0] for name in (self._vm, self._client)}
        flows = [
            Flow(
                sender=sender,
                receiver=receiver,
                address=addresses[receiver],
                duration_s=self.load_s,
                streams=STREAMS,
                rate_bps=STREAM_BPS,
                buffer_bytes=BUFFER_BYTES,
            )
            for sender, receiver in directions
        ]
        self._streams = StreamLoad(stage, flows, (WARM_UP_S, self.load_s - COOL_DOWN_S))
        self.measured_s = self._streams.measured_s
        self.steady_s = (WARM_UP_S, self._moving_s)
        probes = [probing.Flow(sender, to, addresses[to]) for sender, to in directions]
        self._probes = probing.Probes(stage.host_pids, probes, stage.directory, PROBES_PPS)
        self._mover = threading.Thread(target=self._move_all, daemon=True)
        self._ended = threading.Event()
        self._moves: list[Move] = []
        self._counts: list[Counts] = []
        self._failure: Exception | None = None

    def start(self) -> None:
        """Start all programs; the moves begin after the baseline."""
        # The baseline must not share an uplink with the other VM.
        self._stage.move(self._vm, self._stage.layout.nodes(Role.UPLINK)[0])
        if self._busy_bps:
            self._start_other_vm()
        self._streams.start()
        self.start_s = self._streams.start_s
        self._probes.start(self.start_s + WARM_UP_S / 2, self.start_s + self.load_s)
        self._mover.start()

    def finish(self) -> Outcome:
        """The mean cost of a move, and the baseline of the same time without moves."""
        left_s = max(0.0, self.start_s + self.load_s - time.monotonic())
        self._mover.join(left_s + LEARNED_TIMEOUT_S)
        if self._failure is not None:
            raise RuntimeError(f"move: {self._failure}") from self._failure
        if self._mover.is_alive():
            raise RuntimeError(f"only {len(self._moves)} of {self._count} moves were made in time")
        outcome = self._streams.finish()
        probes = list(self._probes.finish().values())
        busy_uplink = self._stage.layout.nodes(Role.UPLINK)[-1]
        counts = [*(move.counts for move in self._moves), self._counts[-1]]
        costs = [
            _cost(_difference(before, after), probes, *self._span(move.requested_s))
            for move, before, after in zip(self._moves, counts[:-1], counts[1:], strict=True)
            if move.origin == busy_uplink or not self._busy_bps
        ]
        baseline = _difference(*self._counts[:2])
        figures = {
            **{f"{name}_per_move": _mean(costs, name) for name in PER_MOVE},
            "calm_retransmissions": _sum(baseline, RETRANSMITTED) / self._count,
            "duplicated": sum(one["duplicated"] for one in costs),
            "silence_ms": statistics.median(one["silence_ms"] for one in costs),
            "worst_silence_ms": max(one["silence_ms"] for one in costs),
        }
        return Outcome(
            outcome.received_bytes,
            outcome.throughput_bps,
            {**outcome.figures, **figures},
            {
                "moves": [[one.origin, one.requested_s, one.answered_s] for one in self._moves],
                "costs": costs,
                "latest_s": max(one.max_delay_s for one in probes),
                "calm": baseline,
            },
        )

    def close(self) -> None:
        """Stop all programs."""
        self._ended.set()
        if self._mover.is_alive():
            self._mover.join()
        self._busy.close()
        self._probes.close()
        self._streams.close()

    def _start_other_vm(self) -> None:
        """Start the second VM's traffic on the last uplink.

        With two uplinks, placement by port number puts that VM there, too.
        """
        layout = self._stage.layout
        sender, receiver = layout.nodes(Role.VM)[1], layout.nodes(Role.CLIENT)[-1]
        self._stage.move(sender, layout.nodes(Role.UPLINK)[-1])
        longest_s = self.load_s + END_TIMEOUT_S
        plan = datagrams(self._stage, [(sender, receiver)], [self._busy_bps], longest_s)
        for role in ("receive", "send"):
            self._busy.start(role, plan)

    def _span(self, from_s: float) -> tuple[float, float]:
        """The span of one move on the monotonic clock."""
        return from_s + self.start_s, from_s + self._interval_s + self.start_s

    def _move_all(self) -> None:
        """Make the moves, and read the TCP counters before, between and after them."""
        try:
            fdb = UpstreamFdb(self._stage, [self._vm])
            uplinks = self._stage.layout.nodes(Role.UPLINK)
            self._wait(WARM_UP_S)
            self._counts.append(self._read_counts())
            self._wait(self._moving_s)
            self._counts.append(self._read_counts())
            uplink = fdb.uplinks()[self._vm]
            for number in range(self._count):
                self._wait(self._moving_s + number * self._interval_s)
                if self._ended.is_set():
                    return
                origin, uplink = uplink, uplinks[(uplinks.index(uplink) + 1) % len(uplinks)]
                counts = self._read_counts()
                requested_s = time.monotonic() - self.start_s
                self._stage.move(self._vm, uplink)
                answered_s = time.monotonic() - self.start_s
                self._moves.append(Move(origin, requested_s, answered_s, counts))
                # Reading the FDB costs the switch CPU time, so do it well after the move.
                self._wait(requested_s + self._interval_s * 0.7)
                self._require_learned(fdb, uplink)
            self._wait(self._moving_s + self._count * self._interval_s)
            self._counts.append(self._read_counts())
        except Exception as failure:
            self._failure = failure

    def _require_learned(self, fdb: UpstreamFdb, uplink: str) -> None:
        deadline_s = time.monotonic() + LEARNED_TIMEOUT_S
        while (found := fdb.uplinks().get(self._vm)) != uplink and not self._ended.is_set():
            if time.monotonic() > deadline_s:
                raise RuntimeError(
                    f"the upstream switch has learned {self._vm} on {found}; expected {uplink}"
                )
            time.sleep(0.05)

    def _wait(self, until_s: float) -> None:
        self._ended.wait(max(0.0, self.start_s + until_s - time.monotonic()))

    def _read_counts(self) -> Counts:
        """The TCP counters of both end systems."""
        found: dict[str, dict[str, int]] = {}
        for name in (self._vm, self._client):
            net = Path(f"/proc/{self._stage.host_pids[name]}/net")
            text = "".join((net / table).read_text() for table in ("snmp", "netstat"))
            counters = tcp_counters(text)
            found[name] = {one: counters[one] for one in (RETRANSMITTED, DISORDERED)}
        return found


def tcp_counters(text: str) -> dict[str, int]:
    """Parse `/proc/net/snmp` and `netstat`: a line of names, then a line of values."""
    lines = text.splitlines()
    return {
        name: int(value)
        for names, values in zip(lines[::2], lines[1::2], strict=True)
        for name, value in zip(names.split()[1:], values.split()[1:], strict=True)
    }


def _difference(before: Counts, after: Counts) -> Counts:
    return {
        end: {name: count - before[end][name] for name, count in counters.items()}
        for end, counters in after.items()
    }


def _cost(
    counts: Counts, flows: Sequence[FlowResult], from_s: float, to_s: float
) -> dict[str, float]:
    """The cost of one move in the span, summed over both directions."""
    probes = [_slice(flow, from_s, to_s) for flow in flows]
    return {
        "retransmissions": _sum(counts, RETRANSMITTED),
        "tcp_disordered": _sum(counts, DISORDERED),
        "lost": sum(one.lost for one in probes),
        "reordered": sum(one.reordered for one in probes),
        "duplicated": sum(one.duplicated for one in probes),
        "silence_ms": max(flow.longest_gap_s(from_s, to_s) for flow in flows) * 1000,
    }


def _mean(costs: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.fmean(one[name] for one in costs)


def _sum(counts: Counts, counter: str) -> int:
    return sum(of_end[counter] for of_end in counts.values())


def _slice(flow: FlowResult, from_s: float, to_s: float) -> FlowResult:
    """The datagrams of a flow that were sent in a span, numbered from 0."""
    interval_s = (flow.end_s - flow.start_s) / max(1, flow.sent - 1)
    first = max(0, round((from_s - flow.start_s) / interval_s))
    last = min(flow.sent, round((to_s - flow.start_s) / interval_s))
    arrivals = [(n - first, at_s) for n, at_s in flow.arrivals if first <= n < last]
    return FlowResult(last - first, from_s, to_s, arrivals)
