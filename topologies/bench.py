"""`ovs-lbt bench NAME`: runs a benchmark layout and compares the contenders."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from topologies import LAYOUT_NAMES

if TYPE_CHECKING:
    from topologies.compare.kept_runs import KeptRuns
    from topologies.compare.phases import Phase
    from topologies.compare.plan import Options
    from topologies.compare.result import Result

# Each of these options asks for jumps of load that are generated or read from a file.
JUMPS = ("seeds", "seed", "instances")
# The programs that a bench needs, by the Debian or Ubuntu package that has them.
PROGRAMS = {
    **dict.fromkeys(("ovs-vswitchd", "ovsdb-server"), "openvswitch-switch"),
    "nginx": "nginx-light",
    "iperf3": "iperf3",
    "mnexec": "mininet",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "nsenter": "util-linux",
}


def main(argv: Sequence[str]) -> int:
    """Run the bench that the arguments ask for.

    Returns:
        0: it ran and every expectation is met; 1: it failed, or one is not met; 2: wrong usage.
    """
    parser = _parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as exit_:  # argparse ends the process; our caller may have more to do
        return int(exit_.code or 0)
    if wrong := _wrong(options):
        print(wrong, file=sys.stderr)
        return 2
    if problem := _unfit():
        print(f"ovs-lbt bench: {problem}", file=sys.stderr)
        return 1
    with _ending_signals():
        try:
            return _benches(options, ["ovs-lbt", "bench", *argv])
        except KeyboardInterrupt:
            print(
                "\novs-lbt bench: interrupted; nothing is left running. Runs that had come to their"
                " end are kept: the same command makes only the others",
                file=sys.stderr,
            )
            return 1
        except (RuntimeError, OSError) as failure:
            print(f"\novs-lbt bench: {failure}", file=sys.stderr)
            return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovs-lbt bench",
        description="Run a benchmark layout on Mininet, on an Open vSwitch of its own.",
    )
    parser.add_argument("layout", metavar="NAME", nargs="?", help=" | ".join(LAYOUT_NAMES))
    parser.add_argument("--all", action="store_true", help="run every layout, one after another")
    parser.add_argument(
        "--policy",
        metavar="POLICY",
        nargs="+",
        action="extend",
        help="run only these policies of ovs-lbt; POLICY/lacp or POLICY/switch-independent sets a teaming other than the usual one",
    )
    parser.add_argument(
        "--against",
        metavar="PEER",
        nargs="+",
        action="extend",
        help="compare only with these: manual, active-backup, balance-slb, balance-slb/1s, balance-tcp;"
        " none",
    )
    parser.add_argument(
        "--scenario", metavar="TEXT", help="run only scenarios whose names contain this text"
    )
    parser.add_argument(
        "--out",
        "--output",
        type=Path,
        default=Path("out"),
        metavar="DIR",
        help="default: %(default)s",
    )
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
        help="use a window of 1 s: checks that the benchmark works, but is too short for figures",
    )
    parser.add_argument(
        "--direction",
        choices=("send", "receive"),
        default="send",
        help="whether the VMs serve the downloads or make them (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat",
        "--runs",
        type=_positive,
        default=1,
        metavar="N",
        help="run every contender N times and report medians (default: %(default)s); started again"
        " after an interruption, the same command makes only the runs that are missing",
    )
    parser.add_argument(
        "--anew",
        action="store_true",
        help="make every run, also those that an interrupted command has kept",
    )
    jumps = parser.add_mutually_exclusive_group()
    jumps.add_argument(
        "--seeds",
        type=_positive,
        metavar="N",
        help="shift only: run N generated jumps of load, and compare with a perfect decider",
    )
    jumps.add_argument(
        "--seed",
        type=_positive,
        nargs="+",
        action="extend",
        metavar="NUMBER",
        help="shift only: run only these jumps",
    )
    jumps.add_argument(
        "--instances", type=Path, metavar="FILE", help="shift only: read the jumps from a JSON file"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="with --seeds, --seed or --instances: keep the results that exist, and run the rest",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} -> a whole number of at least 1")
    return number


def _unfit() -> str:
    """Why a bench cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return f"user id {os.geteuid()} -> root, for network namespaces and Open vSwitch"
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PROGRAMS[program] for program in missing))
        return f"not on PATH: {', '.join(missing)} -> install with: apt install {packages}"
    return ""


