"""`ovs-lbt replay TRACE --policy P`: compares policies on recorded traffic, and prints a table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from controller.api.commands import BY_NAME
from controller.api.requests import assignments
from controller.config.keys import BRIDGE_KEYS
from controller.config.kinds import DURATION, Kind, integer, name_in
from controller.replay.figures import Figures, Volume, fluid_bound
from controller.replay.host import Options
from controller.replay.prometheus import fetch
from controller.replay.run import installed_policies, load_policy, replay
from controller.replay.switch import Mix
from controller.replay.trace import COLUMNS, BadTrace, HostTrace, read
from controller.text.terminal import Drawn
from controller.text.wording import Refused, because, invalid, one_of
from policies.model import MAX_UPLINKS
from policies.presets import PRESETS

# The settings of a bridge that affect the moves of policies.
SETTINGS = ("threshold", "window-s", "poll-interval-ms")
BAR_WIDTH = 40
HEAD = (
    f"{'':<18}{'EXCESS, % OF BYTES':>20}{'ABOVE':>10}{'OPTIMALITY':>16}{'MOVES':>7}{'PER MAC':>9}",
    f"{'POLICY':<18}{'transmit':>11}{'receive':>9}{'hours':>10}{'mean':>9}{'worst':>7}"
    f"{'':>7}{'in 180 s':>9}",
)


def main(arguments: Sequence[str]) -> int:
    """Replay a trace with each policy, print the result, and return the exit status."""
    parser = _parser()
    options = parser.parse_args(list(arguments))
    if (options.trace is None) == (options.prometheus is None):
        parser.error("expected either TRACE or --prometheus URL")
    if (options.prometheus is None) != (options.bridge is None):
        parser.error("expected --prometheus URL and --bridge B together")
    policies = list(dict.fromkeys(options.policy))
    if others := {word.partition("=")[0] for word in options.set} - {*SETTINGS}:
        parser.error(f"--set: {invalid(min(others), one_of(SETTINGS), SETTINGS)}")
    try:
        settings = assignments(options.set, BRIDGE_KEYS)
    except Refused as error:
        parser.error(f"--set: {error}")
    how = Options(options.uplinks, Mix(options.flows, options.seed), settings)
    try:
        if options.out is not None:
            from topologies.reports.plots import draw_replay
        for policy in policies:
            load_policy(policy)
        hosts = _hosts(options)
        found = replay(hosts, policies, how, _progress(), options.processes)
        if options.out is not None:
            excess = {policy: _over_time(of) for policy, of in found.items()}
            paths = draw_replay(excess, options.bridge or options.trace.name, options.out)
            for path in paths:
                print(f"ovs-lbt: {path}", file=sys.stderr)
    except (BadTrace, Refused, OSError, ImportError) as error:
        print(f"ovs-lbt: {because(error)}", file=sys.stderr)
        return 1
    bound = fluid_bound(hosts, how.uplinks)
    if options.json:
        print(json.dumps({policy: of.as_json(bound) for policy, of in found.items()}, indent=2))
    else:
        print("\n".join(_table(found, bound, hosts, how)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ovs-lbt replay",
        description="Show what policies would have done with recorded traffic.",
        epilog=BY_NAME["replay"].examples_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument

    def option(name: str, metavar: str, help: str, kind: Any = None, default: Any = None) -> None:
        shown = help if default is None else f"{help} (default: {default})"
        add(name, metavar=metavar, help=shown, type=kind and _typed(kind), default=default)

    policies = [*PRESETS, *installed_policies()]
    trace = f"a .csv or .csv.gz file with the columns {', '.join(COLUMNS)}"
    add("trace", metavar="TRACE", type=Path, nargs="?", help=trace)
    option("--prometheus", "URL", "read metrics from Prometheus instead of TRACE")
    option("--bridge", "B", "read the metrics of bridge B from all hosts")
    option("--since", "7d", "the time span to read, until now", DURATION, "7d")
    add(
        "--policy",
        metavar="P",
        action="append",
        required=True,
        choices=policies,
        type=_typed(name_in(policies)),
        help="a teaming policy, built in or from an installed package; repeat to compare policies",
    )
    option("--uplinks", "N", "the number of uplinks per host", integer(2, MAX_UPLINKS), 2)
    flows = "the number of connections per VM port; the k-th has 1/k of the first one's traffic"
    option("--flows", "N", flows, integer(1, 100_000), Mix().flows)
    option("--seed", "N", "the seed for the hashes of connections", integer(0, 2**31), 0)
    add(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help=f"use this bridge setting in the replay; keys: {', '.join(SETTINGS)}",
    )
    option("--out", "DIR", "save plots of the excess over time to DIR", Kind(Path, "a directory"))
    add("--json", action="store_true", help="print JSON")
    option("--processes", "N", "the number of processes (default: 2 per core)", integer(1, 1024))
    return parser


def _hosts(options: argparse.Namespace) -> list[HostTrace]:
    if options.prometheus is None:
        try:
            return read(options.trace)
        except OSError as error:
            raise BadTrace(f"{because(error)}; expected a .csv or .csv.gz trace") from error
    return fetch(options.prometheus, options.bridge, options.since, time.time())


def _typed(kind: Kind) -> Callable[[str], Any]:
    """Return the parser of a kind of value, with errors whose text argparse prints."""

    def parse(text: str) -> Any:
        try:
            return kind.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(invalid(text, kind.expected, kind.words)) from error

    return parse


def _table(
    found: dict[str, Figures], bound: Volume, hosts: list[HostTrace], how: Options
) -> list[str]:
    """Return the lines of the result: a header, a row for each policy, and explanations."""
    least_percent = [100 * ratio for ratio in bound.excess_ratios]
    threshold = BRIDGE_KEYS["threshold"]
    threshold_ratio = threshold.parse(how.settings.get("threshold", str(threshold.default)))
    ports = sum(len(host.ports) for host in hosts)
    spans = (host.intervals() for host in hosts)
    longest_s = max(intervals[-1][1] - intervals[0][0] for intervals in spans)
    return [
        f"{len(hosts)} hosts with {how.uplinks} uplinks each, {ports} VM ports with"
        f" {how.mix.flows} flows each, {longest_s / 3600:.1f} hours",
        "",
        *HEAD,
        *(_row(policy, figures) for policy, figures in found.items()),
        "{:<18}{:>11.2f}{:>9.2f}".format("fluid bound", *least_percent),
        "",
        "Fluid bound: the excess if all traffic were divided evenly over the uplinks.",
        f"Above: host-hours with an uplink above {100 * threshold_ratio:g} % utilization.",
        "Optimality: the highest utilization divided by the lowest that is possible with",
        "any placement of the units that the policy moves; 1 is perfect.",
    ]


def _row(policy: str, figures: Figures) -> str:
    transmit, receive = (100 * ratio for ratio in figures.volume.excess_ratios)
    mean = figures.optimality_s / figures.duration_s
    return (
        f"{policy:<18}{transmit:>11.2f}{receive:>9.2f}{figures.above_threshold_s / 3600:>10.1f}"
        f"{mean:>9.2f}{figures.worst_optimality_ratio:>7.2f}{figures.moves:>7}"
        f"{figures.most_moves_per_mac:>9}"
    )


def _over_time(figures: Figures) -> list[tuple[float, float, float]]:
    """Return each sample's start and excess ratios for transmit and receive, sorted by time."""
    return [(start_s, *volume.excess_ratios) for start_s, volume in sorted(figures.by_time.items())]


def _progress() -> Callable[[float], None]:
    """Return a function that shows a progress bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        return lambda _ratio: None
    shown = -1

    def show(ratio: float) -> None:
        nonlocal shown
        percent = int(100 * ratio)
        if percent == shown:
            return
        shown = percent
        bar = "#" * int(BAR_WIDTH * ratio)
        end = "\r\x1b[K" if percent >= 100 else ""
        sys.stderr.write(Drawn(f"\r[{bar:<{BAR_WIDTH}}] {percent:3} %{end}"))
        sys.stderr.flush()

    return show
