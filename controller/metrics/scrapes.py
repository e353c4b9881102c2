"""The HTTP server for Prometheus scrapes, with TLS and client certificates if configured."""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from controller.host import faults
from controller.host.sockets import (
    DEFERRED_MAX,
    TlsFiles,
    defer,
    reason,
    refuse_plain,
    refuse_silent,
)
from controller.text.wording import in_words

LOG = logging.getLogger(__name__)

# The most time for a request, from the connection until the whole answer is sent.
REQUEST_MAX_S = 10.0
REQUEST_MAX_BYTES = 8192
# The most unfinished requests in all, and from one address, which Prometheus may share with others. For
# each further request, the oldest one is ended, at least half a second after its start.
AT_ONCE_MAX, OF_PEER_MAX = 64, 48
# The pause between accepted requests. Other requests wait in the kernel, and do not slow the engine down.
PACE_S = 0.01
# Within this time, all requests for the same format get the same answer.
FRESH_S = 1.0
TOLD_AGAIN_S = 60.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Server(ThreadingMixIn, WSGIServer):
    """Serves each client, including the TLS handshake, on a separate thread."""

    daemon_threads = True
    request_queue_size = DEFERRED_MAX
    tls: ssl.SSLContext | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The start and the client's address of each unfinished request, oldest first.
        self._unfinished: dict[Any, tuple[float, str]] = {}
        self._told_s = float("-inf")
        super().__init__(*args, **kwargs)

    def server_bind(self) -> None:
        super().server_bind()
        defer(self.socket)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Refuse a closed or silent one, with no pause (`PACE_S`) afterwards.

        Raises:
            OSError: the connection is closed, or has not sent anything yet.
        """
        request, client_address = super().get_request()
        refuse_silent(request)
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, client_address

    def process_request(self, request: Any, client_address: Any) -> None:
        peer = client_address[0]
        of_peer = [one for one, (_, whose) in [*self._unfinished.items()] if whose == peer]
        if len(of_peer) >= OF_PEER_MAX:
            self._end(of_peer[0])
        elif len(self._unfinished) >= AT_ONCE_MAX:
            self._end(next(iter(self._unfinished), None))
        self._unfinished[request] = time.monotonic(), peer
        super().process_request(request, client_address)
        time.sleep(PACE_S)

    def service_actions(self) -> None:
        for request, (since_s, _) in [*self._unfinished.items()]:
            if time.monotonic() > since_s + REQUEST_MAX_S:
                self._end(request)

    def _end(self, request: Any) -> None:
        """End a request: shut down the connection, so that the request's thread ends."""
        _, peer = self._unfinished.pop(request, (0.0, ""))
        if peer and time.monotonic() > self._told_s + TOLD_AGAIN_S:
            self._told_s = time.monotonic()
            limits = f"at most {REQUEST_MAX_S:g} s per request, and"
            limits = f"{limits} {OF_PEER_MAX} unfinished requests per client"
            LOG.warning("metrics for %s: ended an unfinished request; allowed: %s", peer, limits)
        with contextlib.suppress(OSError, AttributeError):
            request.shutdown(socket.SHUT_RDWR)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            if self.tls is not None:
                request.do_handshake()
        except OSError as error:
            LOG.warning(
                "TLS connection for metrics from %s failed: %s", client_address[0], reason(error)
            )
            self.shutdown_request(request)
        else:
            super().process_request_thread(request, client_address)
        finally:
            self._unfinished.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            faults.report("metrics", error, f"metrics for {client_address[0]}")
        LOG.debug("metrics for %s", client_address[0], exc_info=True)


def _watched(application: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an application to cache answers for `FRESH_S`, and to report failures as HTTP status."""
    made: dict[tuple[bool, bool], tuple[float, str, Any, Any]] = {}
    making = threading.Lock()

    def answer(environ: Any, start_response: Callable[..., Any]) -> Any:
        form = (
            "openmetrics" in environ.get("HTTP_ACCEPT", ""),
            "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""),
        )
        with making:
            if form not in made or time.monotonic() > made[form][0]:
                found = _made(application, *form)
                made[form] = (time.monotonic() + FRESH_S, *found)
            _, status, headers, body = made[form]
        # Pass a copy, because the server adds headers.
        start_response(status, [*headers])
        return body

    return answer


def _made(application: Callable[..., Any], openmetrics: bool, gzip: bool) -> tuple[str, Any, Any]:
    """Return the status, headers and body of the application's answer, or of an error."""
    started: list[Any] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics"}
    environ["HTTP_ACCEPT"] = OPENMETRICS if openmetrics else ""
    environ["HTTP_ACCEPT_ENCODING"] = "gzip" if gzip else ""
    try:
        body = application(environ, lambda *of: started.extend(of))
        return started[0], started[1], body
    except TimeoutError as error:
        status, text = "503 Service Unavailable", str(error)
    except Exception as error:
        status, text = "500 Internal Server Error", faults.report("metrics", error)
    return status, [("Content-Type", "text/plain; charset=utf-8")], [f"{text}\n".encode()]


class _ServerOfIpv6(Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        head = b""
        while line := self.rfile.readline(REQUEST_MAX_BYTES - len(head)):
            head += line
            if not line.strip():
                break
        self.rfile = io.BytesIO(head)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(application: Callable[..., Any], address: str, port: int, tls: TlsFiles | None) -> Server:
    """Serve a WSGI application on a separate thread, over TLS if `tls` is given.

    Raises:
        OSError: the address cannot be bound.
        ValueError: a TLS file cannot be used, or TLS is needed for this address, and `tls` is None.
    """
    if tls is None:
        refuse_plain(f"--metrics {address}:{port}", address, "--metrics-ca-cert")
    context = tls.context(server_side=True) if tls else None
    kind = _ServerOfIpv6 if ":" in address else Server
    try:
        server = make_server(address, port, _watched(application), kind, _Quiet)
    except OSError as error:
        raise OSError(f"--metrics {address}:{port}: {in_words(error)}") from error
    server.tls = context
    faults.lasting("metrics", "metrics", server.serve_forever)
    return server
