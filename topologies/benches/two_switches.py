"""The bench of `two_switches`: one of two independent switches fails under a steady load."""

from __future__ import annotations

from collections.abc import Sequence

from topologies import layouts
from topologies.compare.contenders import USUAL
from topologies.compare.expectation import Expectation, against_peers, at_most, is_ours, none
from topologies.compare.figures import Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Role
from topologies.loads.load import Load, Stage
from topologies.loads.outage_load import OutageLoad
from topologies.loads.streams import equal_flows

CONTENDERS = USUAL
# The total load as a share of both uplinks. One uplink can carry it.
OFFERED_RATIO = 0.4
MOST_FAILOVER_MS = 1000


def scenarios(options: Options) -> list[Scenario]:
    """One scenario, in which a switch fails and recovers."""
    return [
        Scenario(
            name="a switch fails",
            what="Every VM offers the same load, and one uplink can carry all of it. A switch"
            " fails and recovers.",
            layout=layouts.two_switches(),
            load=lambda stage: _load(stage, options),
            contenders=CONTENDERS,
        )
    ]


def _load(stage: Stage, options: Options) -> Load:
    layout = stage.layout
    fails_s, returns_s, end_s = options.pace.outage_s
    flows = equal_flows(layout, OFFERED_RATIO, end_s)
    failing = layout.far_end(layout.nodes(Role.UPLINK)[0])
    return OutageLoad(stage, flows, failing, fails_s=fails_s, returns_s=returns_s)


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """No duplicates, a short failover, and the comparison with the peers."""
    (result,) = results
    return [
        *survived("", "switch", result),
        *against_peers(result.scenario.name, result.medians()),
    ]


def survived(prefix: str, failed: str, result: Result) -> list[Expectation]:
    """No duplicates and a short failover with our policies. The worst run counts, not the median."""
    found = []
    for name in filter(is_ours, result.figures):
        twice = sum(run["probe_duplicated"] for run in result.figures[name])
        found.append(none(f"{prefix}{name}: no duplicates", {"": twice}))
        failover_ms = max(run["failover_ms"] for run in result.figures[name])
        condition = f"{prefix}{name}: a failed {failed} interrupts no VM for more than {MOST_FAILOVER_MS} ms"
        found.append(at_most(condition, failover_ms, MOST_FAILOVER_MS, "at most {:.0f} ms"))
    return found


PLAN = Plan(scenarios, expectations, campaign_runs=5)
