"""Datagrams between the end systems of a layout, and their loss, duplicates, order and gaps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from topologies.loads.programs import Programs
from topologies.loads.traffic import HEADERS_BYTES

# Of probes.
PORT, PAYLOAD_BYTES = 7007, 8
RATE_BPS = 100.0 * (PAYLOAD_BYTES + HEADERS_BYTES) * 8
END_TIMEOUT_S = 10.0
# The role of the traffic program.
ROLE = "datagrams"


@dataclass(frozen=True, slots=True)
class Flow:
    """Datagrams from one end system to an address of another, by their names in the layout.

    Attributes:
        rate_bps: the rate on the wire.
        connections: the number of connections that take turns; 0: there is one.
        counted: whether arrivals are read.
        port: the destination port; 0: any.
    """

    sender: str
    receiver: str
    address: str
    rate_bps: float = RATE_BPS
    connections: int = 0
    counted: bool = True
    port: int = 0


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


class Datagrams:
    """Datagrams between end systems; an instance runs once. `programs` runs them.

    The port of the first flow is `port`, and the others count on from it, if they have none of their own.
    """

    def __init__(
        self,
        programs: Programs,
        host_pids: Mapping[str, int],
        flows: Sequence[Flow],
        payload_bytes: int = PAYLOAD_BYTES,
        port: int = PORT,
        *,
        probes: bool = True,
    ) -> None:
        self._programs, self._host_pids, self._flows = programs, host_pids, tuple(flows)
        self._payload_bytes, self._port, self._probes = payload_bytes, port, probes
        self._results: list[dict[str, Any]] = []
        self.start_s = self.end_s = 0.0

    def start(self, start_s: float, end_s: float) -> None:
        """Start the program. It sends from `start_s` to `end_s`, or until an order ends it."""
        self.start_s, self.end_s = start_s, end_s
        flows = [
            {
                **asdict(one),
                "sender_pid": self._host_pids[one.sender],
                "receiver_pid": self._host_pids[one.receiver],
                "port": one.port or number,
            }
            for number, one in enumerate(self._flows, start=self._port)
        ]
        span = {"start_s": start_s, "end_s": end_s, "probes": self._probes}
        self._programs.start(ROLE, {"payload_bytes": self._payload_bytes, "flows": flows, **span})

    def change(self, at_s: float, end_s: float, rates_bps: Sequence[float], **more: object) -> None:
        """Change the rates at a time. The results begin then."""
        self.end_s = end_s
        order = {"at_s": at_s, "end_s": end_s, "rates_bps": list(rates_bps), **more}
        self._programs.order(ROLE, order)

    def stop(self) -> None:
        """Tell the program to stop sending."""
        self.end_s = time.monotonic()
        self._programs.stop(ROLE)

    def finish(self) -> dict[Flow, FlowResult]:
        """Wait for the end, and return the result of each flow.

        Raises:
            RuntimeError: the program failed; the message has the end of its log.
        """
        left_s = max(0.0, self.end_s - time.monotonic())
        self._results = self._programs.results(ROLE, left_s + END_TIMEOUT_S)["flows"]
        bits = (self._payload_bytes + HEADERS_BYTES) * 8
        intervals_s = (bits / one.rate_bps if one.rate_bps else 0.0 for one in self._flows)
        found = (
            flow_result(one, self.start_s, interval_s)
            for one, interval_s in zip(self._results, intervals_s, strict=True)
        )
        return dict(zip(self._flows, found, strict=True))

    def arrived(self, from_s: float) -> int:
        """How many have arrived from a time on, including those before a change of rates."""
        return sum(at_s >= from_s for one in self._results for at_s in one["times_s"])


def flow_result(found: Mapping[str, Any], start_s: float, interval_s: float) -> FlowResult:
    """The result of a flow from the change of its rate on; its datagrams are renumbered from 0.

    A flow without such a change has begun at `start_s`, and has sent a datagram in each interval.
    """
    sent = found["sent"] - found["first"]
    return FlowResult(
        sent=sent,
        start_s=start_s,
        end_s=start_s + max(0, sent - 1) * interval_s,
        arrivals=[
            (number - found["first"], at_s)
            for number, at_s in zip(found["numbers"], found["times_s"], strict=True)
            if number >= found["first"]
        ],
    )
