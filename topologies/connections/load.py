"""Many connections of one VM: cached connections, uplink failures, and new connections at given rates."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topologies.compare.contenders import Contender
from topologies.connections import sender
from topologies.connections.contenders import Unread
from topologies.connections.counters import Arrivals, Datapath, datapath, revalidation, udp_drops
from topologies.graph.layout import Role
from topologies.graph.ports import own_interface, upstream_interface
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import PORT as PROBE_PORT
from topologies.loads.probing import Flow, FlowResult, Probes
from topologies.network import processes
from topologies.scale.figures import memory

# Programs whose CPU time is measured.
SWITCH, SERVICE = "ovs-vswitchd", "ovs-lbt"
FRAME_BYTES = 500
# Each cached connection gets a frame in this time. Open vSwitch forgets flows after 10 s (max-idle).
REFRESH_S = 7.0
LEAST_FRAMES_PER_S = 2000.0
# How fast connections are opened to be cached. What is measured is how long it takes until they are.
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
PROBE_SEEN_TIMEOUT_S, RETURN_TIMEOUT_S, ORDER_TIMEOUT_S = 30.0, 30.0, 30.0
# More than any network of this bench takes.
LONGEST_EACH_S = 240.0
ETH_ALL = 3
_UDP_PORT_AT = slice(36, 38)


@dataclass(frozen=True, slots=True)
class Spans:
    """The durations of the measurements, in seconds.

    Attributes:
        settled_s: how long hardly any flow may be added before the measurements begin.
        steady_s: the span in which connections are only kept.
        rate_s: how long new connections are opened at a rate.
        watched_s: how long an uplink is down.
        returned_s: the time from the return of the uplinks to the next measurement.
    """

    settled_s: float
    steady_s: float
    rate_s: float
    watched_s: float
    returned_s: float


FULL = Spans(settled_s=2.0, steady_s=4.0, rate_s=3.0, watched_s=1.0, returned_s=1.0)
# Only to check that the bench works: too short for figures.
QUICK = Spans(settled_s=0.5, steady_s=0.5, rate_s=0.5, watched_s=0.5, returned_s=0.3)


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned measurements.

    Attributes:
        sizes: numbers of cached connections.
        rates: new connections per second.
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

    @property
    def connections(self) -> int:
        """The total number of connections."""
        return self.first_new + sum(self.new_at(rate) for rate in self.rates)

    def new_at(self, rate: int) -> int:
        """The number of connections that are opened at a rate."""
        return max(1, round(rate * self.spans.rate_s))

    @property
    def longest_s(self) -> float:
        return LONGEST_EACH_S * (len(self.sizes) + len(self.rates) + 1)


def described(plan: Plan) -> dict[str, Any]:
    """The plan and the other conditions that figures depend on, for the report."""
    return {
        "sizes": list(plan.sizes),
        "rates": list(plan.rates),
        "cuts": plan.cuts,
        "frames_per_s": plan.frames_per_s,
        "frame_bytes": FRAME_BYTES,
        "spans": asdict(plan.spans),
        "probe_pps": PROBE_PPS,
    }


class ManyConnections(Load):
    """The cost of many connections. `details` of the outcome has a record for each size and each rate."""

    def __init__(
        self, stage: Stage, plan: Plan, contender: Contender, say: Callable[[str], None]
    ) -> None:
        self._stage, self._plan, self._contender, self._say = stage, plan, contender, say
        self._spans = plan.spans
        layout = stage.layout
        (self._vm,) = layout.nodes(Role.VM)
        self._client, self._probed = layout.nodes(Role.CLIENT)
        self._uplinks = {
            own_interface(layout, stage.prefix, uplink): upstream_interface(
                layout, stage.prefix, uplink
            )
            for uplink in layout.nodes(Role.UPLINK)
        }
        # It ends when everything is measured, and then has its real duration.
        self.load_s = plan.longest_s
        self.measured_s = self.steady_s = (0.0, self.load_s)
        self._resources = contextlib.ExitStack()
        self._ended = threading.Event()
        self._failure = ""
        self._found: dict[str, Any] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the sender."""
        layout, plan, pids = self._stage.layout, self._plan, self._stage.host_pids
        macs = [
            bytes.fromhex(self._stage.mac_of(n).replace(":", "")) for n in (self._vm, self._client)
        ]
        addresses = [layout.address(layout.vnics_of(self._vm)[0]), layout.address(self._client)]
        payload_bytes = FRAME_BYTES - sender.HEADERS_BYTES
        headers = [
            sender.header(
                (macs[0], macs[1]),
                (socket.inet_aton(addresses[0]), socket.inet_aton(addresses[1])),
                connection,
                payload_bytes,
            )
            for connection in range(plan.connections)
        ]
        frames = sender.Frames(headers, payload_bytes)
        self._sender = self._resources.enter_context(
            sender.Sending(pids[self._vm], f"{self._vm}-eth0", frames)
        )
        ports = sorted({sender.ports(one)[1] for one in range(0, plan.connections, FEW)})
        ports = sorted({*ports, sender.ports(plan.connections - 1)[1]})
        self._arrivals = Arrivals(pids[self._client], ports)
        self._resources.callback(self._arrivals.close)
        self._resources.callback(self._end_thread)
        self.start_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> Outcome:
        """Wait for the end."""
        assert self._thread is not None
        self._thread.join()
        if self._failure:
            raise RuntimeError(self._failure)
        received = sum(self._arrivals.count().values()) * FRAME_BYTES
        return Outcome(received, received * 8 / self.load_s, details=self._found)

    def close(self) -> None:
        """End everything."""
        self._resources.close()

    def _end_thread(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._measure()
        except Exception as failure:  # otherwise the bench would wait for the end of the load
            self._failure = f"connections: {type(failure).__name__}: {failure}"
        finally:
            self.load_s = time.monotonic() - self.start_s

    def _measure(self) -> None:
        ovs, plan = self._stage.ovs, self._plan
        self._sender.order(open=(0, FEW), open_per_s=FILL_PER_S)
        self._sender.order(keep=FEW, keep_per_s=plan.frames_per_s)
        if isinstance(self._contender, Unread):
            self._contender.begin(plan.frames_per_s * FRAME_BYTES * 8, self._pause)
        self._found = {
            "other_config": ovs.vsctl("get", "Open_vSwitch", ".", "other_config"),
            "sizes": [],
            "rates": [],
        }
        cached = FEW
        for size in sorted(plan.sizes):
            self._say(f"{size} connections")
            self._found["sizes"].append(self._with_size(cached, size))
            cached = size
        self._sender.order(keep=FEW)
        ovs.run("ovs-appctl", "revalidator/purge")
        self._show_addresses()
        first = plan.first_new
        for rate in sorted(plan.rates):
            self._say(f"{rate} new connections a second")
            self._pause(1.0)
            count = plan.new_at(rate)
            self._found["rates"].append(self._with_rate(rate, first, count))
            first += count

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
        begin_s = time.monotonic()
        opened_per_s = self._open(before, size, FILL_PER_S) if size > before else None
        self._sender.order(keep=size)
        settled_s = self._settle() - begin_s
        steady = self._steady()
        failovers = [
            {"service": service, **self._failover(service)}
            for service in self._services()
            for _ in range(self._plan.cuts)
        ]
        return {
            "connections": size,
            "opened_per_s": opened_per_s,
            "settled_s": settled_s,
            **steady,
            "failovers": failovers,
        }

    def _services(self) -> tuple[str, ...]:
        """The states of the service in which uplinks fail; Open vSwitch's bonds have none."""
        return ("alive", "dead") if isinstance(self._contender, Unread) else ("none",)

    def _with_rate(self, rate: int, first: int, count: int) -> dict[str, Any]:
        arrived_before, before = self._new_arrived(), self._costs()
        begin_s = time.monotonic()
        reached_per_s = self._open(first, first + count, rate)
        span_s = time.monotonic() - begin_s
        after = self._costs()
        arrived = self._new_arrived() - arrived_before
        return {
            "asked_per_s": rate,
            "reached_per_s": reached_per_s,
            "opened": count,
            "lost_ratio": (count - arrived) / count,
            **self._between(before, after, span_s),
        }

    def _steady(self) -> dict[str, Any]:
        """The cost of a span in which connections are only kept."""
        sent_before, arrived_before = self._quiet_counts()
        before, begin_s = self._costs(), time.monotonic()
        self._pause(self._spans.steady_s)
        span_s, after = time.monotonic() - begin_s, self._costs()
        limits = revalidation(self._stage.ovs.run("ovs-appctl", "upcall/show"))
        sent_after, arrived_after = self._quiet_counts()
        sent = sent_after - sent_before
        return {
            "sent": sent,
            "lost_ratio": (sent - (arrived_after - arrived_before)) / max(1, sent),
            "flow_limit": limits.flow_limit,
            "dump_ms": limits.dump_ms,
            **self._between(before, after, span_s),
        }

    def _failover(self, service: str) -> dict[str, Any]:
        """The loss when the uplink of a probe loses its carrier."""
        if service == "dead":
            assert isinstance(self._contender, Unread)
            with self._contender.dead():
                found = self._cut()
            self._await_uplinks()
            return found
        found = self._cut()
        self._await_uplinks()
        return found

    def _cut(self) -> dict[str, Any]:
        layout = self._stage.layout
        flow = Flow(self._vm, self._probed, layout.address(self._probed))
        probes = Probes(self._stage.host_pids, [flow], self._stage.directory, PROBE_PPS)
        sent_before, arrived_before = self._quiet_counts()
        with contextlib.closing(probes):
            start_s = time.monotonic() + PROBE_START_S
            # It is stopped earlier.
            probes.start(start_s, start_s + 2 * PROBE_SEEN_TIMEOUT_S + self._spans.watched_s)
            self._pause(start_s - time.monotonic())
            self._await_probed()
            uplink = uplink_of(PROBE_PORT, list(self._uplinks), PROBE_SEEN_TIMEOUT_S)
            cut_s = time.monotonic()
            subprocess.run(["ip", "link", "set", self._uplinks[uplink], "down"], check=True)
            try:
                self._pause(self._spans.watched_s)
                probes.stop()
                heard = probes.finish()[flow]
                sent_after, arrived_after = self._quiet_counts()
            finally:
                subprocess.run(["ip", "link", "set", self._uplinks[uplink], "up"], check=True)
        return {
            "uplink": uplink,
            "probe_lost": lost_after(heard, cut_s),
            "probe_gap_ms": heard.longest_gap_s(cut_s) * 1000,
            # How late the probe was at worst, because the machine was busy.
            "probe_late_ms": heard.max_delay_s * 1000,
            "frames_sent": sent_after - sent_before,
            "frames_lost": sent_after - sent_before - (arrived_after - arrived_before),
        }

    def _await_probed(self) -> None:
        """Wait until the probe's receiver listens, and some of the probe has arrived."""
        table = Path(f"/proc/{self._stage.host_pids[self._probed]}/net/udp")
        deadline_s = time.monotonic() + PROBE_SEEN_TIMEOUT_S
        while PROBE_PORT not in udp_drops(table.read_text()):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"{self._probed} does not listen on UDP port {PROBE_PORT}")
            self._pause(0.01)
        self._pause(PROBED_BEFORE_S)

    def _await_uplinks(self) -> None:
        """Wait until both uplinks carry frames again."""
        deadline_s = time.monotonic() + RETURN_TIMEOUT_S
        while not self._are_uplinks_up():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the uplinks did not return in {RETURN_TIMEOUT_S:g} s")
            self._pause(0.1)
        self._pause(self._spans.returned_s)

    def _are_uplinks_up(self) -> bool:
        ovs = self._stage.ovs
        if self._contender.server_class.lag:
            ends = 2 * len(self._uplinks)
            if ovs.run("ovs-appctl", "lacp/show").count("current attached") < ends:
                return False
        if isinstance(self._contender, Unread):
            return self._contender.are_uplinks_up()
        states = [ovs.vsctl("get", "interface", one, "link_state") for one in self._uplinks]
        return all(state == "up" for state in states)

    def _open(self, first: int, end: int, per_s: float) -> float:
        """Open connections. Returns the number of connections per second."""
        begin_s = time.monotonic()
        counters = self._sender.order(open=(first, end), open_per_s=per_s)
        limit_s = begin_s + ORDER_TIMEOUT_S + 10 * (end - first) / per_s
        while counters["next"] < end:
            if time.monotonic() > limit_s:
                opened = f"{counters['next'] - first} of {end - first} connections"
                raise RuntimeError(f"the sender opened only {opened} in time")
            self._pause(0.01)
            counters = self._sender.order()
        return (end - first) / (time.monotonic() - begin_s)

    def _settle(self) -> float:
        """Wait until hardly any flow is added. Returns the time when this began."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        flows, since_s = self._datapath().flows, time.monotonic()
        while (now_s := time.monotonic()) < since_s + self._spans.settled_s:
            if now_s > deadline_s:
                break
            self._pause(LOOK_S)
            now = self._datapath().flows
            if now > flows * SETTLED_RATIO:
                flows, since_s = now, time.monotonic()
        return since_s

    def _quiet_counts(self) -> tuple[int, int]:
        """The sent and the arrived frames of kept connections; a pause makes the numbers exact."""
        self._sender.order(keep_per_s=0.0)
        sent = self._sender.order()["kept"]
        arrived = self._all_arrived()
        kept_ports = range(sender.FIRST_PORT, sender.ports(self._plan.first_new)[1])
        self._sender.order(keep_per_s=self._plan.frames_per_s)
        return sent, sum(arrived.get(port, 0) for port in kept_ports)

    def _new_arrived(self) -> int:
        """The frames of connections opened at a rate that have arrived."""
        self._sender.order(keep_per_s=0.0)
        first = sender.ports(self._plan.first_new)[1]
        arrived = sum(count for port, count in self._all_arrived().items() if port >= first)
        self._sender.order(keep_per_s=self._plan.frames_per_s)
        return arrived

    def _all_arrived(self) -> dict[int, int]:
        """The number of arrivals by port, after the last arrival."""
        deadline_s = time.monotonic() + ARRIVE_TIMEOUT_S
        before = self._arrivals.count()
        while time.monotonic() < deadline_s:
            self._pause(ARRIVE_S)
            now = self._arrivals.count()
            if now == before:
                break
            before = now
        return before

    def _costs(self) -> tuple[Datapath, dict[str, float]]:
        pids = {SWITCH: self._stage.ovs.pid(SWITCH)}
        if isinstance(self._contender, Unread):
            pids[SERVICE] = self._contender.service_pid
        cpu_s = {name: processes.cpu_s(pid) for name, pid in pids.items()}
        return self._datapath(), cpu_s

    def _between(
        self,
        before: tuple[Datapath, dict[str, float]],
        after: tuple[Datapath, dict[str, float]],
        span_s: float,
    ) -> dict[str, Any]:
        """The events of a span, and the present state of the switch."""
        return {
            "span_s": span_s,
            "flows": after[0].flows,
            "upcalls": after[0].upcalls - before[0].upcalls,
            "upcalls_lost": after[0].lost - before[0].lost,
            "cpu_s": {name: used_s - before[1][name] for name, used_s in after[1].items()},
            "switch_rss_bytes": memory(self._stage.ovs.pid(SWITCH)).rss_bytes,
        }

    def _datapath(self) -> Datapath:
        return datapath(self._stage.ovs.run("ovs-appctl", "dpctl/show"))

    def _pause(self, span_s: float) -> None:
        """Sleep.

        Raises:
            RuntimeError: the load was closed in this time.
        """
        if self._ended.wait(max(0.0, span_s)):
            raise RuntimeError("the load was closed before the end of the measurement")


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
    with _listening(uplinks) as endpoints:
        while time.monotonic() < deadline_s:
            for name, endpoint in endpoints.items():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        frame, from_ = endpoint.recvfrom(64)
                        if from_[2] == socket.PACKET_OUTGOING and frame[_UDP_PORT_AT] == wanted:
                            return name
            time.sleep(0.001)
    raise RuntimeError(f"the probe did not leave over any of {', '.join(uplinks)}")


@contextlib.contextmanager
def _listening(interfaces: Sequence[str]) -> Iterator[dict[str, socket.socket]]:
    """Sockets that receive all frames of interfaces."""
    with contextlib.ExitStack() as resources:
        found = {}
        for name in interfaces:
            one = resources.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ALL))
            )
            one.bind((name, ETH_ALL))
            one.setblocking(False)
            found[name] = one
        yield found
