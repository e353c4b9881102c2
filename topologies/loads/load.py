"""What the end systems of a layout do during a run, as the bench sees it."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topologies.graph.layout import Layout
from topologies.network.private_ovs import PrivateOvs


def cannot_move(vm: str, uplink: str) -> None:
    """Refuse a move.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"{vm} to {uplink}: this team cannot be asked to move VMs -> one that can")


def stays(_vm: str, _uplink: str) -> None:
    """Leave a VM where it is."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A layout's network, up and teamed, as a load finds it.

    Attributes:
        prefix: before the names of all bridges and of the switches' interfaces.
        host_pids: a process of every VM, host and client, whose network programs start in.
        bridges: each server's bridge, or bridges if it has one for each uplink.
        directory: for plans, logs and results; gone after the run.
        move: has the team send a VM's traffic by an uplink from now on.
        place: has it begin there, if the team is one that can be told; others stay as they are.
    """

    layout: Layout
    prefix: str
    host_pids: Mapping[str, int]
    bridges: Mapping[str, tuple[str, ...]]
    ovs: PrivateOvs
    directory: Path
    move: Callable[[str, str], None] = cannot_move
    place: Callable[[str, str], None] = stays

    def mac_of(self, name: str) -> str:
        """The address of an end system's first interface."""
        command = ["nsenter", f"--net=/proc/{self.host_pids[name]}/ns/net", "ip", "-j", "link"]
        links = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        first = f"{name}-eth0"
        (mac,) = (link["address"] for link in links if link["ifname"] == first)
        return str(mac)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the users of a load got.

    Attributes:
        received_bytes: over the whole load, without headers.
        throughput_bps: of these, in the load's measured part.
        figures: what only this kind of load measures; a figure without a value is absent.
        details: everything behind the figures, as JSON can hold it.
    """

    received_bytes: int
    throughput_bps: float
    figures: Mapping[str, float] = field(default_factory=dict)
    details: Any = None


class Load(ABC):
    """One run of a load; used once.

    Attributes:
        load_s: how long it lasts.
        measured_s: from when to when it is measured, in seconds since its start.
        steady_s: the part of that in which it asks for the same all the time.
        start_s: when it began or will begin, on the monotonic clock; known after `start`.
    """

    load_s: float
    measured_s: tuple[float, float]
    steady_s: tuple[float, float]
    start_s: float = 0.0

    @abstractmethod
    def start(self) -> None:
        """Start all programs; the load itself begins at `start_s`, soon after."""

    @abstractmethod
    def finish(self) -> Outcome:
        """Wait for the end and collect what came of it.

        Raises:
            RuntimeError: a program failed; the message says which and why.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything that still runs; also after a failed or interrupted start."""
