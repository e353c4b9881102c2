"""The framework app: each handler decodes one kind of message and hands on an event."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from controller.api.events import (
    BundleDone,
    Event,
    PortChanged,
    PortRemoved,
    SwitchConnected,
    SwitchGone,
)
from controller.openflow import codec, framework
from controller.openflow.framework import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    ofp_event,
    ofproto,
    set_ev_cls,
)

LOG = logging.getLogger(__name__)

DEPOSED = "another controller has become the bridge's master -> this service"
NOT_KNOWN = "another was master, and the database does not say who leads -> a database that answers"

Handler = Callable[["TeamingApp", Any], None]


def guarded(handler: Handler) -> Handler:
    """An exception would silently end the framework's thread: report it as a crash instead."""

    @functools.wraps(handler)
    def guard(app: TeamingApp, event: Any) -> None:
        try:
            handler(app, event)
        except Exception as error:
            app.crash(error)

    return guard


def said_by_switch(handler: Handler) -> Handler:
    """What a switch says may be anything: its connection ends, and nothing else does."""

    @functools.wraps(handler)
    def guard(app: TeamingApp, event: Any) -> None:
        connection: Any = event.msg.datapath
        live: Any = app.connections.get(connection.bridge)
        # It has become that of no bridge, or another one has replaced it.
        if live is not connection or connection.refused:
            return
        try:
            handler(app, event)
        except Exception as error:
            connection.refuse_unread(handler.__name__, error)

    return guard


class Granted(framework.EventBase):  # type: ignore[misc]
    """The switch has made us the master of a bridge, by this connection."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self.connection = connection


class TeamingApp(App):  # type: ignore[misc]
    """Turns OpenFlow messages into events.

    `submit` takes events to the engine's thread, `connections` has the live connection of
    each bridge, `caller` knows the bridge that has dialled us, `crash` ends the service.
    `confirm` says whether we lead, None where that is not known.

    A connection is live when the switch has made us the bridge's master, after which it takes
    changes from no other service; and nothing but that request is sent before.
    """

    OFP_VERSIONS = [ofproto.OFP_VERSION]  # noqa: RUF012 - the framework's class attribute

    def __init__(
        self,
        *args: Any,
        submit: Callable[[Event], None],
        connections: dict[str, Any],
        caller: Callable[[Any], str | None],
        crash: Callable[[Exception], None],
        confirm: Callable[[Callable[[bool | None], None]], None],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.submit = submit
        self.connections = connections
        self.caller = caller
        self.crash = crash
        self.confirm = confirm
        # The generation by which we became a bridge's master last.
        self._generations: dict[str, int] = {}
        self._replies: dict[str, codec.Replies] = {}

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)
    @guarded
    def connected(self, event: Any) -> None:
        datapath = event.datapath
        if datapath.bridge is None:
            datapath.bridge = self.caller(datapath)
        if datapath.bridge is None:
            framework.hang_up(datapath)
            return
        asked = [*codec.ask_role(datapath), *codec.set_async(datapath)]
        datapath.send(framework.serialized(asked))

    @set_ev_cls(ofp_event.EventOFPRoleReply, MAIN_DISPATCHER)
    @guarded
    def role(self, event: Any) -> None:
        """First the generation of the last master, then that we are master."""
        connection, generation = event.msg.datapath, event.msg.generation_id
        if self.connections.get(connection.bridge) is connection:
            return
        if connection.claimed is None:
            self.confirm(lambda leads: self._claim(connection, generation, leads))
        elif codec.is_master(event.msg):
            self.confirm(lambda leads: self._begin(connection, leads))

    def _claim(self, connection: Any, generation: int, leads: bool | None) -> None:
        """Ask to be master, if we lead; where nobody knows, if no other has been since us."""
        untouched = (codec.NO_GENERATION, self._generations.get(connection.bridge))
        if leads is False:
            framework.hang_up(connection)
            return
        if leads is None and generation not in untouched:
            connection.refuse(NOT_KNOWN)
            return
        connection.claimed = codec.next_generation(generation)
        connection.send(framework.serialized(codec.claim(connection, connection.claimed)))

    def _begin(self, connection: Any, leads: bool | None) -> None:
        """The bridge is ours, unless we stood still since we asked, and it should not be."""
        if leads is False:
            framework.hang_up(connection)
        else:
            self.send_event(self.name, Granted(connection))

    @set_ev_cls(Granted)
    @guarded
    def granted(self, event: Any) -> None:
        connection, bridge = event.connection, event.connection.bridge
        if not connection.is_active:
            return
        self._generations[bridge] = connection.claimed
        self.connections[bridge], self._replies[bridge] = connection, codec.Replies()
        self.submit(SwitchConnected(bridge, codec.port_states(connection)))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    @guarded
    def not_granted(self, event: Any) -> None:
        connection = event.msg.datapath
        if connection.refused or self.connections.get(connection.bridge) is connection:
            return
        if codec.is_stale(event.msg):
            framework.hang_up(connection)
        else:
            connection.refuse(f"{codec.error_text(event.msg)} -> the role of master")

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    @guarded
    def disconnected(self, event: Any) -> None:
        bridge = event.datapath.bridge
        if self.connections.get(bridge) is event.datapath:
            del self.connections[bridge]
            self.submit(SwitchGone(bridge))

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    @said_by_switch
    def port_status(self, event: Any) -> None:
        bridge, port = event.msg.datapath.bridge, codec.port_state(event.msg.desc)
        if event.msg.reason == ofproto.OFPPR_DELETE:
            self.submit(PortRemoved(bridge, port.ofport))
        else:
            self.submit(PortChanged(bridge, port))

    @set_ev_cls(ofp_event.EventOFPPortStatsReply, MAIN_DISPATCHER)
    @said_by_switch
    def port_stats(self, event: Any) -> None:
        self._answered(event.msg)

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, MAIN_DISPATCHER)
    @said_by_switch
    def flow_stats(self, event: Any) -> None:
        self._answered(event.msg)

    @set_ev_cls(ofp_event.EventOFPGroupDescStatsReply, MAIN_DISPATCHER)
    @said_by_switch
    def group_descriptions(self, event: Any) -> None:
        self._answered(event.msg)

    @set_ev_cls(ofp_event.EventONFBundleCtrlMsg, MAIN_DISPATCHER)
    @said_by_switch
    def bundle_control(self, event: Any) -> None:
        if (number := codec.bundle_outcome(event.msg)) is not None:
            self.submit(BundleDone(event.msg.datapath.bridge, number))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    @said_by_switch
    def error(self, event: Any) -> None:
        if codec.says_deposed(event.msg):
            event.msg.datapath.refuse(DEPOSED)
            return
        bridge, text = event.msg.datapath.bridge, codec.error_text(event.msg)
        LOG.warning("%s: the switch reports an error: %s", bridge, text)
        if (number := codec.failed_bundle(event.msg)) is not None:
            self.submit(BundleDone(bridge, number, text))

    @set_ev_cls(ofp_event.EventOFPExperimenter, MAIN_DISPATCHER)
    @said_by_switch
    def role_status(self, event: Any) -> None:
        if codec.says_deposed(event.msg):
            event.msg.datapath.refuse(DEPOSED)

    def _answered(self, message: Any) -> None:
        replies = self._replies[message.datapath.bridge]
        if (answer := replies.event(message.datapath.bridge, message)) is not None:
            self.submit(answer)
