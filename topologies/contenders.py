"""Who is compared: each contender teams the server's uplinks in its own way.

A contender says which form the server's bridge has, takes it over before the load, and
tells its bindings and its moves while the load runs.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topologies.pace import Pace
from topologies.private_ovs import PrivateOvs
from topologies.service import Service
from topologies.switches import PlainUplinksServer, ServerBridge, SplitServer

THRESHOLD_PERCENT = 75


@dataclass(frozen=True, slots=True)
class Team:
    """The started server as a contender finds it; names are those of interfaces."""

    ovs: PrivateOvs
    server: ServerBridge
    capacities_bps: Mapping[str, int]
    pace: Pace
    directory: Path


@dataclass(frozen=True, slots=True)
class Observation:
    """Where the VM ports are bound (interface -> uplink), and all moves up to now."""

    bindings: Mapping[str, str]
    moves: int = 0


class Contender(ABC):
    """One way to team the uplinks; used for one run."""

    name: str
    server_class: type[ServerBridge]

    @abstractmethod
    def take_over(self, team: Team, resources: contextlib.ExitStack) -> None:
        """Make the team work; what must be undone afterwards goes on the stack."""

    @abstractmethod
    def observe(self) -> Observation:
        """The bindings now. It must cost little: it is asked several times a second."""

    def pids(self) -> dict[str, int]:
        """Programs that this contender needs beside Open vSwitch, and their process ids."""
        return {}


class Manual(Contender):
    """Placement by hand, without our service: the baseline.

    Two ordinary bridges with one uplink each, since that is what an operator without us
    would build, it cannot loop, and every frame passes plain NORMAL switching: the
    cheapest forwarding there is to compare our CPU time with.
    """

    name = "manual"
    server_class = SplitServer

    def take_over(self, team: Team, resources: contextlib.ExitStack) -> None:
        assert isinstance(team.server, SplitServer)
        self._placement = team.server.placement()

    def observe(self) -> Observation:
        return Observation(self._placement)


class Ours(Contender):
    """Our service with one of its policies."""

    server_class = PlainUplinksServer

    def __init__(self, policy: str) -> None:
        self.name = policy

    def take_over(self, team: Team, resources: contextlib.ExitStack) -> None:
        self._bridge = str(team.server.name)
        self._service = resources.enter_context(Service(team.ovs, team.directory / "service.log"))
        settings = {
            "window-s": team.pace.window_s,
            "threshold": THRESHOLD_PERCENT,
            "poll-interval-ms": team.pace.poll_interval_ms,
        }
        for key, value in settings.items():
            team.ovs.vsctl("set", "bridge", self._bridge, f"external_ids:ovs-lbt-{key}={value}")
        for uplink, capacity_bps in team.capacities_bps.items():
            # A virtual link reports 10 Gbit/s, whatever it is shaped to.
            speed = f"external_ids:ovs-lbt-capacity-mbps={capacity_bps // 10**6}"
            team.ovs.vsctl("set", "interface", uplink, speed)
        self._service.attach(self._bridge, list(team.capacities_bps), self.name)

    def observe(self) -> Observation:
        bindings, moves = {}, 0
        for metric in self._service.metrics():
            if metric.labels.get("bridge") != self._bridge:
                continue
            if metric.name == "ovslbt_port_binding" and metric.value == 1:
                bindings[metric.labels["port"]] = metric.labels["uplink"]
            elif metric.name == "ovslbt_moves_applied_total":
                moves += int(metric.value)
        return Observation(bindings, moves)

    def pids(self) -> dict[str, int]:
        return {"ovs-lbt": self._service.pid}


def all_contenders() -> list[Contender]:
    """Every contender of the published comparison, the baseline first."""
    return [Manual(), Ours("originating-port"), Ours("load-based")]
