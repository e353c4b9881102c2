"""Transfers of given sizes at given times over TCP, each on a connection of its own.

It runs as two processes, one for all servers and one for all clients:

    flow_transfers.py serve PLAN.json RESULTS.json
    flow_transfers.py request PLAN.json RESULTS.json

The sockets are in the network namespaces of the end systems. A client connects from the port that
the plan has for the flow, sends the number of bytes that it wants, and reads them. The time of a flow
is from the start of its connection to its last byte. A flow starts when it is due, whether or not
others have ended. The results have a row for each flow of the plan: how late it was started, how long
it took, and how many bytes arrived. Flows that have not ended by the plan's end are given up, and a
connection that fails counts until then. Times are on the monotonic clock, which all processes share.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REQUEST = struct.Struct("!Q")
# What is sent and read at once; a larger number would let one flow keep others waiting.
CHUNK_BYTES = 262_144
BACKLOG = 4096
CLONE_NEWNET = 0x40000000
# Stands for the lateness of a flow that was never started.
NOT_STARTED = -1.0
# How often the server looks for its end.
LOOK_S = 0.5
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class Response:
    """The data that a server still has to send on a connection; None before the request."""

    connection: socket.socket
    left_bytes: int | None = None


@dataclass(slots=True)
class Request:
    """A flow under way at its client. Times are on the monotonic clock."""

    number: int
    connection: socket.socket
    size_bytes: int
    start_s: float
    asked: bool = False
    received_bytes: int = 0


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
                (response.left_bytes,) = REQUEST.unpack(request)
                self._poll.modify(number, select.EPOLLOUT)
            size_bytes = min(response.left_bytes, CHUNK_BYTES)
            response.left_bytes -= os.sendfile(number, self._zeros, 0, size_bytes)
        except BlockingIOError:
            return
        except OSError:  # the client has given up
            self._end(number)
            return
        if not response.left_bytes:
            self._end(number)

    def _end(self, number: int) -> None:
        self._poll.unregister(number)
        self._responses.pop(number).connection.close()


class Clients:
    """Starts flows when they are due, and reads them."""

    def __init__(self, plan: dict[str, Any], open_socket: Callable[[int], socket.socket]) -> None:
        self._plan = plan
        self._open_socket = open_socket
        self._requests: dict[int, Request] = {}
        self._poll = select.epoll()
        self._buffer = bytearray(CHUNK_BYTES)
        # How late it was started, how long it took, and how many bytes arrived.
        self.rows: list[list[float]] = []
        self.received_bytes = self.measured_bytes = 0

    def run(self) -> None:
        """Run all flows until they have ended, or until the end of the plan."""
        flows, start_s, end_s = self._plan["flows"], self._plan["start_s"], self._plan["end_s"]
        self.rows = [[NOT_STARTED, 0.0, 0.0] for _ in flows]
        begun = 0
        while (begun < len(flows) or self._requests) and (now_s := time.monotonic()) < end_s:
            while begun < len(flows) and start_s + flows[begun]["start_s"] <= now_s:
                self._begin(begun, flows[begun], now_s)
                begun += 1
                now_s = time.monotonic()
            next_s = start_s + flows[begun]["start_s"] if begun < len(flows) else end_s
            # epoll counts in milliseconds, which would make flows late.
            select.select([self._poll], [], [], max(0.0, min(next_s, end_s) - now_s))
            for number, _ in self._poll.poll(0):
                self._proceed(self._requests[number])
        for request in list(self._requests.values()):
            self._end(request, min(time.monotonic(), end_s))
        self._poll.close()

    def _begin(self, number: int, flow: dict[str, Any], now_s: float) -> None:
        self.rows[number][0] = now_s - self._plan["start_s"] - flow["start_s"]
        client = self._plan["clients"][flow["client"]]
        connection = self._open_socket(client["pid"])
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


def serve(plan: dict[str, Any], stopped: Callable[[], bool]) -> dict[str, Any]:
    """Serve until stopped."""
    with contextlib.ExitStack() as resources, namespaces() as open_socket:
        listeners = []
        for pid in plan["server_pids"]:
            listener = resources.enter_context(open_socket(pid))
            listener.bind(("", plan["port"]))
            listener.listen(BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
        server = Server(listeners)
        resources.callback(server.close)
        server.run(stopped)
    return {}


def request(plan: dict[str, Any]) -> dict[str, Any]:
    """Run all flows. Returns their rows, and the bytes received in all and in the measured part."""
    with namespaces() as open_socket:
        clients = Clients(plan, open_socket)
        clients.run()
    return {
        "rows": [[round(row[0], 6), round(row[1], 6), int(row[2])] for row in clients.rows],
        "received_bytes": clients.received_bytes,
        "measured_bytes": clients.measured_bytes,
    }


@contextlib.contextmanager
def namespaces() -> Iterator[Callable[[int], socket.socket]]:
    """A function that makes a TCP socket in the network namespace of a process.

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

        def open_socket(pid: int) -> socket.socket:
            nonlocal entered
            if pid not in known:
                known[pid] = opened(f"/proc/{pid}/ns/net")
            if pid != entered:
                _enter(known[pid])
                entered = pid
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

        yield open_socket


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def main(arguments: Sequence[str]) -> None:
    role, plan_path, results_path = arguments[0], Path(arguments[1]), Path(arguments[2])
    plan: dict[str, Any] = json.loads(plan_path.read_text())
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stops: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stops.append(number))
    if role == "serve":
        results = serve(plan, lambda: bool(stops))
    else:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        results = request(plan)
    results_path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1:])
