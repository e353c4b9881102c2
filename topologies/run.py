"""One contender under load: build the network, take it over, load it, watch it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet.log import setLogLevel
from mininet.net import Mininet

from topologies import processes, shaping
from topologies.contenders import Contender, Observation, Team
from topologies.graph import Layout, Role
from topologies.mininet_topo import LayoutTopo
from topologies.pace import Pace
from topologies.private_network import private_network
from topologies.private_ovs import PrivateOvs
from topologies.samples import Counters, Sample, interface_counters
from topologies.web_load import Direction, WebLoad

# Everything of a run has its own network namespace, so names are short and fixed.
PREFIX = "lbt-"
SAMPLE_INTERVAL_S = 0.25
REACHABLE_TIMEOUT_S = 15.0
# After the load: what is still in a queue is not lost.
QUEUES_EMPTY_S = 0.3


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that was observed of one contender in one run.

    Packets are those of the VMs and clients: what entered the switches from them, and what
    the switches delivered to them. CPU times are per program.
    """

    contender: str
    samples: list[Sample]
    downloads: list[dict[str, Any]]
    load_s: float
    cpu_s: Mapping[str, float]
    entered_packets: int
    delivered_packets: int


Progress = Callable[[str, Sample], None]


class _Topo(LayoutTopo):
    """A layout as it stands, with the server's bridge in a contender's form."""

    def build(self, layout: Layout, contender: Contender) -> None:
        self.build_from(layout, PREFIX, contender.server_class, datapath="userspace")


def run(
    layout: Layout, contender: Contender, pace: Pace, direction: Direction, progress: Progress
) -> Observed:
    """Run one contender in a network and on an Open vSwitch of its own.

    Nothing of it is left afterwards, also when it fails or is interrupted.

    Raises:
        RuntimeError: something did not start or did not work; the message says what.
    """
    setLogLevel("error")
    # Mininet would raise limits of the whole machine; we need none of them.
    Mininet.inited = True
    with contextlib.ExitStack() as resources:
        directory = Path(tempfile.mkdtemp(prefix="ovs-lbt-bench-"))
        resources.callback(shutil.rmtree, directory, ignore_errors=True)
        resources.enter_context(private_network())
        ovs = resources.enter_context(PrivateOvs(prefix="ovs-lbt-bench-ovs-"))
        resources.enter_context(ovs.environment())
        network = Mininet(_Topo(layout, contender), controller=None, build=False)
        resources.callback(_stop, network)
        network.build()
        network.start()
        for host in network.hosts:
            # One algorithm everywhere: machines differ in their default.
            host.cmd("sysctl -qw net.ipv4.tcp_congestion_control=cubic")
        interfaces = {
            PREFIX + layout.attributes(uplink)["interface"]: uplink
            for uplink in layout.nodes(Role.UPLINK)
        }
        capacities_bps = {name: layout.capacity_bps(u) for name, u in interfaces.items()}
        server = network[PREFIX + layout.nodes(Role.SERVER_BRIDGE)[0]]
        contender.take_over(Team(ovs, server, capacities_bps, pace, directory), resources)
        _await_reachable(layout, network)
        pids_of_hosts = {host.name: host.pid for host in network.hosts}
        load = WebLoad(layout, pids_of_hosts, direction, directory)
        resources.callback(load.close)
        load.start(pace)
        daemons = {name: ovs.pid(name) for name in ("ovs-vswitchd", "ovsdb-server")}
        pids = {**daemons, **contender.pids()}
        access = [
            *(PREFIX + layout.attributes(vnic)["interface"] for vnic in layout.nodes(Role.VNIC)),
            *(_upstream_end(layout, client) for client in layout.nodes(Role.CLIENT)),
        ]
        start_s = load.start_s
        _sleep_until(start_s)
        cpu_before_s = {name: processes.cpu_s(pid) for name, pid in pids.items()}
        counters_before = interface_counters()
        samples = _watch(layout, contender, pace, start_s, progress)
        cpu_s = {name: processes.cpu_s(pid) - cpu_before_s[name] for name, pid in pids.items()}
        downloads = load.finish()
        time.sleep(QUEUES_EMPTY_S)
        entered, delivered = _packets(counters_before, interface_counters(), access)
        for uplink in layout.nodes(Role.UPLINK):
            if not shaping.is_shaped(layout.capacity_bps(uplink)):
                continue
            shaping.require_shaped(PREFIX + layout.attributes(uplink)["interface"])
            shaping.require_shaped(_upstream_end(layout, uplink))
        return Observed(
            contender=contender.name,
            samples=samples,
            downloads=[_relative(download, start_s) for download in downloads],
            load_s=pace.load_s,
            cpu_s=cpu_s,
            entered_packets=entered,
            delivered_packets=delivered,
        )


