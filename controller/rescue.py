"""`ovs-lbt rescue`: a bridge of plain uplinks forwards by one of them, without the service.

A bridge whose uplinks are ports of their own forwards nothing until the service has given
it its flows. Where it cannot start, NORMAL takes over: every VM port and one uplink, the
others cut off, so that they cannot make a loop. On a bond NORMAL is underneath anyway.

It is done with Open vSwitch's own tools and knows nothing of the framework, either of
which may be what keeps the service from starting.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import ovs.daemon  # which ovs.unixctl uses without importing it
import ovs.dirs
import ovs.unixctl
import ovs.unixctl.client
import ovs.util

from controller.api.events import DatabaseRead, Event
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow
from controller.config.values import BridgeConfig, UplinkConfig
from controller.dataplane.specs import COOKIE_PREFIX
from controller.dataplane.tables import COOKIE_KIND_MASK, COOKIE_PREFIX_MASK, Kind, cookie
from controller.host.client import NAME
from controller.ovsdb.database import Database
from controller.text.wording import one_of
from policies.model import Role

# After a boot the switch, and then its links, may need some time.
PATIENCE_S = 10.0
CHECK_INTERVAL_S = 0.2
COMMAND_TIMEOUT_S = 10
RESCUE_COOKIE = cookie(Kind.RESCUE, 0)
# Uplinks are cut off before any flow of others', VM ports are joined after all of them.
CUT_PRIORITY, NORMAL_PRIORITY = 65535, 1
PREFERRED = (Role.ACTIVE, Role.STANDBY)


class Refused(Exception):
    """A bridge is not rescued; the text says what was found -> what is expected."""


class NotNeeded(Refused):
    """It forwards as it is."""


def rescue(remote: str, bridge: str | None) -> Iterator[str]:
    """Rescue one bridge, or with None all that are attached; a line for each one.

    Raises:
        Refused: it is not to be done, or could not be.
        DatabaseAway: the database does not answer.
    """
    if not remote.startswith("unix:"):
        raise Refused(f"database {remote} -> unix:PATH, on the bridges' own host")
    if _service_runs():
        raise Refused("the service runs -> rescue is for a host without it")
    rows = {row.name: row for row in _read(remote)}
    if bridge is not None:
        if bridge not in rows:
            raise Refused(f"bridge: {bridge} -> {one_of(sorted(rows))}")
        yield f"{bridge}: {_rescue(rows[bridge])}"
        return
    failures = []
    for row in rows.values():
        if row.attached:
            try:
                yield f"{row.name}: {_rescue(row)}"
            except NotNeeded as reason:
                yield str(reason)
            except Refused as refusal:
                failures.append(str(refusal))
    if failures:
        raise Refused("; ".join(failures))


def _rescue(row: BridgeRow) -> str:
    """What was done to a bridge."""
    config = read_bridge(row)
    if not row.attached:
        raise Refused(f"bridge {row.name}: not attached -> a bridge that is attached")
    if config.on_bond:
        raise NotNeeded(f"bridge {row.name}: on a bond, where NORMAL forwards -> plain uplinks")
    if not config.uplinks:
        raise Refused(f"bridge {row.name} uplinks: none -> one or more that the switch has")
    _wait_for_switch(row.name)
    if _has_pipeline(row.name):
        raise NotNeeded(f"bridge {row.name}: forwards by its flows -> a bridge without them")
    chosen, is_up = _choose(config)
    others = [uplink.name for uplink in config.uplinks if uplink is not chosen]
    # The network may be behind these, too.
    others += config.missing
    with _openflow10(row.name):
        _ofctl("mod-port", row.name, chosen.name, "flood", version="OpenFlow10")
        for name in others:
            # NORMAL floods to all ports but these.
            _ofctl("mod-port", row.name, name, "no-flood", version="OpenFlow10")
    _ofctl("add-flows", "--bundle", row.name, "-", stdin="\n".join(flows(others)))
    _run("ovs-appctl", "-t", "ovs-vswitchd", "fdb/flush", row.name)
    link = "" if is_up else ", which has no link"
    return f"NORMAL by {chosen.name}{link}; cut off: {', '.join(others)}"


def flows(cut_off: list[str]) -> list[str]:
    """What one bundle does: replace an earlier rescue's flows by these."""
    mine = f"cookie={RESCUE_COOKIE:#x}"
    return [
        f"delete cookie={RESCUE_COOKIE:#x}/{COOKIE_KIND_MASK:#x}",
        *(
            f'add table=0,{mine},priority={CUT_PRIORITY},in_port="{name}",actions=drop'
            for name in cut_off
        ),
        f"add table=0,{mine},priority={NORMAL_PRIORITY},actions=NORMAL",
    ]


