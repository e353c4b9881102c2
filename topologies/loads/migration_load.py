"""VMs that migrate from the first host to the second: memory pre-copy, and the handover of their ports.

Round 1 copies all of a VM's memory. Each later round copies the pages that the VM wrote during the round
before: as many as random writes at the VM's rate meet on average. The rounds end when the remaining pages
fit into the allowed blackout at the rate just measured, or at the maximum number of rounds. Then the VM
stops, the remaining pages are copied, and its port moves.

The destination's network stack requests pages from the source in blocks, and pages have no contents. A VM
has one TCP connection, or several that share its pages, over one network or several.

This load moves the ports as a hypervisor does. A hypervisor announces a VM that has arrived with broadcast
RARP frames. Their source is the VM's address and they enter at the VM's port, so the network learns the
VM's new place. Probes between a client and every VM, in both directions, measure how long each VM was
unreachable.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from topologies.graph.layout import Role
from topologies.graph.ports import own_interface
from topologies.loads import probing
from topologies.loads.load import Load, Outcome, Stage
from topologies.loads.probing import Datagrams, Flow, FlowResult
from topologies.loads.traffic import REQUEST
from topologies.network.private_network import process_network
from topologies.network.private_ovs import PrivateOvs

PAGE_BYTES = 4096
BLOCK_BYTES = 16 * PAGE_BYTES
# What a connection requests ahead. It fills the network's queues. More would be pages on a slow
# connection that a faster one could send.
AHEAD_BYTES = 256 * 1024
STALL_TIMEOUT_S = 20.0
ALLOWED_BLACKOUT_S = 0.3
MAX_ROUNDS = 30
PORT = 6600
# Time for the programs to start, and for the switches to learn addresses from the first probes.
READY_S, PROBED_BEFORE_S = 1.5, 0.5
# Time for the last VM's announcements and the probes that follow them.
PROBED_AFTER_S = 1.5
# A gap that begins later has another cause than the handover.
AFTER_HANDOVER_S = 3.0
CONNECT_TIMEOUT_S = 20.0
MAX_LOAD_S = 180.0
# The waits before each announcement, as in QEMU (announce-initial, announce-step, announce-rounds).
ANNOUNCEMENT_WAITS_S = (0.0, 0.05, 0.15, 0.25, 0.35)
ETH_RARP, REVERSE_REQUEST = 0x8035, 3
BROADCAST = b"\xff" * 6
MIN_FRAME_BYTES = 60


@dataclass(frozen=True, slots=True)
class Migrations:
    """The settings of the migrations.

    Attributes:
        memory_bytes: the memory of each VM.
        dirty_bps: the rate at which a VM writes to its memory.
        at_once: the number of VMs that migrate at a time.
        connections: the number of connections of each VM.
        networks: how many of the hosts' networks carry migrations; each uplink has one network.
    """

    memory_bytes: int
    dirty_bps: float
    at_once: int = 8
    connections: int = 1
    networks: int = 1


def written_pages(pages: int, count: float) -> int:
    """The expected number of different pages of a memory that `count` random writes meet."""
    return round(pages * (1 - (1 - 1 / pages) ** count))


def may_stop(left_bytes: int, rate_bps: float) -> bool:
    """Whether the remaining bytes can be sent within the allowed blackout."""
    return left_bytes * 8 <= rate_bps * ALLOWED_BLACKOUT_S


# Moves a VM's port. Returns when the port left one bridge, and when it arrived at the other.
Move = Callable[[str], tuple[float, float]]


def copy(connections: Sequence[socket.socket], pages: int) -> dict[str, Any]:
    """Copy a number of pages over all connections. Returns the record of the round.

    Raises:
        OSError: a connection stalled, or the source has closed it.
    """
    start_s = time.monotonic()
    whole, rest_bytes = divmod(pages * PAGE_BYTES, BLOCK_BYTES)
    blocks = deque([BLOCK_BYTES] * whole + [rest_bytes] * (rest_bytes > 0))
    with ThreadPoolExecutor(len(connections)) as pool:
        copied_bytes = sum(pool.map(lambda one: _fetch(one, blocks), connections))
    return {"copied_bytes": copied_bytes, "start_s": start_s, "end_s": time.monotonic()}


def _fetch(connection: socket.socket, blocks: deque[int]) -> int:
    """Request and receive pending blocks until none is left, or another connection has failed.

    Returns the number of bytes.
    """
    buffer, due_bytes, copied_bytes = bytearray(BLOCK_BYTES), 0, 0
    try:
        while True:
            with contextlib.suppress(IndexError):
                while due_bytes < AHEAD_BYTES:
                    taken_bytes = blocks.pop()
                    connection.sendall(REQUEST.pack(taken_bytes))
                    due_bytes += taken_bytes
            if not due_bytes:
                return copied_bytes
            received_bytes = connection.recv_into(buffer, min(due_bytes, BLOCK_BYTES))
            if not received_bytes:
                raise ConnectionResetError(f"the source closed with {due_bytes} bytes to send")
            due_bytes -= received_bytes
            copied_bytes += received_bytes
    except OSError:
        blocks.clear()
        raise


def migrate(
    vm: str,
    settings: Migrations,
    connect: Callable[[int], socket.socket],
    move: Move,
) -> dict[str, Any]:
    """Migrate one VM over connections that `connect` opens by their numbers.

    Returns its record, whose times are on the monotonic clock. `stopped_s` is when the VM was stopped, during
    the last one of `rounds`; `copied_s` when all of its memory had arrived; and `moved_s` when `move` had
    moved its port, which left one bridge at `port_left_s` and arrived at the other at `port_arrived_s`.
    """
    start_s, rounds = time.monotonic(), []
    all_pages = pages = settings.memory_bytes // PAGE_BYTES
    with contextlib.ExitStack() as resources:
        connections = [
            resources.enter_context(connect(number)) for number in range(settings.connections)
        ]
        for connection in connections:
            connection.settimeout(STALL_TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            rounds.append(copy(connections, pages))
            lasted_s = max(1e-6, rounds[-1]["end_s"] - rounds[-1]["start_s"])
            rate_bps = rounds[-1]["copied_bytes"] * 8 / lasted_s
            pages = written_pages(all_pages, lasted_s * settings.dirty_bps / 8 / PAGE_BYTES)
            if may_stop(pages * PAGE_BYTES, rate_bps) or len(rounds) == MAX_ROUNDS:
                break
        stopped_s = time.monotonic()
        rounds.append(copy(connections, pages))
        copied_s = time.monotonic()
        left_s, arrived_s = move(vm)
    return {
        "vm": vm,
        "start_s": start_s,
        "stopped_s": stopped_s,
        "copied_s": copied_s,
        "port_left_s": left_s,
        "port_arrived_s": arrived_s,
        "moved_s": time.monotonic(),
        "rounds": rounds,
    }


def migrate_all(
    vms: Sequence[str],
    settings: Migrations,
    connect: Callable[[int], socket.socket],
    move: Move,
) -> list[dict[str, Any]]:
    """Migrate all VMs in the order of the queue, `at_once` at a time."""
    with ThreadPoolExecutor(settings.at_once) as pool:
        return list(pool.map(lambda vm: migrate(vm, settings, connect, move), vms))


class VmPort:
    """A VM's port on its current bridge, and the VM's interface behind it.

    Raises:
        OSError: the VM has no such interface.
        RuntimeError: the port is on no bridge.
    """

    def __init__(
        self, ovs: PrivateOvs, port: str, interface: str, pid: int, vlan: int | None = None
    ) -> None:
        self._ovs = ovs
        self._port = port
        self._vlan = vlan
        self._bridge = ovs.vsctl("port-to-br", port)
        with process_network(pid):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._socket.bind((interface, 0))
        # Untagged, because the switch adds the port's access VLAN.
        mac = self._socket.getsockname()[4]
        body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, REVERSE_REQUEST) + 2 * (mac + bytes(4))
        frame = BROADCAST + mac + struct.pack("!H", ETH_RARP) + body
        self._announcement = frame.ljust(MIN_FRAME_BYTES, b"\0")

    def move(self, counterparts: Mapping[str, str]) -> tuple[float, float]:
        """Move the port to its bridge's counterpart on the other host. Returns when it left, and when it arrived.

        Raises:
            RuntimeError: Open vSwitch refused the change; the message has the reason.
        """
        access = [] if self._vlan is None else [f"tag={self._vlan}"]
        left_s = time.monotonic()
        self._ovs.vsctl(
            *("del-port", self._bridge, self._port),
            *("--", "add-port", counterparts[self._bridge], self._port, *access),
        )
        return left_s, time.monotonic()

    def announce(self) -> None:
        """Announce the VM once after each wait."""
        for wait_s in ANNOUNCEMENT_WAITS_S:
            time.sleep(wait_s)
            # As on a host, an announcement is lost if the link is not up yet.
            with contextlib.suppress(OSError):
                self._socket.send(self._announcement)

    def close(self) -> None:
        self._socket.close()


class MigrationLoad(Load):
    """All VMs of the layout's first host migrate to its second one."""

    def __init__(self, stage: Stage, migrations: Migrations) -> None:
        super().__init__(stage)
        self._migrations = migrations
        layout = stage.layout
        (self._source,), (self._destination,) = layout.senders, layout.receivers
        self._vms = layout.nodes(Role.VM)
        source, destination = (
            stage.bridges[layout.server_of(layout.vnics_of(host)[0])]
            for host in (self._source, self._destination)
        )
        # The destination's bridge for each of the source's.
        self._bridges = dict(zip(source, destination, strict=True))
        # The end of the migrations sets the duration.
        self.load_s = MAX_LOAD_S
        client = layout.nodes(Role.CLIENT)[0]
        flows = []
        for vm in self._vms:
            flows.append(Flow(client, vm, layout.address(layout.vnics_of(vm)[0])))
            flows.append(Flow(vm, client, layout.address(client)))
        self._probes = Datagrams(self._programs_of("probes"), stage.host_pids, flows)
        self._programs = self._programs_of("memory")
        self._ports: dict[str, VmPort] = {}
        self._migrated: list[dict[str, Any]] = []

    def start(self) -> None:
        """Start the source's server and the probes; the first VMs migrate at `start_s`."""
        for vm in self._vms:
            self._ports[vm] = self._resources.enter_context(contextlib.closing(self._vm_port(vm)))
        source_pid = self._stage.host_pids[self._source]
        self._programs.start("serve", {"server_pids": [source_pid], "port": PORT})
        self.start_s = time.monotonic() + READY_S
        self._probes.start(self.start_s - PROBED_BEFORE_S, self.start_s + MAX_LOAD_S)
        self._run(self._migrate)

    def finish(self) -> Outcome:
        """Wait for the migrations and the probes; `details` has both for each VM."""
        self._join("migrations", self._left_s() + CONNECT_TIMEOUT_S)
        time.sleep(PROBED_AFTER_S)
        self._probes.stop()
        return outcome(self._migrated, self._probes.finish())

    def _migrate(self) -> None:
        """Migrate all VMs. The load ends with the last one, also if it failed."""
        self._pause_until(0.0)
        try:
            self._migrated = migrate_all(self._vms, self._migrations, self._connect, self._move)
        finally:
            self.load_s = time.monotonic() - self.start_s
            self.measured_s = self.steady_s = (0.0, self.load_s)

    def _connect(self, number: int) -> socket.socket:
        """A connection to the source; the connections use its networks in turn."""
        addresses = self._stage.layout.addresses_of(self._source)[: self._migrations.networks]
        with process_network(self._stage.host_pids[self._destination]):
            address = addresses[number % len(addresses)]
            return socket.create_connection((address, PORT), CONNECT_TIMEOUT_S)

    def _move(self, vm: str) -> tuple[float, float]:
        """Move a VM's port, and announce the VM in the background."""
        times_s = self._ports[vm].move(self._bridges)
        threading.Thread(target=self._ports[vm].announce, daemon=True).start()
        return times_s

    def _vm_port(self, vm: str) -> VmPort:
        layout = self._stage.layout
        (vnic,) = layout.vnics_of(vm)
        name = own_interface(layout, self._stage.prefix, vnic)
        vlan = layout.attributes(vnic).get("vlan")
        pid = self._stage.host_pids[vm]
        return VmPort(self._stage.ovs, name, f"{vm}-eth0", pid, vlan)


