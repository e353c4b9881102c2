"""Simulated hosts with known events, as Prometheus would have scraped them.

The engine and the exporter are the project's own, unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from controller.api.engine_commands import Observe, ReadStats
from controller.api.events import AddressesRead, Leading
from controller.config.rows import BridgeRow, Tunnel
from controller.host import faults
from controller.metrics.exporter import Exporter
from tests.unit.fake_switch import FIRST_VM_PORT, World, done, refusal, world
from tests.unit.rows import bond, bridge, interface, ours, port, with_ids, with_lacp

# 2026-01-05 10:00 UTC. Prometheus keeps blocks of two hours.
BEGIN_S = 1767607200.0
SCRAPE_S = 5.0
MINUTE_S = 60.0
HOUR_S = 3600.0
CAPACITY_BPS = 10e9
JOB, PAIR = "ovs-lbt", "ovs-lbt-hv2"
HV1, HV2, HV2_STANDBY, HV3 = "hv1:9476", "hv2:9476", "hv2:9477", "hv3:9476"
VERSION = "0.1.0"
DECISION_S, POLL_S, SCRAPED_IN_S = 0.0004, 0.002, 0.01
ENDPOINT = "192.0.2.1"
# OpenStack and libvirt give a VM without a name a UUID, which a panel leaves out.
UUID = "3f0a51d2-9c1e-4d5b-8a57-0c2b1f6f7c11"
# No two VMs send the same, so that no two uplinks carry the same.
QUIET_MBPS, MORE_MBPS = 400.0, 7.0
# As often as scrapes: shorter intervals take longer to simulate, with the same result.
POLLED_MS = "5000"

# A name, and labels in the order of their names.
Series = tuple[str, tuple[tuple[str, str], ...]]
Points = list[tuple[float, float]]
Recorded = dict[Series, Points]


class Moment(NamedTuple):
    """A time at which the dashboards are queried, and what happened before."""

    at_s: float
    range_s: float
    text: str


@dataclass
class Recording:
    """All series, and the moments by their names."""

    series: Recorded = field(default_factory=dict)
    moments: dict[str, Moment] = field(default_factory=dict)


class Target:
    """A service that Prometheus scrapes. `here` None: it is on standby."""

    def __init__(self, job: str, instance: str, here: World | None, recording: Recording) -> None:
        self.job, self.instance, self.here, self.recording = job, instance, here, recording
        self.alive = True
        self.failed = dict.fromkeys(faults.PARTS, 0)
        self._born_s = BEGIN_S
        self._seen = 0
        self._expose()

    def _expose(self) -> None:
        here = self.here
        self._exporter = Exporter(
            (lambda: here.engine.fleet.status()) if here else tuple,
            VERSION,
            (lambda: here.engine.fleet.leads) if here else (lambda: False),
            lambda: self.failed,
        )

    def kill(self) -> None:
        self.alive = False

    def revive(self, now_s: float) -> None:
        """Start a new process: its counters begin with zero, except those of faults."""
        self.alive, self._born_s, self._seen = True, now_s, 0
        if self.here is not None:
            self.here.restart_service()
        self._expose()

    def scrape_at(self, now_s: float) -> None:
        """Let time pass until the next scrape. A switch forwards without its service, too."""
        if self.here is not None:
            if self.alive:
                self.here.run_until(now_s)
            else:
                self.here._pass(now_s)
        self._scrape(now_s)

    def _scrape(self, now_s: float) -> None:
        """Record what Prometheus stores; of a dead target, only that it is down."""
        target = (("instance", self.instance), ("job", self.job))
        found = self._samples() if self.alive else []
        found += [
            ("scrape_samples_scraped", (), float(len(found))),
            ("scrape_duration_seconds", (), SCRAPED_IN_S),
            ("up", (), float(self.alive)),
        ]
        for name, labels, value in found:
            self.recording.series.setdefault((name, (*target, *labels)), []).append((now_s, value))

    def _samples(self) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
        self._observe()
        return [
            # The library takes the time of creation from the clock of this machine.
            (
                s.name,
                tuple(s.labels.items()),
                self._born_s if s.name.endswith("_created") else s.value,
            )
            for family in self._exporter._registry.collect()
            for s in family.samples
        ]

    def _observe(self) -> None:
        """Observe what the shell of the service observes while it carries out commands."""
        log = self.here.log if self.here else []
        for _, command in log[self._seen :]:
            if isinstance(command, ReadStats):
                self._exporter.observe(command.bridge, "stats_poll_duration", POLL_S)
                self._exporter.observe(command.bridge, "decision_duration", DECISION_S)
            elif isinstance(command, Observe):
                self._exporter.observe(command.bridge, command.histogram, command.seconds)
        self._seen = len(log)


def steady(mbps: float) -> Callable[[float], float]:
    return lambda _: mbps * 1e6


# ---- two hosts -------------------------------------------------------------------------


def production() -> BridgeRow:
    """Bridge br0: four uplinks, and ten VMs of which some have rules."""
    members = [interface(f"eth{n}", n) for n in range(1, 5)]
    keys = {
        1: {"shares": "60", "reserve_mbps": "500", "limit_mbps": "5000"},
        2: {"anti_affinity": "web"},
        3: {"anti_affinity": "web"},
    }
    names = [f"vm{n}" for n in range(8)] + [UUID, "vm9"]
    vms = [
        port(f"vnet{n}", FIRST_VM_PORT + n, {"vm-id": vm, **ours(**keys.get(n, {}))})
        for n, vm in enumerate(names)
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


def host_of(*rows: BridgeRow, endpoint: str = "", begin_s: float = BEGIN_S) -> World:
    """A host whose switches have the ports of these bridges, each VM with a little traffic.

    `endpoint`: the VM port that sends the tunnels of an integration bridge, which is not attached.
    """
    made = World(*rows, start_s=begin_s)
    for row in rows:
        switch = world(row, CAPACITY_BPS).switches[row.name]
        switch.now_s = begin_s
        vms = sorted(ofport for ofport in switch.ports if ofport >= FIRST_VM_PORT)
        switch.offered_bps = {
            ofport: steady(QUIET_MBPS + MORE_MBPS * nth) for nth, ofport in enumerate(vms)
        }
        made.switches[row.name] = switch
    if endpoint:
        made.addresses = AddressesRead({endpoint: (ENDPOINT,)})
        tunnel = replace(interface("genev0", 1), kind="geneve", tunnel=Tunnel(ENDPOINT))
        tunnels = bridge(replace(port("genev0", 1), interfaces=(tunnel,)), ids={})
        made.rows["br-int"] = replace(tunnels, name="br-int")
    return made.start()


class TwoHosts:
    """Two hosts with three bridges: what happens in forty minutes, and the moments in between."""

    def __init__(self) -> None:
        self.recording = Recording()
        self.now_s = BEGIN_S
        self.one = host_of(production(), laboratory(), endpoint="vnet3")
        self.two = host_of(aggregated())
        self.hv1 = Target(JOB, HV1, self.one, self.recording)
        self.targets = (
            self.hv1,
            Target(PAIR, HV2, self.two, self.recording),
            Target(PAIR, HV2_STANDBY, None, self.recording),
        )
        self._change_loads()
        self._give_commands()
        self._lose_links()
        self._lose_switches()
        self._kill_services()

    def _change_loads(self) -> None:
        # The upstream switch learns a second late that vnet9 has moved.
        self._inbound(4)
        self._until(2.5, "quiet", "Three bridges on two hosts, little traffic.")
        self._offer(9000, 0)
        text = "vnet0 alone fills eth3 to 90 %: all others have left, nothing helps."
        self._until(5.5, "full", text)
        self._offer(QUIET_MBPS, 0)
        self._until(7)
        self._set(policy="adaptive")
        self._offer(2900, 1, 5, 9)
        self._until(8)
        self._set(policy="load-based")
        text = "Three VMs of one uplink sent more, and several moved in the same step."
        self._until(8.5, "spread", text)

    def _give_commands(self) -> None:
        done(self.one.ask("move", "vnet9", "eth1"))
        self.one.run_for(1.0)
        self._inbound(1)
        self._until(9.5, "moved", "An operator moved vnet9.")
        done(self.one.ask("pin", "vnet4", "eth4"))
        self._until(10.5, "pinned", "An operator pinned vnet4 to eth4.")
        self.one.switches["br0"].refuse_next = "OFPBFC_MSG_FAILED"
        refusal(self.one.ask("move", "vnet6", "eth4"))
        self._until(11, "refused", "The switch refused the move of vnet6.")

    def _lose_links(self) -> None:
        self.one.set_link(2, up=False)
        self._until(11.5)
        refusal(self.one.ask("move", "vnet5", "eth2"))
        text = "The link of eth2 of hv1 went down a minute ago. A move to it was refused."
        self._until(12, "uplink down", text)
        self._until(13.5, "uplink still down", "The same, long enough for an alert.")
        self.one.set_link(2, up=True)
        self._until(14.5, "failed back", "eth2 is up again, and its VM ports are back.")
        self.one.ask("drain", "eth4")
        text = "An operator drains eth4; the pin to it cannot be kept."
        self._until(15.5, "drained", text)
        self._until(16)
        done(self.one.ask("undrain", "eth4"))
        self._until(17, "undrained", "eth4 is in service again, and has its VM ports back.")

    def _lose_switches(self) -> None:
        self._set(threshold="high")
        self._until(18, "bad value", "An operator set threshold=high on br0 of hv1.")
        self.two.disconnect()
        text = "The switch of hv2 does not answer for two and a half minutes."
        self._until(20.5, "no answer", text)
        self.two.connect()
        text = "The switch of hv2 answers again; the bad value is there for six minutes."
        self._until(23, "still a bad value", text)
        self._set(threshold="75")
        self.hv1.failed["history"] = 1
        text = "The value is corrected. A part of the service of hv1 failed, and restarted."
        self._until(24, "corrected", text)

    def _kill_services(self) -> None:
        self.hv1.kill()
        self._until(26, "service dead", "The service of hv1 was killed two minutes ago.")
        self._until(29, "service still dead", "It is dead for five minutes: an alert fires.")
        self.hv1.revive(self.now_s)
        self._until(30.5, "service back", "It runs again, with all counters at zero.")
        done(self.one.ask("detach", "br1"))
        self._until(31.5, "bridge gone", "br1 of hv1 was detached a minute ago.")
        for target in self.targets:
            target.kill()
        self._until(32.5, "all dead", "All services were killed a minute ago.")
        text = "No service has answered in the time shown."
        self._until(38, "all dead, 5 minutes shown", text, 300.0)
        for target in self.targets:
            target.revive(self.now_s)
        self._until(39, "all back", "All services run again.")
        self.two.say(Leading(leads=False))
        text = "The service of hv2 is on standby for a minute, and so is its standby."
        self._until(40, "no leader", text)

    def _until(
        self, minute: float, name: str = "", text: str = "", range_s: float = HOUR_S
    ) -> None:
        while self.now_s < BEGIN_S + minute * MINUTE_S:
            self.now_s += SCRAPE_S
            for target in self.targets:
                target.scrape_at(self.now_s)
        if name:
            self.recording.moments[name] = Moment(self.now_s, range_s, text)

    def _offer(self, mbps: float, *vms: int) -> None:
        for number in vms:
            self.one.switches["br0"].offered_bps[FIRST_VM_PORT + number] = steady(mbps)

    def _inbound(self, uplink: int) -> None:
        switch = self.one.switches["br0"]
        switch.inbound_bps[FIRST_VM_PORT + 9] = steady(QUIET_MBPS)
        switch.comes_by[FIRST_VM_PORT + 9] = uplink

    def _set(self, **keys: str) -> None:
        self.one.write(with_ids(self.one.rows["br0"], **keys))


@functools.cache
def two_hosts() -> Recording:
    return TwoHosts().recording


_ON_HV1 = {"job": JOB, "instance": HV1}
_ON_HV2 = {"job": PAIR, "instance": HV2}
# Alerts of the rules about what happens there: the alert, its severity and labels, and the minutes from
# which on it is pending, firing, and neither. The rules themselves have cases of their own.
ALERTS = (
    ("UplinkDown", "warning", {**_ON_HV1, "bridge": "br0", "uplink": "eth2"}, 11.5, 13, 14),
    ("RuleBroken", "warning", {**_ON_HV1, "bridge": "br0"}, 14.8, 16, 16),
    ("Imbalance", "info", {**_ON_HV1, "bridge": "br0"}, 16.2, 16.7, 23.7),
    ("ConfigurationError", "warning", {**_ON_HV1, "bridge": "br0"}, 17.5, 22.5, 23.5),
    ("BridgeDisconnected", "critical", {**_ON_HV2, "bridge": "br0"}, 18.5, 20, 21),
    ("Fault", "warning", _ON_HV1, 23.5, 23.5, 38.5),
    ("ServiceDown", "critical", _ON_HV1, 26.5, 28.5, 41),
    ("ServiceDown", "critical", _ON_HV2, 34, 36, 41),
    ("ServiceDown", "critical", {"job": PAIR, "instance": HV2_STANDBY}, 34, 36, 41),
    ("NoLeader", "critical", {"job": PAIR}, 39.5, 41, 41),
)


def alerts() -> Recorded:
    made: Recorded = {}
    for alert, severity, labels, pending, firing, gone in ALERTS:
        for state, begin, end in (("pending", pending, firing), ("firing", firing, gone)):
            about = {"alertname": f"OvsLbt{alert}", "alertstate": state, "severity": severity}
            count = round((end - begin) * MINUTE_S / SCRAPE_S)
            begin_s = BEGIN_S + begin * MINUTE_S
            made["ALERTS", tuple({**about, **labels}.items())] = [
                (begin_s + SCRAPE_S * n, 1.0) for n in range(count)
            ]
    return made


# ---- a VM port without an uplink -------------------------------------------------------

UNBOUND_BEGIN_S = BEGIN_S + 48 * HOUR_S
UNBOUND_S = {"uplink up": 55.0, "uplink down": 115.0, "no answer": 180.0}


def unbound() -> Recorded:
    """A tunnel endpoint that may use eth2 only: eth2 goes down, then the switch does not answer."""
    vms = [
        port("vnet0", FIRST_VM_PORT, ours(allow="eth2")),
        port("vnet1", FIRST_VM_PORT + 1, ours(affinity="alone")),
    ]
    uplinks = bond(interface("eth1", 1), interface("eth2", 2))
    keys = ours(policy="load-based", poll_interval_ms=POLLED_MS)
    row = bridge(uplinks, *vms, ids=keys)
    here = host_of(row, endpoint="vnet0", begin_s=UNBOUND_BEGIN_S)
    target = Target(JOB, HV3, here, Recording())
    events = {60.0: lambda: here.set_link(2, up=False), 120.0: here.disconnect}
    for number in range(1, round(max(UNBOUND_S.values()) / SCRAPE_S) + 1):
        events.get(number * SCRAPE_S, lambda: None)()
        target.scrape_at(UNBOUND_BEGIN_S + number * SCRAPE_S)
    return target.recording.series
