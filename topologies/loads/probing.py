"""Probe flows between the end systems of a layout, and their loss, duplicates, order and gaps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from topologies.loads.programs import Programs
from topologies.loads.traffic import HEADERS_BYTES

# The port of the first flow; the others count on from it.
PORT = 7007
RATE_PPS = 100.0
PAYLOAD_BYTES = 8
END_TIMEOUT_S = 10.0
# The role of the traffic program.
ROLE = "datagrams"


@dataclass(frozen=True, slots=True)
class Flow:
    """Datagrams from one end system to an address of another, by their names in the layout."""

    sender: str
    receiver: str
    address: str


@dataclass(frozen=True, slots=True)
class FlowResult:
    """The datagrams of one flow that were sent and received.

    Attributes:
        sent: the number of datagrams sent, numbered from 0.
        start_s: when the flow began, on the monotonic clock.
        end_s: when the flow ended.
        arrivals: the number and the time of every arrival, in the order of arrival.
    """

    sent: int
    start_s: float
    end_s: float
    arrivals: Sequence[tuple[int, float]]

    @property
    def received(self) -> int:
        """The number of different datagrams that arrived."""
        return len({number for number, _ in self.arrivals})

    @property
    def lost(self) -> int:
        return self.sent - self.received

    @property
    def duplicated(self) -> int:
        """The number of extra copies that arrived."""
        return len(self.arrivals) - self.received

    @property
    def reordered(self) -> int:
        """The number of datagrams whose first copy arrived after a later datagram (RFC 4737)."""
        seen: set[int] = set()
        found, latest = 0, -1
        for number, _ in self.arrivals:
            found += number < latest and number not in seen
            seen.add(number)
            latest = max(latest, number)
        return found

    def longest_gap_s(self, from_s: float = -float("inf"), to_s: float = float("inf")) -> float:
        """The longest time without an arrival, among the gaps that overlap a span.

        The times from the flow's start to the first arrival and from the last arrival to its end
        count as gaps. Without loss, the result is the interval between two datagrams.
        """
        times_s = [at_s for _, at_s in self.arrivals]
        edges_s = [self.start_s, *times_s, max([self.end_s, *times_s[-1:]])]
        gaps_s = [b - a for a, b in pairwise(edges_s) if a < to_s and b > from_s]
        return max(gaps_s, default=0.0)


def figures(results: Sequence[FlowResult]) -> dict[str, float]:
    """The figures of all flows together, and the longest gap of any flow."""
    received = sum(one.received for one in results)
    return {
        "probe_lost": float(sum(one.lost for one in results)),
        "probe_duplicated": float(sum(one.duplicated for one in results)),
        "reordered_ratio": sum(one.reordered for one in results) / max(1, received),
        "longest_gap_ms": max((one.longest_gap_s() for one in results), default=0.0) * 1000,
    }


class Probes:
    """Probe flows between end systems; an instance runs once. `programs` runs them."""

    def __init__(
        self,
        programs: Programs,
        host_pids: Mapping[str, int],
        flows: Sequence[Flow],
        rate_pps: float = RATE_PPS,
        port: int = PORT,
    ) -> None:
        self._programs, self._host_pids, self._flows = programs, host_pids, tuple(flows)
        self._interval_s, self._port = 1 / rate_pps, port
        self.start_s = self.end_s = 0.0

    def start(self, start_s: float, end_s: float) -> None:
        """Start the probes. They send from `start_s` to `end_s` or `stop`."""
        self.start_s, self.end_s = start_s, end_s
        rate_bps = (PAYLOAD_BYTES + HEADERS_BYTES) * 8 / self._interval_s
        ends = [(one.sender, one.receiver, one.address, rate_bps) for one in self._flows]
        plan = schedule(self._host_pids, ends, self._port, PAYLOAD_BYTES)
        span = {"start_s": start_s, "end_s": end_s, "probes": True}
        self._programs.start(ROLE, {**plan, **span})

    def stop(self) -> None:
        """Tell all probes to stop sending."""
        self.end_s = time.monotonic()
        self._programs.stop(ROLE)

    def finish(self) -> dict[Flow, FlowResult]:
        """Wait for the probes to end and return the result of each flow.

        Raises:
            RuntimeError: a probe failed; the message has the end of its log.
        """
        left_s = max(0.0, self.end_s - time.monotonic())
        results = self._programs.results(ROLE, left_s + END_TIMEOUT_S)
        found = flow_results(results, self.start_s, self._interval_s)
        return dict(zip(self._flows, found, strict=True))


def schedule(
    host_pids: Mapping[str, int],
    ends: Iterable[tuple[str, str, str, float]],
    first_port: int,
    payload_bytes: int,
) -> dict[str, Any]:
    """The datagrams of flows: each has its sender, receiver, address, and rate on the wire in bit/s."""
    return {
        "payload_bytes": payload_bytes,
        "flows": [
            {
                "sender_pid": host_pids[sender],
                "receiver_pid": host_pids[receiver],
                "address": address,
                "port": port,
                "rate_bps": rate_bps,
            }
            for port, (sender, receiver, address, rate_bps) in enumerate(ends, start=first_port)
        ],
    }


def flow_results(
    results: Mapping[str, Any], start_s: float = 0.0, interval_s: float = 0.0
) -> list[FlowResult]:
    """The result of each flow from the change of its rate on; its datagrams are renumbered from 0.

    A flow without such a change has begun at `start_s`, and has sent a datagram in each interval.
    """
    return [
        FlowResult(
            sent=one["sent"] - one["first"],
            start_s=start_s,
            end_s=start_s + max(0, one["sent"] - one["first"] - 1) * interval_s,
            arrivals=[
                (number - one["first"], at_s)
                for number, at_s in zip(one["numbers"], one["times_s"], strict=True)
                if number >= one["first"]
            ],
        )
        for one in results["flows"]
    ]
