"""Slow, greedy and oversized clients of the metrics port keep nobody else out, and cost little."""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.metrics import scrapes

HOST = "127.0.0.1"
TEXT = b"up 1\n" * 20_000
CLIENTS = 16
# What most scrapes take. The kernel of a busy machine sends a lost SYN again after 1 s, so one may take longer.
WITHOUT_PAUSE_S, AT_MOST_S = 1.0, 4.0


@pytest.fixture
def made() -> list[float]:
    """When the answer was made."""
    return []


@pytest.fixture
def port(made: list[float]) -> Iterator[int]:
    def application(_environment: Any, start: Callable[..., Any]) -> list[bytes]:
        made.append(time.monotonic())
        start("200 OK", [("Content-Type", "text/plain")])
        return [TEXT]

    server = scrapes.serve(application, HOST, 0, None)
    yield server.server_port
    server.shutdown()
    server.server_close()


def scrape(port: int) -> float:
    """Scrape as Prometheus does, and return how long that took."""
    begun_s = time.monotonic()
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=5) as answer:
        assert answer.read() == TEXT
    return time.monotonic() - begun_s


@contextlib.contextmanager
def attackers(attack: Callable[[], None], count: int = CLIENTS) -> Iterator[None]:
    """Some that repeat an attack without pause."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                attack()

    threads = [threading.Thread(target=repeat) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def sent_until_closed(port: int, part: bytes, count: int, pause_s: float = 0.0) -> int:
    """How many parts of a request can be sent before the connection is closed."""
    with socket.create_connection((HOST, port), timeout=5) as caller:
        caller.sendall(b"GET / HTTP/1.0\r\n")
        for at in range(count):
            try:
                caller.sendall(part)
            except OSError:
                return at
            time.sleep(pause_s)
    return count


@pytest.mark.system
@pytest.mark.parametrize("count", [CLIENTS, 2 * scrapes.AT_ONCE_MAX])
def test_slow_clients_keep_nobody_out(port: int, count: int) -> None:
    def hang() -> None:
        with socket.create_connection((HOST, port), timeout=0.5) as caller:
            caller.sendall(b"GET")
            with contextlib.suppress(TimeoutError):
                caller.recv(1)

    hung = [socket.create_connection((HOST, port)) for _ in range(count)]
    with attackers(hang):
        took_s = [scrape(port) for _ in range(3)]
    for caller in hung:
        caller.close()
    assert max(took_s) < AT_MOST_S


@pytest.mark.system
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.0\r\n\r\n"], ids=["nothing", "a request"])
def test_connections_that_are_reset_cost_no_pause(port: int, said: bytes) -> None:
    """More of them come than requests are taken."""

    def reset() -> None:
        with socket.create_connection((HOST, port), timeout=1) as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            caller.sendall(said)

    with attackers(reset, count=4):
        time.sleep(0.5)
        took_s = [scrape(port) for _ in range(5)]
    assert statistics.median(took_s) < WITHOUT_PAUSE_S and max(took_s) < AT_MOST_S


@pytest.mark.system
def test_connections_that_send_nothing_are_not_taken(port: int) -> None:
    silent = deque[socket.socket](maxlen=300)

    def hold() -> None:
        if len(silent) == silent.maxlen:
            silent.popleft().close()
        silent.append(socket.create_connection((HOST, port), timeout=1))

    with attackers(hold, count=1):
        time.sleep(0.5)
        took_s = [scrape(port) for _ in range(5)]
    for caller in silent:
        caller.close()
    assert statistics.median(took_s) < WITHOUT_PAUSE_S and max(took_s) < AT_MOST_S


@pytest.mark.system
def test_a_byte_does_not_restart_the_time_of_a_request(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrapes, "REQUEST_MAX_S", 1.0)
    sent = sent_until_closed(port, b"G", count=200, pause_s=0.05)
    assert 10 < sent < 100


@pytest.mark.system
def test_an_answer_that_is_not_read_is_ended(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "REQUEST_MAX_S", 1.0)
    # Other tests of this process may have left threads behind.
    before = threading.active_count()
    with socket.create_connection((HOST, port)) as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.sendall(b"GET / HTTP/1.0\r\n\r\n")
        time.sleep(2.5)
        read = 0
        with contextlib.suppress(OSError):
            while chunk := caller.recv(65536):
                read += len(chunk)
    assert threading.active_count() <= before and read <= len(TEXT) + 1000


@pytest.mark.system
def test_greedy_clients_cost_little(port: int, made: list[float]) -> None:
    answered = []
    before_s, begun_s = time.process_time(), time.monotonic()
    with attackers(lambda: answered.append(scrape(port))):
        time.sleep(3.0)
        took_s = scrape(port)
    span_s = time.monotonic() - begun_s
    assert took_s < AT_MOST_S
    # The attackers are threads of this process, too.
    assert len(answered) <= span_s / scrapes.PACE_S + CLIENTS
    assert len(made) <= span_s / scrapes.FRESH_S + 1
    assert time.process_time() - before_s < span_s


@pytest.mark.system
def test_a_request_is_not_read_beyond_its_limit(port: int) -> None:
    assert sent_until_closed(port, b"X-1: %s\r\n" % (b"x" * 60_000), count=90) < 90
    assert scrape(port) < 4.0
