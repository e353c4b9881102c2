"""The command `ovs-lbt bench connections`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topologies.network.private_ovs import DATAPATHS

if TYPE_CHECKING:
    from topologies.connections.load import Plan

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


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of the command.

    Raises:
        SystemExit: wrong usage, or `--help`; the answer was printed.
    """
    return _parser().parse_args(argv)


def run(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Run the contenders one after another, and write the report after each.

    Returns:
        0 if every run completed, 1 if one failed, 2 for wrong usage.

    Raises:
        OSError: the report cannot be written.
    """
    # These imports are slow and need Mininet, but errors in arguments need neither.
    from topologies.connections import contenders, load
    from topologies.connections.section import section
    from topologies.reports.origin import origin
    from topologies.reports.report import machine

    try:
        names = [contenders.contender(name).name for name in options.contenders]
    except ValueError as error:
        print(f"--contenders {error}", file=sys.stderr)
        return 2
    spans = load.QUICK if options.quick else load.FULL
    plan = load.Plan(sorted({*options.sizes}), sorted({*options.rates}), options.cuts, spans)
    directory = options.out / NAME
    directory.mkdir(parents=True, exist_ok=True)
    begin_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin_s:6.0f} s  {text}", file=sys.stderr, flush=True)

    report: dict[str, Any] = {
        "environment": {**machine(), "datapath": options.datapath},
        "plan": load.described(plan),
        "rows": [],
    }
    failures = []
    for repetition in range(1, options.repeat + 1):
        for asked, name in zip(options.contenders, names, strict=True):
            say(f"=== {name}, {repetition} of {options.repeat}")
            made_by = origin(command)
            try:
                found = _measured(asked, plan, options.datapath, say)
            except (RuntimeError, OSError, ValueError) as failure:
                failures.append(f"{name}: {failure}")
                say(f"failed: {failures[-1]}")
                continue
            row = {"contender": name, "repetition": repetition, **found, "origin": made_by}
            report["rows"].append(row)
            (directory / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    if failures:
        report["failed"] = failures
    if not report["rows"]:
        return 1
    paths = [directory / "report.json", directory / "report.md"]
    paths[0].write_text(json.dumps(report, indent=1) + "\n")
    paths[1].write_text(section(report) + "\n")
    print(section(report), end="\n\n")
    print(*paths, *_drawn(report, directory), sep="\n")
    return 1 if failures else 0


def _drawn(report: dict[str, Any], directory: Path) -> list[Path]:
    """Draw pictures. Without matplotlib, print a hint and draw none."""
    try:
        from topologies.connections.picture import draw
    except ImportError as missing:
        print(
            f"no pictures: {missing} -> install with: apt install python3-matplotlib",
            file=sys.stderr,
        )
        return []
    return draw(report, directory) if report["plan"]["sizes"] else []


def _measured(name: str, plan: Plan, datapath: str, say: Callable[[str], None]) -> dict[str, Any]:
    """One run of a contender, on a network of its own."""
    from topologies import layouts
    from topologies.compare import pace
    from topologies.compare.scenario import Scenario
    from topologies.connections import contenders
    from topologies.connections.load import ManyConnections
    from topologies.measure.runs import run_details

    one = contenders.contender(name)
    # Links without a limit: what switches can do is measured, and not what their queues hold.
    layout = layouts.shift(vms=1, clients=2, uplink_mbps=UNSHAPED_MBPS)
    scenario = Scenario(
        NAME,
        "",
        layout,
        lambda stage: ManyConnections(stage, plan, one, say),
        (name,),
        datapath=datapath,
    )
    # As operators run it: bonds rebalance every 10 s, and our services read counters as by default.
    by_default = pace.FAITHFUL
    if contenders.is_split(name):
        by_default = pace.in_real_time(by_default)
    found: dict[str, Any] = run_details(scenario, one, by_default)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"ovs-lbt bench {NAME}",
        description="Measure what many connections of one VM cost a switch: cached ones, new ones,"
        " and the failure of an uplink meanwhile.",
    )
    parser.add_argument(
        "--sizes",
        type=_number,
        nargs="*",
        default=list(SIZES),
        metavar="N",
        help=f"numbers of cached connections (default: {' '.join(map(str, SIZES))})",
    )
    parser.add_argument(
        "--rates",
        type=_number,
        nargs="*",
        default=list(RATES),
        metavar="N",
        help=f"new connections a second (default: {' '.join(map(str, RATES))})",
    )
    parser.add_argument(
        "--contenders",
        nargs="+",
        default=list(CONTENDERS),
        metavar="NAME",
        help="bonds of Open vSwitch, and our policies; adaptive has a split VM port, and POLICY/lacp"
        " or POLICY/switch-independent selects a teaming, and +multipath at its end the hash of connections, which attach chooses otherwise"
        f" (default: {' '.join(CONTENDERS)})",
    )
    parser.add_argument(
        "--cuts",
        type=_number,
        default=1,
        metavar="N",
        help="how often an uplink fails with each size, for a service that is alive and for one that"
        " is dead (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat",
        type=_number,
        default=1,
        metavar="N",
        help="run every contender N times and report medians (default: %(default)s)",
    )
    parser.add_argument(
        "--datapath",
        choices=tuple(DATAPATHS),
        default="userspace",
        help="the datapath of the private Open vSwitch (default: %(default)s)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="check that the benchmark works; too short for figures",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="default: %(default)s"
    )
    return parser


def _number(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= MOST:
        raise argparse.ArgumentTypeError(f"{text} -> a whole number from 1 to {MOST}")
    return number