def _choose(config: BridgeConfig) -> tuple[UplinkConfig, bool]:
    """The first uplink that may be used and has a link, after some patience; has it one?"""
    usable = [uplink for role in PREFERRED for uplink in config.uplinks if uplink.role is role]
    candidates = usable or list(config.uplinks)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        for uplink in candidates:
            if _run("ovs-vsctl", "get", "interface", uplink.name, "link_state").strip() == "up":
                return uplink, True
        if time.monotonic() > deadline_s:
            return candidates[0], False
        time.sleep(CHECK_INTERVAL_S)


def _wait_for_switch(bridge: str) -> None:
    """Until the bridge answers.

    Raises:
        Refused: it does not.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while not (Path(ovs.dirs.RUNDIR) / f"{bridge}.mgmt").is_socket():
        if time.monotonic() > deadline_s:
            raise Refused(f"bridge {bridge}: no answer -> ovs-vswitchd is running")
        time.sleep(CHECK_INTERVAL_S)


def _has_pipeline(bridge: str) -> bool:
    """Whether the service's flows are there; the switch goes on by them."""
    ours = f"cookie={COOKIE_PREFIX:#x}/{COOKIE_PREFIX_MASK:#x},table=0"
    dumped = _ofctl("dump-flows", bridge, ours).splitlines()
    return any("actions=" in flow and f"cookie={RESCUE_COOKIE:#x}" not in flow for flow in dumped)


@contextlib.contextmanager
def _openflow10(bridge: str) -> Iterator[None]:
    """Have a bridge speak OpenFlow 1.0 meanwhile: no later version knows `no-flood`."""
    allowed = _run("ovs-vsctl", "get", "bridge", bridge, "protocols").strip()
    if allowed == "[]" or "OpenFlow10" in allowed:
        yield
        return
    _run("ovs-vsctl", "add", "bridge", bridge, "protocols", "OpenFlow10")
    try:
        yield
    finally:
        _run("ovs-vsctl", "remove", "bridge", bridge, "protocols", "OpenFlow10")


def _service_runs() -> bool:
    """Whether a service answers here, whatever its name."""
    pidfiles = Path(ovs.dirs.RUNDIR).glob(f"{NAME}*.pid")
    return any(_answers(pidfile.stem) for pidfile in pidfiles)


def _answers(name: str) -> bool:
    ovs.util.PROGRAM_NAME = name
    error, path = ovs.unixctl.socket_name_from_target(name)
    if error:
        return False
    error, client = ovs.unixctl.client.UnixctlClient.create(path)
    if not error and client is not None:
        client.close()
    return not error


def _read(remote: str) -> tuple[BridgeRow, ...]:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    Database(remote, events.put)
    read = events.get()
    assert isinstance(read, DatabaseRead)
    return read.bridges


def _ofctl(command: str, *arguments: str, version: str = "OpenFlow13", stdin: str = "") -> str:
    return _run("ovs-ofctl", "-O", version, command, *arguments, stdin=stdin)


def _run(*command: str, stdin: str = "") -> str:
    """What a command of Open vSwitch's says.

    Raises:
        Refused: it failed.
    """
    timed = (command[0], f"--timeout={COMMAND_TIMEOUT_S}", *command[1:])
    done = subprocess.run(timed, input=stdin, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [os.strerror(done.returncode)]
        raise Refused(f"{' '.join(command)}: {lines[-1]} -> a switch that does it")
    return done.stdout
