"""Runs the `ovs-lbt` service on an Open vSwitch instance.

This module does not import the service. It uses its commands and its metrics only, as a user does.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs

START_TIMEOUT_S = 20.0
# A scrape of 300 bridges takes seconds.
SCRAPE_TIMEOUT_S = 60.0
# Every port is free in a private network namespace.
METRICS_ADDRESS = "127.0.0.1:9476"
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Metric:
    """One sample of the Prometheus text format."""

    name: str
    labels: dict[str, str]
    value: float


def parse_metrics(text: str) -> list[Metric]:
    """Parse the samples of a Prometheus text page."""
    return [
        Metric(found["name"], dict(_LABEL.findall(found["labels"] or "")), float(found["value"]))
        for found in _SAMPLE.finditer(text)
    ]


def executable() -> str:
    """The `ovs-lbt` command in the directory of this Python, or on PATH.

    Raises:
        RuntimeError: `ovs-lbt` is not installed.
    """
    own = Path(sys.executable).with_name("ovs-lbt")
    found = str(own) if own.exists() else shutil.which("ovs-lbt")
    if not found:
        raise RuntimeError(f"ovs-lbt is neither {own} nor on PATH; install it with: make setup")
    return found


class Service:
    """`ovs-lbt run` as a child process. Use it as a context manager."""

    def __init__(self, ovs: PrivateOvs, log: Path) -> None:
        self._ovs = ovs
        self._log = log
        self._command = executable()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Service:
        command = [self._command, "run", "--metrics", METRICS_ADDRESS]
        self._process = processes.start(command, self._log, self._ovs.env)
        try:
            self._wait(self._answers, "it answered ovs-appctl -t ovs-lbt")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """Stop the service. Its changes to the bridges stay."""
        if self._process is not None:
            processes.end(self._process)
            self._process = None

    def attach(self, bridge: str, uplinks: list[str], policy: str) -> None:
        """Attach a bridge and wait until the service is connected to it."""
        options = [word for uplink in uplinks for word in ("--uplink", uplink)]
        self._ovs.run(self._command, "attach", bridge, *options, "--policy", policy)
        self._wait(lambda: self._connected(bridge), f"it connected to {bridge}")

    def metrics(self) -> list[Metric]:
        """The current metrics of the service.

        Raises:
            OSError: the service does not answer (yet).
            RuntimeError: the service has ended; the message has the end of its log.
        """
        try:
            url = f"http://{METRICS_ADDRESS}/metrics"
            with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as page:
                return parse_metrics(page.read().decode())
        except OSError:
            if self._process is None or self._process.poll() is None:
                raise
            raise RuntimeError(f"ovs-lbt run has ended; {self._log_end()}") from None

    def _answers(self) -> bool:
        command = ["ovs-appctl", "--timeout=5", "-t", "ovs-lbt", "list-commands"]
        done = subprocess.run(command, env=self._ovs.env, capture_output=True)
        return done.returncode == 0

    def _connected(self, bridge: str) -> bool:
        return any(
            metric.name == "ovslbt_bridge_connected"
            and metric.labels.get("bridge") == bridge
            and metric.value == 1
            for metric in self.metrics()
        )

    def _wait(self, condition: Callable[[], bool], event: str) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError):  # not listening yet
                if condition():
                    return
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                state = "ended" if self._process.poll() is not None else "timed out"
                raise RuntimeError(f"ovs-lbt run {state} before {event}; {self._log_end()}")
            time.sleep(0.1)

    def _log_end(self) -> str:
        return f"end of its log: {self._log.read_text(errors='replace')[-1000:]}"
