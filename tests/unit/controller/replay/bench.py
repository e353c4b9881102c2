"""How long a replay takes, and the same replay with every poll, as JSON.

    python -m tests.unit.controller.replay.bench
    python -m tests.unit.controller.replay.bench --trace TRACE.csv.gz --out docs/results/replay/week.json

Without `--trace`, four hosts with 16 VM ports each are replayed for four hours. Their loads are made up,
the same each time, and far above those of most hosts. Every poll of a week would take hours. So the peer
is the beginning of the trace, as long as `--samples`, with and without skipping; and both must decide
the same at the same times.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from controller.replay.host import Options
from controller.replay.run import search_rarely
from controller.replay.trace import HostTrace, parse, read
from policies.presets import PRESETS
from tests.unit.controller.replay import synthetic_trace
from tests.unit.controller.replay.witness import Witness
from topologies.reports.origin import origin

COMMAND = "tests.unit.controller.replay.bench"
MADE_HOSTS, MADE_PORTS, MADE_SAMPLES = 4, 16, 48


def main() -> int:
    """Measure and print. The exit status is 1 if skipping changed a decision."""
    options = _parser().parse_args()
    found: dict[str, Any] = {"origin": origin(["python", "-m", COMMAND, *sys.argv[1:]])}
    begun_s = time.process_time()
    made_up = synthetic_trace.lines(MADE_HOSTS, MADE_PORTS, MADE_SAMPLES)
    hosts = read(options.trace) if options.trace else parse(made_up)
    found["reading_cpu_s"] = round(time.process_time() - begun_s, 3)
    hosts = [_first(host, options.whole) for host in hosts[: options.hosts]]
    found["vm_ports"] = sum(len(host.ports) for host in hosts)
    found["hours"] = round(sum(map(_hours, hosts)) / len(hosts), 3)
    found["replay"], _ = _measured(hosts, options.policy, skips=True)
    begin = [_first(host, options.samples) for host in hosts[: options.peers]]
    if begin:
        skipped, decided = _measured(begin, options.policy, skips=True)
        every, expected = _measured(begin, options.policy, skips=False)
        found["peer"] = {
            "hosts": len(begin),
            "samples": options.samples,
            "skipping": skipped,
            "every_poll": every,
            "same_decisions": decided == expected,
        }
    text = json.dumps(found, indent=1)
    print(text)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text + "\n")
    return int(bool(begin) and decided != expected)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure how long a replay takes on one core.")
    parser.add_argument("--trace", type=Path, help="a trace to use instead of a synthetic one")
    parser.add_argument("--policy", choices=list(PRESETS), default="adaptive")
    parser.add_argument("--hosts", type=int, help="number of hosts (default: all)")
    parser.add_argument("--whole", type=int, help="number of samples per host (default: all)")
    parser.add_argument("--samples", type=int, default=3, help="samples with every poll (3)")
    parser.add_argument("--peers", type=int, default=1, help="hosts with every poll (1)")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    return parser


def _first(host: HostTrace, samples: int | None) -> HostTrace:
    return replace(host, samples=dict(islice(host.samples.items(), samples)))


def _hours(host: HostTrace) -> float:
    return sum(end_s - start_s for start_s, end_s, _ in host.intervals()) / 3600


def _measured(
    hosts: Iterable[HostTrace], policy: str, skips: bool
) -> tuple[dict[str, Any], list[list[Any]]]:
    """What the replay of hosts one after another takes, and what was decided on each.

    Seconds are those of the processor, because other programs may run, and of the clock.
    """
    cpu_s, clock_s = time.process_time(), time.monotonic()
    witnesses = [Witness(host, policy, Options(skips=skips)) for host in hosts]
    search_rarely()
    moves = sum(witness.replay().moves for witness in witnesses)
    figures = {
        "cpu_s": round(time.process_time() - cpu_s, 3),
        "clock_s": round(time.monotonic() - clock_s, 3),
        "polls": sum(witness.polls for witness in witnesses),
        "moves": moves,
    }
    return figures, [witness.decided for witness in witnesses]


if __name__ == "__main__":
    sys.exit(main())
