"""Runs one contender in one scenario: builds the network, takes it over, loads and observes it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mininet.log import setLogLevel
from mininet.net import Mininet

from topologies.compare.contenders import Contender, Teams, by_name
from topologies.compare.steps import step
from topologies.graph.layout import SWITCHES, Layout, Role
from topologies.graph.ports import own_interface, ports_of, upstream_interface
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.pace import Pace
from topologies.network import packet_sockets, processes, shaping
from topologies.network.mininet_topo import LayoutTopo
from topologies.network.private_network import Counters, interface_counters, private_network
from topologies.network.private_ovs import PrivateOvs
from topologies.network.switches import ServerBridge

# Each run has a network namespace, so names can be short and fixed.
PREFIX = "lbt-"
SAMPLE_INTERVAL_S = 0.25
REACHABLE_TIMEOUT_S = 15.0
LAG_TIMEOUT_S = 15.0
# A real-time priority above that of the load's senders.
SWITCH_PRIORITY = 2
# A pause after the load, so that queued frames do not count as lost.
QUEUES_EMPTY_S = 0.3
# Time limits of steps: several times what they take on two busy cores.
START_LIMIT_S = 60.0
BUILD_LIMIT_S = 120.0
TEAM_LIMIT_S = 120.0
REACH_LIMIT_S = 120.0
LOAD_START_LIMIT_S = 120.0
LATE_LIMIT_S = 60.0  # in addition to the duration of the load
LOAD_END_LIMIT_S = 120.0
CLEAN_UP_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison, in which every contender has its own network and the same load.

    Attributes:
        name: a short name, unique within its bench.
        what: a description for the report.
        load: creates the load on a started network.
        contenders: the default contenders, the baseline first.
        contender: makes a contender by its name.
        published: published or calculated figures, by contender and figure.
        reachable: whether all end systems must reach each other before the load. A fault from a
            published document may prevent that.
        undisturbed: whether Open vSwitch has real-time priority, so that only full queues drop
            frames.
        fixed: whether the options of a bench add no other contenders.
    """

    name: str
    what: str
    layout: Layout
    load: Callable[[Stage], Load]
    contenders: tuple[str, ...]
    contender: Callable[[str], Contender] = by_name
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reachable: bool = True
    undisturbed: bool = False
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the uplinks at one time.

    Attributes:
        at_s: the time since the start of the load.
        sent_bytes: each uplink's counter, away from the server.
        received_bytes: each uplink's counter, towards the server.
        moves: a counter of moves since the contender started.
    """

    at_s: float
    sent_bytes: Mapping[str, int]
    received_bytes: Mapping[str, int]
    moves: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """The observations of one run of a contender.

    The packet counts are of the end systems: `entered_packets` came from them, and
    `delivered_packets` went to them. CPU times are per program. Spans are in seconds since the
    start of the load. `origin` has the code, the machine and the command of the run.
    """

    scenario: str
    contender: str
    samples: list[Sample]
    outcome: Outcome
    load_s: float
    measured_s: tuple[float, float]
    steady_s: tuple[float, float]
    cpu_s: Mapping[str, float]
    entered_packets: int
    delivered_packets: int
    origin: Mapping[str, Any] = field(default_factory=dict)


def run(scenario: Scenario, contender: Contender, pace: Pace, repetition: int = 1) -> Observed:
    """Run one contender in its own network and on its own Open vSwitch.

    The clean-up is complete even if the run fails or is interrupted.

    Raises:
        RuntimeError: a step failed; the message names the step.
    """
    setLogLevel("error")
    # Otherwise Mininet raises limits of the whole machine, which a bench does not need.
    Mininet.inited = True
    before = processes.children()
    resources = contextlib.ExitStack()
    try:
        return _run(scenario, contender, pace, repetition, resources)
    finally:
        with step("clean up", CLEAN_UP_LIMIT_S, "ps, ip link"):
            resources.close()
            # Nothing keeps track of programs that were interrupted while they started.
            processes.kill(processes.children() - before)


def _run(
    scenario: Scenario,
    contender: Contender,
    pace: Pace,
    repetition: int,
    resources: contextlib.ExitStack,
) -> Observed:
    """Run the contender, and push the clean-up on `resources`."""
    layout = scenario.layout
    directory = Path(tempfile.mkdtemp(prefix="ovs-lbt-bench-"))
    resources.callback(shutil.rmtree, directory, ignore_errors=True)
    with step("start a private Open vSwitch", START_LIMIT_S, "ovs-vswitchd --version, dmesg"):
        resources.enter_context(private_network())
        ovs = resources.enter_context(PrivateOvs(prefix="ovs-lbt-bench-ovs-"))
        resources.enter_context(ovs.environment())
    with step(
        "build the network", BUILD_LIMIT_S, "whether mnexec works: mnexec -n true; mn --test none"
    ):
        topo = LayoutTopo()
        topo.build_from(layout, PREFIX, contender.server_class, "userspace")
        network = Mininet(topo, controller=None, build=False)
        resources.callback(_stop, network)
        network.build()
        network.start()
        for host in network.hosts:
            # The default congestion control differs between machines.
            host.cmd("sysctl -qw net.ipv4.tcp_congestion_control=cubic")
    servers: dict[str, ServerBridge] = {
        name: network[PREFIX + name] for name in layout.nodes(Role.SERVER_BRIDGE)
    }
    capacities_bps = {
        own_interface(layout, PREFIX, uplink): bps for uplink, bps in layout.capacities_bps.items()
    }
    targets = {server.name: layout.path_targets(name) for name, server in servers.items()}
    teams = Teams(ovs, list(servers.values()), capacities_bps, pace, directory, targets)
    with step(f"team the uplinks with {contender.name}", TEAM_LIMIT_S, "ovs-lbt run --verbose"):
        contender.take_over(teams, resources)
        if contender.server_class.lag:
            _await_lags(ovs, layout)
    with step("reach all end systems", REACH_LIMIT_S, "the load of this machine"):
        if scenario.reachable:
            _await_reachable(layout, network)
        # Open vSwitch opens its sending socket for its first frame, which was sent by now.
        packet_sockets.enlarge(ovs.pid("ovs-vswitchd"))
        if scenario.undisturbed:
            processes.set_realtime_priority(ovs.pid("ovs-vswitchd"), SWITCH_PRIORITY)
        shaped = _shaped_interfaces(layout)
        for interface in shaped:
            shaping.set_queue(interface, shaping.QUEUE_BYTES)
    stage = Stage(
        layout=layout,
        prefix=PREFIX,
        host_pids={host.name: host.pid for host in network.hosts},
        bridges={name: tuple(server.bridges) for name, server in servers.items()},
        ovs=ovs,
        directory=directory,
        place=lambda vm, uplink: contender.place(*_ends(layout, network, vm, uplink)),
        repetition=repetition,
        kill_service=contender.kill,
    )
    load = scenario.load(stage)
    resources.callback(load.close)
    with step("start the load", LOAD_START_LIMIT_S, "the load's programs: ps"):
        load.start()
    daemons = {name: ovs.pid(name) for name in ("ovs-vswitchd", "ovsdb-server")}
    pids = {**daemons, **contender.pids()}
    access = _access_interfaces(layout)
    duration_s = max(0.0, load.start_s - time.monotonic()) + load.load_s
    with step("run the load", duration_s + LATE_LIMIT_S, "the service, ovs-vswitchd: ps"):
        _sleep_until(load.start_s)
        cpu_before_s = {name: processes.cpu_s(pid) for name, pid in pids.items()}
        counters_before = interface_counters()
        samples = _take_samples(layout, contender, load)
        cpu_s = {name: processes.cpu_s(pid) - cpu_before_s[name] for name, pid in pids.items()}
    with step("end the load", LOAD_END_LIMIT_S, "the load's programs: ps"):
        outcome = load.finish()
        outcome = replace(outcome, figures={**outcome.figures, **contender.figures()})
        time.sleep(QUEUES_EMPTY_S)
        entered, delivered = _packets(counters_before, interface_counters(), access)
        for interface in shaped:
            shaping.require_shaped(interface)
    return Observed(
        scenario=scenario.name,
        contender=contender.name,
        samples=samples,
        outcome=outcome,
        load_s=load.load_s,
        measured_s=load.measured_s,
        steady_s=load.steady_s,
        cpu_s=cpu_s,
        entered_packets=entered,
        delivered_packets=delivered,
    )


def _ends(layout: Layout, network: Mininet, vm: str, uplink: str) -> tuple[str, str, str]:
    """The arguments of a placement: the interface and address of a VM's first vNIC, and an uplink."""
    vnic = layout.vnics_of(vm)[0]
    interface, to = (own_interface(layout, PREFIX, node) for node in (vnic, uplink))
    return interface, network[vm].intfs[0].MAC(), to


