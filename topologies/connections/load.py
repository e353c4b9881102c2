"""Many connections of one VM: cached connections, uplink failures, and new connections at given rates."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topologies.compare.contenders import Contender
from topologies.connections import sender
from topologies.connections.contenders import Unread
from topologies.graph.layout import Role
from topologies.graph.ports import own_interface, upstream_interface
from topologies.loads.load import Load, Outcome, Stage, set_links
from topologies.loads.probing import PORT as PROBE_PORT
from topologies.loads.probing import Flow, FlowResult, Probes
from topologies.loads.traffic import open_socket
from topologies.network.processes import rss_bytes

FRAME_BYTES = 500
# Each cached connection gets a frame in this time. Open vSwitch forgets flows after 10 s (max-idle).
REFRESH_S = 7.0
LEAST_FRAMES_PER_S = 2000.0
# How fast connections are opened to be cached.
FILL_PER_S = 5000.0
# Kept while new connections are opened, so that a split VM port stays split.
FEW = 100
# Flows are all cached when their number has hardly grown for a while: Open vSwitch begins with a
# limit of 10,000 flows, and raises it by 1,000 at most twice a second.
SETTLED_RATIO, SETTLE_TIMEOUT_S, LOOK_S = 1.005, 120.0, 0.25
# All frames under way have arrived, or never will, when none has arrived for this time.
ARRIVE_S, ARRIVE_TIMEOUT_S = 0.2, 5.0
PROBE_PPS = 1000.0
PROBE_START_S, PROBED_BEFORE_S = 1.0, 0.3
PROBE_SEEN_TIMEOUT_S, RETURN_TIMEOUT_S, OPEN_TIMEOUT_S, SPLIT_TIMEOUT_S = 30.0, 30.0, 30.0, 60.0
# More than any network of this bench takes.
LONGEST_EACH_S = 240.0
ETH_ALL = 3
_UDP_PORT_AT = slice(36, 38)
_LOOKUPS = re.compile(r"lookups: hit:\d+ missed:(\d+) lost:\d+")
_FLOWS = re.compile(r"^ *flows: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Spans:
    """The durations of the measurements, in seconds.

    Attributes:
        settled_s: how long hardly any flow may be added before the measurements begin.
        rate_s: how long new connections are opened at a rate.
        watched_s: how long an uplink is down.
        returned_s: the time from the return of the uplinks to the next measurement.
    """

    settled_s: float
    rate_s: float
    watched_s: float
    returned_s: float


FULL = Spans(settled_s=2.0, rate_s=3.0, watched_s=1.0, returned_s=1.0)
# Only to check that the bench works: too short for figures.
QUICK = Spans(settled_s=0.5, rate_s=0.5, watched_s=0.5, returned_s=0.3)


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned measurements.

    Attributes:
        sizes: numbers of cached connections, in ascending order.
        rates: new connections per second, in ascending order.
        cuts: how often an uplink fails with each size, both with a running and with a killed service.
    """

    sizes: Sequence[int]
    rates: Sequence[int]
    cuts: int = 1
    spans: Spans = FULL

    @property
    def frames_per_s(self) -> float:
        """The frames per second of all cached connections together; the same with every size."""
        return max(LEAST_FRAMES_PER_S, max(self.sizes, default=0) / REFRESH_S)

    @property
    def first_new(self) -> int:
        """The first connection that is opened at a rate; its destination port is its own."""
        return sender.first_of_next_port(max([FEW, *self.sizes]))

    def new_at(self, rate: int) -> int:
        """The number of connections that are opened at a rate."""
        return max(1, round(rate * self.spans.rate_s))

    def described(self) -> dict[str, Any]:
        """The plan and the other conditions that figures depend on, for the report."""
        return {
            **asdict(self),
            "frames_per_s": self.frames_per_s,
            "frame_bytes": FRAME_BYTES,
            "probe_pps": PROBE_PPS,
        }


