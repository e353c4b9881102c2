"""Builds fake observations of runs with given utilizations of the uplinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from topologies.compare.contenders import MANUAL
from topologies.compare.figures import (
    Figures,
    PerRun,
    Result,
    figures,
    nothing_more,
    with_cpu_ratio,
)
from topologies.compare.run import Observed, Sample, Scenario
from topologies.graph.layout import Layout, Role
from topologies.loads.load import Outcome

LOAD_S = 20
MEASURED_S = (5.0, 15.0)
# The uplinks' utilization in the second that ends at a time.
Shares = Callable[[float], Mapping[str, float]]


def samples(layout: Layout, load_s: int, shares: Shares, moves_s: Sequence[float]) -> list[Sample]:
    """A sample each second. The received bytes are a fiftieth of the sent ones."""
    sent = dict.fromkeys(layout.nodes(Role.UPLINK), 0.0)
    found = []
    for at_s in range(load_s + 1):
        for uplink, share in shares(float(at_s)).items() if at_s else ():
            sent[uplink] += share * layout.capacity_bps(uplink) / 8
        found.append(
            Sample(
                at_s=float(at_s),
                sent_bytes={uplink: int(count) for uplink, count in sent.items()},
                received_bytes={uplink: int(count / 50) for uplink, count in sent.items()},
                moves=sum(at_s > move_s for move_s in moves_s),
            )
        )
    return found


def observed(
    layout: Layout,
    contender: str,
    shares: Mapping[str, float],
    *,
    scenario: str = "scenario",
    throughput_bps: float = 100e6,
    measured: Mapping[str, float] | None = None,
    cpu_s: float = 10.0,
) -> Observed:
    """A run with a constant utilization of each uplink, which is 0 for those not named."""
    return Observed(
        scenario=scenario,
        contender=contender,
        samples=samples(layout, LOAD_S, lambda _: shares, []),
        outcome=Outcome(int(throughput_bps / 8 * LOAD_S), throughput_bps, measured or {}),
        load_s=LOAD_S,
        measured_s=MEASURED_S,
        steady_s=MEASURED_S,
        cpu_s={"ovs-vswitchd": cpu_s},
        entered_packets=1000,
        delivered_packets=1000,
    )


def result(scenario: Scenario, runs: Iterable[Observed], per_run: PerRun = nothing_more) -> Result:
    """The result of a scenario with one run for each contender, and the figures of a bench."""
    ran = {one.contender: one for one in runs}
    found: Mapping[str, Figures] = {
        name: figures(scenario.layout, one) for name, one in ran.items()
    }
    found = {name: one | per_run(scenario.layout, ran[name], one) for name, one in found.items()}
    found = with_cpu_ratio(found, MANUAL)
    return Result(
        scenario,
        {name: [one] for name, one in found.items()},
        {name: [one] for name, one in ran.items()},
    )
