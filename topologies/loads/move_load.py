"""TCP and datagrams of one VM, both ways, while its port is moved from uplink to uplink."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topologies.graph import Role
from topologies.loads import probing
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import Heard
from topologies.loads.shift_load import Place
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow

# Far from what an uplink carries: what is lost or sent again is the move's doing.
STREAMS, STREAM_BPS = 2, 15_000_000
BUFFER_BYTES = 4 * 1024
PROBES_PPS = 500.0
WARM_UP_S, COOL_DOWN_S = 2.0, 1.0
# After a move the switch upstream sees the VM at its new uplink.
SEEN_WITHIN_S = 3.0
# From the kernel's counters: of one table, the name there, and the name here.
RETRANSMITTED, DISORDERED = "RetransSegs", "TCPOFOQueue"


@dataclass(frozen=True, slots=True)
class Moved:
    """One move: when it was asked for and when that was answered, since the load's start."""

    asked_s: float
    answered_s: float


class MoveLoad(Load):
    """A calm part, and a part as long in which the VM is moved again and again.

    Each move is watched for `each_s`.
    """

    def __init__(self, stage: Stage, *, moves: int, each_s: float) -> None:
        self._stage = stage
        self._count, self._each_s = moves, each_s
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
        self._counts: list[dict[str, int]] = []
        self._failure: Exception | None = None

    def start(self) -> None:
        """Start everything; the first move is after the calm part."""
        self._streams.start()
        self.start_s = self._streams.start_s
        self._probing.start(self.start_s + WARM_UP_S / 2, self.start_s + self.load_s)
        self._mover.start()

    def finish(self) -> Outcome:
        """What each move cost, in the mean, and what the same time without moves did."""
        self._mover.join(max(0.0, self.start_s + self.load_s - time.monotonic()) + SEEN_WITHIN_S)
        if self._failure is not None:
            raise RuntimeError(f"move: {self._failure}") from self._failure
        outcome = self._streams.finish()
        heard = list(self._probing.finish().values())
        before, between, after = self._counts
        calm, moving = _difference(before, between), _difference(between, after)
        spans = [(one.asked_s, one.asked_s + self._each_s) for one in self._moved]
        gaps_s = [[one.longest_gap_s(*self._at(span)) for one in heard] for span in spans]
        worst_s = [max(gaps) for gaps in gaps_s]
        of_moves = [_within(one, *self._at((self._moving_s, self.load_s))) for one in heard]
        figures = {
            "retransmissions_per_move": moving[RETRANSMITTED] / self._count,
            "calm_retransmissions": calm[RETRANSMITTED] / self._count,
            "tcp_disordered_per_move": moving[DISORDERED] / self._count,
            "lost_per_move": sum(one.lost for one in of_moves) / self._count,
            "reordered_per_move": sum(one.reordered for one in of_moves) / self._count,
            "duplicated": float(sum(one.duplicated for one in of_moves)),
            "silence_ms": statistics.median(worst_s) * 1000,
            "worst_silence_ms": max(worst_s) * 1000,
        }
        return Outcome(
            outcome.received_bytes,
            outcome.throughput_bps,
            {**outcome.figures, **figures},
            {
                "moves": [[one.asked_s, one.answered_s] for one in self._moved],
                "silences_s": gaps_s,
                "latest_s": max(one.latest_s for one in heard),
                "calm": calm,
                "moving": moving,
            },
        )

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        if self._mover.is_alive():
            self._mover.join()
        self._probing.close()
        self._streams.close()

    def _at(self, span: tuple[float, float]) -> tuple[float, float]:
        """A span of the load on the monotonic clock."""
        return span[0] + self.start_s, span[1] + self.start_s

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
                here = uplinks[(uplinks.index(here) + 1) % len(uplinks)]
                asked_s = time.monotonic() - self.start_s
                self._stage.move(self._vm, here)
                self._moved.append(Moved(asked_s, time.monotonic() - self.start_s))
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

    def _tcp(self) -> dict[str, int]:
        """What TCP of both ends has counted so far."""
        found = {RETRANSMITTED: 0, DISORDERED: 0}
        for name in (self._vm, self._client):
            net = Path(f"/proc/{self._stage.host_pids[name]}/net")
            for table in ("snmp", "netstat"):
                counters = tcp_counters((net / table).read_text())
                for counter in found:
                    found[counter] += counters.get(counter, 0)
        return found


def tcp_counters(text: str) -> dict[str, int]:
    """The counters of a kernel's table of network statistics: names in a line, then values."""
    lines = text.splitlines()
    return {
        name: int(value)
        for names, values in zip(lines[::2], lines[1::2], strict=True)
        for name, value in zip(names.split()[1:], values.split()[1:], strict=True)
    }


def _difference(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after}


def _within(heard: Heard, from_s: float, to_s: float) -> Heard:
    """The part of a flow that was sent in a span; its numbers are those of the whole flow."""
    every_s = (heard.end_s - heard.start_s) / max(1, heard.sent - 1)
    first = max(0, round((from_s - heard.start_s) / every_s))
    last = min(heard.sent, round((to_s - heard.start_s) / every_s))
    arrivals = [(n - first, at_s) for n, at_s in heard.arrivals if first <= n < last]
    return Heard(last - first, from_s, to_s, arrivals)
