"""Sends numbered datagrams for several end systems at given rates, and records those that arrive.

It runs as two processes, a sender and a receiver for all end systems:

    paced.py send PLAN.json RESULTS.json
    paced.py receive PLAN.json RESULTS.json

The sockets are in the network namespaces of the end systems. The sender uses the plan's rates until
it gets SIGUSR1. It then reads the file CHANGE beside the plan: the time of the change, the new
rates, an optional delay for each flow, and the end. The sender skips datagrams that it could not
send in time, because a burst would make the network lose packets. The receiver records the number
and the arrival time of every datagram until SIGTERM. Times are on the monotonic clock, which all
processes share.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

NUMBER = struct.Struct("!I")
# The Ethernet, IPv4 and UDP headers, which count towards a link's rate.
HEADERS_BYTES = 14 + 20 + 8
# The interval between two rounds of sending or receiving.
TICK_S = 0.001
# The sender skips datagrams that are later than this. A link's queue (300 kB) holds such a burst.
MAX_DELAY_S = 0.01
# Large enough for what arrives while the process does not run, so that only the network loses.
BUFFER_BYTES = 8_000_000
SO_RCVBUFFORCE = 33
CLONE_NEWNET = 0x40000000
CHANGE = "change.json"
_LIBC = ctypes.CDLL(None, use_errno=True)


class Flow:
    """The sender of one flow's datagrams.

    Attributes:
        first: the number of the first datagram after `reset_counters`.
        sent: the number of datagrams sent, which is the next datagram's number.
        skipped: the number of datagrams that were due and not sent.
        max_delay_s: the longest time between a datagram's due time and a round of sending.
    """

    def __init__(self, sender: socket.socket, payload_bytes: int, rate_bps: float) -> None:
        self._socket = sender
        self._payload = bytearray(payload_bytes)
        self._bits = (payload_bytes + HEADERS_BYTES) * 8
        self._interval_s = self._interval_of(rate_bps)
        self._due_s = 0.0
        self.sent = self.skipped = self.first = 0
        self.max_delay_s = 0.0

    def begin(self, now_s: float, phase: float) -> None:
        """Schedule the first datagram after this part of an interval, so that flows take turns."""
        # A rate of 0 has an infinite interval, and 0 * inf is not a number.
        self._due_s = now_s + phase * self._interval_s if phase else now_s
        if self._interval_s == float("inf"):
            self._due_s = self._interval_s

    def reset_counters(self) -> None:
        """Start the report with the next datagram."""
        self.first, self.skipped, self.max_delay_s = self.sent, 0, 0.0

    def change_rate(self, rate_bps: float, at_s: float) -> None:
        """Use another rate from a time in the recent past.

        The next datagram is due by the old rate or by the new one, whichever is earlier.
        """
        self._interval_s = self._interval_of(rate_bps)
        self._due_s = min(self._due_s, at_s + self._interval_s)

    def _interval_of(self, rate_bps: float) -> float:
        return self._bits / rate_bps if rate_bps else float("inf")

    def send(self, now_s: float) -> None:
        """Send all datagrams that are due."""
        delay_s = now_s - self._due_s
        if delay_s > MAX_DELAY_S:
            late = int((delay_s - MAX_DELAY_S) / self._interval_s) + 1
            self.skipped += late
            self._due_s += late * self._interval_s
        self.max_delay_s = max(self.max_delay_s, delay_s)
        while self._due_s <= now_s:
            NUMBER.pack_into(self._payload, 0, self.sent)
            try:
                self._socket.send(self._payload)
            except OSError:  # the buffer is full, or no receiver listens
                self.skipped += 1
            else:
                self.sent += 1
            self._due_s += self._interval_s


def send(
    plan: dict[str, Any], directory: Path, change_requested: Callable[[], bool]
) -> dict[str, Any]:
    """Send by the plan, then by the requested change. Returns each flow's counters."""
    with contextlib.ExitStack() as resources:
        flows = []
        for one in plan["flows"]:
            sender = resources.enter_context(_socket_of(one["sender_pid"]))
            sender.connect((one["address"], one["port"]))
            sender.setblocking(False)
            flows.append(Flow(sender, plan["payload_bytes"], one["rate_bps"]))
        now_s = time.monotonic()
        for number, flow in enumerate(flows):
            flow.begin(now_s, number / len(flows))
        end_s, change_s = now_s + plan["longest_s"], float("inf")
        rates_bps: list[float] | None = None
        # Pending changes (time, flow, new rate), the next one last.
        changes: list[tuple[float, int, float]] = []
        while now_s < end_s:
            if rates_bps is None and change_requested():
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
                    flow.reset_counters()
            while changes and now_s >= changes[-1][0]:
                at_s, number, rate_bps = changes.pop()
                flows[number].change_rate(rate_bps, at_s)
            for flow in flows:
                flow.send(now_s)
            time.sleep(TICK_S)
            now_s = time.monotonic()
    return {
        "flows": [
            {
                "first": flow.first,
                "sent": flow.sent,
                "skipped": flow.skipped,
                "max_delay_s": flow.max_delay_s,
            }
            for flow in flows
        ]
    }


def receive(plan: dict[str, Any], stopped: Callable[[], bool]) -> dict[str, Any]:
    """Receive until stopped. Returns each flow's datagram numbers and arrival times."""
    with contextlib.ExitStack() as resources:
        sockets = []
        for one in plan["flows"]:
            receiver = resources.enter_context(_socket_of(one["receiver_pid"]))
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            receiver.bind(("", one["port"]))
            receiver.setblocking(False)
            sockets.append(receiver)
        numbers = [array("I") for _ in sockets]
        times_s = [array("d") for _ in sockets]
        last = False
        while not last:
            last = stopped()  # one more round, for datagrams that have arrived before
            time.sleep(TICK_S)
            now_s = time.monotonic()
            for receiver, of_flow, at_s in zip(sockets, numbers, times_s, strict=True):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        of_flow.append(NUMBER.unpack(receiver.recv(NUMBER.size))[0])
                        at_s.append(now_s)
    return {
        "flows": [
            {"numbers": list(of_flow), "times_s": [round(at_s, 4) for at_s in of_times]}
            for of_flow, of_times in zip(numbers, times_s, strict=True)
        ]
    }


@contextlib.contextmanager
def _socket_of(pid: int) -> Iterator[socket.socket]:
    """A UDP socket in the network namespace of another process."""
    own, other = os.open("/proc/self/ns/net", os.O_RDONLY), -1
    try:
        other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        _enter(other)
        created = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        _enter(own)
    finally:
        os.close(own)
        if other >= 0:
            os.close(other)
    with created:
        yield created


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main(arguments: Sequence[str]) -> None:
    role, plan_path, results_path = arguments[0], Path(arguments[1]), Path(arguments[2])
    plan: dict[str, Any] = json.loads(plan_path.read_text())
    signals: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda caught, _frame: signals.append(caught))
    if role == "send":
        results = send(plan, plan_path.parent, lambda: signal.SIGUSR1 in signals)
    else:
        results = receive(plan, lambda: signal.SIGTERM in signals)
    results_path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
