"""The traffic between end systems: numbered datagrams, requests of given sizes, and web users.

    traffic.py ROLE PLAN.json RESULTS.json

Each role is one process for all end systems, whose sockets are in their network namespaces. Times are
on the monotonic clock, which all processes share.

`send`, `receive`: datagrams at given rates. After SIGUSR1, the sender reads the file CHANGE beside the
plan: the time of the change, the new rates, an optional delay for each flow, and the end. It skips
datagrams that it could not send in time, because a burst would make the network lose packets. The
receiver records the number and the arrival time of every datagram until SIGTERM.

`probe`: both, at a few low rates, from `start_s` until `end_s` or SIGTERM. What could not be sent in time
is sent late, and what could not be sent at all counts as sent.

`serve`: answers requests for a number of bytes, until SIGTERM.

`request`: requests of given sizes at given times, each on a connection of its own, from the port that
the plan has for it. A request starts when it is due, whether or not others have ended. Its time is from
the start of its connection to its last byte. The results have a row for each: how late it was started,
how long it took, and how many bytes arrived. Requests that have not ended by the plan's end are given
up, and a connection that fails counts until then.

`browse`: sessions of users, one after the other on a connection that is kept. At its due times, a
session reads as many bytes as the user's line would have delivered by then. The TCP receive window thus
limits the rate, as the line of a real user does. The results have every download, complete or not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import heapq
import itertools
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Plan = dict[str, Any]
# Opens a socket of a kind in the network namespace of a process.
Open = Callable[[int, socket.SocketKind], socket.socket]
CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)

# ---- datagrams
NUMBER = struct.Struct("!I")
# The Ethernet, IPv4 and UDP headers, which count towards a link's rate.
HEADERS_BYTES = 14 + 20 + 8
# The interval between two rounds of sending or receiving at high rates.
TICK_S = 0.001
# The sender skips datagrams that are later than this. A link's queue (300 kB) holds such a burst.
MAX_DELAY_S = 0.01
# Large enough for what arrives while the process does not run, so that only the network loses.
BUFFER_BYTES = 8_000_000
SO_RCVBUFFORCE = 33
CHANGE = "change.json"
# The source port of probes, from their destination port.
PROBES_FROM = 1000
NEVER = float("inf")

# ---- requests
REQUEST = struct.Struct("!Q")
# Added to the size: the connection is kept for another request.
KEEP = 1 << 63
# What is sent and read at once; a larger number would let one request keep others waiting.
CHUNK_BYTES = 262_144
BACKLOG = 4096
# Stands for the lateness of a request that was never started.
NOT_STARTED = -1.0
# How often a program looks for its end, and how long a probe waits for the last datagrams.
LOOK_S = 0.5

# ---- users
# The kernel doubles it. It covers the time between two reads, and is small enough that the line's
# speed limits the rate.
RECEIVE_BUFFER_BYTES = 32_768
READ_INTERVAL_S = 0.125
# The wait before the next read if data are late.
RETRY_INTERVAL_S = 0.02
STALL_TIMEOUT_S = 20.0


class Sending:
    """The sender of one flow's datagrams.

    Attributes:
        first: the number of the first datagram after `reset_counters`.
        sent: the number of datagrams sent, which is the next datagram's number.
        skipped: the number of datagrams that were due and not sent.
        max_delay_s: the longest time between a datagram's due time and a round of sending.
        due_s: when the next datagram is due.
    """

    def __init__(
        self,
        transmit: Callable[[bytearray], object],
        payload_bytes: int,
        rate_bps: float,
        probes: bool = False,
    ) -> None:
        self._transmit = transmit
        self._payload = bytearray(payload_bytes)
        self._bits = (payload_bytes + HEADERS_BYTES) * 8
        self._interval_s = self._interval_of(rate_bps)
        self._probes = probes
        self.due_s = 0.0
        self.sent = self.skipped = self.first = 0
        self.max_delay_s = 0.0

    def begin(self, now_s: float, phase: float) -> None:
        """Schedule the first datagram after this part of an interval, so that flows take turns."""
        # A rate of 0 has an infinite interval, and 0 * inf is not a number.
        self.due_s = now_s + phase * self._interval_s if phase else now_s
        if self._interval_s == NEVER:
            self.due_s = NEVER

    def reset_counters(self) -> None:
        """Start the report with the next datagram."""
        self.first, self.skipped, self.max_delay_s = self.sent, 0, 0.0

    def change_rate(self, rate_bps: float, at_s: float) -> None:
        """Use another rate from a time in the recent past.

        The next datagram is due by the old rate or by the new one, whichever is earlier.
        """
        self._interval_s = self._interval_of(rate_bps)
        self.due_s = min(self.due_s, at_s + self._interval_s)

    def _interval_of(self, rate_bps: float) -> float:
        return self._bits / rate_bps if rate_bps else NEVER

    def send(self, now_s: float) -> None:
        """Send all datagrams that are due."""
        delay_s = now_s - self.due_s
        if delay_s > MAX_DELAY_S and not self._probes:
            late = int((delay_s - MAX_DELAY_S) / self._interval_s) + 1
            self.skipped += late
            self.due_s += late * self._interval_s
        self.max_delay_s = max(self.max_delay_s, delay_s)
        while self.due_s <= now_s:
            NUMBER.pack_into(self._payload, 0, self.sent)
            try:
                self._transmit(self._payload)
                self.sent += 1
            except OSError:  # the buffer is full, there is no route, or no receiver listens
                self.sent += self._probes
                self.skipped += not self._probes
            self.due_s += self._interval_s


def send(
    plan: Plan, directory: Path, open_socket: Open, changed: Callable[[], bool]
) -> dict[str, Any]:
    """Send by the plan, then by the requested change. Returns each flow's counters."""
    with contextlib.ExitStack() as resources:
        flows = []
        for one in plan["flows"]:
            sender = resources.enter_context(open_socket(one["sender_pid"], socket.SOCK_DGRAM))
            sender.connect((one["address"], one["port"]))
            sender.setblocking(False)
            flows.append(Sending(sender.send, plan["payload_bytes"], one["rate_bps"]))
        now_s = time.monotonic()
        for number, flow in enumerate(flows):
            flow.begin(now_s, number / len(flows))
        end_s, change_s = now_s + plan["longest_s"], NEVER
        is_changed = False
        # Pending changes (time, flow, new rate), the next one last.
        changes: list[tuple[float, int, float]] = []
        while now_s < end_s:
            if not is_changed and changed():
                is_changed = True
                change = json.loads((directory / CHANGE).read_text())
                change_s, end_s, rates_bps = change["at_s"], change["end_s"], change["rates_bps"]
                after_s = change.get("after_s", [0.0] * len(rates_bps))
                changes = [
                    (change_s + later_s, number, rate_bps)
                    for number, (later_s, rate_bps) in enumerate(
                        zip(after_s, rates_bps, strict=True)
                    )
                ]
                changes.sort(reverse=True)
            if now_s >= change_s:
                change_s = NEVER
                for flow in flows:
                    flow.reset_counters()
            while changes and now_s >= changes[-1][0]:
                at_s, number, rate_bps = changes.pop()
                flows[number].change_rate(rate_bps, at_s)
            for flow in flows:
                flow.send(now_s)
            time.sleep(TICK_S)
            now_s = time.monotonic()
    names = ("first", "sent", "skipped", "max_delay_s")
    return {"flows": [{name: getattr(flow, name) for name in names} for flow in flows]}


