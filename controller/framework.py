"""The OpenFlow framework, and the only module that imports its names.

Ryu's application API as os-ken continues it. What os-ken 4.2 gets wrong about
connections is put right here, see `Connection`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import controller as framework_controller
from os_ken.controller import ofp_event, ofp_handler
from os_ken.controller.handler import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    set_ev_cls,
)
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser

__all__ = [
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "App",
    "Connection",
    "Line",
    "ofp_event",
    "ofproto",
    "parser",
    "set_ev_cls",
    "start",
]

LOG = logging.getLogger(__name__)

App = app_manager.OSKenApp
ofproto: Any = ofproto_v1_3
parser: Any = ofproto_v1_3_parser

ECHO_INTERVAL_S = 2.0
# A switch that leaves this many echo requests unanswered is gone.
UNANSWERED_ECHOES = 3
CONNECT_TIMEOUT_S = 5.0
RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class Connection(framework_controller.Datapath):  # type: ignore[misc]
    """An OpenFlow connection whose end is noticed.

    os-ken's own never ends on native threads: its sender blocks on an empty queue for ever
    and its echo thread sleeps on, so that no DEAD event comes and two threads leak with
    every reconnect. Here both are woken when the receiver has ended. Its queue of 16
    messages blocks whoever sends; ours takes all that a decision sends at once, and a
    switch that does not read is found out by its missing echo replies.
    """

    def __init__(self, sock: Any, address: Any) -> None:
        self._ended = threading.Event()
        super().__init__(sock, address)
        self.send_q = hub.Queue()
        self._send_q_sem = hub.BoundedSemaphore(1 << 30)

    def serve(self) -> None:
        """Handle the connection until it ends; then no thread of it is left."""
        sender = hub.spawn(self._send_loop)
        self.send_msg(self.ofproto_parser.OFPHello(self))
        echo = hub.spawn(self._echo_request_loop)
        try:
            self._recv_loop()
        finally:
            self._ended.set()
            self.send(b"", close_socket=True)
            hub.joinall([sender, echo])
            self.is_active = False
            self.close()

    def _echo_request_loop(self) -> None:
        silent = 0
        while not self._ended.wait(ECHO_INTERVAL_S):
            shaking_hands = self.state != MAIN_DISPATCHER
            silent = silent + 1 if shaking_hands else len(self.unreplied_echo_requests)
            if silent >= UNANSWERED_ECHOES:
                LOG.warning("%s: no answer for %g s", self.address, silent * ECHO_INTERVAL_S)
                _hang_up(self.socket)
                return
            if shaking_hands:
                continue
            request = self.ofproto_parser.OFPEchoRequest(self)
            self.unreplied_echo_requests.append(self.set_xid(request))
            self.send_msg(request)


class _UnixSocket(socket.socket):
    """A Unix socket that takes the framework's TCP options for granted."""

    def setsockopt(self, level: int, *rest: Any) -> None:
        if level != socket.IPPROTO_TCP:
            super().setsockopt(level, *rest)


class Line:
    """A bridge's management socket, dialled again whenever it is lost, until `stop`.

    The connection's `address` is `name`, by which handlers know the bridge.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._complained = False
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name=f"line {name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hang up and do not dial again."""
        self._stopped.set()
        with self._lock:
            if self._connection is not None:
                _hang_up(self._connection.socket)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            sock = self._dial()
            if sock is None:
                self._stopped.wait(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
                continue
            failures = 0
            self._serve(sock)
            self._stopped.wait(RETRY_S[0])

    def _dial(self) -> socket.socket | None:
        sock = _UnixSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(CONNECT_TIMEOUT_S)
        try:
            # A socket's address holds about 100 bytes; the way over the directory is short
            # however long the path is.
            directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
            finally:
                os.close(directory)
        except OSError as error:
            sock.close()
            self._complain(error)
            return None
        self._complained = False
        return sock

    def _complain(self, error: OSError) -> None:
        """Once for each time the socket is away."""
        if not self._complained:
            LOG.warning("%s: %s -> the bridge's management socket", self._path, error.strerror)
            self._complained = True

    def _serve(self, sock: socket.socket) -> None:
        connection = Connection(sock, self._name)
        with self._lock:
            self._connection = connection
        if self._stopped.is_set():
            _hang_up(sock)
        try:
            connection.serve()
        except Exception:
            LOG.exception("%s: the connection ended with an error", self._name)
        finally:
            with self._lock:
                self._connection = None


class _NoListener:
    """Stands in for the framework's listener, which would open ports nobody asked for."""

    def __call__(self) -> None:
        return


def _hang_up(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        LOG.debug("the connection had ended already")


def start(app_module: str, **contexts: Any) -> Callable[[], None]:
    """Load the framework and one app; what ends them again.

    The app's constructor is given `contexts` as keyword arguments.
    """
    ofp_handler.OpenFlowController = _NoListener
    cfg.CONF(project="ovs-lbt", args=[])
    apps: Any = app_manager.AppManager.get_instance()
    apps.load_apps(["os_ken.controller.ofp_handler", app_module])
    apps.create_contexts()
    apps.instantiate_apps(**contexts)
    end: Callable[[], None] = apps.close
    return end


def serialized(messages: Iterable[Any]) -> bytes:
    """Messages of one connection as they go over the wire, in order."""
    parts = []
    for message in messages:
        if message.xid is None:
            message.datapath.set_xid(message)
        message.serialize()
        parts.append(bytes(message.buf))
    return b"".join(parts)
