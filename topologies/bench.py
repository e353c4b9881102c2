"""The command `ovs-lbt bench`: runs benchmark layouts and compares the contenders."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from topologies.layouts import LAYOUTS

if TYPE_CHECKING:
    from topologies.compare.figures import Result
    from topologies.compare.plan import Options, Plan

# In the order in which `--all` runs them.
LAYOUT_NAMES = tuple(LAYOUTS)
# The benches without a layout of their own. The second one has no contenders, and options of its own, which
# its module defines.
CONNECTIONS, SCALE = "connections", "scale"
OTHERS = {SCALE: "topologies.scale.command"}
# The most connections: Open vSwitch caches at most 200,000 flows by default.
MOST_CONNECTIONS = 150_000
EXAMPLES = f"""\
examples:
  ovs-lbt bench vmware_lbt --quick            check that it works
  ovs-lbt bench shift --policy adaptive --against balance-slb --repeat 3
                                              medians of three runs
  ovs-lbt bench {SCALE} --help                  the cost of 1 to 300 bridges on one service
  ovs-lbt bench {CONNECTIONS} --sizes 30000     the cost of many connections on a switch"""
# Instead of a number of runs: the number that each bench has in the published campaign.
CAMPAIGN = "campaign"
NOTHING_SELECTED = "{} has no contender left to run; check --scenario, --policy and --against"
# The programs that a bench needs, with their Debian and Ubuntu packages.
PROGRAMS = {
    **dict.fromkeys(("ovs-vswitchd", "ovsdb-server"), "openvswitch-switch"),
    "iperf3": "iperf3",
    "mnexec": "mininet",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ping": "iputils-ping",
    "nsenter": "util-linux",
}


def main(argv: Sequence[str]) -> int:
    """Run the benches that the arguments select.

    Returns:
        0 if all expectations are met, 1 if one is not or the bench failed, 2 for wrong usage.
    """
    other = import_module(OTHERS[argv[0]]) if argv and argv[0] in OTHERS else None
    parser, words = (other.parser(), argv[1:]) if other else (_parser(), argv)
    try:
        options = parser.parse_args(words)
    except SystemExit as exit_:  # argparse exits the process, but the caller may have more to do
        return int(exit_.code or 0)
    command = ["ovs-lbt", "bench", *argv]
    if other:
        return _guarded(lambda: int(other.run(options, command)))
    if error := _usage_error(options):
        print(error, file=sys.stderr)
        return 2
    return _guarded(lambda: _run_benches(options, command))


def _guarded(run: Callable[[], int]) -> int:
    """Run a bench if the machine has what it needs, and report interruptions and failures."""
    if problem := _missing_requirement():
        print(f"ovs-lbt bench: {problem}", file=sys.stderr)
        return 1
    with _handle_signals():
        try:
            return run()
        except KeyboardInterrupt:
            print(
                "\novs-lbt bench: interrupted; nothing is left running. Completed runs are kept: the same"
                " command makes only the missing ones",
                file=sys.stderr,
            )
            return 1
        except (RuntimeError, OSError) as failure:
            print(f"\novs-lbt bench: {failure}", file=sys.stderr)
            return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovs-lbt bench",
        description="Run a benchmark layout on Mininet with a private Open vSwitch.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("layout", metavar="NAME", nargs="?", help=" | ".join(LAYOUT_NAMES))
    parser.add_argument("--all", action="store_true", help="run every layout, one after another")
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        nargs="+",
        action="extend",
        help="run only these policies of ovs-lbt; POLICY/lacp or POLICY/switch-independent selects a teaming other than the default, and POLICY+path-check has path checks between the uplinks",
    )
    parser.add_argument(
        "--against",
        metavar="PEER",
        nargs="+",
        action="extend",
        help="compare only with these peers: manual, active-backup, balance-slb, balance-slb/1s, balance-tcp,"
        " and oracle (only flows); none: no peers",
    )
    parser.add_argument(
        "--scenario", metavar="TEXT", help="run only scenarios whose names contain this text"
    )
    add_results(parser)
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--faithful",
        dest="pace",
        action="store_const",
        const="faithful",
        default="accelerated",
        help="use the documented window of 30 s (default: 3 s, with everything ten times as fast)",
    )
    pace.add_argument(
        "--quick",
        dest="pace",
        action="store_const",
        const="quick",
        help="use a window of 1 s, to check that the benchmark works; too short for figures",
    )
    parser.add_argument(
        "--direction",
        choices=("send", "receive"),
        default="send",
        help="whether the VMs serve the downloads or make them (default: %(default)s)",
    )
    parser.add_argument(
        *("--repeat", "--runs", "--cuts"),
        type=lambda text: text if text == CAMPAIGN else whole_number(text),
        default=1,
        metavar="N",
        help=f"run every contender N times and report medians (default: %(default)s); {CAMPAIGN}: as"
        " often as in the published campaign, and once with --quick; the same command makes only the"
        " missing runs",
    )
    parser.add_argument(
        "--anew",
        action="store_true",
        help="run everything, including runs that an earlier command has completed",
    )
    # Interrupted runs continue by default. Commands from before that may still have the option.
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    jumps = parser.add_mutually_exclusive_group()
    jumps.add_argument(
        "--seeds",
        type=whole_number,
        metavar="N",
        help="shift only: run N generated jumps of load, and compare with a perfect decider",
    )
    jumps.add_argument(
        "--seed",
        type=whole_number,
        nargs="+",
        action="extend",
        metavar="NUMBER",
        help="shift only: run only these jumps",
    )
    for name, what in (("--sizes", "numbers of cached connections"), ("--rates", "new per second")):
        parser.add_argument(
            name,
            type=lambda text: whole_number(text, MOST_CONNECTIONS),
            nargs="*",
            metavar="N",
            help=f"{CONNECTIONS} only: {what}",
        )
    parser.add_argument(
        "--contenders",
        nargs="+",
        metavar="NAME",
        help="run only these policies and peers; POLICY+multipath, POLICY+dp_hash and POLICY+auto select"
        " the connection hash, which attach chooses by default",
    )
    return parser


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the option for the directory of the results."""
    parser.add_argument(
        *("--out", "--output"),
        type=Path,
        default=Path("out"),
        metavar="DIR",
        help="default: %(default)s",
    )


