"""Numbered datagrams of several end systems at set rates, and a record of those that arrive.

Runs as a process of its own, one that sends for all and one that hears for all:

    paced.py send PLAN.json RESULTS.json
    paced.py hear PLAN.json RESULTS.json

Its sockets are in the network namespaces of the end systems. It sends at the first rates of
its plan until SIGUSR1, by which time a file beside the plan says when they change, to what,
how much later each of them, if not all at once, and when all ends. What could not be sent in time is left out and not made up for, since the
burst would be the network's loss. What arrives is recorded with its number and time on the
monotonic clock, which all processes share, until SIGTERM.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NUMBER = struct.Struct("!I")
# Ethernet, IPv4 and UDP, as a link's rate counts them.
HEADERS_BYTES = 14 + 20 + 8
# So often it looks for what is due: a few datagrams of each flow at a time.
TICK_S = 0.001
# Later than this is left out; a queue of 300 kB takes much more.
LATE_S = 0.01
# What waits while the process does not run is no loss of the network's.
BUFFER_BYTES = 8_000_000
SO_RCVBUFFORCE = 33
CLONE_NEWNET = 0x40000000
CHANGE = "change.json"
_LIBC = ctypes.CDLL(None, use_errno=True)


class Flow:
    """One flow's datagrams; `first` is the first one that is told of, since `mark`.

    `left_out` counts those that were not sent, `latest_s` is how late one was at worst.
    """

    def __init__(self, own: socket.socket, payload_bytes: int, rate_bps: float) -> None:
        self._own = own
        self._payload = bytearray(payload_bytes)
        self._bits = (payload_bytes + HEADERS_BYTES) * 8
        self._interval_s = self._interval_of(rate_bps)
        self._due_s = 0.0
        self.sent = self.left_out = self.first = 0
        self.latest_s = 0.0

    def begin(self, now_s: float, part: float) -> None:
        """Begin so late in the first interval that flows take turns."""
        # Of a rate of 0 the interval has no parts.
        self._due_s = now_s + part * self._interval_s if part else now_s
        if self._interval_s == float("inf"):
            self._due_s = self._interval_s

    def mark(self) -> None:
        """What is told is of here on."""
        self.first, self.left_out, self.latest_s = self.sent, 0, 0.0

    def change(self, rate_bps: float, at_s: float) -> None:
        """Go on at another rate from a time on, which is not long ago.

        What was due next at the old rate comes no later than it would at the new one.
        """
        self._interval_s = self._interval_of(rate_bps)
        self._due_s = min(self._due_s, at_s + self._interval_s)

    def _interval_of(self, rate_bps: float) -> float:
        return self._bits / rate_bps if rate_bps else float("inf")

    def send(self, now_s: float) -> None:
        """Send what is due."""
        late_s = now_s - self._due_s
        if late_s > LATE_S:
            late = int((late_s - LATE_S) / self._interval_s) + 1
            self.left_out += late
            self._due_s += late * self._interval_s
        self.latest_s = max(self.latest_s, late_s)
        while self._due_s <= now_s:
            NUMBER.pack_into(self._payload, 0, self.sent)
            try:
                self._own.send(self._payload)
            except OSError:  # no room here, or nobody there
                self.left_out += 1
            else:
                self.sent += 1
            self._due_s += self._interval_s


def send(plan: dict[str, Any], directory: Path, told: Callable[[], bool]) -> dict[str, Any]:
    """Send by the plan and by the change, once told of it; what was sent."""
    with contextlib.ExitStack() as resources:
        flows = []
        for one in plan["flows"]:
            own = resources.enter_context(_socket_of(one["sender_pid"]))
            own.connect((one["address"], one["port"]))
            own.setblocking(False)
            flows.append(Flow(own, plan["payload_bytes"], one["rate_bps"]))
        now_s = time.monotonic()
        for number, flow in enumerate(flows):
            flow.begin(now_s, number / len(flows))
        end_s, change_s = now_s + plan["longest_s"], float("inf")
        rates_bps: list[float] | None = None
        # Flows whose rates are still to change: when, which, to what. The last is the next.
        changes: list[tuple[float, int, float]] = []
        while now_s < end_s:
            if rates_bps is None and told():
                change = json.loads((directory / CHANGE).read_text())
                change_s, end_s, rates_bps = change["at_s"], change["end_s"], change["rates_bps"]
                assert rates_bps is not None
                after_s = change.get("after_s", [0.0] * len(rates_bps))
                changes = [
                    (change_s + later_s, number, rate_bps)
                    for number, (later_s, rate_bps) in enumerate(
                        zip(after_s, rates_bps, strict=True)
                    )
                ]
                changes.sort(reverse=True)
            if now_s >= change_s:
                change_s = float("inf")
                for flow in flows:
                    flow.mark()
            while changes and now_s >= changes[-1][0]:
                at_s, number, rate_bps = changes.pop()
                flows[number].change(rate_bps, at_s)
            for flow in flows:
                flow.send(now_s)
            time.sleep(TICK_S)
            now_s = time.monotonic()
    return {
        "flows": [
            {"first": f.first, "sent": f.sent, "left_out": f.left_out, "latest_s": f.latest_s}
            for f in flows
        ]
    }


def hear(plan: dict[str, Any], stopped: Callable[[], bool]) -> dict[str, Any]:
    """Hear until stopped; the numbers of what arrived, and when, flow by flow."""
    with contextlib.ExitStack() as resources:
        sockets = []
        for one in plan["flows"]:
            own = resources.enter_context(_socket_of(one["receiver_pid"]))
            own.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            own.bind(("", one["port"]))
            own.setblocking(False)
            sockets.append(own)
        numbers = [array("I") for _ in sockets]
        times_s = [array("d") for _ in sockets]
        last = False
        while not last:
            last = stopped()  # what arrived before is heard, too
            time.sleep(TICK_S)
            now_s = time.monotonic()
            for own, of_flow, at_s in zip(sockets, numbers, times_s, strict=True):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        of_flow.append(NUMBER.unpack(own.recv(NUMBER.size))[0])
                        at_s.append(now_s)
    return {
        "flows": [
            {"numbers": list(of_flow), "times_s": [round(at_s, 4) for at_s in of_times]}
            for of_flow, of_times in zip(numbers, times_s, strict=True)
        ]
    }


@contextlib.contextmanager
def _socket_of(pid: int) -> Iterator[socket.socket]:
    """A socket for datagrams in the network namespace of another process."""
    here, there = os.open("/proc/self/ns/net", os.O_RDONLY), -1
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        _enter(there)
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        _enter(here)
    finally:
        os.close(here)
        if there >= 0:
            os.close(there)
    with own:
        yield own


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main(what: str, plan_path: Path, results_path: Path) -> None:
    plan: dict[str, Any] = json.loads(plan_path.read_text())
    heard: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: heard.append(got))
    if what == "send":
        results = send(plan, plan_path.parent, lambda: signal.SIGUSR1 in heard)
    else:
        results = hear(plan, lambda: signal.SIGTERM in heard)
    results_path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
