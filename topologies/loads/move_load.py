"""TCP and datagrams of one VM, both ways, while its port is moved from uplink to uplink."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.graph.layout import Role
from topologies.loads import paced, probing
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import Heard
from topologies.loads.shift_load import PAYLOAD_BYTES, Place
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow
from topologies.network import processes

# Far from what an uplink carries: what is lost or sent again is the move's doing.
STREAMS, STREAM_BPS = 2, 15_000_000
BUFFER_BYTES = 4 * 1024
PROBES_PPS = 500.0
WARM_UP_S, COOL_DOWN_S = 2.0, 1.0
BUSY_PORT, END_TIMEOUT_S = 7200, 15.0
# After a move the upstream switch sees the VM at its new uplink.
SEEN_WITHIN_S = 3.0
# The kernel's: what a sender has sent again, and what came to a receiver before what it follows.
RETRANSMITTED, DISORDERED = "RetransSegs", "TCPOFOQueue"
# What is told for each move.
PER_MOVE = ("retransmissions", "tcp_disordered", "lost", "reordered")
# The counters of either end.
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Moved:
    """One move: off which uplink, and when it was asked for and that was answered.

    Times are since the load's start. `before` is what TCP had counted until then.
    """

    origin: str
    asked_s: float
    answered_s: float
    before: Counts


class MoveLoad(Load):
    """A calm part, and a part as long in which the VM is moved again and again.

    Each move is watched for `each_s`. With `busy_bps` another VM sends so much by the last
    uplink all the time, and of the moves only those count that are off that uplink.
    """

    def __init__(self, stage: Stage, *, moves: int, each_s: float, busy_bps: float = 0.0) -> None:
        self._stage = stage
        self._count, self._each_s, self._busy_bps = moves, each_s, busy_bps
        self._programs: list[subprocess.Popen[bytes]] = []
        layout = stage.layout
        self._vm, self._client = layout.nodes(Role.VM)[0], layout.nodes(Role.CLIENT)[0]
        self._moving_s = WARM_UP_S + moves * each_s
        self.load_s = self._moving_s + moves * each_s + COOL_DOWN_S
        ways = [(self._vm, self._client), (self._client, self._vm)]
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
            for sender, receiver in ways
        ]
        self._streams = StreamLoad(stage, flows, (WARM_UP_S, self.load_s - COOL_DOWN_S))
        self.measured_s = self._streams.measured_s
        self.steady_s = (WARM_UP_S, self._moving_s)
        probes = [probing.Flow(sender, to, addresses[to]) for sender, to in ways]
        self._probing = probing.Probing(stage.host_pids, probes, stage.directory, PROBES_PPS)
        self._mover = threading.Thread(target=self._move_all, daemon=True)
        self._ended = threading.Event()
        self._moved: list[Moved] = []
        self._counts: list[Counts] = []
        self._failure: Exception | None = None

    def start(self) -> None:
        """Start everything; the first move is after the calm part."""
        # A calm part on the other VM's uplink would not be calm.
        self._stage.move(self._vm, self._stage.layout.nodes(Role.UPLINK)[0])
        if self._busy_bps:
            self._keep_busy()
        self._streams.start()
        self.start_s = self._streams.start_s
        self._probing.start(self.start_s + WARM_UP_S / 2, self.start_s + self.load_s)
        self._mover.start()

    def finish(self) -> Outcome:
        """What each move cost, in the mean, and what the same time without moves did."""
        self._mover.join(max(0.0, self.start_s + self.load_s - time.monotonic()) + SEEN_WITHIN_S)
        if self._failure is not None:
            raise RuntimeError(f"move: {self._failure}") from self._failure
        if self._mover.is_alive():
            raise RuntimeError(f"moves: {len(self._moved)} in time -> {self._count}")
        outcome = self._streams.finish()
        heard = list(self._probing.finish().values())
        busiest = self._stage.layout.nodes(Role.UPLINK)[-1]
        counts = [*(one.before for one in self._moved), self._counts[-1]]
        costs = [
            _cost(_difference(before, after), heard, *self._at(one.asked_s, self._each_s))
            for one, before, after in zip(self._moved, counts[:-1], counts[1:], strict=True)
            if one.origin == busiest or not self._busy_bps
        ]
        calm = _difference(*self._counts[:2])
        figures = {
            **{f"{name}_per_move": _mean(costs, name) for name in PER_MOVE},
            "calm_retransmissions": _sum(calm, RETRANSMITTED) / self._count,
            "duplicated": sum(one["duplicated"] for one in costs),
            "silence_ms": statistics.median(one["silence_ms"] for one in costs),
            "worst_silence_ms": max(one["silence_ms"] for one in costs),
        }
        return Outcome(
            outcome.received_bytes,
            outcome.throughput_bps,
            {**outcome.figures, **figures},
            {
                "moves": [[one.origin, one.asked_s, one.answered_s] for one in self._moved],
                "costs": costs,
                "latest_s": max(one.latest_s for one in heard),
                "calm": calm,
            },
        )

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        if self._mover.is_alive():
            self._mover.join()
        for program in self._programs:
            processes.end(program)
        self._probing.close()
        self._streams.close()

    def _keep_busy(self) -> None:
        """Have another VM send by the last uplink, where placement by number has the second."""
        layout, pids = self._stage.layout, self._stage.host_pids
        sender, receiver = layout.nodes(Role.VM)[1], layout.nodes(Role.CLIENT)[-1]
        self._stage.move(sender, layout.nodes(Role.UPLINK)[-1])
        flow = {
            "sender_pid": pids[sender],
            "receiver_pid": pids[receiver],
            "address": layout.address(receiver),
            "port": BUSY_PORT,
            "rate_bps": self._busy_bps,
        }
        longest_s = self.load_s + END_TIMEOUT_S
        plan = self._stage.directory / "busy.json"
        plan.write_text(
            json.dumps({"payload_bytes": PAYLOAD_BYTES, "longest_s": longest_s, "flows": [flow]})
        )
        script = str(Path(paced.__file__).resolve())
        for what in ("hear", "send"):
            results = self._stage.directory / f"busy.{what}.json"
            command = [sys.executable, "-P", script, what, str(plan), str(results)]
            log = self._stage.directory / f"busy.{what}.log"
            self._programs.append(processes.start(command, log))

    def _at(self, from_s: float, lasting_s: float) -> tuple[float, float]:
        """A span of the load on the monotonic clock."""
        return from_s + self.start_s, from_s + lasting_s + self.start_s

    def _move_all(self) -> None:
        """Make the moves, each in its time, and read the counters around them."""
        try:
            place = Place(self._stage, [self._vm])
            uplinks = self._stage.layout.nodes(Role.UPLINK)
            self._wait(WARM_UP_S)
            self._counts.append(self._tcp())
            self._wait(self._moving_s)
            self._counts.append(self._tcp())
            here = place.uplinks()[self._vm]
            for number in range(self._count):
                self._wait(self._moving_s + number * self._each_s)
                if self._ended.is_set():
                    return
                origin, here = here, uplinks[(uplinks.index(here) + 1) % len(uplinks)]
                before = self._tcp()
                asked_s = time.monotonic() - self.start_s
                self._stage.move(self._vm, here)
                answered_s = time.monotonic() - self.start_s
                self._moved.append(Moved(origin, asked_s, answered_s, before))
                # Not at once: asking is some work for the switch, too.
                self._wait(asked_s + self._each_s * 0.7)
                self._require_seen(place, here)
            self._wait(self._moving_s + self._count * self._each_s)
            self._counts.append(self._tcp())
        except Exception as failure:
            self._failure = failure

    def _require_seen(self, place: Place, uplink: str) -> None:
        deadline_s = time.monotonic() + SEEN_WITHIN_S
        while (found := place.uplinks().get(self._vm)) != uplink and not self._ended.is_set():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self._vm}: upstream sees it at {found} -> {uplink}")
            time.sleep(0.05)

    def _wait(self, until_s: float) -> None:
        self._ended.wait(max(0.0, self.start_s + until_s - time.monotonic()))

    def _tcp(self) -> Counts:
        """What TCP has counted so far."""
        found: dict[str, dict[str, int]] = {}
        for name in (self._vm, self._client):
            net = Path(f"/proc/{self._stage.host_pids[name]}/net")
            text = "".join((net / table).read_text() for table in ("snmp", "netstat"))
            counters = tcp_counters(text)
            found[name] = {one: counters[one] for one in (RETRANSMITTED, DISORDERED)}
        return found


def tcp_counters(text: str) -> dict[str, int]:
    """The counters of a kernel's table of network statistics: names in a line, then values."""
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


