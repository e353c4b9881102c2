"""Generates the parts of docs/benchmarks.md. All figures are from the reports."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.reports import comparison, markdown
from topologies.reports.comparison import MOST_DEVIATION_RATIO, Pair
from topologies.reports.known_figures import figure, percent
from topologies.reports.markdown import VARIANTS, bullets, code, plain, report_name, table, variants
from topologies.reports.table import phases_table
from topologies.seeds.jumps import NAME as SHIFT_SEEDS
from topologies.seeds.plan import pooled

Report = Mapping[str, Any]
VMWARE = "vmware_lbt"
OTHERS = {
    SHIFT_SEEDS: "Load jumps that are generated from seeds",
    "scale": "The cost of 1 to 300 bridges on one service",
    "connections": "The cost of many connections, and failovers with them",
}

METHOD = """\
> **Method.** Mininet connects the hosts on one machine with {cpus} CPUs. All switches are bridges of one Open vSwitch
> {version} with its userspace datapath. Most uplinks are shaped to {mbps:.0f} Mbit/s. No frame crosses a physical network
> card.
>
> **What should carry over to 10 Gbit/s (not measured):** which VM ports move and when, how evenly uplinks are used,
> and shares of the link speed. These follow from counters, intervals and hashes, and not from rates.
> **What does not carry over:** rates, CPU time, and the duration of a failover, which depends on the datapath and the
> network card. A loss during a jump also depends on the queues."""

READING = f"""\
## How to read the tables

- Figures are medians of n runs. Ranges are those of the runs. An empty cell was not measured.
- A peer is an Open vSwitch bond or manual placement (`manual`). `balance-slb` rebalances every 10 s, and
  `balance-slb/1s` every second. `/lacp` is a policy on a LAG. `oracle` knows all flows in advance.
- The limit is the maximum flow through the layout.
- CV is the coefficient of variation, the standard deviation over the mean. 0 is even.
- CPU time per bit includes Open vSwitch and the service, relative to `manual`.
- The published figure follows after a slash. It matches a figure within {percent(MOST_DEVIATION_RATIO)} of it.
- Tables have the columns in which contenders differ most. Each page links the file with all figures.

Pages name the commits of the runs. `git log COMMIT.. -- policies controller/dataplane` shows later changes.
[commits.txt](results/commits.txt) maps commits that were rebased.
"""

REPEATING = """\
## Repeat the benchmarks

