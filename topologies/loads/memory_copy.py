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


class Copier:
    """The destination's connections for the migration of one VM.

    Raises:
        OSError: a connection stalled, or the source has closed it.
    """

    def __init__(self, connections: Sequence[socket.socket]) -> None:
        self._connections = connections
        self._pool = ThreadPoolExecutor(len(connections))
        self._lock = threading.Lock()
        self._pending_bytes = 0

    def copy(self, pages: int) -> dict[str, Any]:
        """Copy this number of pages over all connections. Returns the record of the round."""
        start_s, copied_bytes = time.monotonic(), pages * PAGE_BYTES
        self._pending_bytes = copied_bytes
        for _ in self._pool.map(self._fetch, self._connections):
            pass
        return {"copied_bytes": copied_bytes, "start_s": start_s, "end_s": time.monotonic()}

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._pool.shutdown()

    def _fetch(self, connection: socket.socket) -> None:
        """Request and receive pending pages until none is left."""
        buffer, due_bytes = bytearray(BLOCK_BYTES), 0
        while True:
            while due_bytes < AHEAD_BYTES and (taken_bytes := self._take()):
                connection.sendall(REQUEST.pack(taken_bytes))
                due_bytes += taken_bytes
            if not due_bytes:
                return
            count = connection.recv_into(buffer, min(due_bytes, BLOCK_BYTES))
            if not count:
                raise ConnectionResetError(f"the source closed with {due_bytes} bytes to send")
            due_bytes -= count

    def _take(self) -> int:
        with self._lock:
            taken = min(BLOCK_BYTES, self._pending_bytes)
            self._pending_bytes -= taken
        return taken


@contextlib.contextmanager
def copier(count: int, connect: Callable[[int], socket.socket]) -> Iterator[Copier]:
    """A copier with this number of connections, which `connect` opens by their numbers."""
    with contextlib.ExitStack() as resources:
        connections = []
        for number in range(count):
            connections.append(resources.enter_context(connect(number)))
            connections[-1].settimeout(STALL_TIMEOUT_S)
            connections[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield resources.enter_context(contextlib.closing(Copier(connections)))


def migrate(
    vm: str,
    settings: Migrations,
    connect: Callable[[int], socket.socket],
    move: Callable[[str], None],
) -> dict[str, Any]:
    """Migrate one VM. Returns its record, whose times are on the monotonic clock.

    `stopped_s` is when the VM was stopped, during the last one of `rounds`; `copied_s` when all of its
    memory had arrived; and `moved_s` when `move` had moved its port.
    """
    start_s, rounds = time.monotonic(), []
    all_pages = pages = settings.memory_bytes // PAGE_BYTES
    with copier(settings.connections, connect) as source:
        while True:
            rounds.append(source.copy(pages))
            lasted_s = max(1e-6, rounds[-1]["end_s"] - rounds[-1]["start_s"])
            rate_bps = rounds[-1]["copied_bytes"] * 8 / lasted_s
            pages = written_pages(all_pages, lasted_s * settings.dirty_bps / 8 / PAGE_BYTES)
            if may_stop(pages * PAGE_BYTES, rate_bps) or len(rounds) == MAX_ROUNDS:
                break
        stopped_s = time.monotonic()
        rounds.append(source.copy(pages))
        copied_s = time.monotonic()
        move(vm)
    return {
        "vm": vm,
        "start_s": start_s,
        "stopped_s": stopped_s,
        "copied_s": copied_s,
        "moved_s": time.monotonic(),
        "rounds": rounds,
    }


def migrate_all(
    vms: Sequence[str],
    settings: Migrations,
    connect: Callable[[int], socket.socket],
    move: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Migrate all VMs in the order of the queue, `at_once` at a time."""
    with ThreadPoolExecutor(settings.at_once) as pool:
        return list(pool.map(lambda vm: migrate(vm, settings, connect, move), vms))
