"""The bench of `vmware_lbt`: a ramp of web users that exceeds the capacity of one uplink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topologies import layouts
from topologies.compare.contenders import USUAL
from topologies.compare.expectation import Expectation, against_peers, at_most
from topologies.compare.figures import (
    Figures,
    Phase,
    Result,
    in_order,
    phases_of,
    uplink_difference,
)
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.loads.web_load import WebLoad

CONTENDERS = (*USUAL, "balance-tcp")
WEB_USERS, UNEQUAL = "web users", "unequal VMs"
# The VMs' loads in the second scenario. The uplinks can be equally loaded only if the first and the
# last VM share one. No hash of ports or addresses knows that.
WEIGHTS = (4, 3, 2, 1)
LEAST_THROUGHPUT_RATIO = 0.98
MOST_QOS_DIFFERENCE = 0.001
MOST_UPLINK_DIFFERENCE = 0.05
EXPECTED_MOVES = 2
# With the static policy, all loads share one uplink, which must cost at least this much.
LEAST_THROUGHPUT_LOST_RATIO = 0.05


def scenarios(options: Options) -> list[Scenario]:
    """The scenario of the document, and the same with VMs whose loads differ."""
    layout = layouts.vmware_lbt()
    document = layout.published
    published = {
        "steady_share_of_limit": document["total_share"],
        "qos_ratio": document["qos_ratio"],
    }
    return [
        Scenario(
            name=WEB_USERS,
            what=f"A ramp of web users on four VMs ({options.direction}).",
            layout=layout,
            load=lambda stage: WebLoad(stage, options.pace, options.direction),
            contenders=CONTENDERS,
            published={
                "manual": published,
                "load-based": {**published, "moves": document["moves"]},
            },
        ),
        Scenario(
            name=UNEQUAL,
            what="The same ramp, with loads of the four VMs in proportion to"
            f" {', '.join(map(str, WEIGHTS))} ({options.direction}).",
            layout=layout,
            load=lambda stage: WebLoad(stage, options.pace, options.direction, WEIGHTS),
            contenders=CONTENDERS,
        ),
    ]


def phases(options: Options, result: Result) -> list[Phase]:
    """The phases of the first run of `load-based`. Empty if it did not run, or VMs are unequal."""
    if result.scenario.name != WEB_USERS or "load-based" not in result.observed:
        return []
    first = result.observed["load-based"][0]
    return phases_of(result.scenario.layout, first, options.pace.ramp_s)


def expectations(options: Options, results: Sequence[Result]) -> list[Expectation]:
    """The document's results, and the comparison with the peers."""
    found: list[Expectation] = []
    for result in results:
        contenders = result.medians()
        if result.scenario.name == WEB_USERS:
            found += check(contenders, phases(options, result), options.pace.least_downloads)
        found += against_peers(result.scenario.name, contenders)
    return found


def check(
    contenders: Mapping[str, Figures], phases: Sequence[Phase], least_downloads: int
) -> list[Expectation]:
    """The conditions for which the needed contenders ran."""
    found: list[Expectation] = []
    ours = contenders.get("load-based")
    manual = contenders.get("manual")
    static = contenders.get("originating-port")
    if ours is not None:
        names = ", ".join(f"{p.name} from {p.start_s:.1f} s" for p in phases)
        found.append(Expectation("four phases in order", names, in_order(phases)))
        moves = round(ours["moves"])
        condition = f"exactly {EXPECTED_MOVES} moves"
        found.append(Expectation(condition, str(moves), moves == EXPECTED_MOVES))
        difference = uplink_difference(phases[-1].uplink_utilization if phases else {})
        condition = f"uplinks within {MOST_UPLINK_DIFFERENCE:.0%} of each other in phase 4"
        found.append(at_most(condition, difference, MOST_UPLINK_DIFFERENCE, "{:.1%}"))
    if ours is not None and manual is not None:
        ratio = ours["throughput_bps"] / manual["throughput_bps"]
        condition = f"load-based: at least {LEAST_THROUGHPUT_RATIO} of manual's throughput"
        found.append(Expectation(condition, f"{ratio:.4f}", ratio >= LEAST_THROUGHPUT_RATIO))
        if "qos_ratio" in ours and "qos_ratio" in manual:
            condition = "load-based: quality of service within 0.1 point of manual's"
            both = f"{ours['qos_ratio']:.2%} and {manual['qos_ratio']:.2%}"
            worse = manual["qos_ratio"] - ours["qos_ratio"]
            found.append(Expectation(condition, both, worse <= MOST_QOS_DIFFERENCE))
    if static is not None and manual is not None:
        ratio = static["throughput_bps"] / manual["throughput_bps"]
        condition = "originating-port: visibly worse, because all loads share one uplink"
        shown = f"{{:.4f}} of manual's throughput, quality {static.get('qos_ratio', 0):.2%}"
        found.append(at_most(condition, ratio, 1 - LEAST_THROUGHPUT_LOST_RATIO, shown))
    if least_downloads and contenders:
        fewest = round(min(one["downloads"] for one in contenders.values()))
        condition = f"at least {least_downloads} downloads for each contender"
        found.append(Expectation(condition, str(fewest), fewest >= least_downloads))
    return found


PLAN = Plan(scenarios, expectations, campaign_runs=5)
