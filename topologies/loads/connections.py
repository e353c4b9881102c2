"""Many connections of one VM: cached ones, an uplink failure among them, and new ones at a rate."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from topologies.graph.layout import Role
from topologies.graph.ports import own_interface, upstream_interface
from topologies.loads.load import Load, Outcome, Stage, set_links
from topologies.loads.pace import Pace
from topologies.loads.probing import PAYLOAD_BYTES, Datagrams, Flow, FlowResult
from topologies.loads.probing import PORT as PROBE_PORT
from topologies.loads.traffic import HEADERS_BYTES
from topologies.network.private_network import interface_counters
from topologies.network.processes import rss_bytes

FRAME_BYTES = 500
# The first destination port of the kept connections, and that of the new ones.
PORT, NEW_PORT = 7100, 7200
# Kept while new connections are opened, so that a split VM port stays split.
FEW = 100
# Flows are all cached when their number has hardly grown for a while: Open vSwitch begins with a
# limit of 10,000 flows, and raises it by 1,000 at most twice a second.
SETTLED_RATIO, SETTLE_TIMEOUT_S, LOOK_S = 1.005, 120.0, 0.25
READY_S = 1.0
PROBE_PPS = 1000.0
PROBE_START_S, PROBED_BEFORE_S, PROBE_SEEN_TIMEOUT_S = 1.0, 0.3, 30.0
# The time until all teams use a link again after its return, LAGs included.
RETURNED_S = 5.0
END_TIMEOUT_S = 15.0
# More than any network of this bench takes.
LONGEST_S = 300.0
ETH_ALL = 3
_UDP_PORT_AT = slice(36, 38)
_LOOKUPS = re.compile(r"lookups: hit:\d+ missed:(\d+) lost:\d+")
_FLOWS = re.compile(r"^ *flows: (\d+)$", re.MULTILINE)


class ConnectionsLoad(Load):
    """A VM keeps connections: it sends `frames_per_s` frames to a client, one of each connection in turn.

    When all flows are cached, the uplink of a probe to another client loses its carrier, and once more with
    the contender's service killed. With `new_per_s`, the VM opens that many connections a second instead.
    """

    def __init__(
        self, stage: Stage, size: int, frames_per_s: float, pace: Pace, new_per_s: int = 0
    ) -> None:
        super().__init__(stage)
        self._size, self._new_per_s = size, new_per_s
        self._rates_bps = [rate * FRAME_BYTES * 8 for rate in (frames_per_s, new_per_s)]
        self._settled_s, self._opening_s, self._down_s = pace.connections_s
        layout, prefix = stage.layout, stage.prefix
        (self._vm,) = layout.nodes(Role.VM)
        self._client, self._probed = layout.nodes(Role.CLIENT)
        self._uplinks = {
            own_interface(layout, prefix, uplink): upstream_interface(layout, prefix, uplink)
            for uplink in layout.nodes(Role.UPLINK)
        }
        # It ends when everything is measured, and then has its real duration.
        self.load_s = LONGEST_S
        self.measured_s = self.steady_s = (0.0, LONGEST_S)
        self._programs = self._programs_of("connections")
        self._figures: dict[str, float] = {}

    def start(self) -> None:
        """Start the sender."""
        ends = self._vm, self._client, self._stage.layout.address(self._client)
        # None of the new ones is opened twice.
        opened = max(1, round(self._new_per_s * self._opening_s))
        flows = [
            Flow(*ends, self._rates_bps[0], self._size, counted=False, port=PORT),
            Flow(*ends, 0.0, opened, port=NEW_PORT),
        ]
        payload_bytes = FRAME_BYTES - HEADERS_BYTES
        self._datagrams = Datagrams(
            self._programs, self._stage.host_pids, flows, payload_bytes, probes=False
        )
        self.start_s = time.monotonic() + READY_S
        self._received_before = self._received()
        self._datagrams.start(self.start_s, self.start_s + LONGEST_S)
        self._run(self._measure)

    def finish(self) -> Outcome:
        """Wait for the end."""
        self._join("connections", self._left_s() + END_TIMEOUT_S)
        _, new = self._datagrams.finish().values()
        if self._new_per_s:
            self._figures["opened_per_s"] = new.sent / self._opening_s
            self._figures["new_lost_ratio"] = new.lost / max(1, new.sent)
        received = self._received() - self._received_before
        return Outcome(received, received * 8 / self.load_s, self._figures)

    def _measure(self) -> None:
        try:
            self._pause_until(0.0)
            self._settle()
            if self._new_per_s:
                self._figures = {"upcalls_per_s": self._open()}
                return
            self._figures = {
                "cached_flows": float(self._datapath()[0]),
                "switch_rss_bytes": float(rss_bytes(self._stage.ovs.pid("ovs-vswitchd"))),
                "failover_lost": float(self._cut()),
            }
            if self._stage.kill_service():
                self._pause(RETURNED_S)
                self._figures["service_down_lost"] = float(self._cut())
        finally:
            self._datagrams.stop()
            self.load_s = time.monotonic() - self.start_s
            self.measured_s = self.steady_s = (0.0, self.load_s)

    def _settle(self) -> None:
        """Wait until hardly any flow is added."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        (flows, _), since_s = self._datapath(), time.monotonic()
        while (now_s := time.monotonic()) < min(since_s + self._settled_s, deadline_s):
            self._programs.require_running()
            self._pause(LOOK_S)
            now, _ = self._datapath()
            if now > flows * SETTLED_RATIO:
                flows, since_s = now, now_s

    def _open(self) -> float:
        """Open new connections, and end the load. Returns the upcalls per second."""
        _, before = self._datapath()
        at_s = time.monotonic() + LOOK_S
        end_s = at_s + self._opening_s
        self._datagrams.change(at_s, end_s, self._rates_bps)
        self._pause(end_s - time.monotonic())
        _, upcalls = self._datapath()
        return (upcalls - before) / self._opening_s

    def _cut(self) -> int:
        """The frames of a probe that are lost when its uplink loses its carrier."""
        rate_bps = PROBE_PPS * (PAYLOAD_BYTES + HEADERS_BYTES) * 8
        flow = Flow(self._vm, self._probed, self._stage.layout.address(self._probed), rate_bps)
        probes = Datagrams(self._programs_of("probes"), self._stage.host_pids, [flow])
        start_s = time.monotonic() + PROBE_START_S
        # It is stopped earlier.
        probes.start(start_s, start_s + 2 * PROBE_SEEN_TIMEOUT_S + self._down_s)
        self._await(
            lambda: _receives(self._stage.host_pids[self._probed], PROBE_PORT),
            PROBE_SEEN_TIMEOUT_S,
            lambda: f"{self._probed} does not listen on UDP port {PROBE_PORT}",
        )
        self._pause(start_s + PROBED_BEFORE_S - time.monotonic())
        uplink = uplink_of(PROBE_PORT, list(self._uplinks), PROBE_SEEN_TIMEOUT_S)
        cut_s = time.monotonic()
        set_links([self._uplinks[uplink]], "down")
        try:
            self._pause(self._down_s)
            probes.stop()
            return lost_after(probes.finish()[flow], cut_s)
        finally:
            set_links([self._uplinks[uplink]], "up")

    def _received(self) -> int:
        counters = interface_counters(self._stage.host_pids[self._client])
        return counters[f"{self._client}-eth0"].received_bytes

    def _datapath(self) -> tuple[int, int]:
        return flows_and_upcalls(self._stage.ovs.run("ovs-appctl", "dpctl/show"))


