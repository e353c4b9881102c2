"""The command `ovs-lbt bench connections`."""

from __future__ import annotations

import argparse
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


def run(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Run the contenders one after another, and write the report after each.

    Returns:
        0 if every run completed, 1 if one failed, 2 for wrong usage.

    Raises:
        OSError: the report cannot be written.
    """
    # These imports are slow and need Mininet, but errors in arguments need neither.
    from topologies.compare.rows import Rows
    from topologies.connections import contenders, load
    from topologies.connections.section import section

    try:
        # By their own names, which show splits.
        names = {contenders.contender(name).name: name for name in options.contenders}
    except ValueError as error:
        print(f"--contenders: {error}", file=sys.stderr)
        return 2
    spans = load.QUICK if options.quick else load.FULL
    plan = load.Plan(sorted({*options.sizes}), sorted({*options.rates}), options.cuts, spans)
    directory = options.out / NAME
    begin_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin_s:6.0f} s  {text}", file=sys.stderr, flush=True)

    path = directory / "report.json"
    settings = {"plan": plan.described()}
    rows = Rows(path, "rows", settings, command, say, options.datapath)
    report = rows.run(
        list(names),
        options.repeat,
        lambda name: _measured(names[name], plan, options.datapath, say),
        options.anew,
    )
    if not report["rows"]:
        return 1
    (directory / "report.md").write_text(section(report) + "\n")
    print(section(report), end="\n\n")
    print(path, directory / "report.md", sep="\n")
    return 1 if "failed" in report else 0


def _measured(name: str, plan: Plan, datapath: str, say: Callable[[str], None]) -> dict[str, Any]:
    """One run of a contender, on a network of its own."""
    from topologies import layouts
    from topologies.compare.rows import run_details
    from topologies.compare.scenario import Scenario
    from topologies.connections import contenders
    from topologies.connections.load import ManyConnections
    from topologies.loads import pace

    one = contenders.contender(name)
    # Links without a limit, because the bench measures the switches' limits, not those of their queues.
    layout = layouts.shift(vms=1, clients=2, uplink_mbps=UNSHAPED_MBPS)
    scenario = Scenario(
        NAME,
        "",
        layout,
        lambda stage: ManyConnections(stage, plan, one, say),
        (name,),
        datapath=datapath,
    )
    # The operators' defaults: bonds rebalance every 10 s, and services poll at their default interval.
    by_default = pace.FAITHFUL
    if contenders.is_split(name):
        by_default = pace.in_real_time(by_default)
    found: dict[str, Any] = run_details(scenario, one, by_default)
    return found


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
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
    made.add_argument(
        *("--repeat", "--runs"),
        type=_number,
        default=1,
        metavar="N",
        help="run every contender N times (default: %(default)s)",
    )
    made.add_argument("--anew", action="store_true", help="repeat the runs that the report has")
    made.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="default: %(default)s"
    )
    made.add_argument(
        "--sizes",
        type=_number,
        nargs="*",
        default=list(SIZES),
        metavar="N",
        help=f"numbers of cached connections (default: {' '.join(map(str, SIZES))})",
    )
    made.add_argument(
        "--rates",
        type=_number,
        nargs="*",
        default=list(RATES),
        metavar="N",
        help=f"new connections per second (default: {' '.join(map(str, RATES))})",
    )
    made.add_argument(
        "--cuts",
        type=_number,
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


def _number(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= MOST:
        raise argparse.ArgumentTypeError(
            f'the value is "{text}"; expected a whole number from 1 to {MOST}'
        )
    return number
