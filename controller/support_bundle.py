"""`ovs-lbt support-bundle`: collects data for troubleshooting in one file.

Each part is collected separately. The file lists parts that are not available, for example because the
service or the switch is not running.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import ovs.dirs

from controller.config import shareable
from controller.config.rows import PREFIX
from controller.host import client
from controller.host.journal import default_path
from controller.host.programs import run
from controller.text.wording import Refused, because, unknown

# The largest number of history entries, and the size of each log.
LAST_ENTRIES = 2000
LOG_LINES = 5000
LOG_BYTES = 4_000_000
OPTIONS = Path("/etc/default/ovs-lbt")
OS_RELEASE = Path("/etc/os-release")
LIBRARIES = ("ovs-lbt", "os-ken", "ryu", "ovsdbapp", "ovs", "prometheus-client", "networkx")
SWITCH_COMMANDS = (
    *("bond/list", "bond/show", "lacp/show", "bfd/show"),
    *("dpif/show", "coverage/show", "memory/show", "upcall/show"),
)
TABLES = ("Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "Manager", "QoS", "Queue")
# Only the owner may read the file, because it contains names of hosts and VMs, and addresses.
MODE = 0o600

Source = Callable[[], str]


def main(bridges: Sequence[str], service: str, out: Path | None) -> int:
    """Write the support bundle, and print its file name. Return the exit status.

    Raises:
        Refused: a bridge does not exist.
    """
    try:
        names = run("ovs-vsctl", "list-br").split() if bridges else []
    except Refused:
        # The support bundle then contains the reason why the database does not answer.
        names = [*bridges]
    for missed in sorted({*bridges} - {*names}):
        raise Refused(unknown("bridge", missed, names, "ovs-vsctl list-br"))
    made_at_s = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(made_at_s))
    name = f"ovs-lbt-support-{platform.node() or 'host'}-{stamp}"
    path = out or Path(f"{name}.tar.gz")
    # This test is also False for another user's symbolic link that root may not follow.
    if os.path.isdir(path):
        path /= f"{name}.tar.gz"
    parts, missing = _collected(_sources(bridges, service))
    parts["README"] = _contents(parts, missing, made_at_s)
    try:
        _write(path, name, parts, made_at_s)
    except OSError as error:
        print(f"ovs-lbt: {because(error)}; choose another file with --out", file=sys.stderr)
        return 1
    print(path)
    for part, why in missing.items():
        print(f"ovs-lbt: {part} is not included: {why}", file=sys.stderr)
    return 0


def _collected(sources: Iterator[tuple[str, Source]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the parts by name, and the reason for each missing part by name."""
    parts, missing = {}, {}
    for name, source in sources:
        try:
            parts[name] = shareable.without_logins(source())
        except (Refused, OSError, ValueError) as why:
            missing[name] = shareable.without_logins(because(why))
    return parts, missing


def _contents(parts: dict[str, str], missing: dict[str, str], made_at_s: float) -> str:
    lines = [
        f"ovs-lbt support-bundle, {time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(made_at_s))}",
        f"Values of unknown keys are replaced by {shareable.REMOVED}. The file contains names and addresses of hosts and VMs.",
        "",
        *(f"{name}: {len(text.splitlines())} lines" for name, text in sorted(parts.items())),
        *(f"{name}: MISSING: {why}" for name, why in sorted(missing.items())),
    ]
    return "\n".join([*lines, ""])