def _receives(pid: int, port: int) -> bool:
    """Whether a process's network namespace has a socket for a UDP port."""
    return f":{port:04X} " in Path(f"/proc/{pid}/net/udp").read_text()


def flows_and_upcalls(shown: str) -> tuple[int, int]:
    """A datapath's cached flows, and the frames that matched none since its start, from `dpctl/show`.

    Raises:
        ValueError: the output has another format.
    """
    lookups, flows = _LOOKUPS.search(shown), _FLOWS.search(shown)
    if lookups is None or flows is None:
        raise ValueError(f"dpctl/show printed no look-ups or flows: {shown[:200]!r}")
    return int(flows[1]), int(lookups[1])


def lost_after(heard: FlowResult, cut_s: float) -> int:
    """The number of datagrams that were lost after the last arrival before a time.

    On a busy machine, a receiver may have started too late for the first datagrams.

    Raises:
        RuntimeError: no datagram arrived before this time.
    """
    before = [number for number, at_s in heard.arrivals if at_s < cut_s]
    if not before:
        raise RuntimeError("no datagram of the probe arrived before the uplink failed")
    arrived = {number for number, _ in heard.arrivals}
    return sum(number not in arrived for number in range(max(before) + 1, heard.sent))


def uplink_of(port: int, uplinks: Sequence[str], timeout_s: float) -> str:
    """The uplink on which datagrams to a UDP port leave, found by capturing on all uplinks.

    Raises:
        RuntimeError: no datagram left in time.
    """
    wanted = port.to_bytes(2, "big")
    deadline_s = time.monotonic() + timeout_s
    with contextlib.ExitStack() as resources:
        found: dict[socket.socket, str] = {}
        for name in uplinks:
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
            resources.enter_context(one).bind((name, ETH_ALL))
            found[one] = name
        while time.monotonic() < deadline_s:
            for one in select.select(found, [], [], 1.0)[0]:
                frame, from_ = one.recvfrom(64)
                if from_[2] == socket.PACKET_OUTGOING and frame[_UDP_PORT_AT] == wanted:
                    return found[one]
    raise RuntimeError(f"the probe did not leave over any of {', '.join(uplinks)}")
