"""Notifies the service manager (systemd) that the service is ready and alive."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from controller.text.wording import one_line

LOG = logging.getLogger(__name__)

# A supervisor that does not read must not block the engine.
SEND_TIMEOUT_S = 0.1
US_PER_S = 1e6


class Supervisor:
    """Implements sd_notify(3), configured through systemd's environment variables.

    Without NOTIFY_SOCKET, the methods do nothing. They must be called on the engine's thread, so that
    the watchdog detects when this thread hangs.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract socket's name.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SEND_TIMEOUT_S)
        meant_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        watched = bool(name) and meant_for_us and watchdog_us.isdigit()
        # Twice per watchdog period.
        self._feed_every_s = int(watchdog_us) / US_PER_S / 2 if watched else float("inf")
        # When `feed` is next due; infinity without a watchdog.
        self.feed_due_s = float("-inf") if watched else float("inf")
        self._is_ready = False
        self._status = ""

    def feed(self, now_s: float) -> None:
        """Notify the watchdog if a notification is due."""
        if now_s >= self.feed_due_s:
            self.feed_due_s = now_s + self._feed_every_s
            self._tell("WATCHDOG=1")

    def ready(self) -> None:
        """Report once that the service is ready, so that units that wait for it can start."""
        if not self._is_ready:
            self._is_ready = True
            self._tell("READY=1")

    def status(self, text: str) -> None:
        """Set the status line in `systemctl status`."""
        if text != self._status:
            self._status = text
            self._tell(f"STATUS={text}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, assignment: str) -> None:
        if not self._address:
            return
        try:
            # A line end in a name would start another assignment.
            self._socket.sendto(one_line(assignment).encode(), self._address)
        except OSError as error:
            LOG.warning(
                "NOTIFY_SOCKET: %s; the service manager was not notified: %s", error, assignment
            )
