"""Web users: closed-loop download sessions over keep-alive connections.

It runs as one process for each client namespace:

    web_sessions.py PLAN.json RESULTS.jsonl

One thread runs all sessions of the process. At its due times, a session reads as many bytes as the
user's line would have delivered by then. The TCP receive window thus limits the rate, as the line
of a real user does. The results have one line for each download, complete or interrupted.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

# The kernel doubles it. It covers the time between two reads, and is small enough that the line's
# speed limits the rate.
RECEIVE_BUFFER_BYTES = 32_768
READ_INTERVAL_S = 0.125
# The wait before the next read if data are late.
RETRY_INTERVAL_S = 0.02
HEADER_BYTES_MAX = 4096
STALL_TIMEOUT_S = 20.0


@dataclass(slots=True)
class Download:
    """The download of one file. Times are on the monotonic clock, which all processes share."""

    server: str
    size_bytes: int
    start_s: float
    end_s: float = 0.0
    received_bytes: int = 0
    complete: bool = False

    def record(self) -> dict[str, Any]:
        return {
            "server": self.server,
            "size_bytes": self.size_bytes,
            "start_s": self.start_s,
            "end_s": self.end_s,
            "received_bytes": self.received_bytes,
            "complete": self.complete,
        }


class Session:
    """The session of one user."""

    def __init__(
        self,
        server: str,
        port: int,
        line_bps: float,
        file_bytes: Sequence[int],
        think_mean_s: float,
        seed: int,
        report: Callable[[Download], None],
    ) -> None:
        self._server = server
        self._port = port
        self._line_bytes_per_s = line_bps / 8
        self._file_bytes = tuple(file_bytes)
        self._think_mean_s = think_mean_s
        self._random = random.Random(seed)
        self._report = report
        self._socket: socket.socket | None = None
        self._download: Download | None = None
        self._requested = False
        self._header: bytes | None = b""
        self._last_data_s = 0.0

    def step(self, now_s: float) -> float:
        """Do the work that is due. Returns the time of the next step."""
        if self._download is None:
            size_bytes = self._random.choice(self._file_bytes)
            self._download = Download(self._server, size_bytes, start_s=now_s)
            self._requested, self._header, self._last_data_s = False, b"", now_s
        try:
            return self._proceed(self._download, now_s)
        except OSError:
            self.close(now_s)
            return now_s + self._think_mean_s

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
            return now_s + self._think_mean_s * self._random.uniform(0.5, 1.5)
        if late:
            self._check_stall(now_s)
            return now_s + RETRY_INTERVAL_S
        done_s = download.start_s + download.size_bytes / self._line_bytes_per_s
        return min(now_s + READ_INTERVAL_S, max(done_s, now_s))

    def _request(self, download: Download) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            self._socket.connect_ex((self._server, self._port))
        request = f"GET /{download.size_bytes} HTTP/1.1\r\nHost: {self._server}\r\n\r\n"
        self._socket.send(request.encode())
        self._requested = True

    def _read(self, download: Download, until_bytes: int, now_s: float) -> bool:
        """Read the file up to this size. Returns whether data are late."""
        assert self._socket is not None
        while self._header is not None or download.received_bytes < until_bytes:
            size = HEADER_BYTES_MAX
            if self._header is None:
                size = until_bytes - download.received_bytes
            try:
                data = self._socket.recv(size)
            except BlockingIOError:
                return True
            if not data:
                raise ConnectionResetError(f"{self._server} closed the connection")
            self._last_data_s = now_s
            if self._header is None:
                download.received_bytes += len(data)
                continue
            self._header += data
            head, separator, body = self._header.partition(b"\r\n\r\n")
            if separator:
                if not head.startswith(b"HTTP/1.1 200"):
                    raise ConnectionError(f"{self._server}: {head[:40]!r} -> HTTP/1.1 200")
                self._header = None
                download.received_bytes += len(body)
        return False

    def _check_stall(self, now_s: float) -> None:
        if now_s - self._last_data_s > STALL_TIMEOUT_S:
            raise TimeoutError(f"{self._server}: no data for {STALL_TIMEOUT_S} s")

    def _finish(self, download: Download, now_s: float, complete: bool) -> None:
        download.end_s, download.complete = now_s, complete
        self._download = None
        self._report(download)


def run(plan: dict[str, Any], results: TextIO) -> None:
    """Run all sessions of a plan until its end."""

    def report(download: Download) -> None:
        results.write(json.dumps(download.record()) + "\n")

    start_s, end_s = plan["start_s"], plan["end_s"]
    order = itertools.count()  # breaks ties in the heap, because sessions do not compare
    due: list[tuple[float, int, Session]] = []
    for one in plan["sessions"]:
        session = Session(
            server=one["server"],
            port=plan["port"],
            line_bps=plan["line_bps"],
            file_bytes=plan["file_bytes"],
            think_mean_s=plan["think_mean_s"],
            seed=one["seed"],
            report=report,
        )
        heapq.heappush(due, (start_s + one["begin_s"], next(order), session))
    while due and due[0][0] < end_s:
        due_s, _, session = due[0]
        now_s = time.monotonic()
        if due_s > now_s:
            time.sleep(due_s - now_s)
            now_s = time.monotonic()
        if now_s >= end_s:
            break
        heapq.heapreplace(due, (session.step(now_s), next(order), session))
    for _, _, session in due:
        session.close(end_s)


def main(arguments: Sequence[str]) -> int:
    """Run the sessions of a plan."""
    if len(arguments) != 2:
        print("usage: web_sessions.py PLAN.json RESULTS.jsonl", file=sys.stderr)
        return 2
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process stops this one
    plan = json.loads(Path(arguments[0]).read_text())
    with Path(arguments[1]).open("w") as results:
        run(plan, results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
