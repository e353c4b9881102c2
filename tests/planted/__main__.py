"""Plants faults in copies of this checkout, and tells which tests catch them.

    python -m tests.planted draw --seed 54 --count 80 --commit 659033dc > LIST
    python -m tests.planted run LIST --results new.json
    python -m tests.planted reach LIST --results new.json --out reached.json
    python -m tests.planted run LIST --results new.json --reached reached.json
    python -m tests.planted table LIST old=old.json new=new.json

`run` runs the tests of the faulty module, then of its directory, then all of tests/unit and tests/wire,
and stops at the first failure. With `--reached`, it runs only the switch tests that evaluate what a
remaining fault replaces. A run that was interrupted continues. `--tests-of DIR` runs the tests of
another checkout on the same source. Pytest gets the arguments after `--`.

`reach` does not see processes with a file system of their own (a package, a machine with systemd): add
their tests to its file. If a fault changes no behavior, write the reason into its "changes_nothing" in
LIST: the next spare of its folder replaces it. This command draws the faults that measure whether tests
may be removed or merged.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.planted.copies import CHECKOUT, PASSED, Copy, Outcome, extract, first_to_fail, run
from tests.planted.faults import PACKAGES, Fault, draw, plant, to_plant
from tests.planted.reach import PROBE, note_evaluations, reaching_tests

COMPUTE = ["tests/unit", "tests/wire"]
SWITCHES = ["tests/mininet", "tests/switch"]
COMPUTE_OPTIONS = ["-n", "2", "--dist", "worksteal", "--timeout", "300"]
SWITCH_OPTIONS = ["-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"]
SHOWN_CHARACTERS = 80


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.planted", description=__doc__, formatter_class=form
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing, running, reaching, showing = (
        commands.add_parser(name) for name in ("draw", "run", "reach", "table")
    )
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, default=30)
    drawing.add_argument(
        "--spares", type=int, default=3, help="spare faults per folder (%(default)s)"
    )
    for command in (running, reaching, showing):
        command.add_argument("list", type=Path)
    drawing.add_argument("--commit", default="HEAD", help="the source's commit (%(default)s)")
    for command in (running, reaching):
        command.add_argument("--results", type=Path, required=True)
        command.add_argument("--tests-of", type=Path, default=CHECKOUT, metavar="DIR")
        command.add_argument("--commit", help="the source's commit (default: the list's)")
        command.add_argument("--tests", nargs="+", help="run only these tests")
        command.add_argument(
            "--numbers", type=int, nargs="+", help="numbers of faults (default: all)"
        )
    running.add_argument("--reached", type=Path, metavar="FILE", help="output of `reach`")
    reaching.add_argument("--out", type=Path, required=True)
    showing.add_argument("results", nargs="+", metavar="NAME=FILE")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:at])
    options.pytest = sys.argv[at + 1 :]
    {"draw": _draw, "run": _run, "reach": _reach, "table": _table}[options.command](options)


def _draw(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as source:
        extract(options.commit, Path(source))
        faults, spares = draw(Path(source), options.seed, options.count, options.spares)
    log = ("git", "-C", CHECKOUT, "log", "-1", "--format=%H", options.commit, "--", *PACKAGES)
    found = {
        "seed": options.seed,
        "commit": run(*log),
        "faults": [asdict(fault) for fault in faults],
        "spares": [asdict(fault) for fault in spares],
    }
    print(json.dumps(found, indent=1))


def _run(options: argparse.Namespace) -> None:
    reached = _read(options.reached) if options.reached else None
    stage = "compute" if reached is None else "switches"
    arguments = [*(COMPUTE_OPTIONS if reached is None else SWITCH_OPTIONS), *options.pytest]
    with _directory() as directory:
        clean = _copy(options, Path(directory, "clean"))
        status, _ = clean.pytest("--collect-only", *(options.tests or COMPUTE))
        out = clean.root.with_suffix(".out").read_text()
        assert status in PASSED, f"tests cannot be collected without a fault:\n{out}"
        for fault in _left(options, stage):
            began_s, outcome = time.monotonic(), Outcome()
            faulty = _copy(options, Path(directory, f"fault-{fault.number}"))
            path = faulty.root / fault.file
            path.write_bytes(plant(fault, path.read_bytes()))
            tests = [options.tests] if options.tests else [*faulty.near(fault.file), COMPUTE]
            for some in tests if reached is None else [reached.get(str(fault.number), [])]:
                if some and not outcome.caught_by:
                    first_to_fail(faulty, clean, some, arguments, outcome)
            outcome.seconds = round(time.monotonic() - began_s, 1)
            shutil.rmtree(faulty.root)
            results = _read(options.results) if options.results.exists() else {}
            results.setdefault(str(fault.number), {})[stage] = asdict(outcome)
            options.results.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{fault.number} {fault.file}:{fault.line} {outcome}", flush=True)


def _reach(options: argparse.Namespace) -> None:
    with _directory() as directory:
        faults = _left(options, "switches")
        copy = _copy(options, Path(directory, "reach"))
        anywhere = note_evaluations(copy.root, faults)
        status, phases = copy.pytest(*SWITCH_OPTIONS, *options.pytest, *options.tests or SWITCHES)
        log = (copy.root / PROBE).with_suffix(".log").read_text()
        tests = list(dict.fromkeys(phase["test"] for phase in phases))
        found = reaching_tests(log, phases) | dict.fromkeys(anywhere, tests)
        options.out.write_text(json.dumps(found, indent=1) + "\n")
        failed = {phase["test"] for phase in phases if phase["outcome"] == "failed"}
        print(f"{len(tests)} tests, exit status {status}", *sorted(failed), sep="\n")
        for fault in faults:
            reaching = found.get(fault.number, [])
            print(f"{fault.number} {fault.file}:{fault.line}: {len(reaching)} tests")


def _table(options: argparse.Namespace) -> None:
    named = [word.partition("=") for word in options.results]
    results = {name: _read(Path(file)) for name, _, file in named}
    print("| fault | kind | place | source -> fault |", *(f"{name} |" for name in results))
    print("|---|---|---|---|" + "---|" * len(results))
    for fault in _faults(options):
        cells = [str(fault.number), fault.kind, f"`{fault.file}:{fault.line}`"]
        cells.append(f"`{_short(fault.before)}` -> `{_short(fault.after)}`")
        for found in results.values():
            stages = found.get(str(fault.number), {}).values()
            caught = [f"`{one['caught_by']}`" for one in stages if one["caught_by"]]
            cells.append(caught[0] if caught else "not caught" if stages else "not run")
        print("|", " | ".join(cells), "|")
    known = _read(options.list)
    for fault in (Fault(**one) for one in known["faults"] + known["spares"]):
        if fault.changes_nothing:
            print(f"\nReplaced: {fault.number} ({fault.kind}, `{fault.file}:{fault.line}`,", end="")
            print(f" `{_short(fault.before)}`): {fault.changes_nothing}")


def _faults(options: argparse.Namespace) -> list[Fault]:
    known = _read(options.list)
    faults, spares = ([Fault(**one) for one in known[name]] for name in ("faults", "spares"))
    return to_plant(faults, spares)


def _left(options: argparse.Namespace, stage: str) -> Sequence[Fault]:
    """The faults that this stage has not run with, and no earlier one has caught."""
    results = _read(options.results) if options.results.exists() else {}
    known = {fault.number: results.get(str(fault.number), {}) for fault in _faults(options)}
    return [
        fault
        for fault in _faults(options)
        if options.numbers is None or fault.number in options.numbers
        if stage not in known[fault.number]
        if not any(outcome["caught_by"] for outcome in known[fault.number].values())
    ]


def _directory() -> tempfile.TemporaryDirectory[str]:
    """Beside this checkout: tests that boot machines hide /tmp from them."""
    return tempfile.TemporaryDirectory(prefix="planted-", dir=CHECKOUT.parent)


def _copy(options: argparse.Namespace, directory: Path) -> Copy:
    commit = options.commit or _read(options.list)["commit"]
    return Copy(directory, options.tests_of.resolve(), commit)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _short(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}..."


if __name__ == "__main__":
    main()