def _wrong(options: argparse.Namespace) -> str:
    """What is wrong with the arguments; empty if nothing is."""
    if options.all == bool(options.layout):
        found = options.layout or "no layout"
        return f"layout: {found}{' --all' * options.all} -> --all | {' | '.join(LAYOUT_NAMES)}"
    if options.layout and options.layout not in LAYOUT_NAMES:
        return f"layout: {options.layout} -> {' | '.join(LAYOUT_NAMES)}"
    if options.direction != "send" and options.layout != "vmware_lbt":
        return f"--direction {options.direction} -> vmware_lbt, the layout whose web load has a direction"
    return _wrong_jumps(options)


def _wrong_jumps(options: argparse.Namespace) -> str:
    """What is wrong with the arguments about jumps of load; empty if nothing is."""
    given = [f"--{name}" for name in JUMPS if getattr(options, name) is not None]
    if not given:
        return "--resume -> with --seeds, --seed or --instances" if options.resume else ""
    if options.layout != "shift":
        return f"{given[0]} {options.layout or '--all'} -> shift, the layout whose load jumps"
    if options.repeat != 1:
        return f"{given[0]} --repeat {options.repeat} -> more seeds instead of repetitions"
    return ""


def _benches(options: argparse.Namespace, command: Sequence[str]) -> int:
    from topologies.compare.contenders import chosen

    try:
        chosen([], options.policy, options.against)
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    if any(getattr(options, name) is not None for name in JUMPS):
        return _jumps(options, command)
    names = LAYOUT_NAMES if options.all else (options.layout,)
    statuses = []
    finished: list[KeptRuns] = []
    for name in names:
        print(f"=== {name}", file=sys.stderr)
        try:
            statuses.append(_bench(name, options, command, finished))
        except RuntimeError as failure:
            # The other layouts are still worth running.
            print(f"\novs-lbt bench: {name}: {failure}", file=sys.stderr)
            statuses.append(1)
    # Not earlier: a command that is interrupted in its last layout has the first ones, too.
    for kept in finished:
        kept.remove()
    # With several layouts, it is not wrong usage if the chosen contenders fit none of one layout.
    return max((status for status in statuses if status != 2), default=2)


