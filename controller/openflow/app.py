"""The OpenFlow app: handlers that convert messages from switches to events, and claim the master role."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from controller.api import events
from controller.dataplane.tables import Kind, cookie_kind
from controller.host import faults
from controller.openflow import commands, framework, messages, replies
from controller.openflow.framework import MAIN_DISPATCHER, ofp_event, ofproto, set_ev_cls

LOG = logging.getLogger(__name__)

DEPOSED = "another controller has taken the master role; stop that controller"
NOT_KNOWN = "another controller was master, and ovsdb-server does not report which service leads"

Handler = Callable[["TeamingApp", Any], None]


def of_live(*kinds: Any) -> Callable[[Handler], Handler]:
    """Decorate a method to handle messages of these `kinds` on live connections (see `TeamingApp`).

    If the method fails, only the connection is closed: the cause may be an invalid message.
    """

    def decorate(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def guard(app: TeamingApp, event: Any) -> None:
            connection: Any = event.msg.datapath
            with app.turns[connection.bridge]:
                live: Any = app.connections.get(connection.bridge)
                # The connection was lost, or another one has replaced it.
                if live is not connection or connection.refused:
                    return
                try:
                    handler(app, event)
                except Exception as error:
                    live.refuse_unread(handler.__name__, error)

        handle: Handler = set_ev_cls([*kinds], MAIN_DISPATCHER)(guard)
        return handle

    return decorate


class TeamingApp(framework.PromptApp):
    """Converts OpenFlow messages to events.

    `submit` passes events to the engine's thread. `connections`: the live connection of each
    bridge. `caller` returns the name of the bridge that connected to us, or refuses the connection.
    `confirm` asks whether this service leads, and calls a function with the answer (None: unknown).
    `room` returns how many bytes the ports of a bridge add to the size limit of its replies.

    A connection is live after the switch has granted us the master role. Until then, the service
    changes nothing on the switch. From then on, the switch refuses changes by other services.

    Each connection's messages are handled in order, on the connection's thread. `granted` runs on
    another thread. So code that makes a bridge's connection live, ends the connection or submits messages
    holds the bridge's lock (`turns`): the engine is notified of a connection before any message from it,
    and receives no messages after the end of the connection.
    """

    OFP_VERSIONS = [ofproto.OFP_VERSION]  # noqa: RUF012 - the framework's class attribute

    def __init__(
        self,
        *args: Any,
        submit: Callable[[events.Event], None],
        connections: dict[str, Any],
        caller: Callable[[Any], str | None],
        confirm: Callable[[Callable[[bool | None], None]], None],
        room: Callable[[str], int] = lambda _: 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.submit = submit
        self.connections = connections
        self.caller = caller
        self.confirm = confirm
        self.room = room
        # The generation with which we last became each bridge's master.
        self._generations: dict[str, int] = {}
        self._replies: dict[str, replies.Replies] = {}
        self.turns = defaultdict[str | None, contextlib.AbstractContextManager[bool]](
            threading.RLock
        )

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures)
    def identified(self, event: Any) -> None:
        """Handle a switch's datapath id. If the switch connected to us, find its bridge's name."""
        datapath = event.msg.datapath
        if datapath.bridge is None and not datapath.refused:
            datapath.bridge = self.caller(datapath)

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    def connected(self, event: Any) -> None:
        datapath = event.datapath
        if datapath.refused:
            return
        # Query our role and the last master's generation ID, without changing either.
        asked = framework.parser.OFPRoleRequest(datapath, ofproto.OFPCR_ROLE_NOCHANGE, 0)
        datapath.send(framework.serialized([asked, *commands.set_async(datapath)]))

    @set_ev_cls(ofp_event.EventOFPRoleReply, MAIN_DISPATCHER)
    def role(self, event: Any) -> None:
        """Handle a role reply: the first contains the last generation ID, the second grants the role."""
        connection, generation = event.msg.datapath, event.msg.generation_id
        if self.connections.get(connection.bridge) is connection:
            return
        if connection.claimed is None:
            self.confirm(lambda leads: self._claim(connection, generation, leads))
        elif event.msg.role == ofproto.OFPCR_ROLE_MASTER:
            self.confirm(lambda leads: self._begin(connection, leads))

    def _claim(self, connection: Any, generation: int, leads: bool | None) -> None:
        """Request the master role if this service leads.

        If the leader is unknown, request the role only if no other controller was master after us.
        """
        untouched = (messages.NO_GENERATION, self._generations.get(connection.bridge))
        if leads is False:
            framework.hang_up(connection)
            return
        if leads is None and generation not in untouched:
            connection.refuse(NOT_KNOWN)
            return
        # The ID may wrap, because the switch compares generation IDs by signed distance.
        connection.claimed = claimed = (generation + 1) & messages.NO_GENERATION
        master = ofproto.OFPCR_ROLE_MASTER
        asked = framework.parser.OFPRoleRequest(connection, master, claimed)
        connection.send(framework.serialized([asked]))

    def _begin(self, connection: Any, leads: bool | None) -> None:
        """Use the connection, unless another service has become the leader (`leads` is False)."""
        if leads is False:
            framework.hang_up(connection)
        else:
            # The database's thread must not wait for the engine.
            grant = functools.partial(self.granted, connection)
            faults.vital("openflow", f"grant of {connection.bridge}", grant)

    def granted(self, connection: Any) -> None:
        """Make a connection live, after the switch has granted us the master role."""
        bridge = connection.bridge
        with self.turns[bridge]:
            if not connection.is_active:
                return
            self._generations[bridge] = connection.claimed
            if bridge in self.connections:
                # The previous connection has ended, but its end has not been reported yet.
                self.submit(events.SwitchGone(bridge))
            self.connections[bridge] = connection
            self._replies[bridge] = replies.Replies(
                functools.partial(self.room, bridge), connection.look_ahead
            )
            self.submit(events.SwitchConnected(bridge, messages.port_states(connection)))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def not_granted(self, event: Any) -> None:
        connection = event.msg.datapath
        if connection.refused or self.connections.get(connection.bridge) is connection:
            return
        stale = (ofproto.OFPET_ROLE_REQUEST_FAILED, ofproto.OFPRRFC_STALE)
        if (event.msg.type, getattr(event.msg, "code", None)) == stale:
            # Another controller claimed the role after our query.
            framework.hang_up(connection)
        else:
            connection.refuse(
                f"the switch refused the master role: {messages.error_text(event.msg)}"
            )

    @set_ev_cls(ofp_event.EventOFPStateChange, framework.DEAD_DISPATCHER)
    def disconnected(self, event: Any) -> None:
        bridge = event.datapath.bridge
        with self.turns[bridge]:
            if self.connections.get(bridge) is event.datapath:
                del self.connections[bridge]
                self.submit(events.SwitchGone(bridge))

    @of_live(ofp_event.EventOFPPortStatus)
    def port_status(self, event: Any) -> None:
        bridge, port = event.msg.datapath.bridge, messages.port_state(event.msg.desc)
        if event.msg.reason == ofproto.OFPPR_DELETE:
            self.submit(events.PortRemoved(bridge, port.ofport))
        else:
            self.submit(events.PortChanged(bridge, port))

    @of_live(ofp_event.EventOFPPacketIn)
    def packet_in(self, event: Any) -> None:
        message = event.msg
        if cookie_kind(message.cookie) in (Kind.PROBE, Kind.AROUND_PROBES):
            uplink = messages.ofport_of(message.match["in_port"])
            self.submit(events.FrameHeard(message.datapath.bridge, uplink, bytes(message.data)))

    @of_live(
        ofp_event.EventOFPPortStatsReply,
        ofp_event.EventOFPFlowStatsReply,
        ofp_event.EventOFPGroupDescStatsReply,
    )
    def statistics(self, event: Any) -> None:
        bridge = event.msg.datapath.bridge
        if (answer := self._replies[bridge].event(bridge, event.msg)) is not None:
            self.submit(answer)

    @of_live(ofp_event.EventONFBundleCtrlMsg)
    def bundle_control(self, event: Any) -> None:
        if (number := messages.bundle_outcome(event.msg)) is not None:
            self.submit(events.BundleDone(event.msg.datapath.bridge, number))

    @of_live(ofp_event.EventOFPErrorMsg)
    def error(self, event: Any) -> None:
        if messages.is_deposed(event.msg):
            event.msg.datapath.refuse(DEPOSED)
            return
        bridge, text = event.msg.datapath.bridge, messages.error_text(event.msg)
        event.msg.datapath.warnings.log(f"{bridge}: the switch reports an error: {text}", LOG)
        if (number := messages.bundle_number(event.msg)) is not None:
            self.submit(events.BundleDone(bridge, number, text))

    @of_live(ofp_event.EventOFPExperimenter)
    def role_status(self, event: Any) -> None:
        if messages.is_deposed(event.msg):
            event.msg.datapath.refuse(DEPOSED)
