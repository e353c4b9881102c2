"""What VMs behind tunnel endpoints lose when an uplink fails or returns and when an endpoint moves.

`python -m tests.switch.overlay_figures --out docs/results/overlay/events.json`
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.switch.bed import BALANCE_SLB, Uplink, upstream_ovs
from tests.switch.ovn import events, rescue
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.overlays import VMS, Way, overlay
from tests.switch.wire import OwnNetwork
from topologies.reports.origin import origin

WAYS = (
    Way(bond="active-backup"),
    Way(bond=BALANCE_SLB),
    Way(policy="dynamic"),
    Way(policy="load-based"),
    Way(bond=BALANCE_SLB, endpoints=2),
    Way(policy="adaptive", endpoints=2),
)
RESCUED = (Way(policy="dynamic"), Way(policy="dynamic", ipv6=True))
REPEAT = 5


def main() -> int:
    """Measure all of them, and write what was found."""
    parser = argparse.ArgumentParser(prog="overlay_figures", description=__doc__)
    parser.add_argument("--repeat", type=int, default=REPEAT, help=f"runs of each ({REPEAT})")
    parser.add_argument("--ways", type=int, nargs="+", default=range(len(WAYS)), help="by number")
    parser.add_argument(
        "--rescue", action="store_true", help="only how soon peers reach a rescued host"
    )
    parser.add_argument("--out", type=Path, default=Path("out/overlay/events.json"))
    parser.add_argument(
        "--soon-again",
        action="store_true",
        help="leave the switch upstream what it has cached of the last event",
    )
    options = parser.parse_args()
    command = ["python", "-m", "tests.switch.overlay_figures", *sys.argv[1:]]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"origins": [], "pps": events.PPS, "flows": 2 * VMS, "runs": []}
    if options.out.exists():
        report = json.loads(options.out.read_text())
    report["origins"].append(origin(command))
    with OwnNetwork().entered(), upstream_ovs() as tor:
        for way in RESCUED if options.rescue else ():
            with overlay(tor, way) as cloud:
                for made in rescued(cloud, way, options.repeat):
                    report["runs"].append(made)
                    print(made, flush=True)
            options.out.write_text(json.dumps(report, indent=2) + "\n")
        if options.rescue:
            return 0
        for way in (WAYS[number] for number in options.ways):
            with overlay(tor, way) as cloud:
                for made in measured(cloud, way, options.repeat, options.soon_again):
                    report["runs"].append(made)
                    print(made, flush=True)
            options.out.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report["runs"]))
    return 0


def rescued(cloud: Cloud, way: Way, repeat: int) -> Iterator[dict[str, Any]]:
    """How soon a peer that only sends reaches a rescued host."""
    for repetition in range(repeat):
        took_s = round(rescue.reached_after_s(cloud), 3)
        made: dict[str, Any] = {
            "way": str(way),
            "repetition": repetition,
            "reached_after_s": took_s,
        }
        yield made | {"load_average": round(os.getloadavg()[0], 2)}
        cloud.hosts[0].start_service()


def measured(cloud: Cloud, way: Way, repeat: int, soon_again: bool) -> Iterator[dict[str, Any]]:
    """Each event, `repeat` times; with the service alive, and then dead."""
    host = cloud.hosts[0]
    for service in ("none",) if way.bond else ("alive", "dead"):
        if service == "dead":
            host.service.kill()
        for repetition in range(repeat):
            failed: Uplink | None = None
            for event in events.FAILURE if service == "dead" else events.ALL:
                to = failed if event is events.RETURNS else None
                found = events.happen(cloud, event, to, soon_again=soon_again)
                failed = found.uplink
                made: dict[str, Any] = {"way": str(way), "service": service, "event": event.name}
                made |= {"repetition": repetition, **asdict(found), "uplink": found.uplink.name}
                yield made | {"load_average": round(os.getloadavg()[0], 2)}


# ---- what it comes to --------------------------------------------------------------------


def table(runs: list[dict[str, Any]]) -> str:
    """Medians and ranges."""
    keys = dict.fromkeys((one["way"], one["service"], one["event"]) for one in runs)
    lines = []
    for key in keys:
        found = [run for run in runs if (run["way"], run["service"], run["event"]) == key]
        texts = [
            f"{name} {statistics.median(of):g} ({min(of):g} to {max(of):g})"
            for name in ("lost", "twice", "tcp_pause_s")
            if (of := [run[name] for run in found])
        ]
        broken = sum(not run["tcp_unbroken"] for run in found)
        way, service, event = key
        lines.append(f"{way}, service {service}, {event}, n = {len(found)}: {', '.join(texts)}")
        lines[-1] += f", {broken} TCP broken"
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
