"""Arms the rollback of a change outside the service, and outside the session that makes the change.

Under systemd it is a transient timer: it is not part of a login session, which may end with all its
processes, and no process that could be killed waits. Elsewhere it is a process in a separate session.
Neither survives a reboot. Then the service rolls back when it starts, because the database has the
unconfirmed change.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ovs.dirs

from controller.host.programs import run
from controller.text.wording import Refused

# How sd_booted(3) finds out whether systemd is process 1.
BOOTED = Path("/run/systemd/system")
ENVIRONMENT_FILE = "/etc/default/ovs-lbt"
# Of systemd, which may take twice as long.
TIMEOUT_S = 5.0
LOG_NAME = "ovs-lbt-reversal.log"
# What decides where Open vSwitch and this program are.
PASSED_ON = re.compile(r"OVS_[A-Z_]+|PYTHONPATH|PATH")


@dataclass(frozen=True, slots=True)
class Armed:
    """A rollback that will happen: by a systemd timer, or by a process."""

    unit: str | None = None
    pid: int | None = None

    def disarm(self) -> None:
        """Stop it, because nothing is left to roll back. If this fails, the rollback has no effect."""
        if self.unit is not None:
            with contextlib.suppress(Refused):
                run("systemctl", "stop", f"{self.unit}.timer", timeout_s=TIMEOUT_S)
        if self.pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)


def arm(bridge: str, wait_s: float, service: str) -> Armed:
    """Arm the rollback of the unconfirmed change of a bridge, `wait_s` from now on.

    Raises:
        Refused: neither a systemd timer nor a process could be started.
    """
    if BOOTED.is_dir():
        unit = f"ovs-lbt-reversal-{re.sub('[^A-Za-z0-9_.]', '-', bridge)}-{time.time_ns() // 1_000_000}"
        with contextlib.suppress(Refused):
            run(*systemd_run(unit, bridge, wait_s, service), timeout_s=TIMEOUT_S)
            return Armed(unit=unit)
    try:
        return Armed(pid=_detached(_command(bridge, wait_s, service)))
    except (OSError, ValueError) as error:
        raise Refused(f"the rollback cannot be armed: no process started: {error}") from error


def systemd_run(unit: str, bridge: str, wait_s: float, service: str) -> list[str]:
    """The command that makes the timer, and the service that it starts."""
    passed_on = sorted(name for name in os.environ if PASSED_ON.fullmatch(name))
    return [
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={unit}",
        f"--description=Rollback of an unconfirmed change of bridge {bridge}",
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
    """The command that waits and then rolls back. The working directory may be anywhere."""
    us = [sys.executable, "-P", "-m", "controller.reversal"]
    return [*us, "after", bridge, f"{wait_s:g}", service]


def _detached(command: Sequence[str]) -> int:
    """Start a process that is not our child and has no terminal. Returns its number.

    Raises:
        OSError: it cannot be started.
        ValueError: it was not started.
    """
    read_end, write_end = os.pipe()
    between = os.fork()
    if between == 0:
        # Only what is needed: this is a copy of the command, which may have threads.
        with contextlib.suppress(Exception):
            os.setsid()
            os.chdir("/")
            os.write(write_end, str(started(command, LOG_NAME).pid).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        number = pipe.read()
    os.waitpid(between, 0)
    return int(number)


def started(command: Sequence[str], log_name: str) -> subprocess.Popen[bytes]:
    """Start a process without a terminal, in a separate session.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log(log_name),
        start_new_session=True,
        cwd="/",
    )


def log(name: str) -> int:
    """The log file of a process without a terminal."""
    path = Path(ovs.dirs.LOGDIR) / name
    with contextlib.suppress(OSError):
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    return subprocess.DEVNULL
