"""`ovs-lbt bench scale`: measures one service with 1, 10, 100 and 300 bridges.

`out/scale/report.json` has the figures.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from topologies.bench import add_results
from topologies.compare.steps import step
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs
from topologies.reports import markdown
from topologies.reports.origin import origin
from topologies.reports.report import machine, rounded
from topologies.reports.table import figures_table
from topologies.scale.bed import Bed
from topologies.scale.measuring import Pace, measure

BRIDGES = (1, 10, 100, 300)
PORTS = 50
# Recovered links are used again immediately, because the bench measures only failovers.
SETTINGS = {"failback-delay-s": "0"}
ADAPTIVE = {**SETTINGS, "policy": "adaptive"}
POLL_S, ADAPTIVE_POLL_S = 1.0, 0.1
FULL, QUICK = Pace(settle_s=15.0, observe_s=30.0), Pace(settle_s=3.0, observe_s=5.0)
DIGITS = 4
START_LIMIT_S, EACH_LIMIT_S = 600.0, 6.0
Report = Mapping[str, Any]
LOOK_AT = "the service, ovs-vswitchd: ps"


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(prog="ovs-lbt bench scale", description=__doc__)
    made.add_argument("--bridges", type=int, nargs="+", default=list(BRIDGES), metavar="N")
    made.add_argument(
        "--ports", type=int, default=PORTS, metavar="N", help="VM ports of each bridge"
    )
    made.add_argument(
        "--quick", action="store_true", help="check that the benchmark works; too short for figures"
    )
    add_results(made)
    return made


def run(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Measure, and write the report. Returns 0 if all measurements completed, else 1."""
    directory = options.out / "scale"
    directory.mkdir(parents=True, exist_ok=True)
    pace = QUICK if options.quick else FULL
    report = _measure_all(sorted(options.bridges), options.ports, pace, command)
    path = directory / "report.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(markdown.text(section(report)), path, sep="\n")
    return 1 if "failed" in report or not report["rows"] else 0


def _measure_all(
    bridges: Sequence[int], ports: int, pace: Pace, command: Sequence[str]
) -> dict[str, Any]:
    begin_s = time.monotonic()

    def write_line(text: str) -> None:
        print(f"{time.monotonic() - begin_s:6.0f} s  {text}", flush=True)

    rows, failed = [], None
    with private_network(), PrivateOvs(prefix="ovs-lbt-scale-") as ovs:
        bed = Bed(ovs, ports)
        for count in bridges:
            write_line(f"=== {count} bridges")
            run_origin = origin(command)
            try:
                with step(f"{count} bridges", _limit_s(count), LOOK_AT):
                    found = measure(bed, count, SETTINGS, pace, POLL_S, write_line)
                rows.append({**found, "origin": run_origin})
            except RuntimeError as failure:
                # The rows of fewer bridges are still worth reporting.
                failed = f"{count} bridges: {failure}"
                write_line(failed)
                break
    with private_network(), PrivateOvs(prefix="ovs-lbt-scale-") as ovs:
        write_line("=== adaptive, on one bridge")
        run_origin = origin(command)
        with step("adaptive, on one bridge", _limit_s(1), LOOK_AT):
            adaptive = measure(Bed(ovs, ports), 1, ADAPTIVE, pace, ADAPTIVE_POLL_S, write_line)
    return {
        "environment": machine(),
        "pace": {"settle_s": pace.settle_s, "observe_s": pace.observe_s},
        "rows": rounded(rows, DIGITS),
        **({"failed": failed} if failed else {}),
        "adaptive": rounded({**adaptive, "origin": run_origin}, DIGITS),
    }


def _limit_s(bridges: int) -> float:
    """The time limit: several times what this number of bridges takes."""
    return START_LIMIT_S + bridges * EACH_LIMIT_S


TEXT = """\
`make bench-scale` runs one service on many bridges of one Open vSwitch, with {ports} patch ports and two uplinks each.
The policy is `load-based`, which polls once a second. In the last row it is `adaptive`, which polls ten times a
second.

- *CPU at rest*: the service's share of a core in {observe_s:g} s in which it only polls.
- *Poll*: from the request until the last reply.
- *Failover*: from the switch's notification of a failed link until the bridge's groups have changed.
- *Attach*: from the request until the pipeline is confirmed. *Start*: until all bridges are connected."""


def section(report: Report) -> list[str]:
    """The parts of the page."""
    rows = {f"{row['bridges']}": row for row in report["rows"]}
    found = {
        name: _figures(row) for name, row in (rows | {"1, adaptive": report["adaptive"]}).items()
    }
    text = TEXT.format(
        ports=report["adaptive"]["ports_each"], observe_s=report["pace"]["observe_s"]
    )
    failed = f"Not completed: {report['failed']}" if "failed" in report else ""
    return ["# scale", text, figures_table({"contenders": found}, of="bridges"), failed]


def _figures(row: Report) -> dict[str, float | None]:
    """The figures of a row that the page shows."""
    polled_s = row["at_rest"]["poll_s"]["median"]
    return {
        "cpu_at_rest_ratio": row["at_rest"]["cpu_ratio"],
        "rss_bytes": row["rss_bytes"],
        "poll_ms": polled_s and 1e3 * polled_s,
        "scale_failover_ms": 1e3 * row["failover_s"]["median"],
        # A service that has all bridges already attaches none.
        "attach_s": row["attach_s"]["median"] if "attach_s" in row else None,
        "start_s": row["start_s"],
    }