def whole_number(text: str, most: int | None = None) -> int:
    """The value of an option: a number of at least 1, and at most `most`.

    Raises:
        argparse.ArgumentTypeError: the text is another one.
    """
    number = int(text) if text.isdecimal() else 0
    if number < 1 or (most and number > most):
        expected = f"from 1 to {most}" if most else "of at least 1"
        raise argparse.ArgumentTypeError(
            f'the value is "{text}"; expected a whole number {expected}'
        )
    return number


def _missing_requirement() -> str:
    """Why a bench cannot run on this machine; empty if it can."""
    if os.geteuid() != 0:
        return f"user id {os.geteuid()} may not create network namespaces or start Open vSwitch; run the bench as root"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PROGRAMS[program] for program in missing))
        return f"these programs are missing: {', '.join(missing)}; run: apt install {packages}"
    return ""


def _usage_error(options: argparse.Namespace) -> str:
    """The error in the arguments; empty if they are valid."""
    if options.all == bool(options.layout):
        found = f"both {options.layout} and --all" if options.all else "no layout"
        return f"the command names {found}; expected --all | {' | '.join(LAYOUT_NAMES)}"
    if options.layout and options.layout not in (*LAYOUT_NAMES, CONNECTIONS):
        near = difflib.get_close_matches(options.layout, LAYOUT_NAMES, 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        return f"layout {options.layout} does not exist{meant}; expected {' | '.join(LAYOUT_NAMES)}"
    if options.direction != "send" and options.layout != "vmware_lbt":
        return f"--direction {options.direction} requires vmware_lbt, the layout whose load has a direction"
    given = "--rates" if options.rates is not None else "--sizes"
    if options.layout != CONNECTIONS and (options.rates, options.sizes) != (None, None):
        return f"{given} requires {CONNECTIONS}, instead of {options.layout or '--all'}"
    if not (options.seeds or options.seed):
        return ""
    given = "--seeds" if options.seeds else "--seed"
    if options.layout != "shift":
        return f"{given} requires shift, the layout whose load jumps, instead of {options.layout or '--all'}"
    if options.repeat != 1:
        return f"{given} does not allow --repeat {options.repeat}; run more jumps: --seeds N"
    return ""


def _run_benches(options: argparse.Namespace, command: Sequence[str]) -> int:
    # These imports are slow and need Mininet, but errors in arguments need neither.
    from topologies.benches import PLANS, connections
    from topologies.compare.contenders import is_ours, select
    from topologies.seeds import jumps
    from topologies.seeds.plan import plan as plan_of_jumps

    if options.contenders:
        options.policy = [name for name in options.contenders if is_ours(name)]
        options.against = [name for name in options.contenders if not is_ours(name)]
    try:
        select([], options.policy, options.against)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    every = {**PLANS, CONNECTIONS: connections.plan(options.sizes, options.rates)}
    plans = {name: every[name] for name in (LAYOUT_NAMES if options.all else [options.layout])}
    if seeds := dict.fromkeys(options.seed or range(1, (options.seeds or 0) + 1)):
        plans = {jumps.NAME: plan_of_jumps([*seeds])}
    statuses = []
    for name, plan in plans.items():
        print(f"=== {name}", file=sys.stderr)
        try:
            statuses.append(_run_bench(name, plan, options, command))
        except RuntimeError as failure:
            # The other layouts are still worth running.
            print(f"\novs-lbt bench: {name}: {failure}", file=sys.stderr)
            statuses.append(1)
    # With several layouts, it is not a usage error if one layout has none of the contenders.
    return max((status for status in statuses if status != 2), default=2)


def _run_bench(name: str, plan: Plan, options: argparse.Namespace, command: Sequence[str]) -> int:
    """Run the bench of a layout, and write its report."""
    from topologies.compare import contenders, running
    from topologies.compare.plan import Expectation, Options
    from topologies.loads.pace import PACES, in_real_time
    from topologies.loads.web_load import Direction
    from topologies.reports import benchmarks, comparison, report

    pace_ = in_real_time(PACES[options.pace]) if plan.real_time else PACES[options.pace]
    how = Options(pace_, Direction(options.direction))
    directory = options.out / name
    directory.mkdir(parents=True, exist_ok=True)
    settings = {"pace": asdict(pace_), "direction": str(how.direction)}
    kept = running.Kept(directory, settings, anew=options.anew)
    campaign_runs = 1 if options.pace == "quick" else plan.campaign_runs
    runs = campaign_runs if options.repeat == CAMPAIGN else int(options.repeat)
    results = []
    for scenario in plan.scenarios(how):
        if options.scenario and options.scenario not in scenario.name:
            continue
        names = contenders.select(scenario.contenders, options.policy, options.against)
        if scenario.fixed:
            names = [one for one in names if one in scenario.contenders]
        if able := running.supported(scenario, names):
            results.append(
                running.compare(scenario, able, pace_, runs, kept, command, plan.per_run)
            )
    if not results:
        print(NOTHING_SELECTED.format(name), file=sys.stderr)
        return 2
    failures = [
        Expectation("every run completes", f"{result.scenario.name}, {failure}", met=False)
        for result in results
        for failure in result.failures
    ]
    results = [*plan.pooled([result for result in results if result.figures])]
    if not results:
        raise RuntimeError("every run failed")
    more = plan.derived(results)
    results = [replace(one, derived=more.get(one.scenario.name, {})) for one in results]
    checked = [*plan.expectations(how, results), *failures]
    made = report.build(report.environment(how), results, plan.phases(how, results[0]), checked)
    path, summary = directory / "report.json", directory / "report.md"
    path.write_text(json.dumps(made, indent=2) + "\n")
    pictures = [*_draw(plan, how, results, directory)]
    read = json.loads(path.read_text())
    names = [one.name for one in pictures if one.suffix == ".png"]
    summary.write_text(benchmarks.of_bench(read, comparison.published(read), names))
    print(summary.read_text())
    for one in checked:
        print(f"{'PASS' if one.met else 'FAIL'}  {one.condition}: {one.found}")
    print()
    print(path, summary, *pictures, sep="\n")
    return 0 if all(one.met for one in checked) else 1


def _draw(plan: Plan, how: Options, results: Sequence[Result], directory: Path) -> Iterator[Path]:
    """Draw pictures, and yield the files. Without matplotlib, print a hint and draw none."""
    try:
        from topologies.reports import pictures
    except ImportError as missing:
        print(
            f"ovs-lbt bench: no pictures were drawn: {missing}; run: apt install python3-matplotlib",
            file=sys.stderr,
        )
        return
    for result in results:
        if names := plan.drawn.get(result.scenario.name):
            yield from pictures.over_time(result, directory, *names, plan.phases(how, result))
        if plan.draws_slowdowns:
            yield from pictures.slowdowns(result, directory)


@contextlib.contextmanager
def _handle_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the bench like Ctrl-C, and ignore further signals.

    A second signal would interrupt the clean-up.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
