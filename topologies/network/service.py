"""The `ovs-lbt` service on an Open vSwitch instance, used as its contract describes it.

Nothing of the service is imported: it is a program that is started, asked and ended.
"""

from __future__ import annotations

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
# Of 300 bridges a scrape takes seconds.
SCRAPE_TIMEOUT_S = 60.0
# In a network namespace of its own every port is free.
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
    """The samples in a Prometheus text page."""
    return [
        Metric(found["name"], dict(_LABEL.findall(found["labels"] or "")), float(found["value"]))
        for found in _SAMPLE.finditer(text)
    ]


def executable() -> str:
    """The `ovs-lbt` command beside this Python, or the one on PATH.

    Raises:
        RuntimeError: there is none.
    """
    beside = Path(sys.executable).with_name("ovs-lbt")
    found = str(beside) if beside.exists() else shutil.which("ovs-lbt")
    if not found:
        raise RuntimeError(f"ovs-lbt: neither {beside} nor on PATH -> install it (make setup)")
    return found


class Service:
    """`ovs-lbt run` as a child process; a context manager."""

    def __init__(self, ovs: PrivateOvs, log: Path) -> None:
        self._ovs = ovs
        self._log = log
        self._command = executable()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Service:
        command = [self._command, "run", "--metrics", METRICS_ADDRESS]
        self._process = processes.start(command, self._log, self._ovs.env)
        try:
            self._wait(self._answers, "answers to ovs-appctl -t ovs-lbt")
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
        """End the service; what it has done to its bridges stays."""
        if self._process is not None:
            processes.end(self._process)
            self._process = None

    def attach(self, bridge: str, uplinks: list[str], policy: str) -> None:
        """Put a bridge under the service and wait until it is connected."""
        words = [word for uplink in uplinks for word in ("--uplink", uplink)]
        self._ovs.run(self._command, "attach", bridge, *words, "--policy", policy)
        self._wait(lambda: self._connected(bridge), f"is connected to {bridge}")

    def show(self, bridge: str) -> str:
        """What `ovs-lbt show BRIDGE --json` answers."""
        return self._ovs.run(self._command, "show", bridge, "--json")

    def metrics(self) -> list[Metric]:
        """What the service exports now.

        Raises:
            OSError: it does not answer (yet).
            RuntimeError: it has ended; the message carries the end of its log.
        """
        try:
            url = f"http://{METRICS_ADDRESS}/metrics"
            with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as page:
                return parse_metrics(page.read().decode())
        except OSError:
            if self._process is None or self._process.poll() is None:
                raise
            raise RuntimeError(f"ovs-lbt run: ended -> runs; {self._log_end()}") from None

    def _answers(self) -> bool:
        asked = ["ovs-appctl", "--timeout=5", "-t", "ovs-lbt", "list-commands"]
        done = subprocess.run(asked, env=self._ovs.env, capture_output=True)
        return done.returncode == 0

    def _connected(self, bridge: str) -> bool:
        return any(
            metric.name == "ovslbt_bridge_connected"
            and metric.labels.get("bridge") == bridge
            and metric.value == 1
            for metric in self.metrics()
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._holds(condition):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                state = "ended" if self._process.poll() is not None else "runs"
                raise RuntimeError(f"ovs-lbt run: {state} -> {what}; {self._log_end()}")
            time.sleep(0.1)

    def _log_end(self) -> str:
        return f"its log ends: {self._log.read_text(errors='replace')[-1000:]}"

    @staticmethod
    def _holds(condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except OSError:  # not listening yet
            return False
