"""The CPU time of a delivered bit, by cause.

    ovs-lbt bench cpu_per_bit --repeat 5 --out out

All contenders carry the same load, each on a network of its own, in turns: 80 Mbit/s of UDP on two
uplinks of 100 Mbit/s, and TCP as fast as possible. ovs-lbt's contenders omit one more part at a time,
so that the difference of two rows is the cost of that part. `OUT/cpu_per_bit.json` has every run, with
the switch's counters.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies import bench, layouts
from topologies.compare import rows
from topologies.compare.contenders import Contender, Observation, Ours, Teams, by_name
from topologies.compare.rows import Rows
from topologies.compare.scenario import Scenario
from topologies.loads.load import Load, Stage
from topologies.measure.cpu_loads import TCP, UDP, MeasuredLoads
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.markdown import runs_table

SCRAPED, UNOBSERVED = "scraped", "unobserved"
STOPPED, UNLEARNING = "service stopped", "without learning"
VARIANTS = (SCRAPED, UNOBSERVED, STOPPED, UNLEARNING)
# Tables of the pipeline, according to docs/architecture.md. The last two have the learned addresses.
LEARN_TABLE, LOCATION_TABLE, LOCAL_SOURCE_TABLE = 1, 20, 21
_TABLE = re.compile(r"\btable=(\d+),")
# The fields in the output of `dump-flows` that are not part of the match or the actions.
_STATE = re.compile(
    r"\b(cookie|duration|table|n_packets|n_bytes|idle_timeout|hard_timeout|idle_age|hard_age)=[\w.]+,? ?"
)
_LEARN = re.compile(r"learn\([^()]*\),?")
SETTLE_S = 0.5


class Varied(Ours):
    """An ovs-lbt policy that omits some parts.

    `scraped`: metrics are read with every sample. `unobserved`: no metrics are read while the load
    runs. `service stopped`: also, the service is stopped, and its flows and groups forward. `without
    learning`: also, the switch does not learn.
    """

    def __init__(self, policy: str, without: str) -> None:
        super().__init__(policy)
        self.name = f"{policy}, {without}"
        self._without = without
        self._ended = False

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        super().take_over(teams, resources)
        self._teams = teams

    def begin(self) -> None:
        """Disable the omitted parts, after end systems have reached each other."""
        if self._without in (SCRAPED, UNOBSERVED):
            return
        self._service.close()
        self._ended = True
        if self._without == UNLEARNING:
            for bridge in sorted(self._bridges):
                _stop_learning(self._teams.ovs, bridge)

    def observe(self) -> Observation:
        """An empty observation at no cost, unless metrics are read."""
        return self._scrape() if self._without == SCRAPED else Observation({})

    def pids(self) -> dict[str, int]:
        return {} if self._ended else super().pids()


def contender(name: str) -> Contender:
    """The contender with this name: one of a bench, or `POLICY, VARIANT`.

    Raises:
        ValueError: there is no such contender.
    """
    policy, comma, without = name.partition(", ")
    if not comma:
        return by_name(name)
    if without not in VARIANTS:
        raise ValueError(f"variant {without} does not exist; expected {' | '.join(VARIANTS)}")
    return Varied(policy, without)


def begin(one: Contender) -> None:
    """Disable the parts that this contender omits."""
    if isinstance(one, Varied):
        one.begin()
        time.sleep(SETTLE_S)


def without_learning(dumped: Iterable[str]) -> list[str]:
    """The flows to add so that learning stops, and learned flows stay.

    `dumped`: the output of `ovs-ofctl dump-flows`. Learned flows get another cookie, because the switch
    deletes them by their cookie when their learning flow is removed.
    """
    lasting, forwarding = [], []
    for line in dumped:
        found = _TABLE.search(line)
        if found is None:
            continue
        table = int(found[1])
        match, _, actions = _STATE.sub("", line).strip().partition("actions=")
        match = match.strip(" ,")
        if table in (LOCATION_TABLE, LOCAL_SOURCE_TABLE):
            lasting.append(f"table={table},{match},actions={actions}")
        elif table == LEARN_TABLE and "learn(" in actions:
            forwarding.append(f"table={table},{match},actions={_LEARN.sub('', actions)}")
    return [*lasting, *forwarding]


def _stop_learning(ovs: PrivateOvs, bridge: str) -> None:
    dumped = ovs.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "--no-names", bridge)
    path = ovs.rundir / f"{bridge}.without-learning"
    path.write_text("\n".join(without_learning(dumped.splitlines())) + "\n")
    ovs.run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", bridge, str(path))
    left = ovs.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge, f"table={LEARN_TABLE}")
    if "learn(" in left:
        raise RuntimeError(f"{bridge} still learns addresses")


NAME = "cpu_per_bit"
SPAN_S = 20.0
CONTENDERS = (
    "manual",
    "balance-slb",
    "originating-port, scraped",
    "originating-port, unobserved",
    "originating-port, service stopped",
    "originating-port, without learning",
    "dynamic, unobserved",
)
BASE = "balance-slb"
SWITCH, SERVICE = "ovs-vswitchd", "ovs-lbt"
Measured = Mapping[str, Any]


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = bench.other_parser(
        NAME, str(__doc__), CONTENDERS, "'POLICY, VARIANT' omits parts of ovs-lbt", runs=5
    )
    made.add_argument("--loads", nargs="+", default=[UDP, TCP], choices=(UDP, TCP))
    made.add_argument("--span-s", type=float, default=SPAN_S, metavar="S")
    made.add_argument("--profile", type=Path, metavar="DIR", help="write perf profiles, no figures")
    return made


def run(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Measure, and write the report. Returns 0 if every run completed, else 1."""

    def measured(name: str) -> dict[str, Any]:
        profile = options.profile / name.replace(" ", "-") if options.profile else None
        return {"loads": _measured(name, tuple(options.loads), options.span_s, profile)}

    path, settings = options.out / f"{NAME}.json", {"span_s": options.span_s}
    kept = Rows(path, "runs", settings, command, functools.partial(print, flush=True))
    report = kept.run(options.contenders, options.repeat, measured, options.anew)
    print(table(report["runs"]), path, sep="\n")
    return 1 if "failed" in report else 0


