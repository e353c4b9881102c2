"""`make test-fresh`, `make test-ovs`, `make test-kernel` and `make test-all`: what README promises is run.

`fresh`: a minimal root of each release of Debian and Ubuntu, made by debootstrap, a copy of this checkout
in it, and what README says. Logs and a result go to out/fresh/RELEASE.

`ovs DIR`: tests on a real switch, with the Open vSwitch that is installed under a prefix. Logs and a
result go to out/ovs/VERSION.

`kernel`: tests on the kernel's datapath: on this machine's kernel, or on the distribution's in QEMU. Logs
and a result go to out/kernel.

`all`: everything, in parts of minutes. Those that passed before do not run again, if nothing that they read
has changed since. Logs, results and a page go to out/all.

`publish`: such results as docs/results/releases, and the table of docs/releases.md again; those of `all`
(out/all/state.json) and their page as docs/results/all, from which another checkout goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

from tests.releases import everything, kernel, result, running, table
from tests.releases.everything import EACH_ROOT, GUEST, LOCAL, Part
from tests.releases.root import CHECKOUT as THERE
from tests.releases.root import RELEASES, Root
from tests.releases.steps import FRESH, KERNEL, OTHERS_DEB, SHORT, TESTS, Step, chosen

CHECKOUT = Path(__file__).resolve().parents[2]
INSIDE = THERE.lstrip("/")
TOOLS = ("debootstrap", "unshare", "pivot_root")
_begin_s = time.monotonic()


def main(words: list[str]) -> int:
    """Run the selected steps.

    Returns:
        0: all steps passed; 1: a step did not pass; 2: wrong usage.
    """
    parser = argparse.ArgumentParser(prog="make test-fresh", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fresh = commands.add_parser("fresh")
    fresh.add_argument("--release", nargs="+", choices=RELEASES, default=list(RELEASES))
    fresh.add_argument("--steps", nargs="+", metavar="STEP", help=_names(FRESH))
    fresh.add_argument("--out", type=Path, default=Path("out/fresh"), metavar="DIR")
    fresh.add_argument(
        "--again", action="store_true", help="make roots again, even for the same commit"
    )
    ovs = commands.add_parser("ovs")
    ovs.add_argument("prefix", type=Path, metavar="DIR")
    ovs.add_argument("--steps", nargs="+", metavar="STEP", help=_names(TESTS))
    ovs.add_argument("--out", type=Path, default=Path("out/ovs"), metavar="DIR")
    on_kernel = commands.add_parser("kernel")
    on_kernel.add_argument("--steps", nargs="+", metavar="STEP", help=_names(KERNEL))
    on_kernel.add_argument("--short", action="store_true", help="the part of `make test`")
    on_kernel.add_argument("--out", type=Path, default=Path("out/kernel"), metavar="DIR")
    whole = commands.add_parser("all")
    whole.add_argument("--steps", nargs="+", metavar="PART", help="parts or groups; default: all")
    whole.add_argument("--again", action="store_true", help="also run parts that passed before")
    publish = commands.add_parser("publish")
    publish.add_argument("results", type=Path, nargs="*", metavar="result.json")
    options = parser.parse_args(words)
    try:
        if options.command == "publish":
            for state in (one for one in options.results if one.name == everything.STATE):
                everything.publish(state, CHECKOUT)
            others = [one for one in options.results if one.name != everything.STATE]
            return table.publish(others, CHECKOUT)
        steps = () if options.command == "all" else _steps(options)
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print(
            f"user id {os.geteuid()} may not create namespaces or mounts; run it as root",
            file=sys.stderr,
        )
        return 1
    try:
        if options.command == "all":
            return _everything(options)
        if options.command == "ovs":
            results = [_on_prefix(options.prefix.resolve(), steps, options.out)]
        elif options.command == "kernel":
            results = [_on_kernel(steps, options.out)]
        else:
            results = _in_roots(options.release, steps, options.out, options.again)
    except RuntimeError as failure:
        print(f"{failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print()
    for one in results:
        print("\n".join(result.lines(one)))
    wanted = {step.name for step in steps}
    bad = [s for one in results for s in one["steps"] if s["name"] in wanted and result.is_bad(s)]
    print(f"\n{len(bad)} of {len(steps) * len(results)} steps failed" if bad else "\nall passed")
    return 1 if bad else 0


def _steps(options: argparse.Namespace) -> tuple[Step, ...]:
    if options.command == "kernel":
        return chosen(SHORT if options.short else KERNEL, options.steps)
    return chosen(TESTS if options.command == "ovs" else FRESH, options.steps)


def _in_roots(
    releases: Sequence[str], steps: Sequence[Step], out: Path, again: bool
) -> list[dict[str, Any]]:
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise RuntimeError(
            f"these programs are missing: {', '.join(missing)};"
            " run: apt install debootstrap util-linux"
        )
    commit, archive = _commit(), _archive()
    place = out.resolve()
    roots = {release: Root(release, place) for release in releases}
    results = {}
    for release, root in roots.items():
        results[release] = result.begun(place / release / result.FILE, commit)
        if again or not root.made or not results[release]["steps"]:
            _make(root, place / release / "root.log", archive)
    # Step by step, as one release's package is for the other ones, too.
    for step in steps:
        for release, root in roots.items():
            if step is OTHERS_DEB:
                root.take_packages(_packages_of_others(place, release))
            log = place / release / f"{step.name}.log"
            done = running.run(step, root.entering(step.command), log, partial(_say, release))
            results[release] = {**result.with_step(results[release], done), **_facts_of(root)}
            result.write(place / release / result.FILE, results[release])
    return list(results.values())


def _make(root: Root, log: Path, archive: bytes) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    _say(root.release, "making the root")
    try:
        root.make(log)
    except RuntimeError as failure:
        raise RuntimeError(f"{root.release}: {failure}; see {log}") from None
    root.copy_in(archive)


def _packages_of_others(place: Path, release: str) -> list[Path]:
    """The packages that were built on other releases."""
    others = (Root(one, place) for one in RELEASES if one != release)
    return [package for other in others for package in other.packages()]


def _on_prefix(prefix: Path, steps: tuple[Step, ...], out: Path) -> dict[str, Any]:
    programs = [prefix / "sbin" / name for name in ("ovs-vswitchd", "ovsdb-server")]
    programs += [prefix / "bin" / name for name in ("ovs-vsctl", "ovs-ofctl", "ovs-appctl")]
    if missing := [str(program) for program in programs if not os.access(program, os.X_OK)]:
        raise RuntimeError(
            f"these programs are missing: {', '.join(missing)};"
            f" install an Open vSwitch in {prefix}, or name another directory with OVS=DIR"
        )
    environment = {**os.environ, "PATH": f"{prefix}/sbin:{prefix}/bin:{os.environ['PATH']}"}
    bindings = prefix / "share/openvswitch/python"
    own = [str(bindings)] if (bindings / "ovs").is_dir() else []
    # The command that is installed in .venv is this checkout's, wherever it is installed from.
    environment["PYTHONPATH"] = ":".join([str(CHECKOUT), *own])
    commit = _commit()
    version = _version_here(environment)
    directory = out.resolve() / version
    directory.mkdir(parents=True, exist_ok=True)
    found = result.begun(directory / result.FILE, commit)
    facts = {**_facts_here(environment), "built": True, "bindings": bool(own)}
    for step in steps:
        log = directory / f"{step.name}.log"
        command = ["bash", "-c", step.command]
        done = running.run(step, command, log, partial(_say, version), environment)
        found = {**result.with_step(found, done), **facts}
        result.write(directory / result.FILE, found)
    return found


def _on_kernel(steps: tuple[Step, ...], out: Path) -> dict[str, Any]:
    on = kernel.find()
    kernel.compile_here()
    say = partial(_say, f"Linux {on.version} {on.runs}")
    commit = _commit()
    directory = out.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    found = result.begun(directory / result.FILE, commit)
    facts = {
        **_facts_here(dict(os.environ)),
        "built": False,
        "kernel": {"version": on.version, "runs": on.runs, "cores": len(os.sched_getaffinity(0))},
    }
    before_s = time.monotonic()
    with ThreadPoolExecutor(on.guests) as threads:
        begun = [threads.submit(_step_on_kernel, on, step, directory, say) for step in steps]
        for one in as_completed(begun):
            found = {**result.with_step(found, one.result()), **facts}
            result.write(directory / result.FILE, found)
    minutes = (time.monotonic() - before_s) / 60
    print(f"{len(steps)} steps in {minutes:.1f} minutes, {on.guests} at the same time")
    return found


def _step_on_kernel(
    on: kernel.Kernel, step: Step, directory: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    load = {"load_average": [round(load, 2) for load in os.getloadavg()]}
    log = directory / f"{step.name}.log"
    done = running.run(step, on.running(step.command, step.name), log, say)
    return {**done, **load, **kernel.measured(log.read_text(errors="replace"))}


def _everything(options: argparse.Namespace) -> int:
    """Run the parts of `make test-all` that have not passed yet.

    Returns:
        0: all that ran passed; 1: something did not; 2: wrong usage.
    """
    commit = _commit()
    all_parts = everything.parts()
    try:
        wanted = everything.chosen(all_parts, options.steps)
        if "+" in commit:
            raise ValueError(f"the checkout has uncommitted changes: {commit}; commit them first")
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 2
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The steps must end too. A shell lets background jobs ignore SIGINT.
        signal.signal(one, signal.default_int_handler)
    out = CHECKOUT / "out/all"
    out.mkdir(parents=True, exist_ok=True)
    state = out / everything.STATE
    earlier, took_s = everything.read(CHECKOUT / everything.RESULTS / everything.STATE, state)
    again = {part.name for part in wanted} if options.again else set()
    known = {part.name for part in all_parts}
    found = {one["name"]: one for one in earlier if one["name"] in known}
    old = {*everything.old(found.values(), CHECKOUT)} | again
    left = [part for part in wanted if part.name in old or part.name not in found]
    left = everything.planned(left, took_s)
    print(f"{len(wanted) - len(left)} of {len(wanted)} parts passed before")
    before_s = time.monotonic()
    with contextlib.closing(_run_parts(left, out)) as ran:
        for part, steps, machine in ran:
            if (now := _commit()) != commit:
                raise RuntimeError(
                    f"the checkout changed from {commit} to {now} during the run; run it again"
                )
            wall_s, before_s = time.monotonic() - before_s, time.monotonic()
            facts = {"commit": commit, "machine": machine, "wall_s": round(wall_s, 1)}
            found[part.name] = everything.joined(part, steps, **facts)
            old.discard(part.name)
            everything.write(state, [*found.values()], took_s)
            (out / "page.md").write_text(everything.page([*found.values()], old))
            rest = [one for one in left if one.name in old or one.name not in found]
            _say(
                part.name,
                f"{found[part.name]['verdict']}, log: {out / part.log}. {len(left) - len(rest)} of"
                f" {len(left)} parts ran, about {everything.minutes(rest):.0f} minutes are left",
            )
    bad = [name for name, one in found.items() if result.is_bad(one) and name not in old]
    print(f"\n{'failed: ' * bool(bad)}{', '.join(bad) or 'all that ran passed'}; {out}/page.md")
    return 1 if bad else 0


def _run_parts(
    parts: Sequence[Part], out: Path
) -> Generator[tuple[Part, list[dict[str, Any]], str]]:
    """Each part as it ends, with the results of its steps and what it ran on."""
    for (at_a_time, place), same in itertools.groupby(
        parts, lambda part: (part.at_a_time, EACH_ROOT if part.place in RELEASES else part.place)
    ):
        on = _kernel_or_why() if place == GUEST else None
        run = partial(_run_part, on, out)
        if at_a_time == 1 or (isinstance(on, kernel.Kernel) and on.guests == 1):
            # In this thread, a signal also ends a part that has several steps.
            for part in same:
                yield part, *run(part)
            continue
        pool = ThreadPoolExecutor(at_a_time)
        try:
            # Only the next one of a root, as a root runs one step at a time.
            chains = [deque(chain) for chain in _chains(same)]
            begun = {pool.submit(run, chain[0]): chain for chain in chains}
            while begun:
                one = next(as_completed(begun))
                chain = begun.pop(one)
                part = chain.popleft()
                if chain:
                    begun[pool.submit(run, chain[0])] = chain
                yield part, *one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            running.end_all()


def _chains(parts: Iterable[Part]) -> Iterable[list[Part]]:
    """Parts of one root together, in their order; each other part by itself."""
    chains: dict[str, list[Part]] = {}
    for part in parts:
        chains.setdefault(part.place if part.place in RELEASES else part.name, []).append(part)
    return chains.values()


def _kernel_or_why() -> kernel.Kernel | str:
    try:
        on = kernel.find()
        kernel.compile_here()
    except RuntimeError as failure:
        return f"{failure}"
    return on


def _run_part(
    on: kernel.Kernel | str | None, out: Path, part: Part
) -> tuple[list[dict[str, Any]], str]:
    """The results of its steps, and what it ran on."""
    facts = _facts_here(dict(os.environ))
    machine = f"{_machine(facts)}, {os.uname().release}, {len(os.sched_getaffinity(0))} cores"
    _say(part.name, f"about {part.planned_s / 60:.0f} minutes")
    try:
        if part.place == LOCAL:
            command = ["bash", "-c", part.step.command]
            return [running.run(part.step, command, out / part.log, lambda _: None)], machine
        if part.place == GUEST:
            if not isinstance(on, kernel.Kernel):
                raise RuntimeError(on)
            done = _step_on_kernel(on, part.step, out / part.group, lambda _: None)
            return [done], f"{_machine(facts)}, {on.version} {on.runs}"
        releases, steps = [part.place], [part.step]
        if part.place == EACH_ROOT:
            releases, steps = [*RELEASES], [one for one in FRESH if one.name in everything.PACKAGES]
        results = _in_roots(releases, steps, out / "fresh", again=False)
        names = {step.name for step in steps}
        found = [
            {**step, "name": f"{_machine(one)}: {step['name']}"}
            for one in results
            for step in one["steps"]
            if step["name"] in names
        ]
        return found, "; ".join(map(_machine, results))
    except RuntimeError as failure:
        return [everything.failed(part, f"{failure}")], machine


def _machine(facts: Mapping[str, Any]) -> str:
    return f"{facts['distribution']}, Open vSwitch {facts['openvswitch']}, Python {facts['python']}"


def _version_here(environment: dict[str, str]) -> str:
    first_line = _output(["ovs-vswitchd", "--version"], environment).split("\n", 1)[0]
    return first_line.rpartition(" ")[2]


def _facts_here(environment: dict[str, str]) -> dict[str, Any]:
    """What is installed on this machine, and in .venv."""
    asked = 'import os_ken, sys; print(os_ken.__version__, "%d.%d.%d" % sys.version_info[:3])'
    framework, python = _output([".venv/bin/python", "-c", asked], environment).split()
    return {
        "distribution": _pretty(Path("/etc/os-release").read_text()),
        "openvswitch": _version_here(environment),
        "python": python,
        "frameworks": {"os-ken": framework},
    }


def _facts_of(root: Root) -> dict[str, Any]:
    """What is installed in a root."""
    path = root.path

    def version_in(environment: str, distribution: str) -> str | None:
        pattern = f"{INSIDE}/{environment}/lib/python3*/site-packages/{distribution}-*.dist-info"
        names = [one.name.removesuffix(".dist-info") for one in path.glob(pattern)]
        return names[0].rpartition("-")[2] if names else None

    frameworks = {
        "os-ken": version_in(".venv", "os_ken"),
        "Ryu": version_in(".venv-ryu", "ryu"),
    }
    return {
        "distribution": _pretty((path / "etc/os-release").read_text()),
        "openvswitch": _debian_version(path, "openvswitch-switch"),
        "built": False,
        "python": _debian_version(path, "libpython3-stdlib", "python3"),
        "frameworks": {name: one for name, one in frameworks.items() if one},
    }


def _debian_version(root: Path, *packages: str) -> str:
    """The upstream part of a package's version; empty if it is not installed."""
    for package in packages:
        asked = ["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-W", "-f", "${Version}", package]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout:
            return re.split(r"[-+~]", done.stdout.rpartition(":")[2])[0]
    return ""


def _commit() -> str:
    """What is tested; `+changes` if something is not committed yet."""
    git = ["git", "-C", str(CHECKOUT)]
    changes = _output([*git, "status", "--porcelain", "--untracked-files=normal"]).strip()
    return _output([*git, "rev-parse", "--short", "HEAD"]).strip() + "+changes" * bool(changes)


def _archive() -> bytes:
    """The checkout as a tar archive, with what is not committed yet."""
    git = ["git", "-C", str(CHECKOUT)]
    listed = _output([*git, "ls-files", "-z", "-co", "--exclude-standard"]).split("\0")
    there = [name for name in listed if name and (CHECKOUT / name).is_file()]
    return subprocess.run(
        ["tar", "-c", "-C", str(CHECKOUT), "--null", "-T", "-"],
        input="\0".join(there).encode(),
        capture_output=True,
        check=True,
    ).stdout


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=CHECKOUT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def _pretty(os_release: str) -> str:
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)', os_release, re.MULTILINE)
    return found[1] if found else "unknown"


def _names(steps: tuple[Step, ...]) -> str:
    return f"of {', '.join(step.name for step in steps)}; default: all"


def _say(where: str, text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _begin_s), 60)
    print(f"[{minutes:3d}:{seconds:02d}] {where}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