def _write(path: Path, directory: str, parts: dict[str, str], made_at_s: float) -> None:
    """Write all parts to a new file, or no file. An existing file is not changed.

    Raises:
        OSError: the file cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, text in sorted(parts.items()):
                content = text.encode(errors="replace")
                entry = tarfile.TarInfo(f"{directory}/{name}")
                entry.size, entry.mode, entry.mtime = len(content), MODE, int(made_at_s)
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        # A part of it would only be in the way of the next one.
        path.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


# ---- the parts -------------------------------------------------------------------------


def _sources(bridges: Sequence[str], service: str) -> Iterator[tuple[str, Source]]:
    yield "versions", _versions
    yield "options", lambda: shareable.variables(OPTIONS.read_text())
    for command, name in (("show", "show.json"), ("check", "check.json")):
        yield name, partial(client.request, command, ("--json",))
    yield "history.jsonl", lambda: _history(service)
    yield "log/ovs-lbt", lambda: _journal(service)
    for daemon in ("ovs-vswitchd", "ovsdb-server"):
        log = Path(ovs.dirs.LOGDIR) / f"{daemon}.log"
        yield f"log/{daemon}", partial(_log, log)
    # Without arguments, because arguments of other programs may contain passwords.
    process = ("ps", "-eo", "pid,ni,etime,time,rss,comm", "--sort=-time")
    yield "processes", lambda: shareable.lines(run(*process), re.compile(".* ovs"))
    yield "links.json", partial(_json, "ip", "-json", "-s", "-d", "link")
    yield "queues", lambda: run("tc", "-s", "qdisc")
    for table in TABLES:
        listed = ("ovs-vsctl", "--format=json", "list", table)
        yield f"database/{table}.json", partial(_json, *listed)
    for name in bridges or _bridges():
        yield from _of_bridge(name)
    for command in SWITCH_COMMANDS:
        asked = ("ovs-appctl", "-t", "ovs-vswitchd", command)
        yield f"switch/{command.replace('/', '-')}", partial(run, *asked)


def _of_bridge(name: str) -> Iterator[tuple[str, Source]]:
    # A name from the database must not be used as an option or a path.
    part = f"bridge/{name.strip('.').replace('/', '_')}"
    for command in ("dump-flows", "dump-groups", "dump-group-stats", "dump-ports", "show"):
        asked = ("ovs-ofctl", "-O", "OpenFlow13", command, "--", name)
        yield f"{part}/{command}", partial(run, *asked)
    learned = ("ovs-appctl", "-t", "ovs-vswitchd", "fdb/show", name)
    yield f"{part}/fdb-show", partial(run, *learned)


def _bridges() -> list[str]:
    """Return the attached bridges; all bridges with a socket if the database does not answer."""
    attached = f'external_ids:{PREFIX}policy!=""'
    listed = ("ovs-vsctl", "--bare", "--columns=name", "find", "Bridge", attached)
    try:
        return run(*listed).split()
    except Refused:
        return sorted(path.stem for path in Path(ovs.dirs.RUNDIR).glob("*.mgmt"))


def _versions() -> str:
    lines = list[str]()
    for name in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            lines.append(f"{name}: {importlib.metadata.version(name)}")
    lines += [f"Python: {platform.python_version()}", f"system: {platform.platform()}"]
    if OS_RELEASE.exists():
        lines += OS_RELEASE.read_text().splitlines()
    for tool in ("ovs-vsctl", "ovs-vswitchd"):
        try:
            lines.append(run(tool, "--version").splitlines()[0])
        except Refused as why:
            lines.append(f"{tool}: {why}")
    return "\n".join([*lines, ""])


def _history(service: str) -> str:
    """Return the last history entries, from the service, or from the file if no service is running."""
    words = ("--last", str(LAST_ENTRIES), "--json")
    if client.obstacle() is None and client.running():
        return client.ask("lbt/history", words)
    return _tail(default_path(service), LAST_ENTRIES)


def _journal(service: str) -> str:
    """Return the journal of the systemd unit. A manually started service logs to its terminal."""
    found = run("journalctl", "--no-pager", "-o", "short-iso", "-n", str(LOG_LINES), "-u", service)
    if "-- No entries --" in found or not found.strip():
        raise Refused(f"no journal entries of {service}; systemd may not have started it")
    return shareable.lines(found, shareable.OF_SERVICE)


def _json(*command: str) -> str:
    return shareable.as_json(run(*command))


def _log(path: Path) -> str:
    return shareable.lines(_tail(path), shareable.OF_SWITCH)


def _tail(path: Path, lines: int = LOG_LINES) -> str:
    """Return the last lines of a file."""
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - LOG_BYTES)
        file.seek(start)
        read = file.read().decode(errors="replace").splitlines(keepends=True)
    # The first line may have been cut.
    return "".join(read[1 if start else 0 :][-lines:])
