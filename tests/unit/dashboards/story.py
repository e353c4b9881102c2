"""A story of known events on simulated switches, as Prometheus would have scraped it.

The engine and the exporter are the project's own, unchanged. What happened is taken from the
simulated switches and the journal of the engine, not from metrics.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client.core import Metric

from controller.api.events import AddressesRead, Leading, Observe, ReadStats
from controller.config.rows import BridgeRow, Tunnel
from controller.host import faults
from controller.metrics.exporter import Exporter
from policies.model import Reason
from tests.unit.fake_switch import FIRST_VM_PORT, FakeSwitch, World, done, refusal, world
from tests.unit.rows import (
    bond,
    bridge,
    interface,
    ours,
    port,
    with_ids,
    with_lacp,
)

# 2026-01-05 10:00 UTC. Prometheus keeps blocks of two hours.
BEGIN_S = 1767607200.0
SCRAPE_S = 5.0
MINUTE_S = 60.0
HOUR_S = 3600.0
CAPACITY_BPS = 10e9
JOB, PAIR = "ovs-lbt", "ovs-lbt-hv2"
HV1, HV2, HV2_STANDBY = "hv1:9476", "hv2:9476", "hv2:9477"
VERSION = "0.1.0"
DECISION_S, POLL_S, SCRAPED_IN_S = 0.0004, 0.002, 0.01
ENDPOINT = "192.0.2.1"
PRODUCTION = ("eth1", "eth2", "eth3", "eth4")
# No two VMs send the same, so that no two uplinks carry the same.
QUIET_MBPS, MORE_MBPS = 400.0, 7.0
# As often as scrapes: more often tells the same and takes longer.
POLLED_MS = "5000"

# When somebody looks. The story itself takes seconds to play, and its names do not need it.
NAMES = (
    *("quiet", "full", "spread", "moved", "pinned", "refused"),
    *("uplink down", "uplink still down", "failed back", "drained", "undrained"),
    *("bad value", "no answer", "still a bad value", "mended"),
    *("service dead", "service still dead", "service back", "bridge gone"),
    *("all dead", "all dead, 5 minutes shown", "all back", "nobody leads"),
)

# A name, and labels in the order of their names.
Series = tuple[str, tuple[tuple[str, str], ...]]
Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Move:
    """A VM port that its switch has sent by another uplink than before."""

    at_s: float
    instance: str
    bridge: str
    port: str
    uplink: str
    reason: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so at a moment, and what has happened up to it. Keys: (instance, bridge)."""

    at_s: float
    # Whether each service runs.
    services: Mapping[str, bool]
    # Services that lead.
    leading: frozenset[str]
    # By bridge of each service that runs and leads: whether its switch answers.
    answers: Mapping[tuple[str, str], bool]
    # By bridge: its uplinks, and whether each has a link.
    links: Mapping[tuple[str, str], Mapping[str, bool]]
    drained: frozenset[tuple[str, str, str]]
    unrelieved: frozenset[tuple[str, str, str]]
    # By bridge: how many values in the database are bad.
    bad_values: Mapping[tuple[str, str], int]
    # By bridge: of each uplink with a link, the share of its capacity that its VM ports send.
    loads: Mapping[tuple[str, str], Mapping[str, float]]
    # By bridge: its policy, teaming and mode.
    policies: Mapping[tuple[str, str], tuple[str, str, str]]
    moves: tuple[Move, ...]
    # When a move was refused, by the switch or to an operator.
    refused: tuple[float, ...]

    @property
    def is_all_known(self) -> bool:
        """Whether all services run, and one of each pair leads: so each bridge is heard of."""
        return all(self.services.values()) and {HV1, HV2} <= self.leading

    def moved(self, range_s: float, *instance: str) -> int:
        """How many moves were made in the last `range_s`."""
        return sum(
            self.at_s - range_s < move.at_s
            and (move.instance, move.bridge)[: len(instance)] == instance
            for move in self.moves
        )

    def moved_for(self, reason: Reason, range_s: float, *instance: str) -> int:
        made = tuple(move for move in self.moves if move.reason == reason)
        return replace(self, moves=made).moved(range_s, *instance)

    def refusals(self, range_s: float) -> int:
        return sum(self.at_s - range_s < at_s for at_s in self.refused)

    @property
    def down(self) -> frozenset[tuple[str, str, str]]:
        """Uplinks in service without a link, of services that run."""
        return frozenset(
            (*where, uplink)
            for where, links in self.links.items()
            for uplink, up in links.items()
            if not up and (*where, uplink) not in self.drained
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """When somebody looks, with which range, and what has happened before."""

    name: str
    text: str
    at_s: float
    range_s: float
    facts: Facts


@dataclass
class Recording:
    """All series of a Prometheus, and the moments at which somebody looks."""

    series: dict[Series, Points] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)

    def add(
        self, name: str, labels: tuple[tuple[str, str], ...], value: float, at_s: float
    ) -> None:
        self.series.setdefault((name, labels), []).append((at_s, value))

    @property
    def labels(self) -> dict[str, frozenset[str]]:
        """The labels of each metric."""
        return {name: frozenset(label for label, _ in labels) for name, labels in self.series}

    @property
    def moves(self) -> tuple[Move, ...]:
        return self.moments[-1].facts.moves


