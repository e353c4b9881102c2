"""Who is taken for whom over TLS, and who is not; and that nothing is said without it."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.host.sockets import Reach, TlsFiles, TlsSocket, is_loopback
from controller.metrics import scrapes
from controller.openflow.connections import Dialers
from controller.ovsdb.database import Database
from controller.text.wording import Refused
from tests.wire.certificates import files, make

# Green sockets need a standard library that was patched before the test imported it; the service
# does that: tests/switch/test_remote.py.
pytestmark = pytest.mark.skipif(
    os.environ.get("OVS_LBT_FRAMEWORK") == "ryu", reason="servers in the test's own process"
)
HOST = "127.0.0.1"
ABROAD = "192.0.2.1"
TEXT = b"ovslbt_up 1\n"
# However the library says that the other end has hung up.
REFUSED = (ConnectionError, ssl.SSLError, urllib.error.URLError, http.client.HTTPException)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Authorities `ca` and `readers`, and who is signed by them; a `stranger` is not."""
    directory = tmp_path_factory.mktemp("pki")
    for authority in ("ca", "readers", "others"):
        make(directory, authority)
    make(directory, "service", "ca")
    make(directory, "switch", "ca")
    make(directory, "late-switch", "ca", expired=True)
    make(directory, "reader", "readers")
    make(directory, "late-reader", "readers", expired=True)
    make(directory, "stranger", "others")
    return directory


def told(log: pytest.LogCaptureFixture, text: str) -> bool:
    """Whether it is in the log, or comes to be."""
    until_s = time.monotonic() + 5
    while time.monotonic() < until_s:
        if any(text in record.getMessage() for record in log.records):
            return True
        time.sleep(0.01)
    return False


# ---- metrics -------------------------------------------------------------------------------


def application(_environment: Any, start: Callable[..., Any]) -> list[bytes]:
    start("200 OK", [("Content-Type", "text/plain")])
    return [TEXT]


@pytest.fixture
def port(pki: Path) -> Iterator[int]:
    """Where metrics are served over TLS."""
    tls = TlsFiles.for_metrics(files(pki, "service", "ca"), str(pki / "readers.pem"))
    server = scrapes.serve(application, HOST, 0, tls)
    yield server.server_port
    server.shutdown()
    server.server_close()


def client(pki: Path, name: str) -> ssl.SSLContext:
    """Of a client with that certificate, or none."""
    context = ssl.create_default_context(cafile=str(pki / "ca.pem"))
    context.check_hostname = False
    if name:
        context.load_cert_chain(pki / f"{name}.pem", pki / f"{name}.key")
    return context


