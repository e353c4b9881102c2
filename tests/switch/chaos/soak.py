"""Chaos for hours: `make soak SEED=1 EVENTS=500`, or `ARGS='--replay FILE'`.

It stops at the first violation, and leaves the fewest events that still lead to one in a
replay file, beside a summary: out/soak/seed-N.json. With `--go-on`, frames that are lost beyond
the bounds, or come twice, are listed there, and do not stop it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.switch.bed import Upstream, upstream_ovs
from tests.switch.chaos import checks, losses, model, run
from tests.switch.chaos.model import Event
from tests.switch.chaos.run import Report
from tests.switch.chaos.shrink import smallest
from tests.switch.chaos.world import Extras, first_state, spec_of
from tests.switch.wire import OwnNetwork
from topologies.reports.report import machine

TRIES = 16
# What is still wrong then stays so, but where LACP comes back: enough to try with fewer events.
TRIED_FOR_S = 12.0


def main() -> int:
    """Exit code: 0 without a violation, 1 with one, 2 for wrong usage."""
    options = _options()
    extras = Extras(options.adaptive, options.standby, options.sabotage)
    # As Ctrl-C does: what was started is to be ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.out.mkdir(parents=True, exist_ok=True)
    with OwnNetwork().entered(), upstream_ovs() as tor:
        seeds = 1 if options.replay else options.seeds
        for seed in range(options.seed, options.seed + seeds):
            if options.replay:
                events = model.from_text(options.replay.read_text())
            else:
                events = run.events_of(seed, options.events, extras)
            load_average = os.getloadavg()
            report = _observed(seed, events, tor, extras, options)
            tries = 0 if options.sabotage else options.tries
            fewest = _fewest(report, tor, tries, extras) if report.violations else []
            measured = {"load_average": {"before": load_average, "after": os.getloadavg()}}
            _write(options.out, report, fewest, extras, measured)
            if report.violations:
                return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one (1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after another (1)")
    parser.add_argument("--events", type=int, default=500, help="of each seed (500)")
    parser.add_argument("--replay", type=Path, help="the events of this file instead")
    parser.add_argument("--tries", type=int, default=TRIES, help=f"to find fewer events ({TRIES})")
    parser.add_argument(
        "--for-s", type=float, default=float("inf"), help="no event begins later than that"
    )
    parser.add_argument(
        "--adaptive", action="store_true", help="`adaptive`, and VMs that it splits"
    )
    parser.add_argument("--standby", action="store_true", help="a second service, that takes over")
    parser.add_argument("--go-on", action="store_true", help="do not stop where frames are lost")
    parser.add_argument(
        "--sabotage",
        default="",
        choices=("", *model.KINDS),
        metavar="KIND",
        help="lose frames at each event of this kind: it has to be found",
    )
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    return parser.parse_args()


def _observed(
    seed: int, events: Sequence[Event], tor: Upstream, extras: Extras, options: argparse.Namespace
) -> Report:
    print(f"seed {seed}: {len(events)} events on {_team(seed)}", flush=True)
    report = run.carry_out(
        seed,
        events,
        tor,
        lambda line: print(line, flush=True),
        for_s=options.for_s,
        extras=extras,
        go_on=options.go_on,
    )
    if report.violations:
        print("\n".join(run.lines(report)), flush=True)
    return report


def _fewest(report: Report, tor: Upstream, tries: int, extras: Extras) -> list[Event]:
    """The fewest events that were found to end in a violation, too."""
    first = first_state(report.seed, extras)

    def fails(events: list[Event]) -> bool:
        left = model.only_possible(first, events)
        if not left or left[-1] != events[-1]:
            return False
        print(f"trying {len(left)} of {len(report.events)} events", flush=True)
        within_s = checks.SETTLED_WITHIN_S if first.negotiated else TRIED_FOR_S
        found = run.carry_out(
            report.seed, left, tor, lambda _: None, settled_within_s=within_s, extras=extras
        )
        # Another one that goes wrong is another story.
        return bool(found.violations) and len(found.events) == len(left)

    return model.only_possible(first, smallest(report.events, fails, tries))


def _team(seed: int) -> str:
    first = first_state(seed)
    return f"{spec_of(seed)}{' with BFD' * (first.watched and not first.negotiated)}"


def _write(
    out: Path,
    report: Report,
    fewest: Sequence[Event],
    extras: Extras,
    measured: dict[str, Any],
) -> None:
    name = "-".join(
        [
            f"seed-{report.seed}",
            *("adaptive" for _ in range(extras.adaptive)),
            *("standby" for _ in range(extras.standby)),
        ]
    )
    summary = {
        "seed": report.seed,
        "team": _team(report.seed),
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "events": len(report.events),
        "command": shlex.join(["python", "-m", "tests.switch.chaos.soak", *sys.argv[1:]]),
        "commit": _commit(),
        "versions": _versions(),
        **measured,
        "extras": asdict(extras),
        "frames_per_second_of_a_flow": losses.PPS,
        "kinds": losses.by_kind(report.counted),
        "beyond_bounds": [asdict(finding) for finding in report.findings],
        "sender_late_s": max((one.late_s for one in report.counted), default=0.0),
        "violations": report.violations,
        "event_s": {
            "median": statistics.median(report.took_s or [0.0]),
            "most": max(report.took_s, default=0.0),
        },
        "service": report.service,
    }
    (out / f"{name}.json").write_text(json.dumps(summary, indent=2) + "\n")
    if report.violations:
        head = "".join(f"# {line}\n" for line in "\n".join(report.violations).split("\n"))
        (out / f"{name}.replay").write_text(head + model.as_text(fewest))
        print(f"replay with: make soak SEED={report.seed} ARGS='--replay {out / name}.replay'")
    print(f"{out / name}.json: {len(report.events)} events, {len(report.violations)} violations")


def _commit() -> str:
    """What is checked out, and whether it is changed."""
    done = subprocess.run(
        ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip()


def _versions() -> dict[str, Any]:
    return {**machine(), "os-ken": importlib.metadata.version("os-ken")}


if __name__ == "__main__":
    sys.exit(main())
