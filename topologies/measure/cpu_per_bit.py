"""What a delivered bit costs in CPU time, by cause.

    python -m topologies.measure.cpu_per_bit --runs 5 --out out

Every contender carries the same load on a network of its own, one after another, and then all of
them again: 80 Mbit/s of UDP on two uplinks of 100 Mbit/s, and TCP as fast as it gets. Ours take
part with one thing at a time left out, so that the difference of two rows is what that thing costs.
`OUT/cpu_per_bit.json` has every run, with what the switch has counted meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from topologies import layouts
from topologies.compare.scenario import Scenario
from topologies.loads.load import Load, Stage
from topologies.measure import cpu_contenders
from topologies.measure.cpu_loads import TCP, UDP, MeasuredLoads
from topologies.measure.runs import Measurement, run_details

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


def main(arguments: Sequence[str]) -> int:
    """Measure, and write what was found.

    Returns:
        0: it ran; 1: it could not; 2: wrong usage.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m topologies.measure.{NAME}", description=__doc__
    )
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each contender")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--loads", nargs="+", default=[UDP, TCP], choices=(UDP, TCP))
    parser.add_argument("--span-s", type=float, default=SPAN_S, metavar="S")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="profiles by perf, no figures")
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR")
    options = parser.parse_args(arguments)

    def measured(name: str) -> dict[str, Any]:
        profile = options.profile / name.replace(" ", "-") if options.profile else None
        return _measured(name, tuple(options.loads), options.span_s, profile)

    measurement = Measurement(NAME, "loads", measured)
    if not measurement.is_permitted():
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{NAME}.json"
    kept = json.loads(path.read_text())["runs"] if path.exists() else []
    first = 1 + max((one["repetition"] for one in kept), default=0)
    measurement.repeat(
        range(first, first + options.runs),
        options.contenders,
        arguments,
        kept,
        path,
        lambda one: print(
            f"{one['repetition']}: {one['contender']}: {_line(one['loads'])}", flush=True
        ),
    )
    print(table(kept))
    return 0


def _measured(
    name: str, kinds: tuple[str, ...], span_s: float, profile: Path | None
) -> dict[str, Any]:
    """One run of a contender: what was measured with each load."""
    one = cpu_contenders.contender(name)

    def load(stage: Stage) -> Load:
        return MeasuredLoads(
            stage, kinds, span_s, lambda: cpu_contenders.begin(one), one.pids, profile
        )

    scenario = Scenario(NAME, "", layouts.shift(), load, (name,))
    found: dict[str, Any] = run_details(scenario, one)
    return found


# ---- figures -----------------------------------------------------------------------------


def gbit(found: Measured) -> float:
    return float(found["delivered_bits"]) / 1e9


def switch_cpu_s(found: Measured) -> float:
    return sum(found["switch"]["cpu_s"].values())


def service_cpu_s(found: Measured) -> float:
    return float(found["cpu_s"].get(SERVICE, 0.0))


# What is compared: a label, and the figure of one load of a run.
FIGURES: tuple[tuple[str, Callable[[Measured], float]], ...] = (
    ("Mbit/s", lambda one: gbit(one) * 1e3 / one["span_s"]),
    ("switch, s/Gbit", lambda one: switch_cpu_s(one) / gbit(one)),
    ("switch, % of a core", lambda one: 100 * switch_cpu_s(one) / one["span_s"]),
    ("service, s/Gbit", lambda one: service_cpu_s(one) / gbit(one)),
    ("service, % of a core", lambda one: 100 * service_cpu_s(one) / one["span_s"]),
    ("both, s/Gbit", lambda one: (switch_cpu_s(one) + service_cpu_s(one)) / gbit(one)),
    ("sleeps/s", lambda one: one["switch"]["sleeps"] / one["span_s"]),
    ("packets/s", lambda one: one["switch"]["packets"]["packets received"] / one["span_s"]),
    ("upcalls/s", lambda one: _upcalls(one) / one["span_s"]),
    ("cached flows", lambda one: float(one["cached_flows"])),
)


def _upcalls(one: Measured) -> float:
    packets = one["switch"]["packets"]
    return float(packets.get("miss with success upcall", 0.0))


def paired_ratios(
    runs: Sequence[Measured], kind: str, of: Callable[[Measured], float]
) -> dict[str, list[float]]:
    """Of each contender its figure over that of `BASE` in the same repetition."""
    by_place = {
        (one["contender"], one["repetition"]): of(one["loads"][kind])
        for one in runs
        if kind in one["loads"]
    }
    found: dict[str, list[float]] = {}
    for (name, repetition), value in by_place.items():
        if base := by_place.get((BASE, repetition)):
            found.setdefault(name, []).append(value / base)
    return found


def table(runs: Sequence[Measured]) -> str:
    """Medians and ranges of every contender's figures, for each load."""
    lines = []
    names = dict.fromkeys(one["contender"] for one in runs)
    for kind in dict.fromkeys(kind for one in runs for kind in one["loads"]):
        ratios = paired_ratios(runs, kind, FIGURES[5][1])
        lines += ["", f"{kind}: median (least to most)", ""]
        for name in names:
            of_one = [
                one["loads"][kind]
                for one in runs
                if one["contender"] == name and kind in one["loads"]
            ]
            if not of_one:
                continue
            cells = [f"{label} {_spread([of(one) for one in of_one])}" for label, of in FIGURES]
            if name in ratios:
                cells.append(f"x {BASE} {_spread(ratios[name])}")
            lines.append(f"{name} (n = {len(of_one)}): {'; '.join(cells)}")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.4g} ({least:.4g} to {most:.4g})"


def _line(found: Mapping[str, Measured]) -> str:
    return "; ".join(
        f"{kind} {gbit(one) * 1e3 / one['span_s']:.1f} Mbit/s, switch {switch_cpu_s(one) / gbit(one):.3f}"
        f" and service {service_cpu_s(one) / gbit(one):.3f} s/Gbit"
        for kind, one in found.items()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
