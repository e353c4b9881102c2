"""The OpenFlow framework: the only module that imports os-ken or Ryu.

Both have Ryu's application API. The environment variable OVS_LBT_FRAMEWORK selects os-ken (the
default), which is Ryu's successor, or unmodified Ryu 4.34. `Connection` fixes bugs in both
frameworks' connections.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from controller.host import faults
from controller.openflow import framing
from controller.text.wording import one_line

LOG = logging.getLogger(__name__)

_VARIABLE = "OVS_LBT_FRAMEWORK"
_CHOSEN = os.environ.get(_VARIABLE) or "os-ken"

if _CHOSEN == "os-ken":
    from os_ken import cfg
    from os_ken.base import app_manager
    from os_ken.controller import controller as framework_controller
    from os_ken.controller import ofp_event as ofp_event
    from os_ken.controller import ofp_handler
    from os_ken.controller.handler import DEAD_DISPATCHER as DEAD_DISPATCHER
    from os_ken.controller.handler import MAIN_DISPATCHER as MAIN_DISPATCHER
    from os_ken.controller.handler import set_ev_cls as set_ev_cls
    from os_ken.lib import hub
    from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser

    App = app_manager.OSKenApp
elif _CHOSEN == "ryu":
    import eventlet
    import eventlet.greenio
    import eventlet.wsgi

    # Ryu serves connections on green threads, so all threads started after this are green threads.
    eventlet.monkey_patch()
    # Ryu needs a name that later versions of eventlet lack.
    eventlet.wsgi.ALREADY_HANDLED = getattr(eventlet.wsgi, "ALREADY_HANDLED", object())

    from ryu import cfg
    from ryu.base import app_manager
    from ryu.controller import controller as framework_controller
    from ryu.controller import ofp_event as ofp_event
    from ryu.controller import ofp_handler
    from ryu.controller.handler import DEAD_DISPATCHER as DEAD_DISPATCHER
    from ryu.controller.handler import MAIN_DISPATCHER as MAIN_DISPATCHER
    from ryu.controller.handler import set_ev_cls as set_ev_cls
    from ryu.lib import hub
    from ryu.ofproto import ofproto_v1_3, ofproto_v1_3_parser

    App = app_manager.RyuApp

    class _GreenSocket(eventlet.greenio.GreenSocket):  # type: ignore[misc]
        """A socket whose `accept` returns green sockets even in non-blocking mode, for python-ovs."""

        def accept(self) -> tuple[Any, Any]:
            sock, address = super().accept()
            green = isinstance(sock, eventlet.greenio.GreenSocket)
            return sock if green else _GreenSocket(sock), address

    # None of our threads has a socket yet.
    socket.socket = _GreenSocket  # type: ignore[misc]
else:
    raise ValueError(f"{_VARIABLE}: {_CHOSEN} is invalid; expected os-ken or ryu")

NAME = f"{_CHOSEN} {importlib.metadata.version(_CHOSEN)}"
ofproto: Any = ofproto_v1_3
parser: Any = ofproto_v1_3_parser

ECHO_INTERVAL_S = 2.0
# A connection is closed after this many unanswered echo requests. While received data waits to be read,
# the service itself may be late, as when it handles the connections of hundreds of bridges at once.
UNANSWERED_ECHOES, UNANSWERED_WHILE_LATE = 3, 15
READ_BYTES = 1 << 16
# The most ports accepted from a switch, which is more than any bridge has.
MOST_PORTS = 1 << 13
# While more bytes than this wait to be sent, echo requests are not answered: the switch sends requests
# faster than it reads the replies.
UNSENT_BYTES = 1 << 20
# While more received bytes than this wait to be handled, `look_ahead` receives nothing.
AHEAD_BYTES = 1 << 20
# The most bytes that a switch that connected to us may send before its datapath id.
UNIDENTIFIED_BYTES = 1 << 16
# The most different warnings about a peer that are logged in `WARNINGS_S`.
MOST_WARNINGS, WARNINGS_S = 20, 3600.0
# Whether a thread that calls `send` writes to the socket itself. With green sockets, the thread would
# have to wait, and a separate green thread for sending costs little.
_AT_ONCE = _CHOSEN == "os-ken"

# The types of messages that the service needs. The framework does not decode other messages.
_WANTED = {
    ofproto.OFPT_HELLO,
    ofproto.OFPT_ERROR,
    ofproto.OFPT_ECHO_REQUEST,
    ofproto.OFPT_ECHO_REPLY,
    ofproto.OFPT_EXPERIMENTER,
    ofproto.OFPT_FEATURES_REPLY,
    ofproto.OFPT_PACKET_IN,
    ofproto.OFPT_PORT_STATUS,
    ofproto.OFPT_MULTIPART_REPLY,
    ofproto.OFPT_ROLE_REPLY,
}
# The types of statistics replies whose bodies the framework does not parse.
_UNREAD = {
    ofproto.OFPMP_FLOW: parser.OFPFlowStatsReply,
    ofproto.OFPMP_PORT_STATS: parser.OFPPortStatsReply,
    ofproto.OFPMP_GROUP_DESC: parser.OFPGroupDescStatsReply,
}
_FLAGS_AT = 10
# NXAST_CT, NXAST_CONTROLLER2 and NXAST_CLONE: the framework trusts lengths inside these actions, which
# may be wrong. So make these actions unknown, because the framework does not parse unknown actions.
for _number in (35, 37, 42):
    parser.NXAction._subtypes.pop(_number, None)


class Warnings:
    """Logs warnings about peers: at most `MOST_WARNINGS` in `WARNINGS_S`, and each only once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()
        self._until_s = 0.0

    def log(self, text: str, log: logging.Logger = LOG) -> None:
        if (now_s := time.monotonic()) >= self._until_s:
            self._logged, self._until_s = set(), now_s + WARNINGS_S
        if text not in self._logged and len(self._logged) < MOST_WARNINGS:
            self._logged.add(text)
            log.warning("%s", text)


