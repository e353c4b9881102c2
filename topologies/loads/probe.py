"""Sends numbered datagrams at a steady rate, and records those that arrive.

It runs as one process for each end system that sends or receives:

    probe.py PLAN.json RESULTS.json

The plan has the flows that the end system sends, each to an address, and their times. The probe
records the flow, the number and the arrival time of every datagram that it receives. It sends until
`end_s` or SIGTERM, receives for `LINGER_S` more, and writes its results. Times are on the monotonic
clock, which all processes share.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The flow's number and the datagram's number.
NUMBERS = struct.Struct("!II")
RECEIVE_BUFFER_BYTES = 1 << 20
LINGER_S = 0.5


class Probe:
    """Sends and receives the datagrams of one end system."""

    def __init__(
        self, endpoint: socket.socket, interval_s: float, flows: dict[int, tuple[str, int]]
    ) -> None:
        self._socket = endpoint
        self._interval_s = interval_s
        self._flows = flows
        self.sent = 0
        self.max_delay_s = 0.0
        self.arrivals: list[tuple[int, int, float]] = []

    def run(self, start_s: float, end_s: float, stopped: Callable[[], bool]) -> None:
        """Send from `start_s` to `end_s` or until stopped, and receive for `LINGER_S` more."""
        while (now_s := time.monotonic()) < end_s and not stopped():
            due_s = start_s + self.sent * self._interval_s
            if due_s <= now_s:
                self.max_delay_s = max(self.max_delay_s, now_s - due_s)
                self._send()
            else:
                self._receive(min(due_s - now_s, LINGER_S))
        deadline_s = time.monotonic() + LINGER_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            self._receive(left_s)

    def _send(self) -> None:
        for flow, address in self._flows.items():
            # Without a route, an ARP answer or room in the queue, the datagram counts as lost.
            with contextlib.suppress(OSError):
                self._socket.sendto(NUMBERS.pack(flow, self.sent), address)
        self.sent += 1

    def _receive(self, timeout_s: float) -> None:
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return
        now_s = time.monotonic()
        while True:
            try:
                datagram = self._socket.recv(NUMBERS.size)
            except BlockingIOError:
                return
            if len(datagram) == NUMBERS.size:
                flow, number = NUMBERS.unpack(datagram)
                self.arrivals.append((flow, number, now_s))


def main(plan_path: Path, results_path: Path) -> None:
    plan: dict[str, Any] = json.loads(plan_path.read_text())
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stops.append(number))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        endpoint.bind(("", plan["port"]))
        endpoint.setblocking(False)
        flows = {int(flow): (address, plan["port"]) for flow, address in plan["flows"].items()}
        probe = Probe(endpoint, plan["interval_s"], flows)
        probe.run(plan["start_s"], plan["end_s"], lambda: bool(stops))
    results = {
        "sent": probe.sent,
        "max_delay_s": probe.max_delay_s,
        "arrivals": probe.arrivals,
    }
    results_path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
