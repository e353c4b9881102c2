"""TCP streams: iperf3's command lines and reports.

The documents' `ntttcp -m 8,* -l 128k -t 15 -wu 5 -cd 5` runs eight streams with buffers of 128 KB.
It measures 15 s at the receiver, after 5 s of warm-up and before 5 s of cool-down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.graph.layout import Layout, Role

# The length of an interval in the reports.
INTERVAL_S = 0.5
# Reports have gaps of a few milliseconds between intervals.
MIN_COVERED_RATIO = 0.95
CONNECT_TIMEOUT_MS = 3000
# iperf3's report of a flow.
Report = Mapping[str, Any]


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


def flow(
    layout: Layout,
    sender: str,
    receiver: str,
    duration_s: float,
    *,
    streams: int = 1,
    begin_s: float = 0.0,
    rate_bps: int | None = None,
) -> Flow:
    """A flow to the first address of its receiver."""
    address = layout.addresses_of(receiver)[0]
    return Flow(sender, receiver, address, duration_s, streams, begin_s, rate_bps)


def equal_flows(layout: Layout, offered_ratio: float, duration_s: float) -> list[Flow]:
    """One flow from every VM to a client, all with the same rate. See `weighted_flows`."""
    return weighted_flows(layout, offered_ratio, duration_s, [1.0] * len(layout.nodes(Role.VM)))


def weighted_flows(
    layout: Layout, offered_ratio: float, duration_s: float, weights: Sequence[float]
) -> list[Flow]:
    """One flow from every VM to a client, with rates in proportion to `weights`, one for each VM.

    The clients take turns. The flows together offer `offered_ratio` of the uplinks' capacity.

    Raises:
        ValueError: there are more or fewer weights than VMs.
    """
    vms, clients = layout.nodes(Role.VM), layout.nodes(Role.CLIENT)
    pairs = [(vm, clients[number % len(clients)]) for number, vm in enumerate(vms)]
    return paced_flows(layout, pairs, offered_ratio, duration_s, weights)


def paced_flows(
    layout: Layout,
    pairs: Sequence[tuple[str, str]],
    offered_ratio: float,
    duration_s: float,
    weights: Sequence[float],
) -> list[Flow]:
    """One flow for each pair of a sender and a receiver, with rates in proportion to `weights`.

    The flows together offer `offered_ratio` of the capacity of the senders' uplinks.

    Raises:
        ValueError: there are more or fewer weights than pairs.
    """
    vnics = {vnic for sender, _ in pairs for vnic in layout.vnics_of(sender)}
    servers = sorted({layout.server_of(vnic) for vnic in vnics})
    uplinks = [uplink for server in servers for uplink in layout.uplinks_of(server)]
    capacity_bps = sum(layout.capacity_bps(uplink) for uplink in uplinks)
    return [
        Flow(
            sender=sender,
            receiver=receiver,
            address=layout.addresses_of(receiver)[0],
            duration_s=duration_s,
            rate_bps=int(offered_ratio * capacity_bps * weight / sum(weights)),
            # Short writes keep the rate of a stream even within a second.
            buffer_bytes=8 * 1024,
        )
        for (sender, receiver), weight in zip(pairs, weights, strict=True)
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