class Connection(framework_controller.Datapath):  # type: ignore[misc]
    """An OpenFlow connection that detects its own loss. `serve` handles it on the calling thread.

    On native threads, os-ken's connections never end: the sender thread blocks forever on an empty
    queue, and the echo thread continues to sleep. So no DEAD event arrives, and every reconnect
    leaks two threads. A full queue (16 messages) blocks threads that send.

    Here, `send` writes as much as the socket accepts, without waiting. A sender thread writes the
    rest, and ends when everything is sent. A switch that does not read messages is detected,
    because it sends no echo replies; one thread sends echo requests on all connections.

    `bridge`: the name of the bridge at the other end; None until it is known, if the switch
    connected to us. `call`: in this case, the accepted connection (`connections.Call`).
    `claimed`: the generation ID of our request for the master role; None before the request.
    """

    # The ports by number, set by the framework. Replaces Ryu's property, which logs each use.
    ports: Any = None

    def __init__(self, sock: Any, address: str, bridge: str | None) -> None:
        self.bridge = bridge
        self.call: Any = None
        self.claimed: int | None = None
        self.refused = False
        self.warnings = Warnings()
        self._unidentified_bytes = 0
        self._silent = 0
        # The received bytes that are not handled yet.
        self._received = bytearray()
        # Held to write to the socket, shut it down or close it. The socket is closed after the sender
        # thread has ended.
        self._sending = threading.Lock()
        # The bytes that the sender thread has yet to send. None: no sender thread runs.
        self._unsent: bytearray | None = None
        self._sender: Any = None
        # Whether the sender thread is building a message, so that nothing is sent for now.
        self._making = False
        super().__init__(sock, address)

    def serve(self) -> None:
        """Handle the connection until it ends. Return when all of the connection's threads have ended."""
        self.send_msg(self.ofproto_parser.OFPHello(self))
        _ECHOES.add_connection(self)
        try:
            self._recv_loop()
        finally:
            _ECHOES.remove(self)
            hang_up(self)
            with self._sending:
                sender = self._sender
                self._unsent = bytearray()
            if sender is not None:
                hub.joinall([sender])
            self.is_active = False
            self.close()
            with self._sending:
                # Not closed earlier: a new connection could get the descriptor, and data for this one.
                self.socket.close()

    def _recv_loop(self) -> None:
        """Handle all messages until the connection ends.

        The framework's own loop, replaced by this one, reads one header at a time, and continues after a
        message that cannot be parsed. If a handler fails, the framework's thread ends.
        """
        received = self._received
        while self.state != DEAD_DISPATCHER:
            try:
                part = self.socket.recv(READ_BYTES)
            except TimeoutError:
                continue
            except OSError:
                return
            if not part:
                return
            received += part
            for version, kind, xid, message in framing.complete(received):
                self._handle(version, kind, xid, message)
            if not _AT_ONCE:
                # Other green threads run only while this one waits.
                hub.sleep(0)

    def look_ahead(self) -> None:
        """Handle reports of changed ports that arrived after the message that is being handled.

        Call this function on the connection's thread.
        """
        if len(self._received) < AHEAD_BYTES:
            self._received += self.socket.recv_some(READ_BYTES)
        for changed in framing.changed_ports(self._received):
            self._handle(*changed)

    def _handle(self, version: int, kind: int, xid: int, message: bytes) -> None:
        """Handle a message if the service needs it.

        If that fails, close the connection, because later messages may be misread.
        """
        try:
            if not self.takes(kind, len(message)):
                return
            if (parsed := self._parsed(version, kind, xid, message)) is None:
                return
            event, state = ofp_event.ofp_msg_to_ev(parsed), self.state
            # The framework's handlers run first: they record the datapath id and port changes.
            for handler in self.ofp_brick.get_handlers(event, state):
                handler(event)
            self.ofp_brick.send_event_to_observers(event, state)
        except Exception as error:
            self.refuse_unread(f"message of type {kind}", error)

    def _parsed(self, version: int, kind: int, xid: int, message: bytes) -> Any:
        """Parse a message from the switch. Return None if the service does not need the message."""
        if kind != ofproto.OFPT_HELLO and version != ofproto.OFP_VERSION:
            raise framing.Malformed(f"OpenFlow version {version}; expected {ofproto.OFP_VERSION}")
        if kind == ofproto.OFPT_MULTIPART_REPLY:
            statistics = framing.statistics(message)
            if statistics in _UNREAD:
                return unread(self, xid, message)
            if statistics != ofproto.OFPMP_PORT_DESC:
                return None
        framing.check(kind, message)
        return parser.msg_parser(self, version, kind, len(message), xid, message)

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        """Send bytes without waiting for the switch. Return False if that failed. Thread-safe."""
        with self._sending:
            if self._unsent is not None:
                self._unsent += buf
                return True
            try:
                taken = self.socket.send_some(buf) if _AT_ONCE else 0
            except OSError:
                # The receiving thread detects this as well.
                return False
            if taken < len(buf):
                self._unsent = bytearray(buf[taken:])
                self._sender = hub.spawn(self._send_rest)
        if close_socket:
            hang_up(self)
        return True

    def send_made(self, make: Callable[[], bytes]) -> bool:
        """Let a sender thread build and send a message, before data that is passed to `send` later.

        Return False if a sender thread is already running.
        """
        with self._sending:
            if self._unsent is not None:
                return False
            assert not self._making, "only a sender thread builds a message"
            self._unsent, self._making = bytearray(), True
            self._sender = hub.spawn(self._send_rest, make)
        return True

    def _send_rest(self, make: Callable[[], bytes] | None = None) -> None:
        if make is not None:
            made = make()
            with self._sending:
                self._unsent, self._making = bytearray(made) + (self._unsent or b""), False
        while True:
            with self._sending:
                rest = self._unsent
                self._unsent = bytearray() if rest else None
            if not rest:
                return
            try:
                self.socket.sendall(bytes(rest))
            except OSError:
                hang_up(self)
                return
            except Exception as error:
                faults.report("openflow", error, f"sender for {self.bridge or self.address}")
                hang_up(self)
                return

    def refuse(self, why: str) -> None:
        """Close the connection to a switch that sent an invalid message, and log the reason `why`."""
        if not self.refused:
            self.refused = True
            who = self.bridge or self.address
            self.warnings.log(f"{who}: {one_line(why)}; closing the connection")
            hang_up(self)

    def takes(self, kind: int, length: int) -> bool:
        """Whether to handle a message of type `kind` with `length` bytes.

        Raises:
            Malformed: the switch has too many ports, or sent too many bytes before the datapath id.
        """
        if self.ports and len(self.ports) > MOST_PORTS:
            raise framing.Malformed(f"the switch has more than {MOST_PORTS} ports")
        if self.bridge is None:
            self._unidentified_bytes += length
            if self._unidentified_bytes > UNIDENTIFIED_BYTES:
                found = f"received {self._unidentified_bytes} bytes before the datapath id"
                raise framing.Malformed(f"{found}; expected at most {UNIDENTIFIED_BYTES}")
        behind = kind == ofproto.OFPT_ECHO_REQUEST and len(self._unsent or b"") > UNSENT_BYTES
        return not (self.refused or behind) and kind in _WANTED

    def refuse_unread(self, what: str, error: Exception) -> None:
        """Close the connection because message `what` is malformed, or our code failed to handle it."""
        if isinstance(error, framing.Malformed):
            self.refuse(str(error))
        elif self.refused:
            pass
        elif isinstance(error, faults.OURS):
            self.refuse(faults.report("openflow", error, f"{what} of {self.bridge}"))
        else:
            self.refuse(f"{what} cannot be read: {error!r}")

    def ask_for_echo(self) -> None:
        """Send an echo request, or close the connection if the switch has not answered for too long."""
        if self._making:
            return
        shaking_hands = self.state != MAIN_DISPATCHER
        self._silent = self._silent + 1 if shaking_hands else len(self.unreplied_echo_requests)
        if self._silent >= UNANSWERED_WHILE_LATE or (
            self._silent >= UNANSWERED_ECHOES and not self.socket.has_unread()
        ):
            silent_s = self._silent * ECHO_INTERVAL_S
            found = f"the switch has not answered for {silent_s:g} s"
            self.warnings.log(f"{self.address}: {found}; closing the connection")
            hang_up(self)
        elif not shaking_hands:
            request = self.ofproto_parser.OFPEchoRequest(self)
            self.unreplied_echo_requests.append(self.set_xid(request))
            self.send_msg(request)


