"""The contenders: each one teams a server's uplinks in its own way.

A contender determines the form of the server's bridge, takes the bridge over before the load, and
counts its moves while the load is running.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from topologies.graph.layout import Layout, Role
from topologies.loads import flow_plan
from topologies.loads.pace import Pace
from topologies.network.private_ovs import PrivateOvs
from topologies.network.service import Service
from topologies.network.switches import TEAMS, ServerBridge, SplitServer

THRESHOLD_PERCENT = 75
# The service's decisions, next to its other files in Open vSwitch's log directory.
HISTORY = "ovs-lbt-history.jsonl"
# Its name for a path fault.
PATH_FAULT = "path-fault"
# A scrape is up to 1 s old, and the history may have a move before the metrics do.
OBSERVE_AGAIN_S = 1.25
MANUAL = "manual"
# It has the size of every flow, which no team can know: it is neither a peer nor an ovs-lbt policy.
ORACLE = "oracle"
# The value of `--against` that excludes every peer.
NO_PEERS = "none"
# Open vSwitch's own bonds, by their names in Open vSwitch. balance-tcp needs LACP.
BONDS: dict[str, type[ServerBridge]] = {
    "active-backup": TEAMS["bond"],
    "balance-slb": TEAMS["balance-slb"],
    "balance-slb/1s": TEAMS["balance-slb"],
    "balance-tcp": TEAMS["lacp"],
}
SWITCH_INDEPENDENT, LACP = "switch-independent", "lacp"
# The forms in which each server selects the cable of a frame on its own.
TWO_SIDED = (TEAMS["plain"], TEAMS["balance-slb"])
# The form of the server's bridge that ovs-lbt takes over.
FORMS: dict[str, type[ServerBridge]] = {
    SWITCH_INDEPENDENT: TEAMS["plain"],
    LACP: TEAMS["lacp"],
}
# ovs-lbt's presets, each with its usual teaming. Hashing flows over all members needs a LAG.
OURS = {
    **dict.fromkeys(
        ("originating-port", "source-mac", "explicit", "load-based"), SWITCH_INDEPENDENT
    ),
    **dict.fromkeys(("slb", "dynamic", "set", "set-port", "adaptive"), SWITCH_INDEPENDENT),
    **dict.fromkeys(("ip-hash", "address-hash"), LACP),
}
# What most benches compare; bonds with LACP need one upstream switch.
USUAL = (
    *(MANUAL, "originating-port", "load-based", "adaptive", "dynamic"),
    *("active-backup", "balance-slb"),
)
# The suffixes of an ovs-lbt contender: path checks between the uplinks, which are off by default, or the
# connection hash, which attach chooses by default.
PATH_CHECK = "+path-check"
HASHES = ("multipath", "dp_hash", "auto")
# Path checks have found earlier faults by then, and VM ports have left the faulty uplinks.
PATHS_JUDGED_S = 8.0
# By default, an Open vSwitch bond rebalances every 10 s, a third of LBT's window. In a run with a
# shorter window, its interval is shorter by the same factor, down to the shortest supported interval.
REBALANCES_PER_WINDOW = 3
LEAST_REBALANCE_INTERVAL_MS = 1000
# The bonds that rebalance on a timer of their own.
OWN_INTERVALS_MS = {"balance-slb/1s": LEAST_REBALANCE_INTERVAL_MS}
_SHIFT = re.compile(r"\|bond\|INFO\|bond (?P<bond>\S+): shift \d+kB of load")


@dataclass(frozen=True, slots=True)
class Teams:
    """The started servers that a contender takes over.

    `capacities_bps` has the capacity of every uplink, by interface. `path_targets` has the hosts that
    a server's path checks can ask, as the key of that name has them.
    """

    ovs: PrivateOvs
    servers: Sequence[ServerBridge]
    capacities_bps: Mapping[str, int]
    pace: Pace
    directory: Path
    path_targets: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Contender(ABC):
    """A way to team the uplinks. An instance serves one run."""

    name: str
    server_class: type[ServerBridge]
    killed = False

    @abstractmethod
    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        """Take the bridges over, and push the clean-up on `resources`."""

    def moves(self) -> int:
        """The number of moves so far. This must be cheap, as it is called several times a second."""
        return 0

    def place(self, interface: str, mac: str, uplink: str) -> None:
        """Place a VM port on the uplink that its port number hashes to, before the load starts.

        Contenders that place by other criteria override this. It does not count as a move, and the
        contender may move the port again.
        """
        return  # the default is for contenders that place by port number

    def pids(self) -> dict[str, int]:
        """The process ids of the programs that this contender needs besides Open vSwitch."""
        return {}

    def kill(self) -> bool:
        """Kill these programs. Returns whether there are any."""
        for pid in self.pids().values():
            os.kill(pid, signal.SIGKILL)
        self.killed = bool(self.pids())
        return self.killed

    def figures(self) -> Mapping[str, float]:
        """The figures that only this contender can report, when the load has ended."""
        return {}


def rebalance_interval_ms(pace: Pace) -> int:
    """The rebalance interval of Open vSwitch's bonds in a run of this pace."""
    return max(LEAST_REBALANCE_INTERVAL_MS, pace.window_s * 1000 // REBALANCES_PER_WINDOW)


def shifts(log: str, bond: str) -> int:
    """How often a bond has moved a hash to another member, according to the log of its vswitchd."""
    return sum(found["bond"] == bond for found in _SHIFT.finditer(log))


class Manual(Contender):
    """The baseline: manual placement without ovs-lbt.

    Each uplink has an ordinary bridge of its own. An operator without ovs-lbt would build this, and
    it cannot loop. Every frame takes the NORMAL action, the cheapest forwarding, with which CPU time
    is compared.
    """

    name = MANUAL
    server_class = SplitServer

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        """Nothing is left to do: the servers were started with this placement."""


class OvsBond(Contender):
    """An Open vSwitch bond, without ovs-lbt.

    It places hashes and not VM ports. A shift of a hash counts as a move.
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

    def moves(self) -> int:
        log = self._log.read_text(errors="replace")
        return sum(shifts(log, bond) for bond in self._bonds)

    def place(self, interface: str, mac: str, uplink: str) -> None:
        # Open vSwitch cannot move hashes of other bonds.
        if self.server_class is not TEAMS["balance-slb"]:
            return
        # Addresses with the same hash stay together on the uplink of the last one placed.
        for bond in self._bonds:
            hash_ = self._ovs.run("ovs-appctl", "bond/hash", mac).strip()
            self._ovs.run("ovs-appctl", "bond/migrate", bond, hash_, uplink)


class Ours(Contender):
    """ovs-lbt with one of its policies, on plain uplinks or on an LACP bond.

    With the suffix `PATH_CHECK`, ovs-lbt has probed the paths between the uplinks for `PATHS_JUDGED_S`
    when the load begins. `settings` has further keys of the bridges, and `capacity_mbps` the capacity of
    all uplinks, if they are not those of the layout.
    """

    def __init__(self, policy: str, teaming: str, suffix: str = "") -> None:
        self.policy, self.teaming, self._path_check = policy, teaming, suffix == PATH_CHECK
        self.settings: dict[str, object] = {}
        if suffix and not self._path_check:
            self.settings["connection-hash"] = suffix.removeprefix("+")
        self.capacity_mbps = 0
        usual = teaming == OURS[policy]
        self.name = (policy if usual else f"{policy}/{teaming}") + suffix
        self.server_class = FORMS[teaming]

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        self._ovs = teams.ovs
        log = teams.directory / "service.log"
        self._service = resources.enter_context(Service(teams.ovs, log))
        self._written_bytes, self._grown_s, self._moves = -1, -math.inf, 0
        # A virtual link reports 10 Gbit/s, whatever its shaped rate.
        for uplink, bps in teams.capacities_bps.items():
            mbps = self.capacity_mbps or bps // 10**6
            teams.ovs.vsctl(
                "set", "interface", uplink, f"external_ids:ovs-lbt-capacity-mbps={mbps}"
            )
        settings = {
            "window-s": teams.pace.window_s,
            "threshold": THRESHOLD_PERCENT,
            "poll-interval-ms": teams.pace.poll_interval_ms,
            **self.settings,
        }
        words = [f"external_ids:ovs-lbt-{key}={value}" for key, value in settings.items()]
        for server in teams.servers:
            teams.ovs.vsctl("set", "bridge", server.name, *words)
            # Without named uplinks, the members of the bridge's bond are the uplinks.
            uplinks = server.uplinks if self.teaming == SWITCH_INDEPENDENT else []
            self._service.attach(server.name, uplinks, self.policy)
        self._checked_at = time.time()
        if self._path_check:
            for server in teams.servers:
                words = ["external_ids:ovs-lbt-path-check=on"]
                if targets := ",".join(teams.path_targets.get(server.name, ())):
                    words.append(f'external_ids:ovs-lbt-path-check-targets="{targets}"')
                teams.ovs.vsctl("set", "bridge", server.name, *words)
            time.sleep(PATHS_JUDGED_S)

    def moves(self) -> int:
        """The moves by the metrics, which are read for a while after the history has grown.

        A scrape costs the service 4 to 8 ms of CPU time, while observing peers is free. A service that was
        killed makes no more.
        """
        history = self._ovs.rundir / HISTORY
        written_bytes = history.stat().st_size if history.exists() else 0
        now_s = time.monotonic()
        if written_bytes != self._written_bytes:
            self._written_bytes, self._grown_s = written_bytes, now_s
        if now_s - self._grown_s <= OBSERVE_AGAIN_S and not self.killed:
            self._moves = sum(
                int(metric.value)
                for metric in self._service.metrics()
                if metric.name == "ovslbt_moves_applied_total"
            )
        return self._moves

    def pids(self) -> dict[str, int]:
        return {"ovs-lbt": self._service.pid}

    def figures(self) -> Mapping[str, float]:
        """The time from the start of path checks to the first path fault, if they found one."""
        history = self._ovs.rundir / HISTORY
        lines = history.read_text().splitlines() if history.exists() else []
        found = [entry["at"] for entry in map(json.loads, lines) if entry["event"] == PATH_FAULT]
        return {"fault_found_s": min(found) - self._checked_at} if found else {}


class Oracle(Contender):
    """Places each flow on the uplink that its load has planned, given the sizes of all flows.

    A flow's destination port encodes its uplink (`topologies.loads.flow_plan`). A group for each uplink
    sends on this uplink or, if it is down, on the next one. The uplinks are a LAG, so that the upstream
    switch accepts a VM on all of them.
    """

    name = ORACLE
    server_class = TEAMS["lacp"]

    def take_over(self, teams: Teams, resources: contextlib.ExitStack) -> None:
        for server in teams.servers:
            ofports = [
                int(teams.ovs.vsctl("get", "interface", uplink, "ofport"))
                for uplink in server.uplinks
            ]
            for number in range(len(ofports)):
                order = ofports[number:] + ofports[:number]
                buckets = ",".join(f"bucket=watch_port:{one},output:{one}" for one in order)
                group = f"group_id={number + 1},type=fast_failover,{buckets}"
                self._ofctl(teams.ovs, "add-group", server.name, group)
                match = f"tcp,tp_src={flow_plan.SERVER_PORT},tp_dst={number}/{hex(flow_plan.PLACES - 1)}"
                flow = f"priority=100,{match},actions=group:{number + 1}"
                self._ofctl(teams.ovs, "add-flow", server.name, flow)

    @staticmethod
    def _ofctl(ovs: PrivateOvs, *arguments: str) -> None:
        ovs.run("ovs-ofctl", "-O", "OpenFlow13", *arguments)


def is_ours(name: str) -> bool:
    """Whether a contender is one of our policies."""
    return name.partition("+")[0].partition("/")[0] in OURS


def by_name(name: str) -> Contender:
    """The contender with this name.

    The name of an ovs-lbt policy can have a teaming after a slash, and then a suffix: `dynamic/lacp`,
    `load-based+path-check`, `dynamic/lacp+multipath`.

    Raises:
        ValueError: there is no such contender.
    """
    if name in (MANUAL, ORACLE):
        return Manual() if name == MANUAL else Oracle()
    if name in BONDS:
        return OvsBond(name)
    plain, plus, suffix = name.partition("+")
    policy, slash, teaming = plain.partition("/")
    if policy not in OURS:
        known = " | ".join((MANUAL, *BONDS, ORACLE, *OURS))
        raise ValueError(f"contender {name} does not exist; expected {known}")
    if slash and teaming not in FORMS:
        raise ValueError(f"teaming {teaming} does not exist; expected {' | '.join(FORMS)}")
    if plus and plus + suffix not in (
        known_suffixes := (PATH_CHECK, *(f"+{one}" for one in HASHES))
    ):
        expected = " | ".join(known_suffixes)
        raise ValueError(f"suffix {plus}{suffix} does not exist; expected {expected}")
    teaming = teaming or OURS[policy]
    if plus + suffix == PATH_CHECK and teaming != SWITCH_INDEPENDENT:
        raise ValueError(
            f"{name} has the teaming {teaming}; path checks require {SWITCH_INDEPENDENT}"
        )
    return Ours(policy, teaming, plus + suffix)


def select(
    defaults: Sequence[str], policies: Sequence[str] | None, peers: Sequence[str] | None
) -> list[str]:
    """Select the contenders to run: the default ones, or the policies and peers of the user.

    None keeps the default ones. They keep their order, and all others come last.

    Raises:
        ValueError: a contender does not exist, or a policy is named as a peer or vice versa.
    """
    for name in policies or ():
        if not isinstance(by_name(name), Ours):
            raise ValueError(f"--policy does not accept {name}; expected {' | '.join(OURS)}")
    for name in peers or ():
        if name not in (known := (MANUAL, *BONDS, ORACLE, NO_PEERS)):
            raise ValueError(f"--against does not accept {name}; expected {' | '.join(known)}")
    ours = None if policies is None else [by_name(name).name for name in policies]
    others = None if peers is None else [name for name in peers if name != NO_PEERS]

    def is_selected(name: str) -> bool:
        wanted = ours if isinstance(by_name(name), Ours) else others
        return wanted is None or name in wanted

    kept = [name for name in defaults if is_selected(name)]
    return list(dict.fromkeys([*kept, *(others or ()), *(ours or ())]))


def unsupported_reason(layout: Layout, contender: Contender) -> str:
    """Why a contender's team cannot work in a layout; empty if it can."""
    ends = [layout.far_end(uplink) for uplink in layout.nodes(Role.UPLINK)]
    back_to_back = any(layout.attributes(end)["role"] == Role.UPLINK for end in ends)
    if back_to_back and contender.server_class in TWO_SIDED:
        return "without a switch between them, both servers' teams must agree on a cable"
    if contender.server_class.lag and len(set(ends)) > 1 and not back_to_back:
        return "a LAG must end at one switch"
    return ""
