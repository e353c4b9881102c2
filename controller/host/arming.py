"""Schedules the rollback of an unconfirmed change, outside the service and the login session.

Under systemd, a transient timer starts the rollback. A timer has no process that could be killed,
and is not part of a login session, which can end with all its processes. Without systemd, a process
in a separate session waits. Neither survives a reboot, but the change is recorded in the database,
so a service that starts after a reboot rolls it back.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ovs.dirs

from controller.host.programs import run
from controller.text.wording import Refused

# This directory exists if systemd is process 1, see sd_booted(3).
BOOTED = Path("/run/systemd/system")
ENVIRONMENT_FILE = "/etc/default/ovs-lbt"
# The timeout of systemd's tools, which may take twice as long.
TIMEOUT_S = 5.0
LOG_NAME = "ovs-lbt-reversal.log"
# Environment variables that determine the paths of Open vSwitch and this program.
PASSED_ON = re.compile(r"OVS_[A-Z_]+|PYTHONPATH|PATH")


@dataclass(frozen=True, slots=True)
class Armed:
    """A scheduled rollback: the systemd timer `unit` or, without systemd, the waiting `process`."""

    unit: str | None = None
    process: subprocess.Popen[bytes] | None = None

    def disarm(self) -> None:
        """Cancel a rollback that is no longer needed, so that it does not run without effect."""
        if self.unit is not None:
            with contextlib.suppress(Refused):
                run("systemctl", "stop", f"{self.unit}.timer", timeout_s=TIMEOUT_S)
        if self.process is not None:
            self.process.terminate()


def arm(bridge: str, wait_s: float, service: str) -> Armed:
    """Schedule the rollback of a bridge's unconfirmed change in `wait_s` seconds.

    Raises:
        Refused: neither a systemd timer nor a process could be started.
    """
    if BOOTED.is_dir():
        unit = f"ovs-lbt-reversal-{re.sub('[^A-Za-z0-9_.]', '-', bridge)}-{time.time_ns() // 1_000_000}"
        with contextlib.suppress(Refused):
            run(*systemd_run(unit, bridge, wait_s, service), timeout_s=TIMEOUT_S)
            return Armed(unit=unit)
    try:
        return Armed(process=started(_command(bridge, wait_s, service), LOG_NAME))
    except OSError as error:
        raise Refused(f"the rollback cannot be scheduled: no process started: {error}") from error


def systemd_run(unit: str, bridge: str, wait_s: float, service: str) -> list[str]:
    """Return the command that creates the timer and the unit that the timer starts."""
    passed_on = sorted(name for name in os.environ if PASSED_ON.fullmatch(name))
    return [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={unit}",
        f"--description=Rollback of an unconfirmed change to bridge {bridge}",
        f"--on-active={wait_s:g}s",
        "--timer-property=AccuracySec=100ms",
        "--property=Restart=on-failure",
        "--property=RestartSec=2s",
        "--property=StartLimitIntervalSec=0",
        f"--property=EnvironmentFile=-{ENVIRONMENT_FILE}",
        *(f"--setenv={name}={os.environ[name]}" for name in passed_on),
        "--",
        *_command(bridge, 0.0, service),
    ]


def _command(bridge: str, wait_s: float, service: str) -> list[str]:
    """Return the command that waits and then rolls back. It works in any working directory."""
    us = [sys.executable, "-P", "-m", "controller.reversal"]
    return [*us, "after", bridge, f"{wait_s:g}", service]


def started(command: Sequence[str], log_name: str) -> subprocess.Popen[bytes]:
    """Start a process that continues after this one, without a terminal and in a separate session.

    The process's output goes to a log file, unless this file cannot be opened.

    Raises:
        OSError: the process cannot be started.
    """
    log = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        log = os.open(Path(ovs.dirs.LOGDIR) / log_name, flags, 0o640)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
        cwd="/",
    )
