"""Numbered datagrams at a steady rate, and a record of those that arrive.

Runs as a process of its own, one for each end system that sends or receives any:

    probe.py PLAN.json RESULTS.json

The plan says which flows leave here (each to an address) and when; whatever arrives, of
any flow, is recorded with its number and time on the monotonic clock, which all processes
share. It sends until `end_s` or SIGTERM, hears for a moment longer what is still on its
way, and writes its results.
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

# Of the flow and in the flow.
NUMBERS = struct.Struct("!II")
RECEIVE_BUFFER_BYTES = 1 << 20
LINGER_S = 0.5


class Probe:
    """The datagrams of one end system; `run` sends and hears until told to stop."""

    def __init__(self, own: socket.socket, interval_s: float, flows: dict[int, tuple[str, int]]):
        self._own = own
        self._interval_s = interval_s
        self._flows = flows
        self.sent = 0
        self.latest_s = 0.0
        self.arrivals: list[tuple[int, int, float]] = []

    def run(self, start_s: float, end_s: float, stopped: Callable[[], bool]) -> None:
        """Send from `start_s` to `end_s`, or until stopped, and hear for a moment longer."""
        while (now_s := time.monotonic()) < end_s and not stopped():
            due_s = start_s + self.sent * self._interval_s
            if due_s <= now_s:
                self.latest_s = max(self.latest_s, now_s - due_s)
                self._send()
            else:
                self._hear(min(due_s - now_s, LINGER_S))
        deadline_s = time.monotonic() + LINGER_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            self._hear(left_s)

    def _send(self) -> None:
        for flow, address in self._flows.items():
            # No route, no answer to ARP, a full queue: then it does not arrive.
            with contextlib.suppress(OSError):
                self._own.sendto(NUMBERS.pack(flow, self.sent), address)
        self.sent += 1

    def _hear(self, timeout_s: float) -> None:
        if not select.select([self._own], [], [], timeout_s)[0]:
            return
        now_s = time.monotonic()
        while True:
            try:
                datagram = self._own.recv(NUMBERS.size)
            except BlockingIOError:
                return
            if len(datagram) == NUMBERS.size:
                flow, number = NUMBERS.unpack(datagram)
                self.arrivals.append((flow, number, now_s))


def main(plan_path: Path, results_path: Path) -> None:
    plan: dict[str, Any] = json.loads(plan_path.read_text())
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stops.append(number))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        own.bind(("", plan["port"]))
        own.setblocking(False)
        flows = {int(flow): (address, plan["port"]) for flow, address in plan["flows"].items()}
        probe = Probe(own, plan["interval_s"], flows)
        probe.run(plan["start_s"], plan["end_s"], lambda: bool(stops))
    results = {"sent": probe.sent, "latest_s": probe.latest_s, "arrivals": probe.arrivals}
    results_path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
