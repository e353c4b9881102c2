"""TCP streams between end systems, run by iperf3, also while a switch or a link fails and returns.

The documents' `ntttcp -m 8,* -l 128k -t 15 -wu 5 -cd 5` runs eight streams with buffers of 128 KB.
It measures 15 s at the receiver, after 5 s of warm-up and before 5 s of cool-down.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from topologies.graph.layout import Layout, Role
from topologies.graph.ports import joining_interface, upstream_interface
from topologies.loads import probing
from topologies.loads.load import Load, Outcome, Stage, set_links
from topologies.loads.pace import Pace

FIRST_PORT = 5201
LISTEN_TIMEOUT_S = 10.0
# Time to start all senders before the first flow begins.
READY_S = 0.5
END_TIMEOUT_S = 10.0
# The length of an interval in the reports.
INTERVAL_S = 0.5
# Reports have gaps of a few milliseconds between intervals.
MIN_COVERED_RATIO = 0.95
CONNECT_TIMEOUT_MS = 3000
# Probes begin this much later than flows.
PROBES_DELAY_S = 1.0
# iperf3's report of a flow.
Report = Mapping[str, Any]
# Computes further figures from all reports and the throughput of the measured part.
Derive = Callable[[Sequence[Report], float], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Flow:
    """One or more TCP streams from one end system to an address of another.

    Attributes:
        begin_s: when the flow begins, in seconds since the start of the load.
        duration_s: how long the flow sends.
        rate_bps: the maximum rate of each stream; None sets no limit. The kernel paces the
            stream and does not catch up on delays.
    """

    sender: str
    receiver: str
    address: str
    duration_s: float
    streams: int = 1
    begin_s: float = 0.0
    rate_bps: int | None = None
    buffer_bytes: int = 128 * 1024

    def receiver_command(self, port: int) -> list[str]:
        """The receiver's command. It ends after one test and prints its report."""
        return [
            *("iperf3", "--server", "--one-off", "--json"),
            *("--interval", str(INTERVAL_S), "--port", str(port)),
        ]

    def sender_command(self, port: int) -> list[str]:
        """The sender's command. The receiver must listen before it starts."""
        rate = [] if self.rate_bps is None else ["--fq-rate", str(self.rate_bps)]
        return [
            *("iperf3", "--client", self.address, "--port", str(port), "--json"),
            *("--connect-timeout", str(CONNECT_TIMEOUT_MS)),
            *("--parallel", str(self.streams), "--length", str(self.buffer_bytes), *rate),
            *("--time", f"{self.duration_s:g}", "--interval", str(INTERVAL_S)),
        ]


def flow(layout: Layout, sender: str, receiver: str, duration_s: float, **more: Any) -> Flow:
    """A flow to the first address of its receiver; `more` has other attributes of the flow."""
    return Flow(sender, receiver, layout.addresses_of(receiver)[0], duration_s, **more)


def paced_flows(
    layout: Layout,
    offered_ratio: float,
    duration_s: float,
    weights: Sequence[float] = (),
    pairs: Sequence[tuple[str, str]] = (),
) -> list[Flow]:
    """One flow for each pair of a sender and a receiver, with rates in proportion to `weights`.

    The flows together offer `offered_ratio` of the capacity of the senders' uplinks. Without `weights`, all
    rates are the same. Without `pairs`, every VM sends to a client, and the clients take turns.

    Raises:
        ValueError: there are more or fewer weights than pairs.
    """
    clients = itertools.cycle(layout.nodes(Role.CLIENT))
    pairs = pairs or [(vm, next(clients)) for vm in layout.nodes(Role.VM)]
    weights = weights or [1.0] * len(pairs)
    vnics = {vnic for sender, _ in pairs for vnic in layout.vnics_of(sender)}
    servers = {layout.server_of(vnic) for vnic in vnics}
    uplinks = [uplink for server in servers for uplink in layout.uplinks_of(server)]
    capacity_bps = sum(layout.capacity_bps(uplink) for uplink in uplinks)
    return [
        flow(
            *(layout, *ends, duration_s),
            rate_bps=int(offered_ratio * capacity_bps * weight / sum(weights)),
            # Short writes keep the rate of a stream even within a second.
            buffer_bytes=8 * 1024,
        )
        for ends, weight in zip(pairs, weights, strict=True)
    ]


