"""Connects to bridges over management sockets, TCP or TLS, and reads the service's TLS files."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import ssl
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from controller.config.controllers import DEFAULT_PORT
from controller.host import faults
from controller.text.wording import Refused, in_words

LOG = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
# The time for which the kernel holds back connections without data, and the maximum number of these.
DEFERRED_S, DEFERRED_MAX = 10, 512
# The time between two attempts to bind an address.
BIND_INTERVAL_S = 5.0
# The options that name the TLS files.
TLS_OPTIONS = "--private-key, --certificate and --ca-cert"
READ_BYTES = 65536


def is_loopback(host: str) -> bool:
    """Whether the address or name `host` is a loopback address of this host."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def refuse_plain(what: str, host: str, instead: str) -> None:
    """Refuse a connection to another host without TLS, because its data could be read or forged.

    Raises:
        ValueError: `host` is not a loopback address. In the error text, `what` is the connection
            and `instead` the recommended alternative.
    """
    if not is_loopback(host):
        raise ValueError(f"{what} has no TLS; use {instead}, or a loopback address")


def bind(part: str, serve: Callable[[], object]) -> None:
    """Call `serve`, which binds an address; if that fails, call it again on a thread until it succeeds.

    Another program may already listen on the port, or the address may not be configured yet. Neither
    prevents the service from starting.

    Raises:
        ValueError: `serve` raised it, because the address is not allowed.
    """

    def again() -> None:
        while True:
            time.sleep(BIND_INTERVAL_S)
            with contextlib.suppress(OSError):
                serve()
                return

    try:
        serve()
    except OSError as error:
        LOG.error("%s; trying again every %g s", error, BIND_INTERVAL_S)
        faults.lasting(part, f"{part} address", again)