def _measured(
    name: str, kinds: tuple[str, ...], span_s: float, profile: Path | None
) -> dict[str, Any]:
    """One run of a contender: the measurements with each load."""
    one = contender(name)

    def load(stage: Stage) -> Load:
        return MeasuredLoads(stage, kinds, span_s, lambda: begin(one), one.pids, profile)

    scenario = Scenario(NAME, "", layouts.shift(), load, (name,))
    found: dict[str, Any] = rows.run_details(scenario, one)
    return found


# ---- figures -----------------------------------------------------------------------------


def gbit(found: Measured) -> float:
    return float(found["delivered_bits"]) / 1e9


def switch_cpu_s(found: Measured) -> float:
    return sum(found["switch"]["cpu_s"].values())


def service_cpu_s(found: Measured) -> float:
    return float(found["cpu_s"].get(SERVICE, 0.0))


def cost(found: Measured) -> float:
    """The CPU time of switch and service per delivered gigabit, in milliseconds."""
    return 1e3 * (switch_cpu_s(found) + service_cpu_s(found)) / gbit(found)


# What is compared: a label, and the figure of one load of a run.
FIGURES: Mapping[str, Callable[[Measured], float]] = {
    "Mbit/s": lambda one: gbit(one) * 1e3 / one["span_s"],
    "switch, ms/Gbit": lambda one: 1e3 * switch_cpu_s(one) / gbit(one),
    "switch, % of a core": lambda one: 100 * switch_cpu_s(one) / one["span_s"],
    "service, ms/Gbit": lambda one: 1e3 * service_cpu_s(one) / gbit(one),
    "service, % of a core": lambda one: 100 * service_cpu_s(one) / one["span_s"],
    "both, ms/Gbit": cost,
    "sleeps/s": lambda one: one["switch"]["sleeps"] / one["span_s"],
    "packets/s": lambda one: one["switch"]["packets"]["packets received"] / one["span_s"],
    "upcalls/s": lambda one: _upcalls(one) / one["span_s"],
    "cached flows": lambda one: float(one["cached_flows"]),
}


def _upcalls(one: Measured) -> float:
    packets = one["switch"]["packets"]
    return float(packets.get("miss with success upcall", 0.0))


def table(runs: Sequence[Measured]) -> str:
    """Medians and ranges of every contender's figures, for each load.

    The last column is the ratio of the CPU time of both to that of `BASE` in the same repetition.
    """
    costs = {
        (run["contender"], run["repetition"], kind): cost(one)
        for run in runs
        for kind, one in run["loads"].items()
    }
    over, rows = f"both, over {BASE}", []
    for (name, repetition, kind), value in costs.items():
        base = costs.get((BASE, repetition, kind))
        rows.append({"load": kind, "contender": name, over: value / base if base else None})
    for row, one in zip(rows, (one for run in runs for one in run["loads"].values()), strict=True):
        row |= {label: of(one) for label, of in FIGURES.items()}
    return runs_table(
        sorted(rows, key=lambda row: row["load"]), ("load", "contender"), [*FIGURES, over]
    )


if __name__ == "__main__":
    sys.exit(bench.main([NAME, *sys.argv[1:]]))
