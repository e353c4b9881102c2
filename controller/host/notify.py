"""What a supervisor such as systemd is told: that the service is ready, and that it lives."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

LOG = logging.getLogger(__name__)

# A supervisor that does not read must not stop the engine.
SEND_TIMEOUT_S = 0.1
US_PER_S = 1e6


class Supervisor:
    """systemd's protocol (sd_notify(3)), from its variables in the environment.

    Without NOTIFY_SOCKET nobody is told anything. Use it on one thread: one that hangs when
    the service hangs, so that the watchdog finds out.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        # An @ stands for the zero byte that begins an abstract socket's name.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SEND_TIMEOUT_S)
        meant_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        watched = bool(name) and meant_for_us and watchdog_us.isdigit()
        # Twice in the time in which the watchdog wants to be fed.
        self._feed_every_s = int(watchdog_us) / US_PER_S / 2 if watched else float("inf")
        self._feed_due_s = float("-inf") if watched else float("inf")
        self._is_ready = False
        self._status = ""

    def deadline_s(self) -> float:
        """When `feed` is next due; infinity when nobody watches."""
        return self._feed_due_s

    def feed(self, now_s: float) -> None:
        """Say that we live, if it is due."""
        if now_s >= self._feed_due_s:
            self._feed_due_s = now_s + self._feed_every_s
            self._tell("WATCHDOG=1")

    def ready(self) -> None:
        """Say, once, that what waits for the service may go on."""
        if not self._is_ready:
            self._is_ready = True
            self._tell("READY=1")

    def status(self, text: str) -> None:
        """A line for `systemctl status`."""
        if text != self._status:
            self._status = text
            self._tell(f"STATUS={text}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, assignment: str) -> None:
        if not self._address:
            return
        try:
            self._socket.sendto(assignment.encode(errors="replace"), self._address)
        except OSError as error:
            LOG.warning("NOTIFY_SOCKET: %s -> a supervisor that reads: %s", error, assignment)
