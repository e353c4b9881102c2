"""`make bench-failovers`: measures failovers of one service on hundreds of bridges.

    make bench-failovers
    make bench-failovers ARGS='--service before=/tmp/old --service now=. --out FILE'

The second compares the services of two checkouts.

Each round starts the service of each checkout on the same bridges, fails uplinks of some of them one
after another, and ends it. The service's part of a failover lasts from the message about the port until
the bundle with the commit, as a relay before the bridge's socket sees them. The whole failover lasts
until the groups have changed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.network import processes
from topologies.network.private_network import private_network
from topologies.network.private_ovs import PrivateOvs
from topologies.network.service import Service
from topologies.reports.origin import git, origin
from topologies.reports.report import machine
from topologies.scale import figures, measuring
from topologies.scale.bed import Bed
from topologies.scale.relay import Relay

BRIDGES, PORTS, ROUNDS, SAMPLES = 300, 50, 2, 5
SETTINGS = {"failback-delay-s": "0"}
# Records attached by one ovs-vsctl command.
BATCH = 20
OBSERVE_S = 10.0
# What one failover causes is over: VM ports return eight at a time, one second apart.
CALM_S = 1.0
FOLLOWED_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout whose service is measured, under a name for the report."""

    name: str
    directory: Path

    @classmethod
    def parse(cls, text: str) -> Checkout:
        name, _, directory = text.partition("=")
        return cls(name, Path(directory or name).resolve())

    def commit(self) -> dict[str, str]:
        """Its commit, if it is a checkout."""
        found = git("rev-parse", "HEAD", root=self.directory)
        return {"commit": found.strip()} if found else {}


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and write the report. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m topologies.scale.failovers")
    parser.add_argument("--bridges", type=int, default=BRIDGES, metavar="N")
    parser.add_argument("--ports", type=int, default=PORTS, metavar="N", help="of each bridge")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help="in each round")
    parser.add_argument(
        "--service", type=Checkout.parse, action="append", metavar="NAME=DIR", help="a checkout"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON to this file")
    options = parser.parse_args(arguments)
    checkouts = options.service or [Checkout.parse("now=.")]
    report: dict[str, Any] = {
        "origin": origin([sys.executable, "-m", "topologies.scale.failovers", *arguments]),
        "environment": machine(),
        "bridges": options.bridges,
        "ports_each": options.ports,
        "services": {one.name: {**one.commit(), "runs": []} for one in checkouts},
    }
    with private_network(), PrivateOvs(prefix="ovs-lbt-scale-") as ovs:
        bed = Bed(ovs, options.ports)
        for made in bed.grow(options.bridges):
            _tell(f"{made} bridges created")
        for first in range(0, options.bridges, BATCH):
            bed.attach(bed.bridges[first : first + BATCH], SETTINGS)
        with _running(bed, checkouts[-1]) as service:
            for name in bed.bridges:
                measuring.await_groups(bed, name)
            measuring.await_idle(service)
        _tell("all bridges are attached")
        for _ in range(options.rounds):
            for one in checkouts:
                run = _measured(bed, one, options.samples)
                report["services"][one.name]["runs"].append(run)
                _tell(f"{one.name}: {json.dumps(run)}")
                _sum_up(report["services"][one.name])
                if options.out:
                    options.out.parent.mkdir(parents=True, exist_ok=True)
                    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({name: _without_runs(of) for name, of in report["services"].items()}))
    return 0


def _sum_up(found: dict[str, Any]) -> None:
    """Add what all runs of a service have in common so far."""
    took = [failover for run in found["runs"] for failover in run["failovers"]]
    for key in ("service_s", "whole_s", "switch_s"):
        found[key] = _spread([failover[key] for failover in took if failover[key] is not None])


@contextlib.contextmanager
def _running(bed: Bed, checkout: Checkout) -> Iterator[Service]:
    """The service of a checkout, connected to all bridges."""
    bed.ovs.env["PYTHONPATH"] = str(checkout.directory)
    bed.ovs.env["NOTIFY_SOCKET"] = str(bed.ovs.rundir / "notify")
    status = measuring.NotifySocket(bed.ovs.rundir / "notify")
    with Service(bed.ovs, bed.ovs.rundir / "service.out") as service:
        status.wait_connected(len(bed.bridges))
        yield service


def _measured(bed: Bed, checkout: Checkout, samples: int) -> dict[str, Any]:
    """Some failovers, one after another, and what polls cost before that."""
    names = measuring.sampled(bed, len(bed.bridges), samples)
    with contextlib.ExitStack() as stack:
        relays = {n: stack.enter_context(Relay(bed.management_socket(n))) for n in names}
        service = stack.enter_context(_running(bed, checkout))
        measuring.await_idle(service)
        run: dict[str, Any] = {"load_average": list(os.getloadavg()), **_polls(service)}
        run["failovers"] = [_failover(bed, name, relays[name]) for name in names]
    return run


def _polls(service: Service) -> dict[str, Any]:
    """What a poll of a bridge costs the service, while nothing else happens."""
    before = service.metrics()
    time.sleep(measuring.AFTER_SCRAPE_S)
    used_s, begin_s = processes.cpu_s(service.pid), time.monotonic()
    time.sleep(OBSERVE_S)
    used_s, took_s = processes.cpu_s(service.pid) - used_s, time.monotonic() - begin_s
    after = service.metrics()
    time.sleep(measuring.AFTER_SCRAPE_S)
    found: dict[str, Any] = {"cpu_ratio": used_s / took_s}
    for name, key in ((measuring.DECISIONS, "decision_s"), (measuring.POLLS, "poll_s")):
        seen = figures.histogram(after, name).since(figures.histogram(before, name))
        found[key] = {"median": seen.quantile(0.5), "p99": seen.quantile(0.99), "n": seen.count}
    return found


def _failover(bed: Bed, name: str, relay: Relay) -> dict[str, Any]:
    loads = os.getloadavg()
    relay.begin()
    whole_s, switch_s = measuring.failover(bed, name, relay.switch_socket)
    end_s = time.monotonic() + FOLLOWED_TIMEOUT_S
    while (service_s := relay.service_s()) is None and time.monotonic() < end_s:
        time.sleep(0.01)
    time.sleep(CALM_S)
    return {
        "bridge": name,
        "service_s": service_s,
        "whole_s": whole_s,
        "switch_s": switch_s,
        "load_average": loads[0],
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


def _without_runs(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "runs"}


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