def stream_rates_bps(report: Report, streams: int, from_s: float, to_s: float) -> list[float]:
    """The rate of each stream in a span of the test, in the order of iperf3's report.

    An interval across an edge of the span counts in proportion to its part in the span.

    Raises:
        RuntimeError: the test failed, or a stream is missing or does not cover the span.
    """
    if "error" in report:
        raise RuntimeError(f"iperf3 with {streams} streams failed: {report['error']}")
    bits: dict[int, float] = {}
    covered_s: dict[int, float] = {}
    for one in (one for interval in report["intervals"] for one in interval["streams"]):
        lasted_s = one["end"] - one["start"]
        within_s = max(0.0, min(one["end"], to_s) - max(one["start"], from_s))
        share = within_s / lasted_s if lasted_s > 0 else 0.0
        bits[one["socket"]] = bits.get(one["socket"], 0.0) + one["bytes"] * 8 * share
        covered_s[one["socket"]] = covered_s.get(one["socket"], 0.0) + within_s
    if len(bits) != streams:
        raise RuntimeError(f"iperf3 reported {len(bits)} of {streams} streams")
    shortest_s = min(covered_s.values())
    if shortest_s < MIN_COVERED_RATIO * (to_s - from_s):
        raise RuntimeError(f"iperf3 measured only {shortest_s:.1f} s of {to_s - from_s:g} s")
    return [carried / covered_s[socket] for socket, carried in bits.items()]


def received_bytes(report: Report) -> int:
    """The total of all streams in a receiver's report."""
    return sum(one["bytes"] for part in report.get("intervals", []) for one in part["streams"])


class StreamLoad(Load):
    """Runs flows, each with its own sender and receiver process.

    `measured_s` is a part of the load in which every flow sends.

    `derive` computes further figures. With `both_ways`, the second half of the flows are those of the other
    direction, and the throughput is the mean of both. With `may_fail`, a flow that cannot connect or loses its
    connection counts as a flow without traffic, and its report is empty; otherwise it is an error.
    """

    def __init__(
        self,
        stage: Stage,
        flows: Sequence[Flow],
        measured_s: tuple[float, float],
        *,
        derive: Derive | None = None,
        both_ways: bool = False,
        may_fail: bool = False,
    ) -> None:
        super().__init__(stage)
        self._flows = list(flows)
        self._derive = derive
        self._both_ways = both_ways
        self._may_fail = may_fail
        self.load_s = max(flow.begin_s + flow.duration_s for flow in flows)
        self.measured_s = self.steady_s = measured_s
        self._programs = self._programs_of("iperf3")

    def start(self) -> None:
        """Start all programs. Each sender waits until its flow begins."""
        pids = self._stage.host_pids
        for port, flow in enumerate(self._flows, start=FIRST_PORT):
            self._programs.start_in(pids[flow.receiver], f"to-{port}", flow.receiver_command(port))
        for port, flow in enumerate(self._flows, start=FIRST_PORT):
            self._await_listening(flow.receiver, port)
        self.start_s = time.monotonic() + READY_S
        for port, flow in enumerate(self._flows, start=FIRST_PORT):
            wait_s = max(0.0, self.start_s + flow.begin_s - time.monotonic())
            command = ["sh", "-c", f'sleep {wait_s:.3f}; exec "$@"', "sh"]
            command += flow.sender_command(port)
            self._programs.start_in(pids[flow.sender], f"from-{port}", command)

    def finish(self) -> Outcome:
        """Wait for all flows. `details` has each stream's rate in the measured part."""
        reports = [self._report(port) for port, _ in enumerate(self._flows, start=FIRST_PORT)]
        rates_bps = [
            self._rates_bps(flow, report) for flow, report in zip(self._flows, reports, strict=True)
        ]
        streams_bps = [rate_bps for flow in rates_bps for rate_bps in flow]
        received = sum(map(received_bytes, reports))
        throughput_bps = sum(streams_bps)
        mean_bps = statistics.fmean(streams_bps)
        figures: dict[str, float] = {"stream_mean_bps": mean_bps}
        if len(streams_bps) > 1:
            stdev_bps = statistics.stdev(streams_bps)
            figures["stream_stdev_bps"] = stdev_bps
            figures["stream_cv"] = stdev_bps / mean_bps if mean_bps else 0.0
        if self._both_ways:
            half = len(rates_bps) // 2
            figures["sent_bps"] = sum(map(sum, rates_bps[:half]))
            figures["received_bps"] = sum(map(sum, rates_bps[half:]))
            throughput_bps /= 2
        if self._derive is not None:
            figures |= self._derive(reports, throughput_bps)
        details = {"stream_rates_bps": rates_bps}
        return Outcome(received, throughput_bps, figures, details)

    def _rates_bps(self, flow: Flow, report: Report) -> list[float]:
        """Each stream's rate in the measured part of the load."""
        if not report and self._may_fail:
            return [0.0] * flow.streams
        from_s, to_s = (at_s - flow.begin_s for at_s in self.measured_s)
        return stream_rates_bps(report, flow.streams, from_s, to_s)

    def _report(self, port: int) -> Report:
        """The report of a flow; empty if the flow failed and may fail."""
        try:
            report: Report = self._programs.results(f"to-{port}", self._left_s() + END_TIMEOUT_S)
            if "error" in report:
                raise RuntimeError(report["error"])
        except (RuntimeError, ValueError) as failure:
            if self._may_fail:
                return {}
            flow = self._flows[port - FIRST_PORT]
            said = self._programs.said(f"from-{port}")
            text = f"iperf3 from {flow.sender} to {flow.receiver} failed: {failure}; sender: {said}"
            raise RuntimeError(text) from None
        return report

    def _await_listening(self, receiver: str, port: int) -> None:
        net = Path(f"/proc/{self._stage.host_pids[receiver]}/net")
        self._await(
            lambda: any(_listens(net / table, port) for table in ("tcp", "tcp6")),
            LISTEN_TIMEOUT_S,
            lambda: f"iperf3 on {receiver} does not listen on port {port}",
            0.02,
        )