def _take_samples(layout: Layout, contender: Contender, load: Load) -> list[Sample]:
    """Take samples until the load ends."""
    names = {own_interface(layout, PREFIX, up): up for up in layout.nodes(Role.UPLINK)}
    moves_before = contender.moves()
    samples: list[Sample] = []
    while not samples or (samples[-1].at_s < load.load_s - SAMPLE_INTERVAL_S / 2):
        _sleep_until(load.start_s + len(samples) * SAMPLE_INTERVAL_S)
        moves = contender.moves() - moves_before
        at_s, counters = time.monotonic() - load.start_s, interface_counters()
        sent = {up: counters[name].sent_bytes for name, up in names.items()}
        received = {up: counters[name].received_bytes for name, up in names.items()}
        samples.append(Sample(at_s, sent, received, moves))
    return samples


def _await_lags(ovs: PrivateOvs, layout: Layout) -> None:
    """Wait until LACP is negotiated on every cable, at both ends."""
    ends = 0
    for uplink in layout.nodes(Role.UPLINK):
        # A cable between two servers has an uplink at each end.
        back_to_back = layout.attributes(layout.far_end(uplink))["role"] == Role.UPLINK
        in_lag = "upstream_vlan" not in layout.attributes(uplink)
        ends += (1 if back_to_back else 2) * in_lag

    def attached() -> int:
        return ovs.run("ovs-appctl", "lacp/show").count("current attached")

    processes.wait_until(
        lambda: attached() >= ends,
        LAG_TIMEOUT_S,
        lambda: f"LACP has attached {attached()} of {ends} ends of cables",
    )


