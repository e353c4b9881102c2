"""How long a replay takes, and the same replay with every poll, as JSON.

    python -m tests.unit.controller.replay.bench
    python -m tests.unit.controller.replay.bench --trace TRACE.csv.gz --out docs/results/replay/week.json
    python -m tests.unit.controller.replay.bench --trace TRACE.csv.gz --runs 3

Without `--trace`, four hosts with 16 VM ports each are replayed for four hours. Their loads are made up,
the same each time, and far above those of most hosts. Every poll of a week would take hours. So the peer
is the beginning of the trace, as long as `--samples`, with and without skipping; and both must decide
the same at the same times.

With `--runs`, only the command is measured, with all of its processes and from its start: how long
operators wait. With `--beside DIRECTORY`, each run is followed by one of the checkout in that directory.
The seconds of a shared machine differ from hour to hour; the ratio of both hardly does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from controller.replay.host import Options
from controller.replay.run import search_rarely
from controller.replay.trace import HostTrace, parse, read
from policies.presets import PRESETS
from tests.unit.controller.replay import synthetic_trace
from tests.unit.controller.replay.witness import Witness
from topologies.reports.origin import git, origin

COMMAND = "tests.unit.controller.replay.bench"
MADE_HOSTS, MADE_PORTS, MADE_SAMPLES = 4, 16, 48
HERE = Path(__file__).parents[4]


def main() -> int:
    """Measure and print. The exit status is 1 if skipping changed a decision."""
    options = _parser().parse_args()
    found: dict[str, Any] = {"origin": origin(["python", "-m", COMMAND, *sys.argv[1:]])}
    if options.runs:
        found |= _compared(options) if options.beside else {"runs": _runs(options)}
        return _told(found, options.out)
    begun_s = time.process_time()
    hosts = read(options.trace) if options.trace else parse(_made_up())
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
    return _told(found, options.out) or int(bool(begin) and decided != expected)


def _told(found: dict[str, Any], out: Path | None) -> int:
    text = json.dumps(found, indent=1)
    print(text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure how long a replay takes on one core.")
    parser.add_argument("--trace", type=Path, help="a trace to use instead of a synthetic one")
    parser.add_argument("--policy", choices=list(PRESETS), default="adaptive")
    parser.add_argument("--hosts", type=int, help="number of hosts (default: all)")
    parser.add_argument("--whole", type=int, help="number of samples per host (default: all)")
    parser.add_argument("--samples", type=int, default=3, help="samples with every poll (3)")
    parser.add_argument("--peers", type=int, default=1, help="hosts with every poll (1)")
    parser.add_argument(
        "--runs", type=int, default=0, help="only time N runs of the command (0)", metavar="N"
    )
    parser.add_argument(
        "--beside", type=Path, help="a checkout of another commit, to run alternately"
    )
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    return parser


def _made_up() -> Iterable[str]:
    return synthetic_trace.lines(MADE_HOSTS, MADE_PORTS, MADE_SAMPLES)


def _runs(options: argparse.Namespace) -> list[dict[str, float]]:
    return [_run(options.trace, options.policy, HERE) for _ in range(options.runs)]


def _compared(options: argparse.Namespace) -> dict[str, Any]:
    """The runs of this checkout and of the one beside it, in turns, and the ratio of their medians."""
    runs: dict[str, list[dict[str, float]]] = {"runs": [], "beside": []}
    for _ in range(options.runs):
        for name, checkout in (("runs", HERE), ("beside", options.beside)):
            runs[name].append(_run(options.trace, options.policy, checkout))
    ratios = {
        key.replace("_s", "_ratio"): round(
            median(run[key] for run in runs["runs"]) / median(run[key] for run in runs["beside"]), 3
        )
        for key in ("clock_s", "cpu_s")
    }
    return {
        "beside_commit": str(git("rev-parse", "HEAD", root=options.beside)).strip(),
        **runs,
        **ratios,
    }


def _run(trace: Path | None, policy: str, checkout: Path) -> dict[str, float]:
    """How long `ovs-lbt replay` takes on all cores, in seconds of the clock and of the processor.

    `checkout`: the directory whose `ovs-lbt` runs.
    """
    with tempfile.TemporaryDirectory() as directory:
        if trace is None:
            trace = Path(directory, "trace.csv")
            trace.write_text("\n".join(_made_up()))
        command = [sys.executable, "-m", "controller.cli", "replay", str(trace.resolve())]
        command += ["--policy", policy, "--json"]
        before, begun_s = os.times(), time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=checkout)
        clock_s, after = time.monotonic() - begun_s, os.times()
    cpu_s = after.children_user + after.children_system
    cpu_s -= before.children_user + before.children_system
    return {"clock_s": round(clock_s, 3), "cpu_s": round(cpu_s, 3), "load": os.getloadavg()[0]}


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