def _cost(counts: Counts, heard: Sequence[Heard], from_s: float, to_s: float) -> dict[str, float]:
    """What happened in the time of one move, both ways."""
    probes = [_within(one, from_s, to_s) for one in heard]
    return {
        "retransmissions": _sum(counts, RETRANSMITTED),
        "tcp_disordered": _sum(counts, DISORDERED),
        "lost": sum(one.lost for one in probes),
        "reordered": sum(one.reordered for one in probes),
        "duplicated": sum(one.duplicated for one in probes),
        "silence_ms": max(one.longest_gap_s(from_s, to_s) for one in heard) * 1000,
    }


def _mean(costs: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.fmean(one[name] for one in costs)


def _sum(counts: Counts, counter: str) -> int:
    return sum(of_end[counter] for of_end in counts.values())


def _within(heard: Heard, from_s: float, to_s: float) -> Heard:
    """The part of a flow that was sent in a span; its numbers are those of the whole flow."""
    every_s = (heard.end_s - heard.start_s) / max(1, heard.sent - 1)
    first = max(0, round((from_s - heard.start_s) / every_s))
    last = min(heard.sent, round((to_s - heard.start_s) / every_s))
    arrivals = [(n - first, at_s) for n, at_s in heard.arrivals if first <= n < last]
    return Heard(last - first, from_s, to_s, arrivals)