class Target:
    """A service that Prometheus scrapes. `here` None: it stands by."""

    def __init__(self, job: str, instance: str, here: World | None) -> None:
        self.job, self.instance, self.here = job, instance, here
        self.alive = True
        self.failed = dict.fromkeys(faults.PARTS, 0)
        self.moves: list[Move] = []
        self.refused: list[float] = []
        self._born_s = BEGIN_S
        self._seen = 0
        self._was = self._uplinks()
        self._expose()

    def _expose(self) -> None:
        here = self.here
        self._exporter = Exporter(
            (lambda: here.engine.fleet.status()) if here else tuple,
            VERSION,
            (lambda: here.engine.leads) if here else (lambda: False),
            lambda: self.failed,
        )

    def kill(self) -> None:
        self.alive = False

    def revive(self, now_s: float) -> None:
        """A new process: its counters begin with zero, but those of faults."""
        self.alive, self._born_s, self._seen = True, now_s, 0
        if self.here is not None:
            self.here.restart_service()
        self._expose()

    def advance(self, now_s: float) -> None:
        """Let time pass. A switch forwards without its service, too."""
        if self.here is None:
            return
        if self.alive:
            self.here.run_until(now_s)
        else:
            self.here._pass(now_s)
        self._look(now_s)

    def _uplinks(self) -> dict[tuple[str, str], str]:
        """By which uplink each switch sends what each VM port sends."""
        return {
            (name, switch.ports[ofport].name): switch.ports[uplink].name
            for name, switch in (self.here.switches.items() if self.here else ())
            for ofport in switch.ports
            if ofport >= FIRST_VM_PORT and (uplink := switch.uplink_of(ofport)) is not None
        }

    def _look(self, now_s: float) -> None:
        assert self.here is not None
        found = self._uplinks()
        changed = {key for key in found if self._was.get(key, found[key]) != found[key]}
        for name, named in sorted(changed):
            reason = self.here.engine.fleet.bridges[name].bound[named].reason
            assert reason is not None
            self.moves.append(
                Move(now_s, self.instance, name, named, found[name, named], str(reason))
            )
        self._was = found

    def scrape(self, recording: Recording, now_s: float) -> None:
        """What Prometheus stores of a scrape; a target that is dead is only found to be down."""
        target = (("instance", self.instance), ("job", self.job))
        found = self._samples() if self.alive else []
        for name, labels, value in found:
            recording.add(name, (*target, *labels), value, now_s)
        of_scrape = {
            "up": float(self.alive),
            "scrape_duration_seconds": SCRAPED_IN_S,
            "scrape_samples_scraped": float(len(found)),
        }
        for name, value in of_scrape.items():
            recording.add(name, target, value, now_s)

    def families(self) -> list[Metric]:
        self._observe()
        return list(self._exporter._registry.collect())

    def _samples(self) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
        return [
            # The library takes this from the clock on the wall.
            (
                s.name,
                tuple(s.labels.items()),
                self._born_s if s.name.endswith("_created") else s.value,
            )
            for family in self.families()
            for s in family.samples
        ]

    def _observe(self) -> None:
        """What the shell of the service observes while it carries out commands."""
        log = self.here.log if self.here else []
        for _, command in log[self._seen :]:
            if isinstance(command, ReadStats):
                self._exporter.observe_poll(command.bridge, POLL_S)
                self._exporter.observe_decision(command.bridge, DECISION_S)
            elif isinstance(command, Observe):
                self._exporter.observe(command.bridge, command.histogram, command.seconds)
        self._seen = len(log)


