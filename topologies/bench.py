"""`ovs-lbt bench LAYOUT`: run a published benchmark layout and compare the contenders."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

LAYOUTS = ("vmware_lbt",)
PROGRAMS = ("ovs-vswitchd", "ovsdb-server", "nginx", "mnexec", "tc", "ethtool", "nsenter")
PHASES_CONTENDER = "load-based"


def main(argv: Sequence[str]) -> int:
    """Run the bench that the arguments describe.

    Returns:
        0: it ran and every expectation is met; 1: it failed, or one is not met; 2: wrong usage.
    """
    parser = _parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as exit_:  # argparse ends the process; our caller may have more to do
        return int(exit_.code or 0)
    if options.layout not in LAYOUTS:
        print(f"layout: {options.layout} -> {' | '.join(LAYOUTS)}", file=sys.stderr)
        return 2
    if problem := _unfit():
        print(f"ovs-lbt bench: {problem}", file=sys.stderr)
        return 1
    with _ending_signals():
        try:
            return _bench(options)
        except KeyboardInterrupt:
            print("\novs-lbt bench: interrupted; nothing is left behind", file=sys.stderr)
            return 1
        except (RuntimeError, OSError) as failure:
            print(f"\novs-lbt bench: {failure}", file=sys.stderr)
            return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovs-lbt bench",
        description="Run a benchmark layout on Mininet, on an Open vSwitch of its own.",
    )
    parser.add_argument("layout", metavar="LAYOUT", help=" | ".join(LAYOUTS))
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR", help="default: %(default)s"
    )
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--faithful",
        dest="pace",
        action="store_const",
        const="faithful",
        default="accelerated",
        help="the documented window of 30 s (default: 3 s, everything ten times as fast)",
    )
    pace.add_argument(
        "--quick",
        dest="pace",
        action="store_const",
        const="quick",
        help="a window of 1 s: whether it works at all, too short for figures",
    )
    parser.add_argument(
        "--direction",
        choices=("send", "receive"),
        default="send",
        help="whether the VMs serve the downloads or make them (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat",
        type=_positive,
        default=1,
        metavar="N",
        help="run every contender N times; figures are medians (default: %(default)s)",
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
        return f"not on PATH: {', '.join(missing)} -> make setup installs what is needed"
    return ""


def _bench(options: argparse.Namespace) -> int:
    # Late, so that a wrong word on the command line is answered at once, and without Mininet.
    from topologies import console, expectations, figures, layouts, pace, report
    from topologies.contenders import THRESHOLD_PERCENT, all_contenders
    from topologies.run import run
    from topologies.samples import move_times_s
    from topologies.web_load import Direction

    layout = layouts.LAYOUTS[options.layout]()
    paces = {one.name: one for one in (pace.ACCELERATED, pace.FAITHFUL, pace.QUICK)}
    chosen = paces[options.pace]
    direction = Direction(options.direction)
    directory = options.out / layout.name
    directory.mkdir(parents=True, exist_ok=True)

    names = [contender.name for contender in all_contenders()]
    capacities_bps = figures.capacities_bps(layout)
    progress = console.ProgressLine(capacities_bps, chosen.load_s, names)
    observed, runs = [], {name: list[figures.Figures]() for name in names}
    for _ in range(options.repeat):
        once = {}
        for contender in all_contenders():
            seen = run(layout, contender, chosen, direction, progress)
            progress.finish()
            observed.append(seen)
            once[contender.name] = figures.figures(layout, seen, chosen.ramp_s)
        for name, found in figures.with_cpu_ratio(once, baseline="manual").items():
            runs[name].append(found)

    # Of several repetitions the first is drawn and cut into phases; figures are medians.
    shown = {name: next(one for one in observed if one.contender == name) for name in names}
    moving = shown[PHASES_CONTENDER]
    phases = figures.phases_of(layout, moving, chosen.ramp_s)
    medians = {name: figures.medians(found) for name, found in runs.items()}
    checked = expectations.check(medians, phases, chosen.least_downloads)
    described = report.environment(chosen, direction)
    made = report.build(layout, described, runs, phases, checked)
    report_path = report.write(made, observed, directory)
    pictures = _draw(
        lambda draw: draw(
            runs={name: figures.intervals(layout, one) for name, one in shown.items()},
            phases=phases,
            moves_s=move_times_s(moving.samples),
            threshold_ratio=THRESHOLD_PERCENT / 100,
            capacity_bps=max(capacities_bps.values()),
            title=f"{layout.name}: uplinks under a ramping web load, {direction} ({chosen.name})",
            directory=directory,
        )
    )
    print(console.phase_table(phases, layout.published), end="\n\n")
    print(console.contender_table(medians, layout.limit_bps), end="\n\n")
    print(console.verdicts(checked), end="\n\n")
    print(*(str(path) for path in (report_path, *pictures)), sep="\n")
    return 0 if all(one.met for one in checked) else 1


def _draw(use: Callable[[Callable[..., list[Path]]], list[Path]]) -> list[Path]:
    """The pictures; none, with a word on it, where matplotlib is not installed."""
    try:
        from topologies.picture import draw
    except ImportError as missing:
        print(f"ovs-lbt bench: no picture: {missing} -> pip install matplotlib", file=sys.stderr)
        return []
    return use(draw)


@contextlib.contextmanager
def _ending_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the bench as Ctrl-C does, and each of them only once.

    A second one, while the first is being answered, would leave things behind.
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
