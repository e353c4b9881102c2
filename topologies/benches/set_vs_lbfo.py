"""The bench of `set_vs_lbfo`: eight streams from a VM to a VM on the other host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topologies import layouts
from topologies.compare.expectation import Expectation, against_peers, within
from topologies.compare.figures import Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout, Role
from topologies.loads.load import Load, Stage
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import flow

CONTENDERS = (
    "manual",
    "originating-port",
    "load-based",
    "adaptive",
    "dynamic",
    "set",
    "dynamic/lacp",
    "address-hash",
    "active-backup",
    "balance-slb",
    "balance-tcp",
)
# The contenders that reproduce each of the document's modes.
MODES = {
    "LACP": ("dynamic/lacp", "balance-tcp"),
    "switch independent": ("dynamic",),
    "SET": ("set",),
}
STREAMS = 8
# The allowed deviation from the published share.
MOST_DEVIATION_RATIO = 0.05


def scenarios(options: Options) -> list[Scenario]:
    """One scenario with the eight threads of NTttcp."""
    layout = layouts.set_vs_lbfo()
    return [
        Scenario(
            name="eight streams",
            what="Eight TCP streams of one VM to a VM of the other host, as NTttcp sends them.",
            layout=layout,
            load=lambda stage: _load(stage, options),
            contenders=CONTENDERS,
            published=_published(layout),
        )
    ]


def _load(stage: Stage, options: Options) -> Load:
    layout = stage.layout
    (sender,), (receiver,) = layout.senders, layout.receivers
    warm_up_s, measured_s, cool_down_s = options.pace.streams_s
    duration_s = warm_up_s + measured_s + cool_down_s
    flows = [flow(layout, sender, receiver, duration_s, streams=STREAMS)]
    return StreamLoad(stage, flows, (warm_up_s, warm_up_s + measured_s))


def _published(layout: Layout) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for mode in layout.published["modes"]:
        figures = {"share_of_link": mode["total_share"], "stream_cv": mode["stream_cv"]}
        found |= dict.fromkeys(MODES[mode["name"]], figures)
    return found


def derived(results: Sequence[Result]) -> dict[str, dict[str, dict[str, float]]]:
    """The throughput as a share of one link, like the document's totals."""
    (result,) = results
    layout = result.scenario.layout
    link_bps = layout.capacity_bps(layout.nodes(Role.UPLINK)[0])
    return {
        result.scenario.name: {
            name: {"share_of_link": one["throughput_bps"] / link_bps}
            for name, one in result.medians().items()
        }
    }


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """The published totals, and the comparison with the peers."""
    (result,) = results
    contenders = result.medians()
    published: Mapping[str, Mapping[str, float]] = result.scenario.published
    found = [
        within(
            f"{name}: total as a share of a link, within 5 % of the published {share:.3f}",
            contenders[name]["share_of_link"],
            share * (1 - MOST_DEVIATION_RATIO),
            share * (1 + MOST_DEVIATION_RATIO),
        )
        for name, share in ((n, one["share_of_link"]) for n, one in published.items())
        if name in contenders
    ]
    return [*found, *against_peers(result.scenario.name, contenders)]


PLAN = Plan(scenarios, expectations, derived)