def steady(mbps: float) -> Callable[[float], float]:
    return lambda _: mbps * 1e6


def production() -> BridgeRow:
    """Bridge br0: four uplinks, and ten VMs of which some have rules."""
    members = [interface(name, number) for number, name in enumerate(PRODUCTION, 1)]
    keys = {
        1: {"shares": "60", "reserve_mbps": "500", "limit_mbps": "5000"},
        2: {"anti_affinity": "web"},
        3: {"anti_affinity": "web"},
    }
    vms = [
        port(f"vnet{n}", FIRST_VM_PORT + n, {"vm-id": f"vm{n}", **ours(**keys.get(n, {}))})
        for n in range(10)
    ]
    asked = ours(policy="load-based", failback_delay_s="10", poll_interval_ms=POLLED_MS)
    return bridge(bond(*members), *vms, ids=asked)


def laboratory() -> BridgeRow:
    """Bridge br1: two plain uplinks, and a VM port with addresses behind it; observed only."""
    uplinks = [port("eth5", 1), port("eth6", 2)]
    vms = [
        port("tap0", FIRST_VM_PORT, ours(unit="source-mac")),
        port("tap1", FIRST_VM_PORT + 1),
        port("tap2", FIRST_VM_PORT + 2),
    ]
    asked = ours(policy="originating-port", uplinks="eth5,eth6", mode="observe")
    return replace(bridge(*uplinks, *vms, ids=asked), name="br1")


def aggregated() -> BridgeRow:
    """Bridge br0 of the second host: a bond with LACP."""
    members = [interface("eth1", 1), interface("eth2", 2)]
    vms = [port(f"vnet{n}", FIRST_VM_PORT + n, {"vm-id": f"db{n}"}) for n in range(4)]
    row = bridge(bond(*members), *vms, ids=ours(policy="load-based", poll_interval_ms=POLLED_MS))
    return with_lacp(row, "eth1", "eth2", falls_back=False)


def integration() -> BridgeRow:
    """A bridge that is not attached, with a tunnel."""
    tunnel = replace(interface("genev0", 1), kind="geneve", tunnel=Tunnel(ENDPOINT))
    row = bridge(replace(port("genev0", 1), interfaces=(tunnel,)), ids={})
    return replace(row, name="br-int")


def host_of(*rows: BridgeRow) -> World:
    """A host whose switches have the ports of these bridges, each VM with a little traffic."""
    made = World(*rows, start_s=BEGIN_S)
    for row in rows:
        switch = world(row, CAPACITY_BPS).switches[row.name]
        switch.now_s = BEGIN_S
        vms = sorted(ofport for ofport in switch.ports if ofport >= FIRST_VM_PORT)
        switch.offered_bps = {
            ofport: steady(QUIET_MBPS + MORE_MBPS * nth) for nth, ofport in enumerate(vms)
        }
        made.switches[row.name] = switch
    return made.start()


def _carried(switch: FakeSwitch, links: Mapping[str, bool]) -> dict[str, float]:
    carried = dict.fromkeys((name for name in links), 0.0)
    for ofport, offered_bps in switch.offered_bps.items():
        if (uplink := switch.uplink_of(ofport)) is not None:
            carried[switch.ports[uplink].name] += offered_bps(switch.now_s) / CAPACITY_BPS
    return carried