def outcome(migrations: Sequence[Mapping[str, Any]], probes: Mapping[Flow, FlowResult]) -> Outcome:
    """The figures and details of all migrations and of the probes."""
    first_s = min(one["start_s"] for one in migrations)
    blackouts_ms = {
        one["vm"]: {way: gap_s * 1000 for way, gap_s in blackouts_s(one, probes).items()}
        for one in migrations
    }
    worse_ms = [max(both.values()) for both in blackouts_ms.values()]
    total_bytes = sum(part["copied_bytes"] for one in migrations for part in one["rounds"])
    throughput_bps = total_bytes * 8 / (max(one["copied_s"] for one in migrations) - first_s)

    def median(value: Callable[[Mapping[str, Any]], float]) -> float:
        return statistics.median(value(one) for one in migrations)

    return Outcome(
        received_bytes=total_bytes,
        throughput_bps=throughput_bps,
        figures={
            "migration_s": median(lambda one: one["moved_s"] - one["start_s"]),
            "total_s": max(one["moved_s"] for one in migrations) - first_s,
            "precopy_rounds": median(lambda one: len(one["rounds"]) - 1),
            "stopped_ms": median(lambda one: one["copied_s"] - one["stopped_s"]) * 1000,
            "blackout_ms": statistics.median(worse_ms),
            "worst_blackout_ms": max(worse_ms),
            **probing.figures(list(probes.values())),
        },
        details=[{**one, "blackout_ms": blackouts_ms[one["vm"]]} for one in migrations],
    )


def blackouts_s(
    migration: Mapping[str, Any], probes: Mapping[Flow, FlowResult]
) -> dict[str, float]:
    """The longest gap in the probes to a VM and from it, at the time of its handover."""
    vm, from_s = migration["vm"], migration["port_left_s"]
    to_s = migration["port_arrived_s"] + AFTER_HANDOVER_S
    gaps_s = {flow: found.longest_gap_s(from_s, to_s) for flow, found in probes.items()}
    return {
        "to": max(gap_s for flow, gap_s in gaps_s.items() if flow.receiver == vm),
        "from": max(gap_s for flow, gap_s in gaps_s.items() if flow.sender == vm),
    }
