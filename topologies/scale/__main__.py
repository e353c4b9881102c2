"""`make bench-scale`: measures one service with 1, 10, 100 and 300 bridges.

`out/scale/report.json` has the figures, and `scale.svg` and `scale.png` show how they grow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topologies.compare.steps import no_progress, step
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.origin import origin
from topologies.reports.report import machine
from topologies.scale.bed import Bed
from topologies.scale.figures import exponent, figure
from topologies.scale.measuring import Pace, measure

BRIDGES = (1, 10, 100, 300)
PORTS = 50
# Recovered links are used again at once, because the bench measures only failovers.
SETTINGS = {"failback-delay-s": "0"}
ADAPTIVE = {**SETTINGS, "policy": "adaptive"}
POLL_S, ADAPTIVE_POLL_S = 1.0, 0.1
FULL, QUICK = Pace(settle_s=15.0, observe_s=30.0), Pace(settle_s=3.0, observe_s=5.0)
START_LIMIT_S, EACH_LIMIT_S = 600.0, 6.0
LOOK_AT = "the service, ovs-vswitchd: ps"
# The figures whose growth is reported, by their path in a row.
GROWING = (
    "at_rest.cpu_ratio",
    "counting.cpu_ratio",
    "at_rest.decision_s.mean",
    "at_rest.poll_s.mean",
    "rss_bytes",
    "threads",
    "attach_s.median",
    "start_s",
    "failover_s.median",
    "scrape.cpu_s",
)


def main(arguments: Sequence[str]) -> int:
    """Measure, and write the report and the pictures.

    Returns:
        0 if all measurements completed, 1 if one failed, 2 for wrong usage.
    """
    parser = argparse.ArgumentParser(prog="make bench-scale", description=__doc__)
    parser.add_argument("--bridges", type=int, nargs="+", default=list(BRIDGES), metavar="N")
    parser.add_argument(
        "--ports", type=int, default=PORTS, metavar="N", help="VM ports of each bridge"
    )
    parser.add_argument(
        "--quick", action="store_true", help="check that the benchmark works; too short for figures"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        print(f"bench-scale: user id {os.geteuid()} -> root", file=sys.stderr)
        return 1
    directory = options.out / "scale"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        report = _measure_all(
            sorted(options.bridges), options.ports, QUICK if options.quick else FULL
        )
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as failure:
        print(f"bench-scale: {failure}", file=sys.stderr)
        return 1
    path = directory / "report.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report), path, sep="\n\n")
    if not report["rows"]:
        return 1
    try:
        from topologies.scale.picture import draw
    except ImportError as missing:
        print(
            f"no pictures: {missing} -> install with: apt install python3-matplotlib",
            file=sys.stderr,
        )
    else:
        print(*draw(report, directory), sep="\n")
    return 1 if "failed" in report else 0


def _measure_all(bridges: Sequence[int], ports: int, pace: Pace) -> dict[str, Any]:
    begin_s = time.monotonic()

    def write_line(text: str) -> None:
        print(f"{time.monotonic() - begin_s:6.0f} s  {text}", flush=True)

    rows, failed = [], None
    command = [sys.executable, "-m", "topologies.scale", *sys.argv[1:]]
    with private_network(), PrivateOvs(prefix="ovs-lbt-scale-") as ovs:
        bed = Bed(ovs, ports)
        for count in bridges:
            write_line(f"=== {count} bridges")
            run_origin = origin(command)
            try:
                with step(f"{count} bridges", _limit_s(count), LOOK_AT, no_progress):
                    found = measure(bed, count, SETTINGS, pace, POLL_S, write_line)
                rows.append({**found, "origin": run_origin})
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as failure:
                # The rows of fewer bridges are still worth reporting.
                failed = f"{count} bridges: {failure}"
                write_line(failed)
                break
    with private_network(), PrivateOvs(prefix="ovs-lbt-scale-") as ovs:
        write_line("=== adaptive, on one bridge")
        run_origin = origin(command)
        with step("adaptive, on one bridge", _limit_s(1), LOOK_AT, no_progress):
            adaptive = measure(Bed(ovs, ports), 1, ADAPTIVE, pace, ADAPTIVE_POLL_S, write_line)
    growth = {
        name: exponent([(row["bridges"], _at(row, name)) for row in rows]) for name in GROWING
    }
    return {
        "environment": machine(),
        "pace": {"settle_s": pace.settle_s, "observe_s": pace.observe_s},
        "rows": [rounded(row) for row in rows],
        **({"failed": failed} if failed else {}),
        "adaptive": rounded({**adaptive, "origin": run_origin}),
        "growth": rounded(growth),
    }


def _limit_s(bridges: int) -> float:
    """The time limit: several times what this number of bridges takes."""
    return START_LIMIT_S + bridges * EACH_LIMIT_S


def _at(row: dict[str, Any], name: str) -> float:
    """A figure by its path; zero if it was not measured."""
    return figure(row, name) or 0.0


def rounded(value: Any) -> Any:
    """Round floats to four significant digits."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def table(report: dict[str, Any]) -> str:
    """A text table with a line for each number of bridges."""
    heads = ["bridges", "CPU %", "counting %", "decision ms", "off time ms", "RSS MB", "threads"]
    heads += ["attach ms", "start s", "failover ms", "scrape s"]
    lines = ["  ".join(f"{head:>11}" for head in heads)]
    for row in [*report["rows"], report["adaptive"]]:
        values = (
            row["bridges"],
            100 * _at(row, "at_rest.cpu_ratio"),
            100 * _at(row, "counting.cpu_ratio"),
            1e3 * _at(row, "at_rest.decision_s.mean"),
            1e3 * _at(row, "at_rest.off_time_s.median"),
            _at(row, "rss_bytes") / 1e6,
            row["threads"],
            1e3 * _at(row, "attach_s.median"),
            row["start_s"],
            1e3 * _at(row, "failover_s.median"),
            _at(row, "scrape.cpu_s"),
        )
        lines.append("  ".join(f"{value:11.4g}" for value in values))
    growth = ", ".join(f"{n} {e:.2f}" for n, e in report["growth"].items() if e is not None)
    return "\n".join([*lines, "", f"The last line is adaptive. Growth with bridges: {growth}"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