class _Echoes:
    """Sends echo requests on all connections, from one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The time of each connection's next echo request. All have the same interval, so the
        # connections remain sorted by this time.
        self._due_s: dict[Connection, float] = {}

    def add_connection(self, connection: Connection) -> None:
        with self._lock:
            self._due_s[connection] = time.monotonic() + ECHO_INTERVAL_S

    def remove(self, connection: Connection) -> None:
        with self._lock:
            self._due_s.pop(connection, None)

    def run(self) -> None:
        """Send echo requests for as long as the service runs."""
        while True:
            now_s = time.monotonic()
            with self._lock:
                # To save wake-ups, requests that are due soon are also sent now.
                soon_s = now_s + ECHO_INTERVAL_S / 40
                due = [connection for connection, due_s in self._due_s.items() if due_s <= soon_s]
                for connection in due:
                    del self._due_s[connection]
                    self._due_s[connection] = now_s + ECHO_INTERVAL_S
            for connection in due:
                try:
                    connection.ask_for_echo()
                except Exception as error:
                    faults.report("echoes", error, f"echo for {connection.address}")
                    hang_up(connection)
            with self._lock:
                due_s = next(iter(self._due_s.values()), now_s + ECHO_INTERVAL_S)
            time.sleep(max(0.0, due_s - time.monotonic()))


_ECHOES = _Echoes()


def hang_up(connection: Connection) -> None:
    """Shut down a connection's socket, so that the thread that serves the connection returns."""
    try:
        with connection._sending:
            connection.socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        LOG.debug("the connection is already closed")