class ManyConnections(Load):
    """The cost of many connections. `details` of the outcome has a record for each size and each rate."""

    def __init__(self, stage: Stage, plan: Plan, contender: Contender) -> None:
        super().__init__(stage)
        self._plan, self._contender = plan, contender
        self._ours = contender if isinstance(contender, Unread) else None
        layout, prefix = stage.layout, stage.prefix
        (self._vm,) = layout.nodes(Role.VM)
        self._client, self._probed = layout.nodes(Role.CLIENT)
        self._uplinks = {
            own_interface(layout, prefix, uplink): upstream_interface(layout, prefix, uplink)
            for uplink in layout.nodes(Role.UPLINK)
        }
        # It ends when everything is measured, and then has its real duration.
        self.load_s = LONGEST_EACH_S * (len(plan.sizes) + len(plan.rates) + 1)
        self.measured_s = self.steady_s = (0.0, self.load_s)
        self._found: dict[str, Any] = {}

    def start(self) -> None:
        """Start the sender."""
        layout, plan, pids = self._stage.layout, self._plan, self._stage.host_pids
        self._sender = self._resources.enter_context(
            sender.sending(pids[self._vm], layout.address(self._client), FRAME_BYTES)
        )
        end = plan.first_new + sum(map(plan.new_at, plan.rates))
        ports = range(sender.FIRST_PORT, sender.ports(max(FEW, end) - 1)[1] + 1)
        self._arrivals = Arrivals(pids[self._client], ports)
        self._resources.callback(self._arrivals.close)
        self.start_s = time.monotonic()
        self._run(self._measure)

    def finish(self) -> Outcome:
        """Wait for the end."""
        self._join("connections", self._left_s() + OPEN_TIMEOUT_S)
        received = sum(self._arrivals.count().values()) * FRAME_BYTES
        return Outcome(received, received * 8 / self.load_s, details=self._found)

    def _measure(self) -> None:
        try:
            self._measure_all()
        finally:
            self.load_s = time.monotonic() - self.start_s

    def _measure_all(self) -> None:
        ovs, plan = self._stage.ovs, self._plan
        self._sender.open(0, FEW, FILL_PER_S)
        self._sender.keep(FEW, plan.frames_per_s)
        if self._ours:
            self._ours.begin(plan.frames_per_s * FRAME_BYTES * 8)
            problem = f"{self._ours.name} did not split the port in {SPLIT_TIMEOUT_S:g} s"
            self._await(self._ours.is_ready, SPLIT_TIMEOUT_S, lambda: problem, 0.2)
        other_config = ovs.vsctl("get", "Open_vSwitch", ".", "other_config")
        self._found = {"other_config": other_config, "sizes": [], "rates": []}
        for before, size in zip([FEW, *plan.sizes], plan.sizes, strict=False):
            print(f"{size} connections", file=sys.stderr)
            self._found["sizes"].append(self._with_size(before, size))
        self._sender.keep(FEW, plan.frames_per_s)
        ovs.run("ovs-appctl", "revalidator/purge")
        self._show_addresses()
        first = plan.first_new
        for rate in plan.rates:
            print(f"{rate} new connections a second", file=sys.stderr)
            self._pause(1.0)
            self._found["rates"].append(self._with_rate(rate, first, plan.new_at(rate)))
            first += plan.new_at(rate)

    def _show_addresses(self) -> None:
        """Have the clients send a frame each. Switches forget silent addresses after 300 s, and flood."""
        layout, pids = self._stage.layout, self._stage.host_pids
        address = layout.address(layout.vnics_of(self._vm)[0])
        for client in (self._client, self._probed):
            entering = ["nsenter", f"--net=/proc/{pids[client]}/ns/net", "--"]
            # Without an answer, the frame was still sent.
            subprocess.run([*entering, "ping", "-c1", "-W1", address], capture_output=True)

    def _with_size(self, before: int, size: int) -> dict[str, Any]:
        self._show_addresses()
        if size > before:
            self._open(before, size, FILL_PER_S)
        self._sender.keep(size, self._plan.frames_per_s)
        self._settle()
        # Open vSwitch's bonds have no service that could be down.
        services = ("alive", "dead") if self._ours else ("none",)
        return {
            "connections": size,
            "flows": self._datapath()[0],
            "switch_rss_bytes": rss_bytes(self._stage.ovs.pid("ovs-vswitchd")),
            "failovers": [
                {"service": service, **self._failover(service)}
                for service in services
                for _ in range(self._plan.cuts)
            ],
        }

    def _with_rate(self, rate: int, first: int, count: int) -> dict[str, Any]:
        arrived_before, (_, upcalls_before) = self._new_arrived(), self._datapath()
        begin_s = time.monotonic()
        reached_per_s = self._open(first, first + count, rate)
        span_s = time.monotonic() - begin_s
        _, upcalls = self._datapath()
        return {
            "asked_per_s": rate,
            "reached_per_s": reached_per_s,
            "opened": count,
            "lost_ratio": 1 - (self._new_arrived() - arrived_before) / count,
            "upcalls": upcalls - upcalls_before,
            "span_s": span_s,
        }

    def _failover(self, service: str) -> dict[str, Any]:
        """The loss when the uplink of a probe loses its carrier."""
        ours = self._ours if service == "dead" else None
        with ours.dead() if ours else contextlib.nullcontext():
            found = self._cut()
        problem = f"the uplinks did not return in {RETURN_TIMEOUT_S:g} s"
        self._await(self._are_uplinks_up, RETURN_TIMEOUT_S, lambda: problem)
        self._pause(self._plan.spans.returned_s)
        return found

    def _cut(self) -> dict[str, Any]:
        flow = Flow(self._vm, self._probed, self._stage.layout.address(self._probed))
        probes = Probes(self._programs_of("probes"), self._stage.host_pids, [flow], PROBE_PPS)
        start_s = time.monotonic() + PROBE_START_S
        # It is stopped earlier.
        probes.start(start_s, start_s + 2 * PROBE_SEEN_TIMEOUT_S + self._plan.spans.watched_s)
        self._pause(start_s - time.monotonic())
        self._await_probed()
        uplink = uplink_of(PROBE_PORT, list(self._uplinks), PROBE_SEEN_TIMEOUT_S)
        cut_s = time.monotonic()
        set_links([self._uplinks[uplink]], "down")
        try:
            self._pause(self._plan.spans.watched_s)
            probes.stop()
            heard = probes.finish()[flow]
        finally:
            set_links([self._uplinks[uplink]], "up")
        return {"uplink": uplink, "probe_lost": lost_after(heard, cut_s)}

    def _await_probed(self) -> None:
        """Wait until the probe's receiver listens, and some of the probe has arrived."""
        table = Path(f"/proc/{self._stage.host_pids[self._probed]}/net/udp")
        self._await(
            lambda: PROBE_PORT in udp_drops(table.read_text()),
            PROBE_SEEN_TIMEOUT_S,
            lambda: f"{self._probed} does not listen on UDP port {PROBE_PORT}",
            0.01,
        )
        self._pause(PROBED_BEFORE_S)

    def _are_uplinks_up(self) -> bool:
        """Whether both uplinks carry frames again."""
        ovs = self._stage.ovs
        if self._contender.server_class.lag:
            ends = 2 * len(self._uplinks)
            if ovs.run("ovs-appctl", "lacp/show").count("current attached") < ends:
                return False
        if self._ours:
            return self._ours.are_uplinks_up()
        states = [ovs.vsctl("get", "interface", one, "link_state") for one in self._uplinks]
        return all(state == "up" for state in states)

    def _open(self, first: int, end: int, per_s: float) -> float:
        """Open connections. Returns the number of connections per second."""
        begin_s = time.monotonic()
        self._sender.open(first, end, per_s)
        self._await(
            lambda: self._sender.next >= end,
            OPEN_TIMEOUT_S + 10 * (end - first) / per_s,
            lambda: (
                f"the sender opened only {self._sender.next - first} of {end - first} connections in time"
            ),
            0.01,
        )
        return (end - first) / (time.monotonic() - begin_s)

    def _settle(self) -> None:
        """Wait until hardly any flow is added."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        (flows, _), since_s = self._datapath(), time.monotonic()
        while (now_s := time.monotonic()) < min(since_s + self._plan.spans.settled_s, deadline_s):
            self._pause(LOOK_S)
            now, _ = self._datapath()
            if now > flows * SETTLED_RATIO:
                flows, since_s = now, now_s

    def _new_arrived(self) -> int:
        """The frames of connections opened at a rate that have arrived, after the last arrival."""
        self._sender.keep(FEW, 0.0)
        deadline_s = time.monotonic() + ARRIVE_TIMEOUT_S
        arrived, before = self._arrivals.count(), dict[int, int]()
        while arrived != before and time.monotonic() < deadline_s:
            self._pause(ARRIVE_S)
            before, arrived = arrived, self._arrivals.count()
        self._sender.keep(FEW, self._plan.frames_per_s)
        first = sender.ports(self._plan.first_new)[1]
        return sum(count for port, count in arrived.items() if port >= first)

    def _datapath(self) -> tuple[int, int]:
        return flows_and_upcalls(self._stage.ovs.run("ovs-appctl", "dpctl/show"))


def flows_and_upcalls(shown: str) -> tuple[int, int]:
    """A datapath's cached flows, and the frames that matched none since its start, from `dpctl/show`.

    Raises:
        ValueError: the output has another format.
    """
    lookups, flows = _LOOKUPS.search(shown), _FLOWS.search(shown)
    if lookups is None or flows is None:
        raise ValueError(f"dpctl/show printed no look-ups or flows: {shown[:200]!r}")
    return int(flows[1]), int(lookups[1])


def udp_drops(table: str) -> dict[int, int]:
    """The number of datagrams that sockets dropped, by local port, from /proc/net/udp."""
    found: dict[int, int] = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        port = int(fields[1].rpartition(":")[2], 16)
        found[port] = found.get(port, 0) + int(fields[-1])
    return found


class Arrivals:
    """Sockets for some UDP ports of an end system. Their small buffers are full immediately.

    The kernel counts the datagrams that it drops there, which costs the machine less than a program
    that receives every datagram. The sockets also keep the end system from answering with ICMP.
    """

    def __init__(self, pid: int, ports: Sequence[int]) -> None:
        self._table = Path(f"/proc/{pid}/net/udp")
        self._resources = contextlib.ExitStack()
        self._sockets: dict[int, socket.socket] = {}
        self._read = dict.fromkeys(ports, 0)
        for port in ports:
            one = self._resources.enter_context(open_socket(pid, socket.SOCK_DGRAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least that there is
            one.bind(("", port))
            self._sockets[port] = one

    def count(self) -> dict[int, int]:
        """The number of datagrams that have arrived, by port; exact while none arrive."""
        for port, one in self._sockets.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.recv(1)
                    self._read[port] += 1
        drops = udp_drops(self._table.read_text())
        return {port: read + drops.get(port, 0) for port, read in self._read.items()}

    def close(self) -> None:
        self._resources.close()


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