class Plot:
    """The story: what happens, minute by minute, and when somebody looks."""

    def __init__(self) -> None:
        self.recording = Recording()
        self.now_s = BEGIN_S
        self.hv1 = Target(JOB, HV1, host_of(production(), laboratory()))
        self.hv2 = Target(PAIR, HV2, host_of(aggregated()))
        self.standby = Target(PAIR, HV2_STANDBY, None)
        assert self.hv1.here is not None and self.hv2.here is not None
        self.one, self.two = self.hv1.here, self.hv2.here
        # vnet3 is a port of the host itself, which sends the tunnels of an integration bridge.
        self.one.addresses = AddressesRead({"vnet3": (ENDPOINT,)})
        self.one.rows["br-int"] = integration()
        self.one.start()
        self.targets = (self.hv1, self.hv2, self.standby)

    def play(self) -> Recording:
        self._loads()
        self._operators()
        self._links()
        self._values_and_switches()
        self._services()
        return self.recording

    def _loads(self) -> None:
        # The network sends to vnet9, and learns where it is only a second after it has moved.
        self._inbound(4)
        self._until(2.5)
        self._look("quiet", "Three bridges on two hosts, little traffic.")
        self._offer(9000, 0)
        self._until(5.5)
        self._look("full", "vnet0 alone fills eth3 to 90 %: all others have left, nothing helps.")
        self._offer(QUIET_MBPS, 0)
        self._until(7)
        self._set(policy="adaptive")
        self._offer(2900, 1, 5, 9)
        self._until(8)
        self._set(policy="load-based")
        self._until(8.5)
        self._look("spread", "Three VMs of one uplink sent more, and several moved at one moment.")

    def _operators(self) -> None:
        done(self.one.ask("move", "vnet9", "eth1"))
        self.one.run_for(1.0)
        self._inbound(1)
        self._until(9.5)
        self._look("moved", "An operator moved vnet9.")
        done(self.one.ask("pin", "vnet4", "eth4"))
        self._until(10.5)
        self._look("pinned", "An operator pinned vnet4 to eth4.")
        self.one.switches["br0"].refuse_next = "OFPBFC_MSG_FAILED"
        self._refused("move", "vnet6", "eth4")
        self._until(11)
        self._look("refused", "The switch refused the move of vnet6.")

    def _links(self) -> None:
        self.one.set_link(2, up=False)
        self._until(11.5)
        self._refused("move", "vnet5", "eth2")
        self._until(12)
        self._look(
            "uplink down",
            "eth2 of hv1 lost its link a minute ago, and its VM ports failed over; a move to it was refused.",
        )
        self._until(13.5)
        self._look("uplink still down", "The same, long enough for an alert.")
        self.one.set_link(2, up=True)
        self._until(14.5)
        self._look("failed back", "eth2 is up again, and its VM ports are back.")
        self.one.ask("drain", "eth4")
        self._until(15.5)
        self._look("drained", "An operator drains eth4; the pin to it cannot be kept.")
        self._until(16)
        done(self.one.ask("undrain", "eth4"))
        self._until(17)
        self._look("undrained", "eth4 is in service again, and has its VM ports back.")

    def _values_and_switches(self) -> None:
        self._set(threshold="high")
        self._until(18)
        self._look("bad value", "Somebody set threshold=high on br0 of hv1.")
        self.two.disconnect()
        self._until(20.5)
        self._look("no answer", "The switch of hv2 does not answer for two and a half minutes.")
        self.two.connect()
        self._until(23)
        self._look(
            "still a bad value", "hv2 is well again; the bad value is there for six minutes."
        )
        self._set(threshold="75")
        self.hv1.failed["history"] = 1
        self._until(24)
        self._look(
            "mended", "The value is mended. A part of the service of hv1 failed, and restarted."
        )

    def _services(self) -> None:
        self.hv1.kill()
        self._until(26)
        self._look("service dead", "The service of hv1 was killed two minutes ago.")
        self._until(29)
        self._look("service still dead", "It is dead for five minutes: an alert fires.")
        self.hv1.revive(self.now_s)
        self._until(30.5)
        self._look("service back", "It runs again, with all counters at zero.")
        done(self.one.ask("detach", "br1"))
        self._until(31.5)
        self._look("bridge gone", "br1 of hv1 was detached a minute ago.")
        for target in self.targets:
            target.kill()
        self._until(32.5)
        self._look("all dead", "All services were killed a minute ago.")
        self._until(38)
        self._look("all dead, 5 minutes shown", "No service has answered in the time shown.", 300.0)
        for target in self.targets:
            target.revive(self.now_s)
        self._until(39)
        self._look("all back", "All services run again.")
        self.two.say(Leading(leads=False))
        self._until(40)
        self._look(
            "nobody leads", "The service of hv2 stands by since a minute, and so does its standby."
        )

    # ---- what happens ------------------------------------------------------------------

    def _until(self, minute: float) -> None:
        while self.now_s < BEGIN_S + minute * MINUTE_S:
            self.now_s += SCRAPE_S
            for target in self.targets:
                target.advance(self.now_s)
                target.scrape(self.recording, self.now_s)

    def _offer(self, mbps: float, *vms: int) -> None:
        for number in vms:
            self.one.switches["br0"].offered_bps[FIRST_VM_PORT + number] = steady(mbps)

    def _inbound(self, uplink: int) -> None:
        switch = self.one.switches["br0"]
        switch.inbound_bps[FIRST_VM_PORT + 9] = steady(QUIET_MBPS)
        switch.comes_by[FIRST_VM_PORT + 9] = uplink

    def _set(self, **keys: str) -> None:
        self.one.write(with_ids(self.one.rows["br0"], **keys))

    def _refused(self, *words: str) -> None:
        refusal(self.one.ask(*words))
        self.hv1.refused.append(self.now_s + SCRAPE_S)

    def _look(self, name: str, text: str, range_s: float = HOUR_S) -> None:
        moment = Moment(name, text, self.now_s, range_s, self._facts())
        self.recording.moments.append(moment)

    def _facts(self) -> Facts:
        moves = sorted((move for t in self.targets for move in t.moves), key=lambda m: m.at_s)
        answers, links, bad, loads, policies = {}, {}, {}, {}, {}
        drained, unrelieved = set(), set()
        for target in self.targets:
            if not target.alive or target.here is None:
                continue
            for name, bridge_ in target.here.engine.fleet.bridges.items():
                where, switch = (target.instance, name), target.here.switches[name]
                answers[where] = bridge_.connected
                up = {port.name: port.up for port in switch.ports.values()}
                links[where] = {u.name: up[u.name] for u in bridge_.config.uplinks}
                loads[where] = _carried(switch, links[where])
                asked = bridge_.config.asked
                policies[where] = (asked.policy, str(asked.teaming), str(bridge_.config.mode))
                bad[where] = sum(
                    value == "high" for value in target.here.rows[name].external_ids.values()
                )
                drained |= {(*where, u.name) for u in bridge_.uplinks() if u.role == "drained"}
        if self.now_s == BEGIN_S + 5.5 * MINUTE_S:
            unrelieved.add((HV1, "br0", "eth3"))
        return Facts(
            self.now_s,
            {target.instance: target.alive for target in self.targets},
            frozenset(
                t.instance for t in self.targets if t.alive and t.here and t.here.engine.leads
            ),
            answers,
            links,
            frozenset(drained),
            frozenset(unrelieved),
            bad,
            loads,
            policies,
            tuple(moves),
            tuple(told for target in self.targets for told in target.refused),
        )