`ovs-lbt bench NAME --repeat campaign` repeats a layout's benchmark and writes `report.md`, which lists the figures that
differ from the published runs. `make bench` repeats all of them. [CONTRIBUTING](../CONTRIBUTING.md#run-benchmarks)
has the options."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the first table: figures of a scenario, as (report, scenario, figure)."""

    setting: str
    figures: tuple[tuple[str, str, str], ...]
    ours: tuple[str, ...] = ("adaptive",)
    bonds: tuple[str, ...] = ("balance-slb",)


CLAIMS = (
    Claim(
        "The VMs of one uplink start to send more than it can carry"
        " ([one jump](benchmarks/shift.md), [generated jumps](benchmarks/shift_seeds.md))",
        (
            *(("shift", "load jump", name) for name in ("settle_s", "loss_ratio")),
            (SHIFT_SEEDS, SHIFT_SEEDS, "loss_ratio"),
        ),
        bonds=("balance-slb", "balance-slb/1s"),
    ),
    Claim(
        "One uplink is ten times as fast as the other, equal VMs"
        " ([mixed_speed](benchmarks/mixed_speed.md))",
        (("mixed_speed", "equal loads", "throughput_bps"),),
        ("load-based", "adaptive"),
    ),
    Claim(
        "Web search requests, uplinks almost full; slowdown over an idle uplink"
        " ([flows](benchmarks/flows.md))",
        (("flows", "web search, 90%", "slowdown_p99"),),
        ("dynamic", "adaptive"),
    ),
    Claim(
        "One VM, eight TCP streams, no LAG; its peer receives on one uplink"
        " ([set_vs_lbfo](benchmarks/set_vs_lbfo.md))",
        tuple(("set_vs_lbfo", "eight streams", name) for name in ("spread_cv", "throughput_bps")),
    ),
    Claim(
        "An uplink's switch fails; silence, and frames of all probes lost"
        " ([two_switches](benchmarks/two_switches.md))",
        tuple(("two_switches", "a switch fails", name) for name in ("failover_ms", "probe_lost")),
        ("load-based", "adaptive"),
    ),
)


def parts(layouts: Sequence[Report], others: Mapping[str, Report]) -> list[str]:
    """The parts of the page, from the reports of layouts and the other reports by name."""
    known = {report_name(one): one for one in layouts}
    by_name = {**known, **others}
    found = ["# Benchmarks", _method(layouts)]
    rows = [[one.setting, *_cells(one, by_name)] for one in CLAIMS if _has(one, by_name)]
    if rows:
        found += ["## Main results", table(["setting", "figure", "ovs-lbt", "bond"], rows, left=4)]
    if phases := phases_table(known.get(VMWARE, {})):
        about = "`load-based` repeats the four phases of VMware's published benchmark (n = 1):"
        found += [f"{about} [{VMWARE}](benchmarks/{VMWARE}.md).", phases]
    found += [_where_a_peer_is_better(layouts), _layouts(layouts, others), READING, REPEATING]
    return found


def _method(layouts: Sequence[Report]) -> str:
    environment = layouts[0]["environment"] if layouts else {}
    speeds = [
        bps
        for report in layouts
        for scenario in report["scenarios"]
        for bps in scenario.get("uplinks", {}).values()
    ]
    return METHOD.format(
        cpus=environment.get("cpus", ""),
        version=str(environment.get("open_vswitch", "")).rpartition(" ")[2],
        mbps=statistics.mode(speeds or [0]) / 1e6,
    )


def _scenario(report: Report, name: str) -> Mapping[str, Any]:
    """The contenders of a scenario with their runs."""
    if name == SHIFT_SEEDS:
        return pooled(report) if report else {}
    found = {one["name"]: one["contenders"] for one in report.get("scenarios", [])}
    return found.get(name, {})


def _has(claim: Claim, by_name: Mapping[str, Report]) -> bool:
    """Whether both sides of a claim were measured."""
    return all(
        _scenario(by_name.get(report, {}), scenario).keys() & side
        for report, scenario, _ in claim.figures
        for side in ({*claim.ours}, {*claim.bonds})
    )


def _cells(claim: Claim, by_name: Mapping[str, Report]) -> list[str]:
    """The names of the figures, our side and the bonds' side, with a line for each figure."""

    def values(names: Iterable[str]) -> str:
        lines = []
        for report, scenario, name in claim.figures:
            of, found = figure(name), _scenario(by_name[report], scenario)
            sides = [comparison.side(one, found[one], of) for one in names if one in found]
            lines.append("; ".join(one.text(of) for one in sides))
        return "<br>".join(lines)

    first = claim.figures[0][0]
    labels = [
        figure(name).label + (f" ({report})" if report != first else "")
        for report, _, name in claim.figures
    ]
    return ["<br>".join(labels), values(claim.ours), values(claim.bonds)]


def _where_a_peer_is_better(layouts: Sequence[Report]) -> str:
    """How many comparisons there are, and those that a peer wins, by layout."""
    pairs = [(report, one) for report in layouts for one in comparison.against_peers(report)]
    ranged = [one for _, one in pairs if one.has_ranges]
    differ = [one for one in ranged if one.differs]
    peers = sum(one.other_is_better for one in differ)
    text = (
        f"The pages compare our best policy with the best peer in {len(ranged)} figures."
        f" In {len(differ)} of them, the ranges of the runs do not overlap: our policy is better in"
        f" {len(differ) - peers}, and the peer in {peers}. If all contenders were equal, the ranges would"
        f" not overlap in up to {sum(one.by_chance for one in ranged):.0f} comparisons by chance."
        " Each page lists the figures in which a peer is better, also without a range:"
    )
    found: dict[str, list[Pair]] = {}
    for report, one in pairs:
        if one.other_is_better:
            found.setdefault(report_name(report), []).append(one)
    lines = [_largest(name, some) for name, some in found.items()]
    return "\n\n".join(["## Where a peer is better", text, bullets(lines)])


def _largest(name: str, pairs: Sequence[Pair]) -> str:
    one = max(pairs, key=lambda pair: pair.distance)
    of = one.figure
    peer, ours = (side.text(of, with_count=False) for side in (one.other, one.here))
    count = f"{len(pairs)} figures, most in" if len(pairs) > 1 else "1 figure,"
    return f"[{name}](benchmarks/{name}.md): {count} {of.label}: {peer}, {ours}"


def _layouts(layouts: Sequence[Report], others: Mapping[str, Report]) -> str:
    """The pages, with the expectations that are not met."""
    lines = [_page(report_name(one), _about(one), one) for one in layouts]
    lines += [_page(name, OTHERS[name], one) for name, one in others.items()]
    return "\n\n".join(["## Layouts", bullets(lines)])


def _about(report: Report) -> str:
    """What a layout is."""
    if settings := variants(report):
        return f"{code(report['layout'])} {', and '.join(VARIANTS[one] for one in settings)}"
    return markdown.described(report["layout"]).headline.removesuffix(".")


def _page(name: str, about: str, report: Report) -> str:
    text = f"[{name}](benchmarks/{name}.md): {about}. {comparison.met(report)}".rstrip()
    missed = [
        f"  - {plain(condition)}{_in([scenario for scenario, _ in found])}"
        for condition, found in comparison.unmet(report).items()
    ]
    return "\n".join([text, *missed])


def _in(scenarios: Sequence[str]) -> str:
    return f" ({plain('; '.join(scenarios))})" if any(scenarios) else ""
