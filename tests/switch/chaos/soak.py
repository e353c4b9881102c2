"""Random events for hours: `make soak SEED=1 EVENTS=500`, or `ARGS='--replay FILE'`.

A run stops at the first violation. It writes its events to a replay file, next to a summary:
out/soak/seed-N.json. With `--go-on`, lost frames beyond the limits and duplicates are only listed
there, and do not stop the run.

After each event, the summary is written again. With `--jobs`, several seeds run at the same time, each in
a process and networks of its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.switch.bed import upstream_ovs
from tests.switch.chaos import losses, model, run
from tests.switch.chaos.run import Report
from tests.switch.chaos.world import Extras, first_state, spec_of
from tests.switch.wire import OwnNetwork
from topologies.reports.origin import origin


def main() -> int:
    """Exit status: 0 without a violation, 1 with a violation, 2 for wrong usage."""
    options = _options()
    extras = Extras(options.adaptive, options.standby)
    # As Ctrl-C does: what was started is to be ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.jobs > 1 and options.seeds > 1 and not options.replay:
        return _beside_each_other(options)
    with OwnNetwork().entered(), upstream_ovs() as tor:
        seeds = 1 if options.replay else options.seeds
        for seed in range(options.seed, options.seed + seeds):
            kept = Kept(options.out, seed, extras)
            if options.replay:
                events = model.from_text(options.replay.read_text())
            else:
                events = run.events_of(seed, options.events, extras)
            print(f"seed {seed}: {len(events)} events on {_team(seed)}", flush=True)
            report = run.carry_out(
                seed,
                events,
                tor,
                functools.partial(print, flush=True),
                for_s=options.for_s,
                extras=extras,
                go_on=options.go_on,
                keep=kept.write,
            )
            kept.write(report)
            if report.violations:
                print("\n".join(run.lines(report)), flush=True)
                kept.found(report)
            print(kept.told(report))
            if report.violations:
                return 1
    return 0


def _beside_each_other(options: argparse.Namespace) -> int:
    """Each seed in a process of its own, so many at a time; the worst exit code."""

    def one(seed: int) -> int:
        command = [sys.executable, "-m", "tests.switch.chaos.soak", *sys.argv[1:]]
        # The last one of an option counts.
        command += ["--seed", str(seed), "--seeds", "1", "--jobs", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                print(f"[{seed}] {line}", end="", flush=True)
        return process.returncode

    seeds = range(options.seed, options.seed + options.seeds)
    with ThreadPoolExecutor(options.jobs) as pool:
        return max(map(abs, pool.map(one, seeds)))


class Kept:
    """The result of a seed in files: a summary after each event, and the events that end in a violation."""

    def __init__(self, out: Path, seed: int, extras: Extras) -> None:
        name = f"seed-{seed}{'-adaptive' * extras.adaptive}{'-standby' * extras.standby}"
        self._summary, self._replay = out / f"{name}.json", out / f"{name}.replay"
        self._extras = extras
        self._load_average = os.getloadavg()

    def write(self, report: Report) -> None:
        """Write the summary anew."""
        made = self._summary.with_suffix(".part")
        made.write_text(json.dumps(self._summarized(report), indent=2) + "\n")
        made.replace(self._summary)

    def found(self, report: Report) -> None:
        """Write the events, which end in a violation, to the replay file."""
        head = "".join(f"# {line}\n" for line in "\n".join(report.violations).split("\n"))
        self._replay.write_text(head + model.as_text(report.events))
        print(f"replay with: make soak SEED={report.seed} ARGS='--replay {self._replay}'")

    def told(self, report: Report) -> str:
        events, violations = len(report.events), len(report.violations)
        return f"{self._summary}: {events} events, {violations} violations"

    def _summarized(self, report: Report) -> dict[str, Any]:
        return {
            "seed": report.seed,
            "team": _team(report.seed),
            "events": len(report.events),
            **origin(["python", "-m", "tests.switch.chaos.soak", *sys.argv[1:]]),
            "load_average": {"before": self._load_average, "after": os.getloadavg()},
            "extras": asdict(self._extras),
            "frames_per_second_of_a_flow": losses.PPS,
            "kinds": losses.by_kind(report.counted, report.took_s),
            "beyond_bounds": [asdict(finding) for finding in report.findings],
            "sender_late_s": max((one.late_s for one in report.counted), default=0.0),
            "violations": report.violations,
            "event_s": {
                "median": statistics.median(report.took_s or [0.0]),
                "most": max(report.took_s, default=0.0),
                "sum": sum(report.took_s),
            },
            "service": report.service,
        }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="the first seed (1)")
    add("--seeds", type=int, default=1, help="the number of seeds (1)")
    add("--jobs", type=int, default=1, help="the number of seeds at the same time (1)")
    add("--events", type=int, default=500, help="the number of events of each seed (500)")
    add("--replay", type=Path, help="run the events of this file instead")
    add(
        "--for-s",
        type=float,
        default=float("inf"),
        help="begin no event after S seconds",
        metavar="S",
    )
    add("--adaptive", action="store_true", help="use `adaptive`, with VMs that it splits")
    add("--standby", action="store_true", help="run a second service, which takes over")
    add("--go-on", action="store_true", help="do not stop if frames are lost")
    add("--out", type=Path, default=Path("out/soak"))
    return parser.parse_args()


def _team(seed: int) -> str:
    first = first_state(seed)
    return f"{spec_of(seed)}{' with BFD' * (first.watched and not first.negotiated)}"


if __name__ == "__main__":
    sys.exit(main())