class Receiving:
    """The receiver of all flows' datagrams: their numbers and arrival times."""

    def __init__(self, plan: Plan, open_socket: Open, resources: contextlib.ExitStack) -> None:
        self.sockets = []
        for one in plan["flows"]:
            receiver = resources.enter_context(open_socket(one["receiver_pid"], socket.SOCK_DGRAM))
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            receiver.bind(("", one["port"]))
            receiver.setblocking(False)
            self.sockets.append(receiver)
        self._numbers = [array("I") for _ in self.sockets]
        self._times_s = [array("d") for _ in self.sockets]

    def receive(self) -> None:
        """Receive everything that is there."""
        now_s = time.monotonic()
        for receiver, of_flow, at_s in zip(self.sockets, self._numbers, self._times_s, strict=True):
            with contextlib.suppress(BlockingIOError):
                while True:
                    of_flow.append(NUMBER.unpack(receiver.recv(NUMBER.size))[0])
                    at_s.append(now_s)

    def flows(self) -> list[dict[str, Any]]:
        """What was received of each flow."""
        return [
            {"numbers": list(of_flow), "times_s": [round(at_s, 4) for at_s in of_times]}
            for of_flow, of_times in zip(self._numbers, self._times_s, strict=True)
        ]


def receive(plan: Plan, open_socket: Open, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Receive until stopped. Returns each flow's datagram numbers and arrival times."""
    with contextlib.ExitStack() as resources:
        receiving = Receiving(plan, open_socket, resources)
        last = False
        while not last:
            last = stopped()  # one more round, for datagrams that have arrived before
            time.sleep(TICK_S)
            receiving.receive()
    return {"flows": receiving.flows()}


def _send_to(sender: socket.socket, address: tuple[str, int], payload: bytearray) -> None:
    sender.sendto(payload, address)


def probe(plan: Plan, open_socket: Open, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Send and receive until stopped. Returns each flow's counters, datagram numbers and times."""
    with contextlib.ExitStack() as resources:
        receiving = Receiving(plan, open_socket, resources)
        flows = []
        for one in plan["flows"]:
            sender = resources.enter_context(open_socket(one["sender_pid"], socket.SOCK_DGRAM))
            # So that switches hash a flow alike in every run.
            sender.bind(("", one["port"] + PROBES_FROM))
            sender.setblocking(False)
            to = (one["address"], one["port"])
            # A connected socket would also report why an earlier datagram was lost, and send none.
            transmit = functools.partial(_send_to, sender, to)
            flows.append(Sending(transmit, plan["payload_bytes"], one["rate_bps"], probes=True))
            flows[-1].begin(plan["start_s"], 0.0)

        def receive_until(at_s: float) -> None:
            wait_s = max(0.0, at_s - time.monotonic())
            if select.select(receiving.sockets, [], [], wait_s)[0]:
                receiving.receive()

        while (now_s := time.monotonic()) < plan["end_s"] and not stopped():
            for flow in flows:
                flow.send(now_s)
            receive_until(min(now_s + MAX_DELAY_S, *(flow.due_s for flow in flows)))
        linger_s = time.monotonic() + LOOK_S
        while time.monotonic() < linger_s:
            receive_until(linger_s)
    return {
        "flows": [
            {"sent": flow.sent, "max_delay_s": flow.max_delay_s, **received}
            for flow, received in zip(flows, receiving.flows(), strict=True)
        ]
    }


@dataclass(slots=True)
class Response:
    """The data that a server still has to send on a connection; None before a request."""

    connection: socket.socket
    left_bytes: int | None = None
    keep: bool = False


class Server:
    """Answers requests on all listening sockets."""

    def __init__(self, listeners: Sequence[socket.socket]) -> None:
        self._listeners = {one.fileno(): one for one in listeners}
        self._responses: dict[int, Response] = {}
        self._poll = select.epoll()
        for number in self._listeners:
            self._poll.register(number, select.EPOLLIN)
        # Data come from the page cache, so that unsent data take no memory.
        self._zeros = os.memfd_create("zeros")
        os.ftruncate(self._zeros, CHUNK_BYTES)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until stopped."""
        while not stopped():
            for number, _ in self._poll.poll(LOOK_S):
                if number in self._listeners:
                    self._accept(self._listeners[number])
                else:
                    self._proceed(number)

    def close(self) -> None:
        """Close all connections."""
        for number in list(self._responses):
            self._end(number)
        self._poll.close()
        os.close(self._zeros)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = listener.accept()
                connection.setblocking(False)
                self._responses[connection.fileno()] = Response(connection)
                self._poll.register(connection.fileno(), select.EPOLLIN)

    def _proceed(self, number: int) -> None:
        response = self._responses[number]
        try:
            if response.left_bytes is None:
                request = response.connection.recv(REQUEST.size)
                # The client sends it at once, so it is never divided.
                if len(request) < REQUEST.size:
                    self._end(number)
                    return
                (asked,) = REQUEST.unpack(request)
                response.left_bytes, response.keep = asked & ~KEEP, bool(asked & KEEP)
                self._poll.modify(number, select.EPOLLOUT)
            size_bytes = min(response.left_bytes, CHUNK_BYTES)
            response.left_bytes -= os.sendfile(number, self._zeros, 0, size_bytes)
        except BlockingIOError:
            return
        except OSError:  # the client has given up
            self._end(number)
            return
        if not response.left_bytes and response.keep:
            response.left_bytes = None
            self._poll.modify(number, select.EPOLLIN)
        elif not response.left_bytes:
            self._end(number)

    def _end(self, number: int) -> None:
        self._poll.unregister(number)
        self._responses.pop(number).connection.close()


def serve(plan: Plan, open_socket: Open, stopped: Callable[[], bool]) -> dict[str, Any]:
    """Serve on the end systems of the plan until stopped."""
    with contextlib.ExitStack() as resources:
        listeners = []
        for pid in plan["server_pids"]:
            listener = resources.enter_context(open_socket(pid, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", plan["port"]))
            listener.listen(BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
        server = Server(listeners)
        resources.callback(server.close)
        server.run(stopped)
    return {}


@dataclass(slots=True)
class Request:
    """A request under way at its client. Times are on the monotonic clock."""

    number: int
    connection: socket.socket
    size_bytes: int
    start_s: float
    asked: bool = False
    received_bytes: int = 0


class Clients:
    """Starts requests when they are due, and reads them."""

    def __init__(self, plan: Plan, open_socket: Open) -> None:
        self._plan = plan
        self._open_socket = open_socket
        self._requests: dict[int, Request] = {}
        self._poll = select.epoll()
        self._buffer = bytearray(CHUNK_BYTES)
        # How late it was started, how long it took, and how many bytes arrived.
        self.rows: list[list[float]] = []
        self.received_bytes = self.measured_bytes = 0

    def run(self) -> None:
        """Run all requests until they have ended, or until the end of the plan."""
        flows, start_s, end_s = self._plan["flows"], self._plan["start_s"], self._plan["end_s"]
        self.rows = [[NOT_STARTED, 0.0, 0.0] for _ in flows]
        begun = 0
        while (begun < len(flows) or self._requests) and (now_s := time.monotonic()) < end_s:
            while begun < len(flows) and start_s + flows[begun]["start_s"] <= now_s:
                self._begin(begun, flows[begun], now_s)
                begun += 1
                now_s = time.monotonic()
            next_s = start_s + flows[begun]["start_s"] if begun < len(flows) else end_s
            # epoll counts in milliseconds, which would make requests late.
            select.select([self._poll], [], [], max(0.0, min(next_s, end_s) - now_s))
            for number, _ in self._poll.poll(0):
                self._proceed(self._requests[number])
        for request in list(self._requests.values()):
            self._end(request, min(time.monotonic(), end_s))
        self._poll.close()

    def _begin(self, number: int, flow: Plan, now_s: float) -> None:
        self.rows[number][0] = now_s - self._plan["start_s"] - flow["start_s"]
        client = self._plan["clients"][flow["client"]]
        connection = self._open_socket(client["pid"], socket.SOCK_STREAM)
        request = Request(number, connection, flow["size_bytes"], now_s)
        self._requests[connection.fileno()] = request
        self._poll.register(connection.fileno(), select.EPOLLOUT)
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.bind((client["address"], flow["port"]))
        status = connection.connect_ex((flow["server"], self._plan["port"]))
        if status != errno.EINPROGRESS:
            raise OSError(status, f"connection to {flow['server']}: {os.strerror(status)}")

    def _proceed(self, request: Request) -> None:
        """Send the request, or read what is there."""
        try:
            if not request.asked:
                request.connection.send(REQUEST.pack(request.size_bytes))
                request.asked = True
                self._poll.modify(request.connection.fileno(), select.EPOLLIN)
                return
            count = request.connection.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        now_s = time.monotonic()
        request.received_bytes += count
        self.received_bytes += count
        from_s, to_s = self._plan["measured_s"]
        if from_s <= now_s - self._plan["start_s"] < to_s:
            self.measured_bytes += count
        if not count:  # a connection that failed must not look like a fast one
            self._end(request, self._plan["end_s"])
        elif request.received_bytes >= request.size_bytes:
            self._end(request, now_s)

    def _end(self, request: Request, now_s: float) -> None:
        row = self.rows[request.number]
        row[1:] = [now_s - request.start_s, float(request.received_bytes)]
        del self._requests[request.connection.fileno()]
        self._poll.unregister(request.connection.fileno())
        request.connection.close()


def request(plan: Plan, open_socket: Open) -> dict[str, Any]:
    """Run all requests. Returns their rows, and the bytes received in all and in the measured part."""
    clients = Clients(plan, open_socket)
    clients.run()
    return {
        "rows": [[round(row[0], 6), round(row[1], 6), int(row[2])] for row in clients.rows],
        "received_bytes": clients.received_bytes,
        "measured_bytes": clients.measured_bytes,
    }


@dataclass(slots=True)
class Download:
    """The download of one file."""

    server: str
    size_bytes: int
    start_s: float
    end_s: float = 0.0
    received_bytes: int = 0
    complete: bool = False


class Session:
    """The session of one user. `open_socket` opens a TCP socket at the user."""

    def __init__(
        self,
        plan: Plan,
        server: str,
        seed: int,
        open_socket: Callable[[], socket.socket],
        report: Callable[[Download], None],
    ) -> None:
        self._plan, self._server = plan, server
        self._line_bytes_per_s = plan["line_bps"] / 8
        self._random = random.Random(seed)
        self._open_socket, self._report = open_socket, report
        self._socket: socket.socket | None = None
        self._download: Download | None = None
        self._requested = False
        self._last_data_s = 0.0

    def step(self, now_s: float) -> float:
        """Do the work that is due. Returns the time of the next step."""
        if self._download is None:
            size_bytes = self._random.choice(self._plan["file_bytes"])
            self._download = Download(self._server, size_bytes, start_s=now_s)
            self._requested, self._last_data_s = False, now_s
        try:
            return self._proceed(self._download, now_s)
        except OSError:
            self.close(now_s)
            return now_s + float(self._plan["think_mean_s"])

    def close(self, now_s: float) -> None:
        """Interrupt the current download and close the connection."""
        if self._download is not None:
            self._finish(self._download, now_s, complete=False)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _proceed(self, download: Download, now_s: float) -> float:
        if not self._requested:
            try:
                self._request(download)
            except BlockingIOError:  # still connecting
                self._check_stall(now_s)
            return now_s + RETRY_INTERVAL_S / 4
        elapsed_s = now_s - download.start_s
        allowance_bytes = int(elapsed_s * self._line_bytes_per_s) + 1
        late = self._read(download, min(allowance_bytes, download.size_bytes), now_s)
        if download.received_bytes == download.size_bytes:
            self._finish(download, now_s, complete=True)
            return now_s + float(self._plan["think_mean_s"]) * self._random.uniform(0.5, 1.5)
        if late:
            self._check_stall(now_s)
            return now_s + RETRY_INTERVAL_S
        done_s = download.start_s + download.size_bytes / self._line_bytes_per_s
        return min(now_s + READ_INTERVAL_S, max(done_s, now_s))

    def _request(self, download: Download) -> None:
        if self._socket is None:
            self._socket = self._open_socket()
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            self._socket.connect_ex((self._server, self._plan["port"]))
        self._socket.send(REQUEST.pack(download.size_bytes | KEEP))
        self._requested = True

    def _read(self, download: Download, until_bytes: int, now_s: float) -> bool:
        """Read the file up to this size. Returns whether data are late."""
        assert self._socket is not None
        while download.received_bytes < until_bytes:
            try:
                data = self._socket.recv(until_bytes - download.received_bytes)
            except BlockingIOError:
                return True
            if not data:
                raise ConnectionResetError(f"{self._server} closed the connection")
            self._last_data_s = now_s
            download.received_bytes += len(data)
        return False

    def _check_stall(self, now_s: float) -> None:
        if now_s - self._last_data_s > STALL_TIMEOUT_S:
            raise TimeoutError(f"{self._server}: no data for {STALL_TIMEOUT_S} s")

    def _finish(self, download: Download, now_s: float, complete: bool) -> None:
        download.end_s, download.complete = now_s, complete
        self._download = None
        self._report(download)


def browse(plan: Plan, open_socket: Open) -> dict[str, Any]:
    """Run all sessions of a plan until its end. Returns their downloads."""
    found: list[dict[str, Any]] = []
    end_s = plan["end_s"]
    order = itertools.count()  # breaks ties in the heap, because sessions do not compare
    due: list[tuple[float, int, Session]] = []
    for one in plan["sessions"]:

        def opened(pid: int = one["pid"]) -> socket.socket:
            return open_socket(pid, socket.SOCK_STREAM)

        session = Session(
            plan,
            one["server"],
            one["seed"],
            opened,
            lambda download: found.append(asdict(download)),
        )
        heapq.heappush(due, (plan["start_s"] + one["begin_s"], next(order), session))
    while due and due[0][0] < end_s:
        due_s, _, session = due[0]
        time.sleep(max(0.0, due_s - time.monotonic()))
        if (now_s := time.monotonic()) >= end_s:
            break
        heapq.heapreplace(due, (session.step(now_s), next(order), session))
    for _, _, session in due:
        session.close(end_s)
    return {"downloads": found}


@contextlib.contextmanager
def namespaces() -> Iterator[Open]:
    """A function that makes a socket in the network namespace of a process.

    The program stays in that namespace until it needs another one.
    """
    with contextlib.ExitStack() as resources:

        def opened(path: str) -> int:
            number = os.open(path, os.O_RDONLY)
            resources.callback(os.close, number)
            return number

        own = opened("/proc/self/ns/net")
        resources.callback(_enter, own)
        known: dict[int, int] = {}
        entered = -1

        def open_socket(pid: int, kind: socket.SocketKind) -> socket.socket:
            nonlocal entered
            if pid not in known:
                known[pid] = opened(f"/proc/{pid}/ns/net")
            if pid != entered:
                _enter(known[pid])
                entered = pid
            return socket.socket(socket.AF_INET, kind)

        yield open_socket


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main(arguments: Sequence[str]) -> None:
    """Run a role by its plan, and write its results."""
    role, plan_path, results_path = arguments[0], Path(arguments[1]), Path(arguments[2])
    plan: Plan = json.loads(plan_path.read_text())
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    caught: list[int] = []
    if role in ("send", "receive", "probe", "serve"):
        for one in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(one, lambda number, _frame: caught.append(number))

    def stopped() -> bool:
        return signal.SIGTERM in caught

    with namespaces() as open_socket:
        results: dict[str, Any] = {
            "send": lambda: send(
                plan, plan_path.parent, open_socket, lambda: signal.SIGUSR1 in caught
            ),
            "receive": lambda: receive(plan, open_socket, stopped),
            "probe": lambda: probe(plan, open_socket, stopped),
            "serve": lambda: serve(plan, open_socket, stopped),
            "request": lambda: request(plan, open_socket),
            "browse": lambda: browse(plan, open_socket),
        }[role]()
    results_path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
