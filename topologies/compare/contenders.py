"""Who is compared: each contender teams a server's uplinks in its own way.

A contender says which form the server's bridge has, takes it over before the load, and
tells its bindings and its moves while the load runs.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.compare.pace import Pace
from topologies.graph.layout import Layout, Role
from topologies.network.private_ovs import PrivateOvs
from topologies.network.service import Service
from topologies.network.switches import TEAMS, ServerBridge, SplitServer

THRESHOLD_PERCENT = 75
MANUAL = "manual"
NOBODY = "none"
# Open vSwitch's own bonds by its names for them; balance-tcp is nothing without LACP.
BONDS: dict[str, type[ServerBridge]] = {
    "active-backup": TEAMS["bond"],
    "balance-slb": TEAMS["balance-slb"],
    "balance-slb/1s": TEAMS["balance-slb"],
    "balance-tcp": TEAMS["lacp"],
}
SWITCH_INDEPENDENT, LACP = "switch-independent", "lacp"
# Forms in which each server chooses by itself by which cable a frame goes.
TWO_SIDED = (TEAMS["plain"], TEAMS["balance-slb"])
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
    "set": SWITCH_INDEPENDENT,
    "set-port": SWITCH_INDEPENDENT,
    "adaptive": SWITCH_INDEPENDENT,
}
# By default a bond of Open vSwitch rebalances every 10 s, a third of LBT's window; in a
# run whose window is shorter, as much oftener, down to the least interval that it takes.
REBALANCES_PER_WINDOW = 3
LEAST_REBALANCE_INTERVAL_MS = 1000
# Those that rebalance by a clock of their own.
OWN_INTERVALS_MS = {"balance-slb/1s": LEAST_REBALANCE_INTERVAL_MS}
_SHIFT = re.compile(r"\|bond\|INFO\|bond (?P<bond>\S+): shift \d+kB of load")


@dataclass(frozen=True, slots=True)
class Teams:
    """The started servers as a contender finds them.

    `capacities_bps` is of every uplink, by its interface.
    """

    ovs: PrivateOvs
    servers: Sequence[ServerBridge]
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
    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        """Make the teams work; what must be undone afterwards goes on the stack."""

    @abstractmethod
    def observe(self) -> Observation:
        """The bindings now. It must cost little: it is asked several times a second."""

    def move(self, interface: str, mac: str, uplink: str) -> None:
        """Send what comes in at a VM port, from this address, by another uplink (an interface).

        Raises:
            RuntimeError: it was refused, or this contender moves nothing.
        """
        raise RuntimeError(f"{self.name}: moves nothing -> a contender that does")

    def place(self, interface: str, mac: str, uplink: str) -> None:
        """Have a VM port begin at this uplink, which is where numbers place it.

        For those that place by something else. It is no move, and its own rule goes on.
        """
        return  # by number

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

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        self._placement: dict[str, str] = {}
        for server in teams.servers:
            assert isinstance(server, SplitServer)
            self._placement |= server.placement()

    def observe(self) -> Observation:
        return Observation(self._placement)


class OvsBond(Contender):
    """One of Open vSwitch's own bonds, without our service.

    It has no bindings to tell: what it places are hashes. A shift of one is a move.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.server_class = BONDS[name]

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        self._ovs = teams.ovs
        self._log = teams.ovs.rundir / "ovs-vswitchd.log"
        self._bonds = [f"{one.name}-team" for one in teams.servers if len(one.uplinks) > 1]
        every_ms = OWN_INTERVALS_MS.get(self.name) or rebalance_interval_ms(teams.pace)
        interval = f"bond-rebalance-interval={every_ms}"
        for bond in self._bonds:
            teams.ovs.vsctl("set", "port", bond, f"other_config:{interval}")

    def observe(self) -> Observation:
        log = self._log.read_text(errors="replace")
        return Observation({}, sum(shifts(log, bond) for bond in self._bonds))

    def move(self, interface: str, mac: str, uplink: str) -> None:
        (bond,) = self._bonds
        # It would move back by load what was moved by hand.
        self._ovs.vsctl("set", "port", bond, "other_config:bond-rebalance-interval=0")
        self._migrate(bond, mac, uplink)

    def place(self, interface: str, mac: str, uplink: str) -> None:
        # Addresses with the same hash stay together, at the place of the last one.
        for bond in self._bonds:
            self._migrate(bond, mac, uplink)

    def _migrate(self, bond: str, mac: str, uplink: str) -> None:
        hash_ = self._ovs.run("ovs-appctl", "bond/hash", mac).strip()
        self._ovs.run("ovs-appctl", "bond/migrate", bond, hash_, uplink)


