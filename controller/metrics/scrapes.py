"""The HTTP server for scrapes, with TLS and certificates on both ends if asked for."""

from __future__ import annotations

import logging
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from controller.host import faults
from controller.host.sockets import TlsFiles, reason, refuse_plain
from controller.text.wording import in_words

LOG = logging.getLogger(__name__)

# A client that is silent for this long is disconnected.
SILENT_MAX_S = 10.0
# Prometheus never opens this many connections at once; further ones are closed.
AT_ONCE_MAX = 16


class Server(ThreadingMixIn, WSGIServer):
    """Serves each client, including its TLS handshake, on a thread, so that none delays others."""

    daemon_threads = True
    tls: ssl.SSLContext | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free = threading.BoundedSemaphore(AT_ONCE_MAX)
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # No more threads can be started.
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(SILENT_MAX_S)
            if self.tls is not None:
                request = self.tls.wrap_socket(request, server_side=True)
        except OSError as error:
            found = f"metrics for {client_address[0]}: {reason(error)}"
            LOG.warning("%s -> a TLS client with a valid certificate", found)
            self.shutdown_request(request)
        else:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            faults.report("metrics", error, f"metrics for {client_address[0]}")
        LOG.debug("metrics for %s", client_address[0], exc_info=True)


def _watched(application: Callable[..., Any]) -> Callable[..., Any]:
    """The application, with failures reported to the scraper by status."""

    def answer(environ: Any, start_response: Callable[..., Any]) -> Any:
        try:
            return application(environ, start_response)
        except TimeoutError as error:
            status, text = "503 Service Unavailable", str(error)
        except Exception as error:
            status, text = "500 Internal Server Error", faults.report("metrics", error)
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer


class _ServerOfIpv6(Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(application: Callable[..., Any], address: str, port: int, tls: TlsFiles | None) -> Server:
    """Serve an application on a thread of its own.

    Raises:
        OSError: the address cannot be bound.
        ValueError: a TLS file cannot be used, or the address needs TLS and has none.
    """
    if tls is None:
        refuse_plain(f"--metrics {address}:{port}", address, "--metrics-ca-cert")
    context = tls.context(server_side=True) if tls else None
    kind = _ServerOfIpv6 if ":" in address else Server
    try:
        server = make_server(address, port, _watched(application), kind, _Quiet)
    except OSError as error:
        found = f"--metrics {address}:{port}: {in_words(error)}"
        raise OSError(f"{found} -> a free address") from error
    server.tls = context
    faults.lasting("metrics", "metrics", server.serve_forever)
    return server
