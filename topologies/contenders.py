"""Who is compared: each contender teams a server's uplinks in its own way.

A contender says which form the server's bridge has, takes it over before the load, and
tells its bindings and its moves while the load runs.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topologies.pace import Pace
from topologies.private_ovs import PrivateOvs
from topologies.service import Service
from topologies.switches import TEAMS, ServerBridge, SplitServer

THRESHOLD_PERCENT = 75
MANUAL = "manual"
# Open vSwitch's own bonds by its names for them; balance-tcp is nothing without LACP.
BONDS: dict[str, type[ServerBridge]] = {
    "active-backup": TEAMS["bond"],
    "balance-slb": TEAMS["balance-slb"],
    "balance-tcp": TEAMS["lacp"],
}
SWITCH_INDEPENDENT, LACP = "switch-independent", "lacp"
# The server's bridge as our service takes it over.
FORMS: dict[str, type[ServerBridge]] = {
    SWITCH_INDEPENDENT: TEAMS["plain"],
    LACP: TEAMS["lacp"],
}
# Our presets, each with its usual teaming: hashing flows over all members needs a LAG.
OURS = {
    "originating-port": SWITCH_INDEPENDENT,
    "source-mac": SWITCH_INDEPENDENT,
    "ip-hash": LACP,
    "address-hash": LACP,
    "explicit": SWITCH_INDEPENDENT,
    "load-based": SWITCH_INDEPENDENT,
    "slb": SWITCH_INDEPENDENT,
    "dynamic": SWITCH_INDEPENDENT,
    "adaptive": SWITCH_INDEPENDENT,
}
# By default a bond of Open vSwitch rebalances every 10 s, a third of LBT's window; in a
# run whose window is shorter, as much oftener, down to the least interval that it takes.
REBALANCES_PER_WINDOW = 3
LEAST_REBALANCE_INTERVAL_MS = 1000
_SHIFT = re.compile(r"\|bond\|INFO\|bond (?P<bond>\S+): shift \d+kB of load")


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


def rebalance_interval_ms(pace: Pace) -> int:
    """How often a bond of Open vSwitch rebalances in a run of this pace."""
    return max(LEAST_REBALANCE_INTERVAL_MS, pace.window_s * 1000 // REBALANCES_PER_WINDOW)


def shifts(log: str, bond: str) -> int:
    """How often a bond has moved a hash to another member, by its vswitchd's log."""
    return sum(found["bond"] == bond for found in _SHIFT.finditer(log))


class Manual(Contender):
    """Placement by hand, without our service: the baseline.

    Two ordinary bridges with one uplink each, since that is what an operator without us
    would build, it cannot loop, and every frame passes plain NORMAL switching: the
    cheapest forwarding there is to compare our CPU time with.
    """

    name = MANUAL
    server_class = SplitServer

    def take_over(self, team: Team, resources: contextlib.ExitStack) -> None:
        assert isinstance(team.server, SplitServer)
        self._placement = team.server.placement()

    def observe(self) -> Observation:
        return Observation(self._placement)


class OvsBond(Contender):
    """One of Open vSwitch's own bonds, without our service.

    It has no bindings to tell: what it places are hashes. A shift of one is a move.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.server_class = BONDS[name]

    def take_over(self, team: Team, resources: contextlib.ExitStack) -> None:
        self._log = team.ovs.rundir / "ovs-vswitchd.log"
        self._bond = f"{team.server.name}-team"
        if len(team.capacities_bps) > 1:
            interval = f"bond-rebalance-interval={rebalance_interval_ms(team.pace)}"
            team.ovs.vsctl("set", "port", self._bond, f"other_config:{interval}")

    def observe(self) -> Observation:
        return Observation({}, shifts(self._log.read_text(errors="replace"), self._bond))


class Ours(Contender):
    """Our service with one of its policies, over plain uplinks or over an LACP bond."""

    def __init__(self, policy: str, teaming: str = SWITCH_INDEPENDENT) -> None:
        self._policy, self._teaming = policy, teaming
        usual = teaming == OURS[policy]
        self.name = policy if usual else f"{policy}/{teaming}"
        self.server_class = FORMS[teaming]

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
        # Without uplinks named, those are the members of the bridge's bond.
        uplinks = list(team.capacities_bps) if self._teaming == SWITCH_INDEPENDENT else []
        self._service.attach(self._bridge, uplinks, self._policy)

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


def by_name(name: str) -> Contender:
    """The contender of this name; ours take another teaming behind a slash: `dynamic/lacp`.

    Raises:
        ValueError: there is none.
    """
    if name == MANUAL:
        return Manual()
    if name in BONDS:
        return OvsBond(name)
    policy, slash, teaming = name.partition("/")
    if policy not in OURS:
        raise ValueError(f"contender: {name} -> {' | '.join((MANUAL, *BONDS, *OURS))}")
    if slash and teaming not in FORMS:
        raise ValueError(f"teaming: {teaming} -> {' | '.join(FORMS)}")
    return Ours(policy, teaming or OURS[policy])


def all_contenders() -> list[Contender]:
    """Every contender of the published comparison, the baseline first."""
    return [by_name(name) for name in (MANUAL, "originating-port", "load-based")]