def unread(connection: Any, xid: int, message: bytes) -> Any:
    """Return a statistics reply with an unparsed `body`, because the framework's parser is slow.

    Raises:
        Malformed: the reply is too short to have a type.
    """
    made = _UNREAD[framing.statistics(message)](connection)
    made.xid = xid
    (made.flags,) = struct.unpack_from("!H", message, _FLAGS_AT)
    made.body = message[ofproto.OFP_MULTIPART_REPLY_SIZE :]
    return made


class PromptApp(App):  # type: ignore[misc, valid-type]
    """A framework app that handles a switch's messages on the connection's thread.

    The framework would queue the messages of all switches for one thread. There, the report of a
    failed link would wait behind the statistics of all other bridges, and each message would need two
    more thread switches. If a handler fails, the process ends, because the engine may have missed an
    event.
    """

    def _send_event(self, event: Any, state: Any) -> None:
        for handler in self.get_handlers(event, state):
            faults.guarded("openflow", "", functools.partial(handler, event))


def start(app_module: str, **contexts: Any) -> None:
    """Start the framework and one app.

    The app's constructor gets `contexts` as keyword arguments.
    """
    # Replaced, because the framework's listener would open TCP ports that are not wanted.
    ofp_handler.OpenFlowController = lambda: lambda: None
    cfg.CONF(project="ovs-lbt", args=[])
    apps: Any = app_manager.AppManager.get_instance()
    apps.load_apps([ofp_handler.__name__, app_module])
    apps.create_contexts()
    apps.instantiate_apps(**contexts)
    faults.lasting("echoes", "echoes", _ECHOES.run)


def serialized(messages: Iterable[Any]) -> bytes:
    """Encode messages for one connection, in order. Messages without a transaction ID get one."""
    parts = []
    for message in messages:
        if message.xid is None:
            message.datapath.set_xid(message)
        message.serialize()
        parts.append(bytes(message.buf))
    return b"".join(parts)
