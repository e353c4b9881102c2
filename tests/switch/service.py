"""`ovs-lbt run` on a private Open vSwitch, and its command."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from controller.api import requests
from controller.api.commands import BY_NAME
from controller.cli import arguments
from controller.metrics.scrapes import FRESH_S
from tests.switch.appctl import Appctl
from tests.switch.bed import STATIC_LAG, Bed, Station, Uplink
from tests.switch.waiting import HANG_S, NotThere, wait_until
from topologies.network.private_ovs import PrivateOvs

LOG_TAIL_LINES = 20
ANSWERED = frozenset(("attach", "detach", "drain", "move", "pin", "set", "undrain", "unpin"))


class Service:
    """`ovs-lbt run` on a private Open vSwitch as a process of its own, and its command."""

    def __init__(self, ovs: PrivateOvs, name: str = "ovs-lbt") -> None:
        self.ovs = ovs
        self.name = name
        self.executable = Path(sys.executable).with_name("ovs-lbt")
        self.log = ovs.rundir / f"{name}.out"
        self.metrics_port = free_tcp_port()
        # More that it is given: options, variables, and a program that starts it.
        self.options: list[str] = []
        self.variables: dict[str, str] = {}
        self.launcher: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        # When metrics were read, which the service gives to others for a second.
        self._read_s = float("-inf")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process, "the service was not started"
        return self._process.pid

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self.alive:
            return
        assert self.executable.exists(), f"{self.executable} is not installed: run make setup"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self.launcher,
                    self.executable,
                    "run",
                    *("--metrics", f"127.0.0.1:{self.metrics_port}"),
                    *(("--name", self.name) if self.name != "ovs-lbt" else ()),
                    *self.options,
                ],
                env={**self.ovs.env, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, "ovs-appctl -t ovs-lbt reaches the service")

    def _answers(self) -> bool:
        assert self.alive, f"the service ended at once: {self.log_tail(5)}"
        assert self._process
        pidfile = self.ovs.rundir / f"{self.name}.pid"
        with contextlib.suppress(OSError, ValueError):
            if int(pidfile.read_text()) == self._process.pid:
                asked = ["ovs-appctl", "--timeout=30", "-t", self.name, "version"]
                done = subprocess.run(asked, env=self.ovs.env, capture_output=True)
                return done.returncode == 0
        return False

    def kill(self) -> None:
        """As a crash would end it."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """End it the friendly way; its exit code."""
        assert self._process, "the service was not started"
        self._process.terminate()
        try:
            return self._process.wait(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the service did not end within {HANG_S:g} s of SIGTERM"
            ) from None

    def ended(self) -> int:
        """Its exit code, of its own accord."""
        assert self._process, "the service was not started"
        return self._process.wait(timeout=HANG_S)

    @contextlib.contextmanager
    def dead(self) -> Iterator[None]:
        """The service was killed; behind this block it runs again and knows all bindings again."""
        bound = {port for port, uplink in _uplinks(self._bridges()).items() if uplink}
        self.kill()
        try:
            yield
        finally:
            self.start()
            wait_until(lambda: self._is_back(bound), "the service knows the bindings again")

    def _is_back(self, bound: Collection[str]) -> bool:
        """Connected to all bridges, with an uplink for these VM ports as far as they still exist.

        It reads the bindings from the switch a moment after it has connected.
        """
        bridges = self._bridges()
        return all(bridge["connected"] for bridge in bridges) and all(
            uplink or port not in bound for port, uplink in _uplinks(bridges).items()
        )

    def _bridges(self) -> list[dict[str, Any]]:
        """What `show --json` says of all bridges."""
        found: list[dict[str, Any]] = json.loads(self.ask("show", "--json"))["bridges"]
        return found

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def bugs(self) -> int:
        """How many faults of its own it has logged."""
        return self.log.read_text(errors="replace").count("a bug in ovs-lbt")

    # ---- the command -------------------------------------------------------------------

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`ovs-lbt WORDS…`, whatever comes of it."""
        return subprocess.run(
            [self.executable, "-t", self.name, *words],
            env=self.ovs.env,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )

    def do(self, *words: str) -> str:
        """`ovs-lbt WORDS…`, which must be done; its standard output.

        What the service itself answers is asked without a process, which costs a third of a second of CPU.
        """
        if words[0] in ANSWERED and "--rollback-after" not in words and self.alive:
            options = arguments.parsed(arguments.parser(), words)
            try:
                answer = self.ask(words[0], *requests.words(BY_NAME[words[0]], vars(options)))
            except ValueError as refused:
                raise AssertionError(str(refused)) from refused
            lines = [line for line in answer.splitlines() if not line.startswith("warning: ")]
            return "".join(f"{line}\n" for line in lines)
        done = self.command(*words)
        assert done.returncode == 0, f"ovs-lbt {' '.join(words)}: {done.stderr.strip()}"
        return done.stdout

    def ask(self, *words: str) -> str:
        """The same, which must be done, straight from the service as `ovs-appctl` reaches it.

        Raises ValueError when it is refused.
        """
        with contextlib.closing(Appctl(self.ovs, self.name)) as service:
            return service.ask(f"lbt/{words[0]}", *words[1:])

    def attach(self, bed: Bed, *options: str) -> None:
        """Attach a bed's bridge and wait until its stations can speak."""
        teaming = ["--teaming", "static"] if bed.spec.team == STATIC_LAG else []
        self.do("attach", bed.bridge, *bed.uplink_options, *teaming, *options)
        self.wait_ready(bed)
        bed.introduce()

    @contextlib.contextmanager
    def attached(self, bed: Bed, *options: str) -> Iterator[Bed]:
        """It runs, and a bed's bridge is attached in this block, behind which it runs again."""
        self.start()
        self.attach(bed, *options)
        try:
            yield bed
        finally:
            self.start()
            self.do("detach", bed.bridge)

    def wait_ready(self, bed: Bed) -> None:
        """Wait until every station that is plugged in is bound."""
        plugged_in = {bed.bridge, *bed.ovs.vsctl("list-ports", bed.bridge).split()}
        names = plugged_in & {s.port for s in bed.stations}

        def ready() -> bool:
            shown = self.show_json(bed.bridge)
            # The service may not have seen yet that one was plugged in.
            bound = {p["name"] for p in shown["ports"] if p["uplink"]}
            return bool(shown["connected"]) and names <= bound

        wait_until(ready, f"{bed.bridge} is connected and its VM ports are bound")
        bed.revalidated()

    def show_json(self, bridge: str) -> dict[str, Any]:
        """What `show --json` says of a bridge."""
        shown = json.loads(self.ask("show", bridge, "--json"))
        found: list[dict[str, Any]] = [b for b in shown["bridges"] if b["name"] == bridge]
        assert len(found) == 1, f"show {bridge} --json lists {shown}"
        return found[0]

    def history(self, bed: Bed) -> list[dict[str, Any]]:
        """What `history --json` says of a bed's bridge."""
        told = self.do("history", bed.bridge, "--json", "--last", "1000")
        return [json.loads(line) for line in told.splitlines()]

    def port(self, bed: Bed, station: Station | str) -> dict[str, Any]:
        """What `show --json` says of a VM port."""
        name = station if isinstance(station, str) else station.port
        ports = self.show_json(bed.bridge)["ports"]
        found: list[dict[str, Any]] = [p for p in ports if p["name"] == name]
        if not found:
            shown = [p["name"] for p in ports]
            raise NotThere(f"{name} is not among the ports shown: {shown}")
        return found[0]

    def uplink(self, bed: Bed, uplink: Uplink) -> dict[str, Any]:
        """What `show --json` says of an uplink."""
        uplinks: list[dict[str, Any]] = self.show_json(bed.bridge)["uplinks"]
        return next(one for one in uplinks if one["name"] == uplink.name)

    def all_up(self, bed: Bed) -> bool:
        """Whether every uplink is shown up."""
        return all(uplink["up"] for uplink in self.show_json(bed.bridge)["uplinks"])

    def bindings(self, bed: Bed) -> dict[str, str]:
        """The uplink in use of every VM port, by the port's interface."""
        return {p["name"]: p["uplink"] for p in self.show_json(bed.bridge)["ports"]}

    def move(self, station: Station, uplink: Uplink) -> None:
        self.ask("move", station.port, uplink.name)

    def place(self, bed: Bed, *uplink_numbers: int) -> None:
        """Move VM i to the uplink whose number is i-th, and wait until packets say so."""
        wanted = {}
        # It may just have been started.
        wait_until(lambda: self.show_json(bed.bridge)["connected"], f"{bed.bridge} is connected")
        for station, number in zip(bed.stations, uplink_numbers, strict=False):
            self.move(station, bed.uplinks[number])
            wanted[str(station)] = [bed.uplinks[number].name]
        wait_until(
            lambda: wanted.items() <= bed.homes().items(), f"frames leave as placed: {wanted}"
        )
        bed.revalidated()

    def metrics(self) -> dict[str, float]:
        """The samples at /metrics, by `name{labels}` as they are written, none of which was made before."""
        time.sleep(max(0.0, self._read_s + FRESH_S - time.monotonic()))
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=HANG_S) as answer:
                lines = answer.read().decode().splitlines()
        finally:
            self._read_s = time.monotonic()
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics().items()
            if sample.partition("{")[0] == name and all(w in sample for w in wanted)
        )


def launcher_with(module: str, **constants: float) -> list[str]:
    """What starts the service with other constants in one of its modules."""
    settings = "; ".join(f"patched.{name} = {value}" for name, value in constants.items())
    code = f"import sys, {module} as patched; from controller.cli import main; {settings}"
    return [sys.executable, "-c", f"{code}; sys.argv = sys.argv[1:]; sys.exit(main())"]


def free_tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _uplinks(bridges: Iterable[dict[str, Any]]) -> dict[str, str | None]:
    """The uplink in use of every VM port of these bridges."""
    return {port["name"]: port["uplink"] for bridge in bridges for port in bridge["ports"]}
