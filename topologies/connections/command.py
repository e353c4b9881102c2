"""The command `ovs-lbt bench connections`."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from topologies.bench import add_results, add_runs, whole_number
from topologies.network.private_ovs import DATAPATHS
from topologies.reports.markdown import Column, medians_table, text

Record = Mapping[str, Any]
NAME = "connections"
SIZES = (1_000, 10_000, 30_000, 100_000)
RATES = (1_000, 10_000)
# Open vSwitch caches at most 200,000 flows by default.
MOST = 150_000
# shaping.UNSHAPED_BPS
UNSHAPED_MBPS = 10_000
CONTENDERS = (
    "active-backup",
    "balance-slb",
    "balance-tcp",
    "load-based",
    "dynamic",
    "dynamic/lacp",
    "dynamic/lacp+multipath",
    "adaptive",
    "adaptive+multipath",
)

TEXT = """\
`ovs-lbt bench connections`: one VM behind two uplinks sends {frames_per_s:.0f} frames of {frame_bytes} bytes a second,
whatever the number of connections, and Open vSwitch caches a flow for each connection or hash.

- *Failover*: the frames of a probe of {probe_pps:g} frames a second that are lost when its uplink loses its carrier,
  as median and range. *Service down*: the same after the service was killed.
- *Flows*, *resident*: of `ovs-vswitchd`, including the bridge that is the upstream switch."""
RATES_TEXT = """\
The VM opens new connections for {spans[rate_s]:g} s, in addition to 100 cached ones. *Lost*: first frames that did not
arrive."""


def _lost(*services: str) -> Callable[[Record], Iterable[float]]:
    """The lost frames of the failovers with the service in one of these states."""
    return lambda one: [c["probe_lost"] for c in one["failovers"] if c["service"] in services]


# The columns of both tables.
SIZES_COLUMNS: Sequence[Column] = (
    ("flows", lambda one: [one["flows"]], 0),
    ("resident, MB", lambda one: [one["switch_rss_bytes"] / 1e6], 0),
    ("failover, frames", _lost("alive", "none"), 0),
    ("service down", _lost("dead"), 0),
)
RATES_COLUMNS: Sequence[Column] = (
    ("reached", lambda one: [one["reached_per_s"]], 0),
    ("upcalls/s", lambda one: [one["upcalls"] / one["span_s"]], 0),
    ("lost, %", lambda one: [100 * one["lost_ratio"]], 2),
)


def run(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Run the contenders one after another, and write the report.

    Returns:
        0 if every run completed, 1 if one failed, 2 for wrong usage.

    Raises:
        OSError: the report cannot be written.
    """
    # These imports are slow and need Mininet, but errors in arguments need neither.
    from topologies import layouts
    from topologies.compare.contenders import Contender
    from topologies.compare.run import Scenario
    from topologies.compare.running import Kept, compare
    from topologies.connections import contenders, load
    from topologies.loads.pace import FAITHFUL
    from topologies.reports.report import machine

    try:
        # By their own names, which show splits.
        names = {contenders.contender(name).name: name for name in options.contenders}
    except ValueError as error:
        print(f"--contenders: {error}", file=sys.stderr)
        return 2
    spans = load.QUICK if options.quick else load.FULL
    plan = load.Plan(sorted({*options.sizes}), sorted({*options.rates}), options.cuts, spans)
    made: list[Contender] = []

    def contender(name: str) -> Contender:
        made.append(contenders.contender(names[name]))
        return made[-1]

    scenario = Scenario(
        name=NAME,
        what="",
        # Links without a limit, because the bench measures the switches' limits, not those of queues.
        layout=layouts.shift(vms=1, clients=2, uplink_mbps=UNSHAPED_MBPS),
        load=lambda stage: load.ManyConnections(stage, plan, made[-1]),
        contenders=tuple(names),
        contender=contender,
        datapath=options.datapath,
    )
    directory = options.out / NAME
    directory.mkdir(parents=True, exist_ok=True)
    environment = {**machine(), "datapath": options.datapath}
    settings = {"plan": plan.described(), "datapath": options.datapath}
    kept = Kept(directory, settings, anew=options.anew)
    # The operators' defaults: bonds rebalance every 10 s, and services poll at their default interval.
    result = compare(scenario, scenario.contenders, FAITHFUL, options.repeat, kept, command)
    rows = [
        {"contender": name, "repetition": number, **seen.outcome.details, "origin": seen.origin}
        for name, runs in result.observed.items()
        for number, seen in enumerate(runs, start=1)
    ]
    failed = {"failed": result.failures} if result.failures else {}
    report = {"environment": environment, "plan": plan.described(), "rows": rows, **failed}
    path, summary = directory / "report.json", directory / "report.md"
    path.write_text(json.dumps(report, indent=1) + "\n")
    if not rows:
        return 1
    summary.write_text(text(section(report)))
    print(summary.read_text(), path, summary, sep="\n")
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    number = functools.partial(whole_number, most=MOST)
    made = argparse.ArgumentParser(
        prog=f"ovs-lbt bench {NAME}",
        description="Measure the cost of many connections of one VM on a switch: cached connections, new"
        " connections, and an uplink failure during these.",
    )
    made.add_argument(
        "--contenders",
        nargs="+",
        default=list(CONTENDERS),
        metavar="NAME",
        help="Open vSwitch bonds and ovs-lbt policies; adaptive has a split VM port, POLICY/lacp or"
        " POLICY/switch-independent selects a teaming, and the suffix +multipath selects the connection"
        f" hash, which attach chooses by default (default: {' '.join(CONTENDERS)})",
    )
    add_runs(made, number)
    add_results(made)
    made.add_argument(
        "--sizes",
        type=number,
        nargs="*",
        default=list(SIZES),
        metavar="N",
        help=f"numbers of cached connections (default: {' '.join(map(str, SIZES))})",
    )
    made.add_argument(
        "--rates",
        type=number,
        nargs="*",
        default=list(RATES),
        metavar="N",
        help=f"new connections per second (default: {' '.join(map(str, RATES))})",
    )
    made.add_argument(
        "--cuts",
        type=number,
        default=1,
        metavar="N",
        help="how often an uplink fails with each size, both with a running and with a killed service"
        " (default: %(default)s)",
    )
    made.add_argument(
        "--datapath",
        choices=tuple(DATAPATHS),
        default="userspace",
        help="the datapath of the private Open vSwitch (default: %(default)s)",
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help="check that the benchmark works; too short for figures",
    )
    return made


def section(report: Record) -> list[str]:
    """The parts of the page."""
    rows, plan = report["rows"], report["plan"]
    parts = [
        "# connections",
        TEXT.format(**plan),
        _table(rows, "sizes", "connections", SIZES_COLUMNS),
    ]
    if plan["rates"]:
        parts += [RATES_TEXT.format(**plan), _table(rows, "rates", "asked_per_s", RATES_COLUMNS)]
    return [*parts, f"Not completed: {'; '.join(report['failed'])}" if "failed" in report else ""]


def _table(rows: Sequence[Record], kind: str, key: str, columns: Sequence[Column]) -> str:
    """A line for each value of a key and contender, with medians of all runs."""
    contenders = [*dict.fromkeys(row["contender"] for row in rows)]
    found: dict[tuple[int, int], list[Record]] = {}
    for row in rows:
        for one in row[kind]:
            found.setdefault((one[key], contenders.index(row["contender"])), []).append(one)
    lines = [((f"{n:,}", f"`{contenders[place]}`"), found[n, place]) for n, place in sorted(found)]
    heading = "connections" if kind == "sizes" else "new/s"
    return medians_table([heading, "contender"], lines, columns, left=2)