def _jumps(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Run generated jumps of load, or those of a file."""
    from topologies.compare import contenders, pace
    from topologies.seeds import campaign, generator, instance, records, report

    kinds = [one for one in (records.JUMP, records.CONTROL) if (options.scenario or "") in one]
    names = contenders.chosen(campaign.DEFAULT_CONTENDERS, options.policy, options.against)
    if not kinds or not names:
        print(
            "shift: no contender left to compare -> other contenders or another scenario",
            file=sys.stderr,
        )
        return 2
    try:
        if options.instances is not None:
            jumps = instance.read(options.instances)
            campaign.require_feasible(jumps)
        else:
            numbers = dict.fromkeys(options.seed or range(1, options.seeds + 1))
            jumps = [generator.generate(number) for number in numbers]
    except ValueError as wrong:
        print(f"ovs-lbt bench: {wrong}", file=sys.stderr)
        return 1
    quick = options.pace == "quick"
    paces = {one.name: one for one in (pace.ACCELERATED, pace.FAITHFUL, pace.QUICK)}
    return campaign.run_campaign(
        jumps[: campaign.QUICK_JUMPS] if quick else jumps,
        names,
        kinds,
        pace.in_real_time(paces[options.pace]),
        options.out / report.NAME,
        watched_s=campaign.QUICK_WATCHED_S if quick else campaign.WATCHED_S,
        resume=options.resume,
        command=command,
    )


def _bench(
    name: str, options: argparse.Namespace, command: Sequence[str], finished: list[KeptRuns]
) -> int:
    """Run a layout's bench. `finished` gets its runs if they need not be kept any longer."""
    # Imported late, so that wrong arguments are reported at once, and without Mininet.
    from topologies.benches import vmware_lbt
    from topologies.benches.plans import PLANS
    from topologies.compare import contenders, pace, running
    from topologies.compare.expectation import Expectation
    from topologies.compare.kept_runs import DIRECTORY, KeptRuns
    from topologies.compare.plan import Options
    from topologies.loads.web_load import Direction
    from topologies.reports import console, origin, page, report

    paces = {one.name: one for one in (pace.ACCELERATED, pace.FAITHFUL, pace.QUICK)}
    plan = PLANS[name]
    chosen = paces[options.pace]
    if plan.real_time:
        chosen = pace.in_real_time(chosen)
    how = Options(chosen, Direction(options.direction))
    directory = options.out / name
    directory.mkdir(parents=True, exist_ok=True)
    kept = KeptRuns(
        directory / DIRECTORY,
        {"pace": asdict(chosen), "direction": str(how.direction)},
        same_code=lambda found: not options.anew and origin.same_code(found),
    )
    results = []
    for scenario in plan.scenarios(how):
        if options.scenario and options.scenario not in scenario.name:
            continue
        names = contenders.chosen(scenario.contenders, options.policy, options.against)
        if fitting := running.fit(scenario, names):
            results.append(
                running.compare(scenario, fitting, how.pace, options.repeat, kept, command)
            )
    if not results:
        print(
            f"{name}: no contender left to compare -> other contenders or another scenario",
            file=sys.stderr,
        )
        return 2
    failures = [failure for result in results for failure in result.failures]
    results = [result for result in results if result.figures]
    if not results:
        raise RuntimeError("every run failed -> at least one that succeeds")
    more = plan.derived(results)
    results = [replace(one, derived=more.get(one.scenario.name, {})) for one in results]
    checked = [
        *plan.expectations(how, results),
        *(Expectation("every run completes", failure, met=False) for failure in failures),
    ]
    phases = vmware_lbt.phases(how, results[0]) if name == "vmware_lbt" else []
    made = report.build(report.environment(how), results, phases, checked)
    paths = [report.write(made, results, directory), page.write(directory)]
    if phases:
        paths += _pictures(lambda: _draw(how, results[0], phases, directory))
        print(console.phase_table(phases, results[0].scenario.layout.published), end="\n\n")
    if draw := plan.draw:
        paths += _pictures(lambda: draw(results, directory))
    for result in results:
        print(f"{result.scenario.name}: {result.scenario.what}")
        print(console.contender_table(result.medians()), end="\n\n")
    print(console.verdicts(checked), end="\n\n")
    print(*paths, sep="\n")
    if not failures:
        finished.append(kept)
    return 0 if all(one.met for one in checked) else 1


def _pictures(draw: Callable[[], list[Path]]) -> list[Path]:
    """Draw the pictures; if matplotlib is missing, say so and draw none."""
    try:
        return draw()
    except ImportError as missing:
        print(
            f"ovs-lbt bench: no picture, without {missing} -> install with: apt install python3-matplotlib",
            file=sys.stderr,
        )
        return []


def _draw(how: Options, result: Result, phases: Sequence[Phase], directory: Path) -> list[Path]:
    """Draw the pictures of a ramping load."""
    from topologies.compare import figures
    from topologies.compare.contenders import THRESHOLD_PERCENT
    from topologies.compare.samples import move_times_s
    from topologies.reports.picture import draw

    layout = result.scenario.layout
    first = {name: runs[0] for name, runs in result.observed.items()}
    return draw(
        runs={name: figures.intervals(layout, one) for name, one in first.items()},
        phases=phases,
        moves_s=move_times_s(first["load-based"].samples),
        threshold_ratio=THRESHOLD_PERCENT / 100,
        capacity_bps=max(figures.capacities_bps(layout).values()),
        title=f"{layout.name}: uplinks under a ramping web load, {how.direction} ({how.pace.name})",
        directory=directory,
    )


@contextlib.contextmanager
def _ending_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the bench as Ctrl-C does, but only once each.

    A second signal during the clean-up would leave things behind.
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
