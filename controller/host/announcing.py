"""Starts `controller.announce_endpoints` as a process that outlives this one."""

from __future__ import annotations

import contextlib
import sys
import time

from controller.host import arming, faults

LOG_NAME = "ovs-lbt-announce.log"
# systemd-run that is refused ends at once, and the announcements of a service take longer.
REFUSED_WITHIN_S = 5.0


def start(bridge: str, remote: str) -> None:
    """Announce the tunnel endpoints of a bridge, which is given back, for a while.

    Under systemd it is a scope of its own: what ends with the service, or with a login, has to go on.
    """
    command = [sys.executable, "-P", "-m", "controller.announce_endpoints", bridge, remote]
    unit = f"--unit=ovs-lbt-announce-{time.time_ns() // 1_000_000}"
    scope = ["systemd-run", "--scope", "--quiet", "--collect", unit, "--"]
    first = [*scope, *command] if arming.BOOTED.is_dir() else command
    started_s = time.monotonic()
    with contextlib.suppress(OSError):
        process = arming.started(first, LOG_NAME)

        def wait() -> None:
            failed = process.wait() != 0
            if failed and first is not command and time.monotonic() < started_s + REFUSED_WITHIN_S:
                arming.started(command, LOG_NAME).wait()

        faults.once("announcements", f"announcements of {bridge}", wait, lambda _found: None)
