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


def figure(row: Mapping[str, Any], place: str) -> float | None:
    """A figure of a report row by its path, like `at_rest.cpu_ratio`; None if it was not measured."""
    found: Any = row
    for part in place.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


Report = Mapping[str, Any]
Column = tuple[str, str, float, int]
# A column: heading, path of the figure in a row, factor, and number of decimals.
COLUMNS: tuple[Column, ...] = (
    ("CPU at rest, %", "at_rest.cpu_ratio", 1e2, 2),
    ("resident, MB", "rss_bytes", 1e-6, 0),
    ("poll, ms", "at_rest.poll_s.median", 1e3, 1),
    ("failover, ms", "failover_s.median", 1e3, 0),
    ("attach, s", "attach_s.median", 1, 2),
    ("start, s", "start_s", 1, 1),
)

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
    rows = {str(row["bridges"]): row for row in report["rows"]}
    rows["1, `adaptive`"] = report["adaptive"]
    columns = [c for c in COLUMNS if any(figure(row, c[1]) is not None for row in rows.values())]
    head = ["bridges", *(heading for heading, *_ in columns)]
    cells = ([name, *_cells(row, columns)] for name, row in rows.items())
    text = TEXT.format(
        ports=report["adaptive"]["ports_each"], observe_s=report["pace"]["observe_s"]
    )
    failed = f"Not completed: {report['failed']}" if "failed" in report else ""
    return ["# scale", text, markdown.table(head, cells, left=0), failed]


def _cells(row: Report, columns: Sequence[Column]) -> list[str]:
    values = [(figure(row, place), factor, digits) for _, place, factor, digits in columns]
    return ["" if v is None else f"{v * factor:.{digits}f}" for v, factor, digits in values]