def defer(listener: socket.socket) -> None:
    """Make the kernel hold back each connection until the client has sent its first data."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFERRED_S)


def refuse_silent(accepted: socket.socket) -> None:
    """Close an accepted connection that was reset or closed, or on which nothing has arrived.

    Raises:
        OSError: the connection was closed for one of these reasons.
    """
    accepted.setblocking(False)
    try:
        # Received data can still be read after a reset.
        reset = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if reset or not accepted.recv(1, socket.MSG_PEEK):
            raise ConnectionAbortedError
    except OSError:
        accepted.close()
        raise
    accepted.setblocking(True)


class BridgeSocket:
    """A stream socket with the interface that the framework expects.

    The framework sets TCP options, which a Unix socket does not have. This class ignores them. It
    does not inherit from eventlet's sockets, which cannot be subclassed.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.settimeout, self.shutdown, self.close = sock.settimeout, sock.shutdown, sock.close

    def setsockopt(self, level: int, *rest: Any) -> None:
        if level != socket.IPPROTO_TCP or self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(level, *rest)

    def recv(self, count: int) -> bytes:
        return self._socket.recv(count)

    def recv_some(self, count: int) -> bytes:
        """Return received data without waiting; empty: no data yet, or the connection has ended."""
        try:
            # With green threads, `read` would wait for data.
            return os.read(self._socket.fileno(), count) if self.has_unread() else b""
        except OSError:
            return b""

    def has_unread(self) -> bool:
        """Whether data has arrived that was not received yet."""
        try:
            return any(fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, bytes(4)))
        except (OSError, ValueError):
            # The socket was closed meanwhile.
            return False

    def sendall(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_some(self, data: bytes) -> int:
        """Send as many bytes as possible without waiting, and return how many were sent.

        The socket must have a timeout and must not be closed during the call.
        """
        try:
            # The socket's own `send` would wait.
            return os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0


class TlsSocket(BridgeSocket):
    """A TLS connection. The constructor does the handshake.

    The framework's two threads would read and write at the same time, which OpenSSL does not support.
    So a lock protects the TLS object, which is separate from the socket.

    Raises:
        OSError: the peer does not support TLS, its certificate is not valid, or the handshake takes
            longer than `CONNECT_TIMEOUT_S`.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_side: bool) -> None:
        until_s = time.monotonic() + CONNECT_TIMEOUT_S
        super().__init__(sock)
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        while not self._shaken_hands():
            # The timeout is for the whole handshake, because a peer may send one byte at a time.
            if (left_s := until_s - time.monotonic()) <= 0.0:
                raise TimeoutError("the TLS handshake took too long")
            sock.settimeout(left_s)
            received = sock.recv(READ_BYTES)
            if not received:
                raise ConnectionError("connection closed during the TLS handshake")
            self._incoming.write(received)

    def recv(self, count: int) -> bytes:
        while True:
            with self._lock:
                try:
                    return self._tls.read(count)
                except ssl.SSLWantReadError:
                    self._flush()
                except ssl.SSLZeroReturnError:
                    return b""
                except ssl.SSLError as error:
                    # The framework treats an SSLError as a timeout and would retry for ever.
                    raise ConnectionError(str(error)) from error
            received = self._socket.recv(READ_BYTES)
            if not received:
                return b""
            with self._lock:
                self._incoming.write(received)

    def recv_some(self, count: int) -> bytes:
        return b""

    def send_some(self, data: bytes) -> int:
        return 0

    def sendall(self, data: bytes) -> None:
        if not data:
            return
        with self._lock:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:
                raise ConnectionError(str(error)) from error
            self._flush()

    def _shaken_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()
        return True

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: our private key and certificate, and the CA that signed the certificates of peers.

    `ca_option`: the command-line option that named the CA file.
    """

    private_key: str
    certificate: str
    ca_cert: str
    ca_option: str = "--ca-cert"

    @classmethod
    def tls_files_of(
        cls, private_key: str | None, certificate: str | None, ca_cert: str | None
    ) -> TlsFiles | None:
        """Return the files if all three are given; None if no file is given.

        Raises:
            ValueError: only one or two files are given.
        """
        if private_key and certificate and ca_cert:
            return cls(private_key, certificate, ca_cert)
        if not (private_key or certificate or ca_cert):
            return None
        given = {"--private-key": private_key, "--certificate": certificate, "--ca-cert": ca_cert}
        found = ", ".join(option for option, name in given.items() if name)
        raise ValueError(f"only {found} is given; give {', '.join(given)} together")

    @classmethod
    def for_metrics(cls, files: TlsFiles | None, ca_cert: str | None) -> TlsFiles | None:
        """Return the key and certificate of `files` with the CA `ca_cert`; None without `ca_cert`.

        Raises:
            ValueError: `ca_cert` is given, but no key and certificate.
        """
        if not ca_cert:
            return None
        if files is None:
            raise ValueError(f"--metrics-ca-cert needs a certificate; set {TLS_OPTIONS} as well")
        return cls(files.private_key, files.certificate, ca_cert, "--metrics-ca-cert")

    def context(self, server_side: bool) -> ssl.SSLContext:
        """Return a TLS context that checks the peer's certificate.

        As in Open vSwitch, a certificate is valid if the CA signed it. Host names are not checked.

        Raises:
            ValueError: a file cannot be used; the message names the option that specifies the file.
        """
        context = ssl.SSLContext(
            ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT
        )
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        for option, name in (
            ("--private-key", self.private_key),
            ("--certificate", self.certificate),
            (self.ca_option, self.ca_cert),
        ):
            if not os.access(name, os.R_OK):
                raise ValueError(f"{option}: {name} does not exist or is not readable")
        try:
            options = "--certificate and --private-key"
            expected = "a certificate and its private key"
            context.load_cert_chain(self.certificate, self.private_key)
            options, expected = self.ca_option, "CA certificates"
            context.load_verify_locations(self.ca_cert)
        except OSError as error:
            found = f"{options}: {reason(error)}"
            raise ValueError(f"{found}; expected {expected} in PEM format") from error
        return context


@dataclass(frozen=True, slots=True)
class Reach:
    """Connects to bridges, locally or over the network, depending on the location of `database`.

    If the database is on this host, the connection uses the bridge's management socket in Open vSwitch's
    `run_directory`. Otherwise, it uses a passive target in the bridge's controller records.
    """

    database: str
    run_directory: Path
    tls: TlsFiles | None = None

    @property
    def local(self) -> bool:
        return self.database.startswith("unix:")

    def dial(self, bridge: str, controllers: tuple[str, ...]) -> BridgeSocket:
        """Connect to a bridge. `controllers`: the targets of its controller records.

        Raises:
            Refused: the connection failed.
            ValueError: the connection to another host would not be encrypted, or a TLS file is invalid.
        """
        if self.local:
            return _dial_unix(self.run_directory / f"{bridge}.mgmt")
        passive = sorted(target for target in controllers if target.startswith(("pssl:", "ptcp:")))
        if not passive:
            found = f"bridge {bridge} has no passive controller target"
            raise Refused(
                f"{found} ({', '.join(controllers) or 'none'}); add ptcp:PORT or pssl:PORT"
            )
        return self._dial_passive(passive[0])

    def _dial_passive(self, target: str) -> BridgeSocket:
        """Connect to a passive target, on the database's host if the target has no address."""
        kind, _, place = target.partition(":")
        port, _, host = place.partition(":")
        host = host.strip("[]")
        if host in ("", "0.0.0.0", "::"):
            host = self.database.split(":", 1)[1].rpartition(":")[0].strip("[]")
        where = f"{target} on {host}"
        if kind == "ptcp":
            refuse_plain(where, host, "a target pssl:PORT")
        try:
            address = (host, int(port or DEFAULT_PORT))
            sock = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        except (OSError, ValueError) as error:
            raise Refused(f"connection to {where} failed: {reason(error)}") from error
        if kind == "ptcp":
            return BridgeSocket(sock)
        try:
            if self.tls is None:
                raise Refused(f"{where}: this service has no certificate; set {TLS_OPTIONS}")
            return TlsSocket(sock, self.tls.context(server_side=False), server_side=False)
        except OSError as error:
            sock.close()
            raise Refused(f"TLS connection to {where} failed: {reason(error)}") from error
        except (Refused, ValueError):
            sock.close()
            raise


def _dial_unix(path: Path) -> BridgeSocket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(CONNECT_TIMEOUT_S)
    try:
        # A Unix socket address has at most about 100 bytes. The path through the directory's
        # descriptor is short, even if the directory's name is long.
        directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            sock.connect(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)
    except OSError as error:
        sock.close()
        found = f"connection to management socket {path} failed: {in_words(error)}"
        raise Refused(f"{found}; check that ovs-vswitchd runs and the bridge exists") from error
    return BridgeSocket(sock)


def reason(error: Exception) -> str:
    """Return the text of an error without the error number."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return in_words(error) if isinstance(error, OSError) else str(error)
