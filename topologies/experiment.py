"""Experiments in a few lines: a layout, TCP streams, and the contenders to compare under them.

`topologies/examples/` has a script to copy. `one_server` builds a layout. Other layouts are the
functions of `topologies/layouts.py`, or are built with `topologies/graph/parts.py`.

Experiments need root. Each contender gets a Mininet network and an Open vSwitch of its own, which
are removed at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from topologies.compare import figures, running
from topologies.compare.contenders import by_name, unsupported_reason
from topologies.compare.figures import mean_utilization, move_times_s
from topologies.compare.run import Observed, Scenario
from topologies.graph import parts
from topologies.graph.layout import Layout, Role
from topologies.loads import pace
from topologies.loads.load import Stage
from topologies.loads.streams import Flow, StreamLoad

# Samples are too frequent for a clear line, so each point is a mean over this span.
POINT_S = 0.5
# Short writes keep the rate of a stream even within a second.
BUFFER_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class Stream:
    """A TCP stream from a VM to a client or to another VM.

    Attributes:
        mbps: its rate in Mbit/s; None sets no limit.
        begin_s: when it begins, in seconds since the start of the load.
        end_s: when it ends; None selects the end of the load.
    """

    sender: str
    mbps: float | None = None
    receiver: str = "client1"
    begin_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The observations of one contender.

    Its text is a line with the contender, the received rate, and the number of moves.

    Attributes:
        received_mbps: the mean rate of all receivers together over the whole load.
        times_s: the times of the points of `uplinks_mbps`, in seconds since the start of the load.
        uplinks_mbps: the rate of each uplink over time, in its busier direction.
        moves_s: when each move of a VM port, or of a bond's hash, was first observed.
        figures: all other figures, such as `loss_ratio`, `spread_cv` and `cpu_s`.
    """

    contender: str
    received_mbps: float
    times_s: Sequence[float]
    uplinks_mbps: Mapping[str, Sequence[float]]
    moves_s: Sequence[float]
    figures: Mapping[str, float]

    def __str__(self) -> str:
        moves = len(self.moves_s)
        return f"{self.contender}: {self.received_mbps:.1f} Mbit/s received, {moves} moves"


def one_server(uplinks_mbps: Sequence[int], vms: int, clients: int = 1) -> Layout:
    """A server with uplinks to one switch, which has the clients, named as by `parts.one_server`."""
    return parts.one_server(parts.Draft("one_server"), uplinks_mbps, vms, clients)


def compare(
    layout: Layout,
    load: Sequence[Stream],
    contenders: Sequence[str],
    *,
    seconds: float = 30.0,
    window_s: int = 3,
) -> list[Run]:
    """Run each contender once on the layout, under the same load, one after the other.

    If the layout has one server, the VMs start on the uplinks of their port numbers, also on a
    `balance-slb` bond. Open vSwitch has real-time priority, so that other programs on the machine
    do not make it lose frames.

    Args:
        layout: the network.
        load: the streams, which share a clock.
        contenders: ovs-lbt policies, Open vSwitch bonds, or `manual`. docs/policies.md and
            `ovs-lbt bench --help` list them.
        seconds: how long the load lasts.
        window_s: the time over which `load-based` averages loads. The default is a tenth of the
            documented 30 s. A bond rebalances three times in it, but at most once per second,
            the shortest interval of Open vSwitch.

    Raises:
        ValueError: a contender or an end of a stream does not exist, a contender does not support
            the layout, or a stream is not within the load.
        RuntimeError: a run failed; the message names the step.
    """
    flows = [_flow(layout, stream, seconds) for stream in load]
    for name in contenders:
        if problem := unsupported_reason(layout, by_name(name)):
            raise ValueError(f"{name} on {layout.name}: {problem}")
    scenario = Scenario(
        name=layout.name,
        what="",
        layout=layout,
        load=lambda stage: _load(stage, flows),
        contenders=tuple(contenders),
        undisturbed=True,
    )
    speed = replace(pace.ACCELERATED, window_s=window_s)
    result = running.compare(scenario, contenders, speed, repeat=1)
    if result.failures:
        raise RuntimeError("; ".join(result.failures))
    return [
        _run(layout, name, result.observed[name][0], result.figures[name][0]) for name in contenders
    ]


def _flow(layout: Layout, stream: Stream, seconds: float) -> Flow:
    receivers = [*layout.nodes(Role.CLIENT), *layout.nodes(Role.VM)]
    ends = (
        ("sender", stream.sender, layout.nodes(Role.VM)),
        ("receiver", stream.receiver, receivers),
    )
    for what, name, known in ends:
        if name not in known:
            raise ValueError(f"{what} {name} does not exist; expected {' | '.join(known)}")
    end_s = seconds if stream.end_s is None else stream.end_s
    if not 0 <= stream.begin_s < end_s <= seconds:
        found = f"the stream from {stream.sender} lasts from {stream.begin_s:g} to {end_s:g} s"
        raise ValueError(f"{found}; expected a time within 0 to {seconds:g} s")
    return Flow(
        stream.sender,
        stream.receiver,
        layout.addresses_of(stream.receiver)[0],
        end_s - stream.begin_s,
        begin_s=stream.begin_s,
        rate_bps=None if stream.mbps is None else int(stream.mbps * 1e6),
        buffer_bytes=BUFFER_BYTES,
    )


def _load(stage: Stage, flows: Sequence[Flow]) -> StreamLoad:
    """The load, with every VM on the uplink of its port number."""
    if len(stage.layout.nodes(Role.SERVER_BRIDGE)) == 1:
        stage.place_by_port_number()
    return StreamLoad(stage, flows)


def _run(layout: Layout, name: str, observed: Observed, found: figures.Figures) -> Run:
    intervals = figures.intervals(layout, observed)
    marks_s = [number * POINT_S for number in range(int(observed.load_s / POINT_S))]
    means = [mean_utilization(intervals, mark_s, mark_s + POINT_S) for mark_s in marks_s]
    points = [(mark_s, mean) for mark_s, mean in zip(marks_s, means, strict=True) if mean]
    return Run(
        contender=name,
        received_mbps=observed.outcome.throughput_bps / 1e6,
        times_s=[mark_s + POINT_S / 2 for mark_s, _ in points],
        uplinks_mbps={
            uplink: [mean[uplink] * capacity_bps / 1e6 for _, mean in points]
            for uplink, capacity_bps in figures.capacities_bps(layout).items()
        },
        moves_s=move_times_s(observed.samples),
        figures=found,
    )