def _watch(
    layout: Layout, contender: Contender, pace: Pace, start_s: float, progress: Progress
) -> list[Sample]:
    """Sample until the load ends."""
    names = {PREFIX + layout.attributes(u)["interface"]: u for u in layout.nodes(Role.UPLINK)}
    vnics = {PREFIX + layout.attributes(v)["interface"]: v for v in layout.loaded_vnics()}
    moves_before = contender.observe().moves
    samples: list[Sample] = []
    for number in range(round(pace.load_s / SAMPLE_INTERVAL_S) + 1):
        _sleep_until(start_s + number * SAMPLE_INTERVAL_S)
        observation = contender.observe()
        samples.append(_sample(start_s, names, vnics, observation, moves_before))
        progress(contender.name, samples[-1])
    return samples


def _sample(
    start_s: float,
    uplinks: Mapping[str, str],
    vnics: Mapping[str, str],
    observation: Observation,
    moves_before: int,
) -> Sample:
    at_s = time.monotonic() - start_s
    counters = interface_counters()
    return Sample(
        at_s=at_s,
        sent_bytes={uplink: counters[name].sent_bytes for name, uplink in uplinks.items()},
        received_bytes={uplink: counters[name].received_bytes for name, uplink in uplinks.items()},
        bindings={
            vnics[port]: uplinks.get(uplink, uplink)
            for port, uplink in observation.bindings.items()
            if port in vnics
        },
        moves=observation.moves - moves_before,
    )


def _await_reachable(layout: Layout, network: Mininet) -> None:
    """Wait until every loaded vNIC reaches every client.

    It also resolves addresses and teaches the switches, which is no part of the load.
    """
    deadline_s = time.monotonic() + REACHABLE_TIMEOUT_S
    for vnic in layout.loaded_vnics():
        vm = network[layout.neighbour(vnic, Role.VM)]
        for client in layout.nodes(Role.CLIENT):
            address = layout.address(client)
            while "1 received" not in vm.cmd(f"ping -c 1 -W 1 {address}"):
                if time.monotonic() > deadline_s:
                    raise RuntimeError(f"{vm.name}: no answer from {client} -> an answer to ping")


def _packets(
    before: Mapping[str, Counters], after: Mapping[str, Counters], access: Sequence[str]
) -> tuple[int, int]:
    """Packets that came from VMs and clients meanwhile, and packets delivered to them.

    Read at the switches' ports towards them, since a switch does not count all it drops.
    """
    entered = sum(after[n].received_packets - before[n].received_packets for n in access)
    delivered = sum(after[n].sent_packets - before[n].sent_packets for n in access)
    return entered, delivered


def _stop(network: Mininet) -> None:
    """End Mininet's nodes; one that does not must not keep the others from ending."""
    with contextlib.suppress(Exception):
        network.stop()
    for node in (*network.hosts, *network.switches):
        with contextlib.suppress(Exception):
            node.terminate()


def _upstream_end(layout: Layout, node: str) -> str:
    """The upstream switch's interface towards an uplink or a client."""
    return f"{PREFIX}sw-{layout.attributes(node)['interface']}"


def _relative(download: dict[str, Any], start_s: float) -> dict[str, Any]:
    times = {key: round(download[key] - start_s, 4) for key in ("start_s", "end_s")}
    return {**download, **times}


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))
