"""The bench of `spine_leaf`: unequal loads between racks, and a leaf switch that fails."""

from __future__ import annotations

from collections.abc import Sequence

from topologies import layouts
from topologies.benches.two_switches import survived
from topologies.compare.contenders import USUAL
from topologies.compare.expectation import Expectation, against_peers
from topologies.compare.figures import Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout
from topologies.loads.load import Load, Stage
from topologies.loads.outage_load import OutageLoad
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow, paced_flows

CONTENDERS = USUAL
# The total load as a share of a server's uplinks. While a leaf switch is down, one uplink can carry it.
UNEQUAL_RATIO, FAILURE_RATIO = 0.7, 0.4
# The loads of the VMs relative to each other. Manual placement puts two of them on each uplink.
WEIGHTS = (4.0, 3.0, 2.0, 1.0)
UNEQUAL, FAILURE = "unequal VMs", "a leaf switch fails"


def scenarios(options: Options) -> list[Scenario]:
    """Steady loads from the VMs of one rack to those of the other, without and with a failure."""
    layout = layouts.spine_leaf()
    shares = ", ".join(f"{one:g}" for one in WEIGHTS)
    return [
        Scenario(
            name=UNEQUAL,
            what=f"Each VM of the first rack sends to one of the second, in proportion to {shares}, in"
            f" total {UNEQUAL_RATIO:.0%} of a server's uplinks.",
            layout=layout,
            load=lambda stage: _unequal(stage, options),
            contenders=CONTENDERS,
        ),
        Scenario(
            name=FAILURE,
            what="Each VM of the first rack sends the same load to one of the second, and one uplink can"
            " carry all of it. A leaf switch of the first rack fails and recovers.",
            layout=layout,
            load=lambda stage: _failure(stage, options),
            contenders=CONTENDERS,
        ),
    ]


def _unequal(stage: Stage, options: Options) -> Load:
    settle_s, measured_s = options.pace.settling_s
    flows = _flows(stage.layout, UNEQUAL_RATIO, settle_s + measured_s + 1, WEIGHTS)
    return StreamLoad(stage, flows, (settle_s, settle_s + measured_s))


def _failure(stage: Stage, options: Options) -> Load:
    layout = stage.layout
    fails_s, returns_s, end_s = options.pace.outage_s
    flows = _flows(layout, FAILURE_RATIO, end_s, [1.0] * len(layout.senders))
    failing = layout.far_end(layout.sending_uplinks()[0])
    return OutageLoad(stage, flows, failing, fails_s=fails_s, returns_s=returns_s)


def _flows(
    layout: Layout, offered_ratio: float, duration_s: float, weights: Sequence[float]
) -> list[Flow]:
    """A flow from each VM of the first rack to the VM of the second that has the same place."""
    pairs = list(zip(layout.senders, layout.receivers, strict=True))
    return paced_flows(layout, pairs, offered_ratio, duration_s, weights)


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """No duplicates and short failovers, and the comparison with the peers."""
    found: list[Expectation] = []
    for result in results:
        name = result.scenario.name
        if name == FAILURE:
            found += survived(f"{name}, ", "leaf switch", result)
        found += against_peers(name, result.medians())
    return found


PLAN = Plan(scenarios, expectations, campaign_runs=5)
