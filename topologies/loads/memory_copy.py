"""Live migration as memory pre-copy: copies pages over TCP while the VM still writes to them.

Round 1 copies all of a VM's memory. Each later round copies the pages that the VM wrote during the round
before: as many as random writes at the VM's rate meet on average. The rounds end when the remaining pages
fit into the allowed blackout at the rate just measured, or at the maximum number of rounds. Then the VM
stops, the remaining pages are copied, and its port moves.

The destination requests pages from the source in blocks, and pages have no contents. A VM has one TCP
connection, or several that share its pages, over one network or several.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from topologies.loads.traffic import REQUEST

PAGE_BYTES = 4096
BLOCK_BYTES = 16 * PAGE_BYTES
# What a connection requests ahead. It fills the network's queues. More would be pages on a slow
# connection that a faster one could send.
AHEAD_BYTES = 256 * 1024
STALL_TIMEOUT_S = 20.0
ALLOWED_BLACKOUT_S = 0.3
MAX_ROUNDS = 30


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


# Copies a number of pages. Returns the record of the round.
Copy = Callable[[int], dict[str, Any]]
# Moves a VM's port. Returns when the port left one bridge, and when it arrived at the other.
Move = Callable[[str], tuple[float, float]]


@contextlib.contextmanager
def copier(count: int, connect: Callable[[int], socket.socket]) -> Iterator[Copy]:
    """Open this number of connections, which `connect` opens by their numbers, and copy pages over all of them.

    The function in the context copies a number of pages, and returns the record of the round. It raises:
        OSError: a connection stalled, or the source has closed it.
    """
    lock, pending_bytes = threading.Lock(), 0

    def take() -> int:
        nonlocal pending_bytes
        with lock:
            taken_bytes = min(BLOCK_BYTES, pending_bytes)
            pending_bytes -= taken_bytes
        return taken_bytes

    def fetch(connection: socket.socket) -> None:
        """Request and receive pending pages until none is left."""
        buffer, due_bytes = bytearray(BLOCK_BYTES), 0
        while True:
            while due_bytes < AHEAD_BYTES and (taken_bytes := take()):
                connection.sendall(REQUEST.pack(taken_bytes))
                due_bytes += taken_bytes
            if not due_bytes:
                return
            received_bytes = connection.recv_into(buffer, min(due_bytes, BLOCK_BYTES))
            if not received_bytes:
                raise ConnectionResetError(f"the source closed with {due_bytes} bytes to send")
            due_bytes -= received_bytes

    def copy(pages: int) -> dict[str, Any]:
        nonlocal pending_bytes
        start_s, pending_bytes = time.monotonic(), pages * PAGE_BYTES
        for _ in pool.map(fetch, connections):
            pass
        copied_bytes = pages * PAGE_BYTES
        return {"copied_bytes": copied_bytes, "start_s": start_s, "end_s": time.monotonic()}

    # Connections close before the pool waits for its threads.
    with ThreadPoolExecutor(count) as pool, contextlib.ExitStack() as resources:
        connections = [resources.enter_context(connect(number)) for number in range(count)]
        for connection in connections:
            connection.settimeout(STALL_TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield copy


def migrate(
    vm: str,
    settings: Migrations,
    connect: Callable[[int], socket.socket],
    move: Move,
) -> dict[str, Any]:
    """Migrate one VM. Returns its record, whose times are on the monotonic clock.

    `stopped_s` is when the VM was stopped, during the last one of `rounds`; `copied_s` when all of its
    memory had arrived; and `moved_s` when `move` had moved its port, which left one bridge at
    `port_left_s` and arrived at the other at `port_arrived_s`.
    """
    start_s, rounds = time.monotonic(), []
    all_pages = pages = settings.memory_bytes // PAGE_BYTES
    with copier(settings.connections, connect) as copy:
        while True:
            rounds.append(copy(pages))
            lasted_s = max(1e-6, rounds[-1]["end_s"] - rounds[-1]["start_s"])
            rate_bps = rounds[-1]["copied_bytes"] * 8 / lasted_s
            pages = written_pages(all_pages, lasted_s * settings.dirty_bps / 8 / PAGE_BYTES)
            if may_stop(pages * PAGE_BYTES, rate_bps) or len(rounds) == MAX_ROUNDS:
                break
        stopped_s = time.monotonic()
        rounds.append(copy(pages))
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
