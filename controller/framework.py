"""The OpenFlow framework, and the only module that imports its names.

Ryu's application API, of os-ken (which continues it) or of stock Ryu 4.34, as the
environment's OVS_LBT_FRAMEWORK says. What both get wrong about connections is put right
here, see `Connection`.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any

from controller import framing
from controller.wording import one_line

__all__ = [
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "NAME",
    "App",
    "Connection",
    "EventBase",
    "hang_up",
    "ofp_event",
    "ofproto",
    "parser",
    "set_ev_cls",
    "start",
]

LOG = logging.getLogger(__name__)

_VARIABLE = "OVS_LBT_FRAMEWORK"
_CHOSEN = os.environ.get(_VARIABLE) or "os-ken"

if _CHOSEN == "os-ken":
    from os_ken import cfg
    from os_ken.base import app_manager
    from os_ken.controller import controller as framework_controller
    from os_ken.controller import event, ofp_event, ofp_handler
    from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from os_ken.lib import hub
    from os_ken.ofproto import ofproto_v1_3, ofproto_v1_3_parser

    App = app_manager.OSKenApp
elif _CHOSEN == "ryu":
    import eventlet
    import eventlet.greenio
    import eventlet.wsgi

    # Ryu's connections are green threads: from here on so is every thread of ours.
    eventlet.monkey_patch()
    # Ryu looks for a name that eventlet has dropped since.
    eventlet.wsgi.ALREADY_HANDLED = getattr(eventlet.wsgi, "ALREADY_HANDLED", object())

    from ryu import cfg
    from ryu.base import app_manager
    from ryu.controller import controller as framework_controller
    from ryu.controller import event, ofp_event, ofp_handler
    from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from ryu.lib import hub
    from ryu.ofproto import ofproto_v1_3, ofproto_v1_3_parser

    App = app_manager.RyuApp

    class _GreenSocket(eventlet.greenio.GreenSocket):  # type: ignore[misc]
        """One whose calls are green, too, where it does not block; python-ovs relies on it."""

        def accept(self) -> tuple[Any, Any]:
            sock, address = super().accept()
            green = isinstance(sock, eventlet.greenio.GreenSocket)
            return sock if green else _GreenSocket(sock), address

    # No thread of ours has a socket yet.
    socket.socket = _GreenSocket  # type: ignore[misc]
else:
    raise ValueError(f"{_VARIABLE}: {_CHOSEN} -> os-ken or ryu")

EventBase = event.EventBase
NAME = f"{_CHOSEN} {importlib.metadata.version(_CHOSEN)}"
ofproto: Any = ofproto_v1_3
parser: Any = ofproto_v1_3_parser

ECHO_INTERVAL_S = 2.0
# A switch that leaves this many echo requests unanswered is gone.
UNANSWERED_ECHOES = 3

# What answers us, or has to be answered; the framework would read all others for nobody.
_WANTED = {
    ofproto.OFPT_HELLO,
    ofproto.OFPT_ERROR,
    ofproto.OFPT_ECHO_REQUEST,
    ofproto.OFPT_ECHO_REPLY,
    ofproto.OFPT_EXPERIMENTER,
    ofproto.OFPT_FEATURES_REPLY,
    ofproto.OFPT_PORT_STATUS,
    ofproto.OFPT_MULTIPART_REPLY,
    ofproto.OFPT_ROLE_REPLY,
}
# Replies that are handed on as they came, by their type.
_UNREAD = {
    ofproto.OFPMP_FLOW: parser.OFPFlowStatsReply,
    ofproto.OFPMP_PORT_STATS: parser.OFPPortStatsReply,
    ofproto.OFPMP_GROUP_DESC: parser.OFPGroupDescStatsReply,
}
_FLAGS_AT = 10
# Actions of others' whose parts the framework reads by lengths that may lead nowhere:
# NXAST_CT, NXAST_CONTROLLER2 and NXAST_CLONE. As unknown ones they are not looked into.
for _number in (35, 37, 42):
    parser.NXAction._subtypes.pop(_number, None)


class Connection(framework_controller.Datapath):  # type: ignore[misc]
    """An OpenFlow connection whose end is noticed.

    os-ken's own never ends on native threads: its sender blocks on an empty queue for ever
    and its echo thread sleeps on, so that no DEAD event comes and two threads leak with
    every reconnect. Here both are woken when the receiver has ended. Its queue of 16
    messages blocks whoever sends; ours takes all that a decision sends at once, and a
    switch that does not read is found out by its missing echo replies.

    `bridge` is the name of the bridge at the other end; None while nobody knows it, as of a
    switch that has dialled us. `claimed`: the generation by which we asked to be its master.
    """

    def __init__(self, sock: Any, address: str, bridge: str | None) -> None:
        self.bridge = bridge
        self.claimed: int | None = None
        self.refused = False
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
            self.socket.close()

    def refuse(self, why: str) -> None:
        """Hang up on a switch that sends what nobody can mean."""
        if not self.refused:
            self.refused = True
            who = self.bridge or self.address
            LOG.warning("%s: %s; hanging up", who, one_line(why))
            hang_up(self)

    def _echo_request_loop(self) -> None:
        silent = 0
        while not self._ended.wait(ECHO_INTERVAL_S):
            shaking_hands = self.state != MAIN_DISPATCHER
            silent = silent + 1 if shaking_hands else len(self.unreplied_echo_requests)
            if silent >= UNANSWERED_ECHOES:
                LOG.warning("%s: no answer for %g s", self.address, silent * ECHO_INTERVAL_S)
                hang_up(self)
                return
            if shaking_hands:
                continue
            request = self.ofproto_parser.OFPEchoRequest(self)
            self.unreplied_echo_requests.append(self.set_xid(request))
            self.send_msg(request)


def hang_up(connection: Connection) -> None:
    """End a connection; whoever serves it notices."""
    try:
        connection.socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        LOG.debug("the connection had ended already")


def _parsed(
    connection: Connection, version: int, kind: int, length: int, xid: int, data: bytearray
) -> Any:
    """A message of the switch's; None for one that nobody wants.

    Hangs up where it cannot be read: nothing that follows could be trusted.
    """
    if connection.refused or kind not in _WANTED:
        return None
    message = bytes(data)
    try:
        if kind != ofproto.OFPT_HELLO and version != ofproto.OFP_VERSION:
            raise framing.Malformed(f"OpenFlow version {version} -> {ofproto.OFP_VERSION}")
        if kind == ofproto.OFPT_MULTIPART_REPLY:
            statistics = framing.statistics(message)
            if statistics in _UNREAD:
                return unread(connection, xid, message)
            if statistics != ofproto.OFPMP_PORT_DESC:
                return None
        framing.check(kind, message)
        return parser.msg_parser(connection, version, kind, length, xid, data)
    except framing.Malformed as error:
        connection.refuse(str(error))
    except Exception as error:
        connection.refuse(f"message of type {kind}: {error!r} -> one that can be read")
    return None


def unread(connection: Any, xid: int, message: bytes) -> Any:
    """A statistics reply as its message, whose `body` is bytes: reading them all takes long.

    Raises:
        Malformed: it has no type.
    """
    made = _UNREAD[framing.statistics(message)](connection)
    made.xid = xid
    (made.flags,) = struct.unpack_from("!H", message, _FLAGS_AT)
    made.body = message[ofproto.OFP_MULTIPART_REPLY_SIZE :]
    return made


# The framework's own logs the bytes of what it cannot read, and goes on behind it.
framework_controller.ofproto_parser.msg = _parsed


class _NoListener:
    """Stands in for the framework's listener, which would open ports nobody asked for."""

    def __call__(self) -> None:
        return


def start(app_module: str, **contexts: Any) -> Callable[[], None]:
    """Load the framework and one app; what ends them again.

    The app's constructor is given `contexts` as keyword arguments.
    """
    ofp_handler.OpenFlowController = _NoListener
    cfg.CONF(project="ovs-lbt", args=[])
    apps: Any = app_manager.AppManager.get_instance()
    apps.load_apps([ofp_handler.__name__, app_module])
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