class Ours(Contender):
    """Our service with one of its policies, over plain uplinks or over an LACP bond."""

    def __init__(self, policy: str, teaming: str = SWITCH_INDEPENDENT) -> None:
        self._policy, self._teaming = policy, teaming
        usual = teaming == OURS[policy]
        self.name = policy if usual else f"{policy}/{teaming}"
        self.server_class = FORMS[teaming]

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        self._ovs = teams.ovs
        log = teams.directory / "service.log"
        self._service = resources.enter_context(Service(teams.ovs, log))
        self._bridges = {str(server.name) for server in teams.servers}
        for uplink, capacity_bps in teams.capacities_bps.items():
            # A virtual link reports 10 Gbit/s, whatever it is shaped to.
            speed = f"external_ids:ovs-lbt-capacity-mbps={capacity_bps // 10**6}"
            teams.ovs.vsctl("set", "interface", uplink, speed)
        settings = {
            "window-s": teams.pace.window_s,
            "threshold": THRESHOLD_PERCENT,
            "poll-interval-ms": teams.pace.poll_interval_ms,
        }
        words = [f"external_ids:ovs-lbt-{key}={value}" for key, value in settings.items()]
        for server in teams.servers:
            teams.ovs.vsctl("set", "bridge", server.name, *words)
            # Without uplinks named, those are the members of the bridge's bond.
            uplinks = server.uplinks if self._teaming == SWITCH_INDEPENDENT else []
            self._service.attach(server.name, uplinks, self._policy)

    def observe(self) -> Observation:
        bindings, moves = {}, 0
        for metric in self._service.metrics():
            if metric.labels.get("bridge") not in self._bridges:
                continue
            if metric.name == "ovslbt_port_binding" and metric.value == 1:
                bindings[metric.labels["port"]] = metric.labels["uplink"]
            elif metric.name == "ovslbt_moves_applied_total":
                moves += int(metric.value)
        return Observation(bindings, moves)

    def move(self, interface: str, mac: str, uplink: str) -> None:
        # As `ovs-lbt move` asks, without starting Python while time is measured.
        self._ovs.run("ovs-appctl", "-t", "ovs-lbt", "lbt/move", interface, uplink)

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


def chosen(
    usual: Sequence[str], policies: Sequence[str] | None, peers: Sequence[str] | None
) -> list[str]:
    """Who takes part: of `usual`, with the policies and the peers that a user has chosen.

    None leaves the usual ones. The order is that of `usual`: whoever is not in it, last.

    Raises:
        ValueError: there is no such contender, or it belongs to the other side.
    """
    for name in policies or ():
        if not isinstance(by_name(name), Ours):
            raise ValueError(f"--policy {name} -> {' | '.join(OURS)}")
    for name in peers or ():
        if name not in (MANUAL, *BONDS, NOBODY):
            raise ValueError(f"--against {name} -> {' | '.join((MANUAL, *BONDS, NOBODY))}")
    ours = None if policies is None else [by_name(name).name for name in policies]
    others = None if peers is None else [name for name in peers if name != NOBODY]

    def stays(name: str) -> bool:
        wanted = ours if isinstance(by_name(name), Ours) else others
        return wanted is None or name in wanted

    kept = [name for name in usual if stays(name)]
    return list(dict.fromkeys([*kept, *(others or ()), *(ours or ())]))


def unfit(layout: Layout, contender: Contender) -> str:
    """Why a contender's teams cannot work in a layout; empty if they can."""
    ends = [layout.far_end(uplink) for uplink in layout.nodes(Role.UPLINK)]
    back_to_back = any(layout.attributes(end)["role"] == Role.UPLINK for end in ends)
    if back_to_back and contender.server_class in TWO_SIDED:
        return "without a switch between them, both servers' teams must agree on a cable"
    if contender.server_class.lag and len(set(ends)) > 1 and not back_to_back:
        return "a LAG must end at one switch"
    return ""
