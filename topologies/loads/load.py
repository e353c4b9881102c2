"""The interface between a bench and the load that it runs on a layout."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topologies.graph.layout import Layout, Role
from topologies.loads.programs import Programs
from topologies.network import processes
from topologies.network.private_ovs import PrivateOvs

# The longest wait for work in the background that must end.
CLOSE_TIMEOUT_S = 10.0


def ignore_placement(_vm: str, _uplink: str) -> None:
    """Leave a VM on its uplink."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A layout's running network, with its teams set up, for a load to use.

    Attributes:
        prefix: the prefix of the names of all bridges and of the switches' interfaces.
        host_pids: a process in the network namespace of every VM, host and client.
        bridges: each server's bridge, or its bridges if it has one for each uplink.
        directory: the directory for plans, logs and results; it is deleted after the run.
        place: sets the uplink that a VM starts on; teams without this feature ignore it.
        repetition: which run of this contender it is, from 1; chance may be different in each.
        kill_service: kills the contender's service, and returns whether there is one.
    """

    layout: Layout
    prefix: str
    host_pids: Mapping[str, int]
    bridges: Mapping[str, tuple[str, ...]]
    ovs: PrivateOvs
    directory: Path
    place: Callable[[str, str], None] = ignore_placement
    repetition: int = 1
    kill_service: Callable[[], bool] = bool

    def place_by_port_number(self) -> None:
        """Let every VM start on the uplink that its port number hashes to."""
        for vm in self.layout.nodes(Role.VM):
            vnic = self.layout.vnics_of(vm)[0]
            uplinks = self.layout.uplinks_of(self.layout.server_of(vnic))
            self.place(vm, uplinks[self.layout.attributes(vnic)["ofport"] % len(uplinks)])

    def mac_of(self, name: str) -> str:
        """The MAC address of an end system's first interface."""
        entering = ("nsenter", f"--net=/proc/{self.host_pids[name]}/ns/net")
        links = json.loads(processes.run(*entering, "ip", "-j", "link"))
        first = f"{name}-eth0"
        (mac,) = (link["address"] for link in links if link["ifname"] == first)
        return str(mac)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a load, measured at the receivers.

    Attributes:
        received_bytes: the payload received during the whole load.
        throughput_bps: the payload received per second in the measured part.
        figures: the metrics of this kind of load only; a metric without a value is absent.
        details: the data behind the figures, in JSON types.
    """

    received_bytes: int
    throughput_bps: float
    figures: Mapping[str, float] = field(default_factory=dict)
    details: Any = None


def set_links(interfaces: Sequence[str], state: str) -> None:
    """Set interfaces up or down, one right after the other.

    Raises:
        RuntimeError: an interface does not exist.
    """
    commands = (f"ip link set {interface} {state}" for interface in interfaces)
    processes.run("sh", "-c", " && ".join(commands))


class Load(ABC):
    """One run of a load. An instance runs once.

    Attributes:
        load_s: the duration of the load.
        measured_s: the start and the end of the measured part, in seconds since the load's start.
        steady_s: the part of it in which the offered load is constant.
        start_s: the start time on the monotonic clock; `start` sets it.
    """

    load_s: float
    measured_s: tuple[float, float]
    steady_s: tuple[float, float]
    start_s: float = 0.0

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._resources = contextlib.ExitStack()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: Exception | None = None

    @abstractmethod
    def start(self) -> None:
        """Start all programs; the load itself begins soon after, at `start_s`."""

    @abstractmethod
    def finish(self) -> Outcome:
        """Wait for the end of the load and collect the result.

        Raises:
            RuntimeError: a program failed; the message has its name and the reason.
        """

    def close(self) -> None:
        """Stop all programs, also after a failed or interrupted start."""
        self._ended.set()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT_S)
        self._resources.close()

    def _programs_of(self, name: str) -> Programs:
        """Programs that stop with the load."""
        return self._resources.enter_context(
            contextlib.closing(Programs(self._stage.directory, name))
        )

    def _run(self, work: Callable[[], None]) -> None:
        """Do some work in the background; `_join` has its failure."""

        def run() -> None:
            try:
                work()
            except Exception as failure:
                self._failure = self._failure or failure

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def _join(self, what: str, timeout_s: float) -> None:
        """Wait for the end of the work in the background.

        Raises:
            RuntimeError: it failed, or did not end in time; the message begins with `what`.
        """
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        if self._failure is not None:
            raise RuntimeError(f"{what}: {self._failure}") from self._failure
        if any(thread.is_alive() for thread in self._threads):
            raise RuntimeError(f"{what}: not done in time")

    def _pause(self, span_s: float) -> None:
        """Sleep.

        Raises:
            RuntimeError: the load was closed in this time.
        """
        if self._ended.wait(max(0.0, span_s)):
            raise RuntimeError("the load was closed before its end")

    def _await(
        self,
        holds: Callable[[], bool],
        timeout_s: float,
        problem: Callable[[], str],
        interval_s: float = 0.1,
    ) -> None:
        """Wait until a condition holds. Raises as `processes.wait_until`, or if the load was closed."""
        processes.wait_until(holds, timeout_s, problem, interval_s, self._pause)

    def _pause_until(self, at_s: float) -> None:
        """Sleep until a time since the load's start. Raises as `_pause`."""
        self._pause(self.start_s + at_s - time.monotonic())

    def _left_s(self) -> float:
        """The time until the end of the load."""
        return max(0.0, self.start_s + self.load_s - time.monotonic())