def scrape(pki: Path, port: int, name: str) -> bytes:
    """As Prometheus does."""
    url = f"https://{HOST}:{port}/metrics"
    with urllib.request.urlopen(url, timeout=5, context=client(pki, name)) as answer:
        body: bytes = answer.read()
    return body


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "peer did not return a certificate"),
        ("stranger", "unable to get local issuer certificate"),
        # Who speaks for a switch may not read metrics, and the other way round.
        ("switch", "self-signed certificate in certificate chain"),
        ("late-reader", "certificate has expired"),
    ],
)
def test_metrics_are_for_their_readers_and_nobody_else(
    pki: Path, port: int, name: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(REFUSED):
        scrape(pki, port, name)
    assert told(caplog, f"TLS connection for metrics from {HOST} failed: {why}")
    assert scrape(pki, port, "reader") == TEXT


@pytest.mark.system
def test_who_speaks_no_tls_gets_nothing_and_keeps_nobody_waiting(
    pki: Path, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.closing(socket.create_connection((HOST, port))) as silent:
        with pytest.raises(REFUSED):
            urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=5)
        assert told(caplog, "http request")
        assert scrape(pki, port, "reader") == TEXT
        silent.close()


@pytest.mark.system
def test_callers_are_bounded(pki: Path, port: int) -> None:
    callers = [socket.create_connection((HOST, port)) for _ in range(scrapes.OF_PEER_MAX + 1)]
    for caller in callers:
        caller.sendall(b"\x16")
    first = callers[0]
    first.settimeout(10)
    assert first.recv(1) == b"", "of too many, the oldest is hung up on"
    for caller in callers:
        caller.close()
    until_s = time.monotonic() + 5
    while True:
        with contextlib.suppress(OSError):
            assert scrape(pki, port, "reader") == TEXT
            break
        assert time.monotonic() < until_s


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_loopback_they_are_for_everybody(host: str) -> None:
    server = scrapes.serve(application, host, 0, None)
    try:
        netloc = f"[{host}]" if ":" in host else host
        with urllib.request.urlopen(f"http://{netloc}:{server.server_port}/", timeout=5) as answer:
            assert answer.read() == TEXT
    finally:
        server.shutdown()
        server.server_close()


# ---- bridges and the database ----------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "peer did not return a certificate"),
        ("stranger", "unable to get local issuer certificate"),
        ("late-switch", "certificate has expired"),
    ],
)
def test_a_caller_is_a_bridge_by_its_certificate(
    pki: Path, name: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    dialers = Dialers(Reach("unix:db.sock", Path()), lambda _: None, lambda: True, lambda: None)
    with contextlib.closing(socket.create_server((HOST, 0))) as free:
        port = free.getsockname()[1]
    dialers.listen((HOST, port), files(pki, "service", "ca"))
    with (
        contextlib.suppress(OSError),
        contextlib.closing(socket.create_connection((HOST, port), timeout=5)) as sock,
        client(pki, name).wrap_socket(sock) as tls,
    ):
        assert tls.recv(1) == b""
    assert told(caplog, f"connection from {HOST} failed: {why}")


@contextlib.contextmanager
def listening(pki: Path, name: str) -> Iterator[int]:
    """A bridge, or a database, that asks callers for certificates; the port."""
    context = files(pki, name, "ca").context(server_side=True)

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = server.accept()
                with contextlib.suppress(OSError):
                    TlsSocket(sock, context, server_side=True)
                sock.close()

    with contextlib.closing(socket.create_server((HOST, 0))) as server:
        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stranger", "unable to get local issuer certificate"),
        ("late-switch", "certificate has expired"),
    ],
)
def test_bridges_and_databases_are_known_by_their_certificates(
    pki: Path, name: str, why: str
) -> None:
    ours = files(pki, "service", "ca")
    with listening(pki, name) as port:
        reach = Reach(f"ssl:{HOST}:6640", Path(), ours)
        with pytest.raises(
            Refused, match=f"^TLS connection to pssl:{port}:{HOST} on {HOST} failed: {why}"
        ):
            reach.dial("br0", (f"pssl:{port}:{HOST}",))
        with pytest.raises(
            Refused, match=rf"^ovsdb-server at ssl:{HOST}:{port} cannot be reached: {why}; "
        ):
            Database(f"ssl:{HOST}:{port}", lambda _: None, ours)


# ---- without TLS -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "so"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        (ABROAD, False),
        ("fe80::1", False),
    ],
)
def test_what_never_leaves_this_host(host: str, so: bool) -> None:
    assert is_loopback(host) is so


def test_nothing_is_said_without_tls_beyond_this_host() -> None:
    with pytest.raises(
        ValueError, match=r"^--metrics 0.0.0.0:9476 has no TLS; use --metrics-ca-cert"
    ):
        scrapes.serve(application, "0.0.0.0", 9476, None)
    dialers = Dialers(Reach("unix:db.sock", Path()), lambda _: None, lambda: True, lambda: None)
    with pytest.raises(ValueError, match=r"^--listen 0.0.0.0:6653 has no TLS; use --private-key"):
        dialers.listen(("0.0.0.0", 6653), None)
    with pytest.raises(ValueError, match=f"^ptcp:6653 on {ABROAD} has no TLS; use .*pssl:PORT"):
        Reach(f"ssl:{ABROAD}:6640", Path()).dial("br0", ("ptcp:6653",))
    with pytest.raises(ValueError, match=f"tcp:{ABROAD}:6640 has no TLS; use ssl:HOST:PORT"):
        Database(f"tcp:{ABROAD}:6640", lambda _: None)


@pytest.mark.system
def test_readers_of_metrics_need_our_certificate(pki: Path) -> None:
    assert TlsFiles.for_metrics(None, None) is None
    with pytest.raises(ValueError, match=r"^--metrics-ca-cert needs a certificate; set --private"):
        TlsFiles.for_metrics(None, "readers.pem")
    wrong = TlsFiles.for_metrics(files(pki, "service", "ca"), "/nowhere")
    with pytest.raises(
        ValueError, match=r"^--metrics-ca-cert: /nowhere does not exist or is not readable"
    ):
        scrapes.serve(application, HOST, 0, wrong)
