"""A pipeline on a real bridge without the service: its encoder and decoder, and a socket."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, TypeVar

from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from controller.api.engine_commands import Apply, ReadInstalled, ReadLearned, ReadStats
from controller.api.events import InstalledRead, LearnedRead, UnitCountersRead
from controller.dataplane import pipeline
from controller.dataplane.specs import Pipeline
from controller.host.sockets import BridgeSocket
from controller.openflow import commands, replies, side_connection
from controller.openflow.framework import ofproto, parser, serialized, unread
from controller.openflow.framing import statistics
from controller.openflow.messages import bundle_outcome, error_text
from tests.switch.bed import Bed

DATAPATH: Any = ProtocolDesc(version=4)
HEADER = struct.Struct("!BBHI")
PORT_DESC = ofproto.OFPMP_PORT_DESC
ANSWERS_WITHIN_S = 60.0
E = TypeVar("E")


def _kind(message: Any) -> str:
    """What a message inside a bundle does: "add" to "delete", of flows or groups."""
    mod = message.message
    return f"{type(mod).__name__} {mod.command}"


class Direct:
    """A connection to a bed's bridge, on which pipelines are installed and read back."""

    def __init__(self, bed: Bed) -> None:
        self._replies = replies.Replies()
        self._bridge = bed.bridge
        self._bundles = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWERS_WITHIN_S)
        self._management = str(bed.ovs.rundir / f"{bed.bridge}.mgmt")
        self._socket.connect(self._management)
        self._socket.sendall(HEADER.pack(4, ofproto.OFPT_HELLO, HEADER.size, 1))

    def close(self) -> None:
        self._socket.close()

    def install(self, desired: Pipeline) -> tuple[int, float]:
        """Make the bridge's pipeline this one; bytes sent, and seconds until it was done."""
        changes = pipeline.changes(desired, self.installed())
        if not changes:
            return 0, 0.0
        self._bundles += 1
        messages = commands.apply_changes(DATAPATH, Apply("", self._bundles, changes))
        sent_bytes = len(serialized(messages))
        started_s = time.monotonic()
        self._commit(messages, self._bundles)
        return sent_bytes, time.monotonic() - started_s

    def install_in_parts(self, desired: Pipeline) -> Iterator[str]:
        """As `install`, but what is sent of one kind after the other is a bundle of its own: yields each kind."""
        changes = pipeline.changes(desired, self.installed())
        messages = commands.apply_changes(DATAPATH, Apply("", self._bundles + 1, changes))
        opening, *mods, commit = messages
        for kind, part in itertools.groupby(mods, _kind):
            self._commit([opening, *part, commit], self._bundles + 1)
            yield kind
        self._bundles += 1

    def _commit(self, messages: list[Any], number: int) -> None:
        self._socket.sendall(serialized(messages))
        committed = False
        while not committed:
            message = self._receive()
            assert message.msg_type != ofproto.OFPT_ERROR, error_text(message)
            committed = bundle_outcome(message) == number

    def add_select_group(self) -> None:
        """Give the bridge the group that picks a bucket by the datapath's hash."""
        with socket.socket(socket.AF_UNIX) as beside:
            beside.connect(self._management)
            side_connection.add_select_group(BridgeSocket(beside), self._bridge)

    def installed(self) -> Pipeline:
        """What the bridge has of ours."""
        read = self.read_installed()
        flows, groups = read.flows, read.groups
        return Pipeline({f.key: f for f in flows}, {g.group_id: g for g in groups})

    def read_installed(self) -> InstalledRead:
        """All flows and groups that the bridge has."""
        asked = commands.encode(DATAPATH, ReadInstalled(""))
        return self._ask(asked, InstalledRead)

    def learned(self) -> LearnedRead:
        """The addresses that the bridge has learned in our pipeline."""
        return self._ask(commands.encode(DATAPATH, ReadLearned("")), LearnedRead)

    def ports(self) -> list[Any]:
        """The bridge's ports, as OpenFlow describes them."""
        asked = parser.OFPPortDescStatsRequest(DATAPATH, 0)
        asked.set_xid(2)
        self._socket.sendall(serialized([asked]))
        ports: list[Any] = []
        while True:
            message = self._receive()
            ports += message.body
            if not message.flags & ofproto.OFPMPF_REPLY_MORE:
                return ports

    def counters(self) -> UnitCountersRead:
        """What VM ports and buckets have counted."""
        asked = commands.encode(DATAPATH, ReadStats("", buckets=True))
        return self._ask(asked, UnitCountersRead)

    def _ask(self, messages: list[Any], answer: type[E]) -> E:
        self._socket.sendall(serialized(messages))
        while True:
            message = self._receive()
            assert message.msg_type != ofproto.OFPT_ERROR, error_text(message)
            event = self._replies.event(self._bridge, message)
            if isinstance(event, answer):
                return event

    def _receive(self) -> Any:
        """The next message, but for what keeps the connection up."""
        while True:
            header = self._exactly(HEADER.size)
            version, kind, length, xid = HEADER.unpack(header)
            data = header + self._exactly(length - HEADER.size)
            if kind == ofproto.OFPT_ECHO_REQUEST:
                self._socket.sendall(HEADER.pack(4, ofproto.OFPT_ECHO_REPLY, length, xid))
            elif kind == ofproto.OFPT_MULTIPART_REPLY and statistics(data) != PORT_DESC:
                return unread(DATAPATH, xid, data)
            elif kind != ofproto.OFPT_HELLO:
                return parser.msg_parser(DATAPATH, version, kind, length, xid, data)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            assert part, "the switch has hung up"
            data += part
        return data
