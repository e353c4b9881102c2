"""The server that scrapes reach: HTTP, over TLS with certificates at both ends if asked for."""

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
from controller.host.wires import TlsFiles, reason, refuse_plain

LOG = logging.getLogger(__name__)

# Whoever is silent for so long is hung up on.
SILENT_MAX_S = 10.0
# More than this many at once are none of Prometheus', and are hung up on.
AT_ONCE_MAX = 16


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each caller, who also speaks TLS there: nobody can keep others waiting."""

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
            # There are no more threads to be had.
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            request.settimeout(SILENT_MAX_S)
            if self.tls is not None:
                request = self.tls.wrap_socket(request, server_side=True)
        except OSError as error:
            found = f"metrics for {client_address[0]}: {reason(error)}"
            LOG.warning("%s -> TLS, and a certificate that is good", found)
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
    """The same, of which a failure is told as what it is."""

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
        ValueError: a TLS file is not what it should be, or others could listen.
    """
    if tls is None:
        refuse_plain(f"--metrics {address}:{port}", address, "--metrics-ca-cert")
    context = tls.context(server_side=True) if tls else None
    kind = _ServerOfIpv6 if ":" in address else Server
    try:
        server = make_server(address, port, _watched(application), kind, _Quiet)
    except OSError as error:
        found = f"--metrics {address}:{port}: {error.strerror}"
        raise OSError(f"{found} -> an address that is free") from error
    server.tls = context
    faults.lasting("metrics", "metrics", server.serve_forever)
    return server