@functools.cache
def played() -> Recording:
    return Plot().play()


# ---- forty hosts -----------------------------------------------------------------------

FLEET_BEGIN_S = BEGIN_S + 24 * HOUR_S
FLEET_S = 180.0
HOSTS = tuple(f"node{number:02}:9476" for number in range(1, 41))
# What is wrong, by host; all others are well.
DEAD, LINKLESS, MISCONFIGURED, FULL = "node07:9476", "node12:9476", "node23:9476", "node31:9476"
FULL_MBPS = 8500


def _small(wrong: str) -> Recording:
    """A host with two uplinks and four VMs, of which one thing is wrong."""
    made = Recording()
    target = Target(JOB, wrong, host_of(aggregated()))
    here = target.here
    assert here is not None
    if wrong == FULL:
        here.switches["br0"].offered_bps[FIRST_VM_PORT] = steady(FULL_MBPS)
    now_s = BEGIN_S
    while now_s < BEGIN_S + FLEET_S:
        now_s += SCRAPE_S
        if now_s == BEGIN_S + FLEET_S / 2:
            if wrong == DEAD:
                target.kill()
            elif wrong == LINKLESS:
                here.set_link(1, up=False)
            elif wrong == MISCONFIGURED:
                here.write(with_ids(here.rows["br0"], threshold="high"))
        target.advance(now_s)
        target.scrape(made, now_s)
    return made


@functools.cache
def fleet() -> Recording:
    """Forty hosts for three minutes, a day later; the last half of it, four are not well."""
    kinds = {wrong: _small(wrong) for wrong in ("", DEAD, LINKLESS, MISCONFIGURED, FULL)}
    made = Recording()
    shift_s = FLEET_BEGIN_S - BEGIN_S
    for host in HOSTS:
        for (name, labels), points in kinds[host if host in kinds else ""].series.items():
            own = tuple((k, host if k == "instance" else v) for k, v in labels)
            timed = name.endswith(("_timestamp_seconds", "_created"))
            made.series[name, own] = [
                (at_s + shift_s, value + shift_s if timed else value) for at_s, value in points
            ]
    return made
