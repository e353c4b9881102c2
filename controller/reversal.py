"""Rolls back and confirms unconfirmed changes when no service is running.

    python -m controller.reversal once BRIDGE
    python -m controller.reversal after BRIDGE S SERVICE

`once` rolls back a bridge's unconfirmed change, with a temporary service. `host.arming` starts
`after`. If the change remains when its time has expired, `after` runs `once` until that succeeds.

`after` reads the database with ovs-vsctl, so that no copy of the database is in memory while it waits.
"""

from __future__ import annotations

import datetime
import importlib
import json
import logging
import os
import subprocess
import sys
import time

import ovs.dirs

from controller.api import history
from controller.api.history import Entry, Happened
from controller.host import client, journal
from controller.host.programs import run
from controller.operations import unconfirmed
from controller.operations.unconfirmed import GRACE_S, UNCONFIRMED, Unconfirmed
from controller.text import terminal
from controller.text.wording import STARTED, Refused, unknown

LOOK_INTERVAL_S = 0.5
RETRY_S = 2.0
VSCTL_TIMEOUT_S = 5
# A running service rolls back within this time. After that, the service is assumed to hang.
PATIENCE_S = 5.0
# If Open vSwitch's run directory is missing for this long, Open vSwitch is assumed to be removed.
GONE_S = 600.0
# Longer than a temporary service takes before it gives up.
ATTEMPT_TIMEOUT_S = 60.0


def waits(bridge: str) -> Unconfirmed | None:
    """Return the unconfirmed change of a bridge; None if there is no such change or bridge.

    Raises:
        Refused: the database does not answer, or another program has altered the stored change.
    """
    columns = ["--format=json", "--columns=external_ids", "--if-exists", "list", "bridge", bridge]
    rows = json.loads(_vsctl(*columns) or '{"data": []}')["data"]
    ids = dict(rows[0][0][1]) if rows else {}
    try:
        return unconfirmed.parse(ids[UNCONFIRMED]) if UNCONFIRMED in ids else None
    except ValueError:
        found = f"Bridge {bridge} {UNCONFIRMED}: the value was not written by the service"
        raise Refused(f"{found}, so the change cannot be rolled back or confirmed") from None


def waiting(bridge: str) -> Unconfirmed:
    """Return the unconfirmed change of a bridge, as `waits` does, but never None.

    Raises:
        Refused: the bridge has no such change or does not exist, or `waits` raises Refused.
    """
    if (change := waits(bridge)) is not None:
        return change
    names = _vsctl("list-br").split()
    if bridge not in names:
        raise Refused(unknown("bridge", bridge, names, "ovs-vsctl list-br"))
    raise Refused(unconfirmed.nothing_waits(bridge))


def _vsctl(*words: str) -> str:
    command = ["ovs-vsctl", f"--db={(database := client.database())}"]
    if database.startswith("ssl:"):
        options = ("--private-key", "--certificate", "--ca-cert")
        files = zip(options, client.tls_files(), strict=True)
        command += [f"{option}={file}" for option, file in files if file]
    return run(*command, "--no-wait", *words, remedy=STARTED, timeout_s=VSCTL_TIMEOUT_S)


def after(bridge: str, wait_s: float) -> int:
    """Wait `wait_s`, then roll back the change if it is still unconfirmed. Retry after a failure.

    Return the exit status: 0 if no unconfirmed change is left, 1 if Open vSwitch was removed.
    """
    time.sleep(wait_s)
    seen: Unconfirmed | None = None
    due_s, here_s, told = 0.0, time.monotonic(), ""
    while True:
        try:
            change = waits(bridge)
            if change is None:
                return 0
            now_s = time.monotonic()
            if seen is None or not seen.is_same(change):
                # From now on, use the monotonic clock, because the wall clock can be set.
                seen, due_s = change, now_s + change.left_s(time.time()) + GRACE_S
            if now_s < due_s and not change.begun:
                time.sleep(due_s - now_s)
                continue
            if client.running() and now_s < due_s + PATIENCE_S:
                time.sleep(LOOK_INTERVAL_S)
                continue
            failed = _attempt(bridge)
        except Refused as error:
            failed = str(error)
        here_s = time.monotonic() if os.path.isdir(ovs.dirs.RUNDIR) else here_s
        if time.monotonic() > here_s + GONE_S:
            _say(f"Open vSwitch was removed: {ovs.dirs.RUNDIR} no longer exists")
            return 1
        if failed and failed != told:
            _say(f"bridge {bridge}: {failed}")
        told = failed
        time.sleep(RETRY_S if failed else LOOK_INTERVAL_S)


def _attempt(bridge: str) -> str:
    """Try to roll back. Return the reason for a failure; empty if the rollback succeeded."""
    command = [sys.executable, "-P", "-m", "controller.reversal", "once", bridge]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ATTEMPT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    _say(*done.stdout.splitlines())
    return " ".join(done.stderr.split()) if done.returncode else ""


def _say(*lines: str) -> None:
    """Write lines to the log: systemd's journal, or a file if the host does not run systemd."""
    for line in lines:
        at = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        print(f"{at} ovs-lbt rollback: {line}", file=sys.stderr, flush=True)


def confirm(bridge: str) -> str:
    """Confirm a bridge's change while no service runs. Return a description of the result.

    Raises:
        Refused: there is no unconfirmed change, it is too late, or the database does not answer.
    """
    change = waiting(bridge)
    if change.begun or change.left_s(time.time()) <= 0:
        raise Refused(unconfirmed.too_late(bridge, change))
    _vsctl("remove", "bridge", bridge, "external_ids", UNCONFIRMED)
    entry = Entry(Happened.CONFIRMED, 0.0, bridge, f"{change.what} confirmed")
    journal.append(journal.default_path(client.NAME), history.as_line(entry, time.time()))
    return f"{bridge}: {entry.why}"


def last_reversal(lines: str) -> str | None:
    """Return why and when the last change in a history (lines of JSON) was rolled back; None if it was not.

    The text is shown to an operator who confirms too late.
    """
    entries = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    ended = [e for e in entries if e["event"] in (Happened.CONFIRMED, Happened.REVERTED)]
    if not ended or ended[-1]["event"] != Happened.REVERTED:
        return None
    return f"{ended[-1]['why']}, at {journal.in_utc(ended[-1]['at'])}"


def once(bridge: str) -> int:
    """Roll back a bridge's change with a temporary service. The process ends with this service."""
    terminal.log_to_stderr()
    logging.getLogger().setLevel(logging.ERROR)
    importlib.import_module("controller.openflow.framework")
    from controller import one_shot
    from controller.service import serve_and_exit

    return serve_and_exit(
        lambda: one_shot.revert(client.database(), bridge), lambda why: print(why, file=sys.stderr)
    )


def main(words: list[str]) -> int:
    terminal.guard()
    match words:
        case ["after", bridge, wait_s, service]:
            client.call(service)
            return after(bridge, float(wait_s))
        case ["once", bridge]:
            return once(bridge)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