def _listens(table: Path, port: int) -> bool:
    """Whether a socket in the kernel's TCP table listens on the port."""
    rows = (line.split() for line in table.read_text().splitlines()[1:])
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def streams_between(
    stage: Stage,
    ends: Sequence[tuple[str, str]],
    times_s: tuple[float, float, float],
    count: int,
    may_fail: bool = False,
) -> StreamLoad:
    """This number of streams from each sender to its receiver: warm-up, measured part, cool-down."""
    warm_up_s, measured_s, _ = times_s
    flows = [flow(stage.layout, *both, sum(times_s), streams=count) for both in ends]
    return StreamLoad(stage, flows, (warm_up_s, warm_up_s + measured_s), may_fail=may_fail)


def settled_streams(
    stage: Stage,
    pace: Pace,
    offered_ratio: float,
    weights: Sequence[float],
    pairs: Sequence[tuple[str, str]] = (),
) -> StreamLoad:
    """The flows of `paced_flows`, measured when the team has had time to settle."""
    settle_s, measured_s = pace.settling_s
    end_s = settle_s + measured_s
    flows = paced_flows(stage.layout, offered_ratio, end_s + 1, weights, pairs)
    return StreamLoad(stage, flows, (settle_s, end_s))


class OutageLoad(StreamLoad):
    """The flows of `paced_flows`, and probes in both directions, while links go down and up.

    `failing`: the switch whose links fail, or the only uplink that fails. `pace` has the times.
    """

    def __init__(
        self,
        stage: Stage,
        offered_ratio: float,
        failing: str,
        pace: Pace,
        pairs: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._fails_s, self._returns_s, end_s = pace.outage_s
        flows = paced_flows(stage.layout, offered_ratio, end_s, pairs=pairs)
        super().__init__(stage, flows, (1.0, end_s - 1), may_fail=True)
        self._links = interfaces_of(stage.layout, stage.prefix, failing)
        self.steady_s = (1.0, self._fails_s)
        probes = []
        for flow in flows:
            probes.append(probing.Flow(flow.sender, flow.receiver, flow.address))
            back = _address(stage.layout, flow.sender)
            probes.append(probing.Flow(flow.receiver, flow.sender, back))
        self._probes = probing.Datagrams(self._programs_of("probes"), stage.host_pids, probes)

    def start(self) -> None:
        """Start the flows and the probes, and let the links go down and up."""
        super().start()
        self._probes.start(self.start_s + PROBES_DELAY_S, self.start_s + self.load_s)
        self._run(self._fail)

    def finish(self) -> Outcome:
        """`failover_ms` and `failback_ms` are the longest gaps of any probe flow."""
        self._join("links", self._left_s() + probing.END_TIMEOUT_S)
        outcome = super().finish()
        results = list(self._probes.finish().values())
        fails_s, returns_s = self.start_s + self._fails_s, self.start_s + self._returns_s
        end_s = self.start_s + self.load_s - 1
        failover_end_s = fails_s + 2 / 3 * (returns_s - fails_s)
        failover_s = [one.longest_gap_s(fails_s, failover_end_s) for one in results]
        failback_s = [one.longest_gap_s(returns_s, end_s) for one in results]
        figures = {
            **outcome.figures,
            **probing.figures(results),
            "failover_ms": max(failover_s) * 1000,
            "failback_ms": max(failback_s) * 1000,
        }
        return replace(outcome, figures=figures)

    def _fail(self) -> None:
        self._pause_until(self._fails_s)
        set_links(self._links, "down")
        self._pause_until(self._returns_s)
        set_links(self._links, "up")


def interfaces_of(layout: Layout, prefix: str, failing: str) -> list[str]:
    """The upstream ends of an uplink's link, or of all links of a switch."""
    if layout.attributes(failing)["role"] == Role.UPLINK:
        return [upstream_interface(layout, prefix, failing)]
    return [
        upstream_interface(layout, prefix, node)
        if layout.attributes(node)["role"] == Role.UPLINK
        else joining_interface(layout, prefix, failing, node)
        for node in layout.graph.adj[failing]
    ]


def _address(layout: Layout, vm: str) -> str:
    """An address of a VM. Its vNIC may carry none of the load that was published."""
    loaded = layout.addresses_of(vm)
    return loaded[0] if loaded else layout.address(layout.vnics_of(vm)[0])