def _await_reachable(layout: Layout, network: Mininet) -> None:
    """Wait until every sender reaches every receiver that has an address in its network.

    This also resolves addresses and lets the switches learn them, which is not part of the load.
    """
    senders = layout.senders or [layout.neighbour(vnic, Role.VM) for vnic in layout.loaded_vnics()]
    deadline_s = time.monotonic() + REACHABLE_TIMEOUT_S
    for sender in senders:
        for receiver in layout.receivers or layout.nodes(Role.CLIENT):
            for address in layout.addresses_of(receiver):
                if not layout.shares_network(sender, address):
                    continue
                while "1 received" not in network[sender].cmd(f"ping -c 1 -W 1 {address}"):
                    if time.monotonic() > deadline_s:
                        raise RuntimeError(
                            f"{receiver} ({address}) does not answer {sender}'s ping"
                        )


def _access_interfaces(layout: Layout) -> list[str]:
    """The switches' interfaces to end systems."""
    vnics = (own_interface(layout, PREFIX, vnic) for vnic in layout.nodes(Role.VNIC))
    clients = (upstream_interface(layout, PREFIX, one) for one in layout.nodes(Role.CLIENT))
    return [*vnics, *clients]


def _packets(
    before: Mapping[str, Counters], after: Mapping[str, Counters], access: Sequence[str]
) -> tuple[int, int]:
    """The packets from end systems between two readings, and the packets delivered to them.

    The counters are of the switches' ports to the end systems, because a switch does not count
    all of its drops.
    """
    entered = sum(after[n].received_packets - before[n].received_packets for n in access)
    delivered = sum(after[n].sent_packets - before[n].sent_packets for n in access)
    return entered, delivered


def _shaped_interfaces(layout: Layout) -> list[str]:
    """Every interface with a shaped link."""
    return [
        interface
        for role in SWITCHES
        for switch in layout.nodes(role)
        for interface, port in ports_of(layout, PREFIX, switch, lags=False).items()
        if port.rate_bps is not None and shaping.is_shaped(port.rate_bps)
    ]


def _stop(network: Mininet) -> None:
    """Stop Mininet's nodes, all of them even if one fails to stop."""
    with contextlib.suppress(Exception):
        network.stop()
    for node in (*network.hosts, *network.switches):
        with contextlib.suppress(Exception):
            node.terminate()


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))
