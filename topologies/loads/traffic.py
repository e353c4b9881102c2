"""The traffic between end systems by a schedule: numbered datagrams, and transfers of given sizes.

    python -m topologies.loads.traffic ROLE SCHEDULE.json

Each role is one process for all end systems, whose sockets are in their network namespaces. Times are
on the monotonic clock, which all processes share. An order is a line of JSON on the standard input, and
the end of this input ends the program. The results are JSON on the standard output.

`datagrams`: datagrams at given rates, from `start_s` until `end_s`. An order changes the rates: it has the
time of the change, the new rates, an optional delay for each flow, and the end. The results have the
number and the arrival time of every datagram. The program skips datagrams that it could not send in
time, because a burst would make the network lose packets. `probes`, at low rates, are sent late instead,
and what could not be sent at all counts as sent. The datagrams of a flow with `connections` take turns on
that many pairs of ports; with `counted` false, nobody reads them.

`serve`: answers requests for a number of bytes on connections that are kept.

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
import functools
import heapq
import itertools
import json
import os
import random
import resource
import select
import socket
import struct
import sys
import time
from array import array
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from topologies.network.private_network import process_network

Plan = dict[str, Any]

# ---- datagrams
NUMBER = struct.Struct("!I")
# The Ethernet, IPv4 and UDP headers, which count towards a link's rate.
HEADERS_BYTES = 14 + 20 + 8
# The interval between two rounds of sending and receiving at high rates.
TICK_S = 0.001
# The sender skips datagrams that are later than this. A link's queue (300 kB) holds such a burst.
MAX_DELAY_S = 0.01
# Large enough for what arrives while the process does not run, so that only the network loses.
BUFFER_BYTES = 8_000_000
SO_RCVBUFFORCE = 33
# The source port of datagrams, from their destination port.
SENT_FROM = 1000
NEVER = float("inf")
# A flow of many connections has these source ports for each of its destination ports.
FIRST_SOURCE_PORT, SOURCE_PORTS = 1024, 60_000
UDP = struct.Struct("!HHHH")
# The time for the last datagrams to arrive.
LINGER_S = 0.5

# ---- transfers
REQUEST = struct.Struct("!Q")
# What is sent and read at once; a larger number would let one request keep others waiting.
CHUNK_BYTES = 262_144
BACKLOG = 4096
# Stands for the lateness of a request that was never started.
NOT_STARTED = -1.0
# How often a program looks for its end.
LOOK_S = 0.5

# ---- users
# The kernel doubles it. It covers the time between two reads, and is small enough that the line's
# speed limits the rate.
RECEIVE_BUFFER_BYTES = 32_768
READ_INTERVAL_S = 0.125
# The wait before the next read if data are late.
RETRY_INTERVAL_S = 0.02
STALL_TIMEOUT_S = 20.0


def open_socket(pid: int, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
    """A socket that does not block, in the network namespace of a process."""
    with process_network(pid):
        made = socket.socket(socket.AF_INET, kind, protocol)
    made.setblocking(False)
    return made


class Orders:
    """The orders on the standard input.

    Attributes:
        ended: whether the input has ended, which is an order to end now.
    """

    def __init__(self) -> None:
        self.ended = False
        self._text = b""
        os.set_blocking(sys.stdin.fileno(), False)

    def take(self) -> list[Plan]:
        """The orders since the last call."""
        if self.ended:
            return []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(sys.stdin.fileno(), CHUNK_BYTES):
                self._text += data
            self.ended = True
        *lines, self._text = self._text.split(b"\n")
        end = [{"end_s": time.monotonic()}] if self.ended else []
        return [*map(json.loads, lines), *end]


class Sending:
    """The sender of one flow's datagrams.

    Attributes:
        first: the number of the first datagram after `reset_counters`.
        sent: the number of datagrams sent, which is the next datagram's number.
        skipped: the number of datagrams that were due and not sent.
        due_s: when the next datagram is due.
    """

    def __init__(
        self, transmit: Callable[[bytearray], object], payload_bytes: int, probes: bool = False
    ) -> None:
        self._transmit = transmit
        self._payload = bytearray(payload_bytes)
        self._interval_s = NEVER
        self._probes = probes
        self.due_s = NEVER
        self.sent = self.skipped = self.first = 0

    def begin(self, rate_bps: float, start_s: float, phase: float) -> None:
        """Schedule the first datagram after this part of an interval, so that flows take turns."""
        self.change_rate(rate_bps, start_s)
        self.due_s += (phase - 1) * self._interval_s if rate_bps else 0.0

    def reset_counters(self) -> None:
        """Start the report with the next datagram."""
        self.first, self.skipped = self.sent, 0

    def change_rate(self, rate_bps: float, at_s: float) -> None:
        """Use another rate from a time in the recent past.

        The next datagram is due by the old rate or by the new one, whichever is earlier.
        """
        bits = (len(self._payload) + HEADERS_BYTES) * 8
        self._interval_s = bits / rate_bps if rate_bps else NEVER
        self.due_s = min(self.due_s, at_s + self._interval_s)

    def send(self, now_s: float) -> None:
        """Send all datagrams that are due."""
        delay_s = now_s - self.due_s
        if delay_s > MAX_DELAY_S and not self._probes:
            late = int((delay_s - MAX_DELAY_S) / self._interval_s) + 1
            self.skipped += late
            self.due_s += late * self._interval_s
        while self.due_s <= now_s:
            NUMBER.pack_into(self._payload, 0, self.sent)
            try:
                self._transmit(self._payload)
                self.sent += 1
            except OSError:  # the buffer is full, or there is no route
                self.sent += self._probes
                self.skipped += not self._probes
            self.due_s += self._interval_s


class Receiving:
    """The receiver of one flow's datagrams: their numbers and arrival times."""

    def __init__(self) -> None:
        self.numbers, self.times_s = array("I"), array("d")

    def receive(self, receiver: socket.socket, now_s: float) -> None:
        """Receive everything that is there."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.numbers.append(NUMBER.unpack(receiver.recv(NUMBER.size))[0])
                self.times_s.append(now_s)


def datagrams(plan: Plan, take_orders: Callable[[], Sequence[Plan]]) -> dict[str, Any]:
    """Send by the plan, then by the orders. Returns each flow's counters, numbers and times."""
    probes: bool = plan["probes"]
    sending = [Sending(_transmitter(one), plan["payload_bytes"], probes) for one in plan["flows"]]
    received = [Receiving() for _ in sending]
    # Sockets that nobody reads keep the end system from answering with ICMP.
    receiving: dict[socket.socket, Receiving] = {}
    unread = []
    for one, arrivals in zip(plan["flows"], received, strict=True):
        for number in range(-(-max(1, one["connections"]) // SOURCE_PORTS)):
            receiver = open_socket(one["receiver_pid"], socket.SOCK_DGRAM)
            receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            receiver.bind(("", one["port"] + number))
            if one["counted"]:
                receiving[receiver] = arrivals
            else:
                unread.append(receiver)
    send_all(plan, sending, take_orders, functools.partial(_receive_for, receiving, probes))
    return {
        "flows": [
            {
                "first": flow.first,
                "sent": flow.sent,
                "numbers": list(arrivals.numbers),
                "times_s": [round(at_s, 4) for at_s in arrivals.times_s],
            }
            for flow, arrivals in zip(sending, received, strict=True)
        ]
    }


def send_all(
    plan: Plan,
    flows: Sequence[Sending],
    take_orders: Callable[[], Sequence[Plan]],
    receive_for: Callable[[float], None],
) -> None:
    """Send by the plan, then by the orders. `receive_for` receives until this time has passed."""
    for number, (flow, one) in enumerate(zip(flows, plan["flows"], strict=True)):
        flow.begin(one["rate_bps"], plan["start_s"], number / len(flows) * (not plan["probes"]))
    end_s, reset_s = plan["end_s"], NEVER
    # Pending changes (time, flow, new rate), the next one last.
    changes: list[tuple[float, int, float]] = []
    while (now_s := time.monotonic()) < end_s + LINGER_S:
        for order in take_orders():
            end_s, reset_s = order["end_s"], order.get("at_s", NEVER)
            rates_bps = order.get("rates_bps", ())
            after_s = order.get("after_s") or [0.0] * len(rates_bps)
            changes = [
                (reset_s + later_s, number, rate_bps)
                for number, (later_s, rate_bps) in enumerate(zip(after_s, rates_bps, strict=True))
            ]
            changes.sort(reverse=True)
        if now_s >= reset_s:
            reset_s = NEVER
            for flow in flows:
                flow.reset_counters()
        while changes and now_s >= changes[-1][0]:
            at_s, number, rate_bps = changes.pop()
            flows[number].change_rate(rate_bps, at_s)
        if now_s >= end_s:
            receive_for(TICK_S)
            continue
        for flow in flows:
            flow.send(now_s)
        due_s = min(now_s + MAX_DELAY_S, *(flow.due_s for flow in flows))
        receive_for(max(0.0, due_s - time.monotonic()) if plan["probes"] else TICK_S)


def _transmitter(flow: Plan) -> Callable[[bytearray], object]:
    """What sends a datagram of a flow: on one connection, or on several in turn."""
    address, port, pid = flow["address"], flow["port"], flow["sender_pid"]
    if flow["connections"]:
        sender = open_socket(pid, socket.SOCK_RAW, socket.IPPROTO_UDP)
        return lambda payload: sender.sendto(
            in_turn(payload, flow["connections"], port), (address, 0)
        )
    sender = open_socket(pid, socket.SOCK_DGRAM)
    # So that switches hash a flow alike in every run.
    sender.bind(("", port + SENT_FROM))
    # A connected socket would also report why an earlier datagram was lost, and send none.
    return lambda payload: sender.sendto(payload, (address, port))


def in_turn(payload: bytearray, connections: int, first_port: int) -> bytes:
    """A numbered datagram, with its UDP header, on the connection whose turn it is.

    It has no checksum, which IPv4 permits: it would differ for each connection.
    """
    (number,) = NUMBER.unpack_from(payload)
    place, source = divmod(number % connections, SOURCE_PORTS)
    ends = FIRST_SOURCE_PORT + source, first_port + place
    return UDP.pack(*ends, UDP.size + len(payload), 0) + payload


def _receive_for(receiving: dict[socket.socket, Receiving], probes: bool, span_s: float) -> None:
    """Sleep, and receive what there is then. Probes are received when they arrive."""
    if probes:
        ready, _, _ = select.select(receiving, [], [], span_s)
    else:
        time.sleep(span_s)
        ready = list(receiving)
    now_s = time.monotonic()
    for one in ready:
        receiving[one].receive(one, now_s)


# What a task waits for: a time, or a socket and the event of epoll on it.
Wanted = float | tuple[socket.socket, int]
Task = Generator[Wanted, None, None]


class Loop:
    """Runs tasks, which yield what they wait for.

    asyncio takes twice the CPU time, and starts requests a millisecond late.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._waiting: dict[int, Task] = {}
        self._due: list[tuple[float, int, Task]] = []
        self._order = itertools.count()  # breaks ties in the heap, because tasks do not compare

    def add(self, task: Task) -> None:
        """Run a task until it waits."""
        with contextlib.suppress(StopIteration):
            wanted = next(task)
            if isinstance(wanted, float):
                heapq.heappush(self._due, (wanted, next(self._order), task))
                return
            number, event = wanted[0].fileno(), wanted[1] | select.EPOLLONESHOT
            self._waiting[number] = task
            try:
                self._poll.modify(number, event)
            except FileNotFoundError:
                self._poll.register(number, event)

    def run(self, end_s: float, stopped: Callable[[], bool] = bool) -> None:
        """Run the tasks until all have ended, `end_s` has come, or `stopped`, which is asked at times."""
        while (self._waiting or self._due) and not stopped():
            while self._due and self._due[0][0] <= min(time.monotonic(), end_s):
                self.add(heapq.heappop(self._due)[2])
            if (now_s := time.monotonic()) >= end_s:
                return
            next_s = min(end_s, now_s + LOOK_S, self._due[0][0] if self._due else NEVER)
            # epoll counts in milliseconds, which would make requests late.
            select.select([self._poll], [], [], max(0.0, next_s - now_s))
            for number, _ in self._poll.poll(0):
                self.add(self._waiting.pop(number))


def serve(listeners: Sequence[socket.socket], stopped: Callable[[], bool]) -> None:
    """Answer requests on all connections until stopped."""
    loop = Loop()
    # Data come from the page cache, so that unsent data take no memory.
    zeros = os.memfd_create("zeros")
    os.ftruncate(zeros, CHUNK_BYTES)

    def answer(connection: socket.socket) -> Task:
        with connection, contextlib.suppress(OSError):  # the client has given up
            while True:
                yield connection, select.EPOLLIN
                # The client sends a request at once, so it is never divided.
                if len(asked := connection.recv(REQUEST.size)) < REQUEST.size:
                    return
                (left_bytes,) = REQUEST.unpack(asked)
                while left_bytes:
                    yield connection, select.EPOLLOUT
                    some_bytes = min(left_bytes, CHUNK_BYTES)
                    with contextlib.suppress(BlockingIOError):
                        left_bytes -= os.sendfile(connection.fileno(), zeros, 0, some_bytes)

    def accept(listener: socket.socket) -> Task:
        while True:
            yield listener, select.EPOLLIN
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    loop.add(answer(connection))

    for listener in listeners:
        loop.add(accept(listener))
    loop.run(NEVER, stopped)
    os.close(zeros)


def serve_plan(plan: Plan, orders: Orders) -> dict[str, Any]:
    """Serve on the end systems of the plan, until the orders end."""
    listeners = []
    for pid in plan["server_pids"]:
        listener = open_socket(pid, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", plan["port"]))
        listener.listen(BACKLOG)
        listeners.append(listener)

    def stopped() -> bool:
        orders.take()
        return orders.ended

    serve(listeners, stopped)
    return {}


def request(
    plan: Plan, opened: Callable[[int, socket.SocketKind], socket.socket] = open_socket
) -> dict[str, Any]:
    """Run all requests. Returns their rows, and the bytes received in all and in the measured part."""
    loop, buffer = Loop(), bytearray(CHUNK_BYTES)
    start_s, end_s = plan["start_s"], plan["end_s"]
    from_s, to_s = (start_s + at_s for at_s in plan["measured_s"])
    rows = [[NOT_STARTED, 0.0, 0] for _ in plan["flows"]]
    received = {"received_bytes": 0, "measured_bytes": 0}

    def fetch(flow: Plan, row: list[float], begun_s: float) -> Task:
        # A connection that fails must not look like a fast one.
        row[:2] = [begun_s - start_s - flow["start_s"], end_s - begun_s]
        client = plan["clients"][flow["client"]]
        with opened(client["pid"], socket.SOCK_STREAM) as connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.bind((client["address"], flow["port"]))
            connection.connect_ex((flow["server"], plan["port"]))
            yield connection, select.EPOLLOUT
            connection.send(REQUEST.pack(flow["size_bytes"]))
            while row[2] < flow["size_bytes"]:
                yield connection, select.EPOLLIN
                if not (count := connection.recv_into(buffer)):
                    return
                now_s = time.monotonic()
                row[2] += count
                received["received_bytes"] += count
                received["measured_bytes"] += count if from_s <= now_s < to_s else 0
            row[1] = now_s - begun_s

    def fetch_all() -> Task:
        for flow, row in zip(plan["flows"], rows, strict=True):
            due_s: float = start_s + flow["start_s"]
            if (now_s := time.monotonic()) < due_s:
                yield due_s
                now_s = time.monotonic()
            loop.add(fetch(flow, row, now_s))

    loop.add(fetch_all())
    loop.run(end_s)
    return {
        "rows": [[round(late, 6), round(took, 6), size] for late, took, size in rows],
        **received,
    }


def browse(plan: Plan) -> dict[str, Any]:
    """Run all sessions of a plan until its end. Returns their downloads."""
    downloads: list[dict[str, Any]] = []
    think_s: float = plan["think_mean_s"]

    def session(one: Plan) -> Task:
        chance, connection = random.Random(one["seed"]), None
        yield plan["start_s"] + one["begin_s"]
        while True:
            download = {
                "server": one["server"],
                "size_bytes": chance.choice(plan["file_bytes"]),
                "start_s": time.monotonic(),
                # Until it has another end.
                "end_s": plan["end_s"],
                "received_bytes": 0,
                "complete": False,
            }
            downloads.append(download)
            try:
                if connection is None:
                    connection = open_socket(one["pid"], socket.SOCK_STREAM)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
                    connection.connect_ex((one["server"], plan["port"]))
                yield from _download(connection, download, plan["line_bps"] / 8)
                download["complete"] = True
                pause_s = think_s * chance.uniform(0.5, 1.5)
            except OSError:
                if connection is not None:
                    connection.close()
                connection, pause_s = None, think_s
            download["end_s"] = time.monotonic()
            yield download["end_s"] + pause_s

    loop = Loop()
    for one in plan["sessions"]:
        loop.add(session(one))
    loop.run(plan["end_s"])
    return {"downloads": downloads}


def _download(connection: socket.socket, download: dict[str, Any], line_bytes_per_s: float) -> Task:
    """Request a file, and read it as fast as the user's line allows.

    Raises:
        OSError: the connection failed, or no data have arrived for some time.
    """
    size_bytes, start_s = download["size_bytes"], download["start_s"]
    done_s = start_s + size_bytes / line_bytes_per_s
    last_data_s, requested = start_s, False
    while download["received_bytes"] < size_bytes:
        now_s = time.monotonic()
        until_bytes = min(int((now_s - start_s) * line_bytes_per_s) + 1, size_bytes)
        next_s = min(now_s + READ_INTERVAL_S, max(done_s, now_s))
        try:
            if not requested:
                connection.send(REQUEST.pack(size_bytes))
                requested = True
            while download["received_bytes"] < until_bytes:
                data = connection.recv(until_bytes - download["received_bytes"])
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                last_data_s = now_s
                download["received_bytes"] += len(data)
        except BlockingIOError:  # data are late, or the connection is not there yet
            if now_s - last_data_s > STALL_TIMEOUT_S:
                raise TimeoutError(f"no data for {STALL_TIMEOUT_S} s") from None
            next_s = now_s + (RETRY_INTERVAL_S if requested else RETRY_INTERVAL_S / 4)
        if download["received_bytes"] < size_bytes:
            yield next_s


def main(role: str, path: str) -> None:
    """Run a role by its plan, and print its results."""
    plan: Plan = json.loads(Path(path).read_text())
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    orders = Orders()
    results = {
        "datagrams": lambda: datagrams(plan, orders.take),
        "serve": lambda: serve_plan(plan, orders),
        "request": lambda: request(plan),
        "browse": lambda: browse(plan),
    }[role]()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
