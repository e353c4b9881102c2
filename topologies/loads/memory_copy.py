"""Live migration as memory pre-copy: copies pages over TCP while the VM still writes to them.

Round 1 copies all of a VM's memory. Each later round copies the pages that the VM wrote during the round
before. The rounds end when the remaining pages fit into the allowed blackout at the rate just measured, or
at the maximum number of rounds. Then the VM stops, the remaining pages are copied, and its port moves.

A VM has one TCP connection, or several that share its pages, over one network or several. Each
connection begins with one line, the VM's name. Blocks follow: their length in bytes, and as many bytes,
whose content does not matter. An empty block ends a round; the receiver answers it once it has received
the round, with the bytes that it has received of the VM so far.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

PAGE_BYTES = 4096
# Sent at once: each call would end in a short packet.
BLOCK_PAGES = 16
BLOCK, RECEIVED = struct.Struct("!I"), struct.Struct("!Q")
END_OF_ROUND = 0
# The kernel doubles it. This fills the network's queues. A larger buffer would hold pages for a
# slow connection that a faster one could send.
SEND_BUFFER_BYTES = 128 * 1024
STALL_TIMEOUT_S = 20.0
WRITE_INTERVAL_S = 0.02


class Memory:
    """A VM's memory: the number of its pages, and those that the VM has written."""

    def __init__(self, size_bytes: int, seed: int) -> None:
        self.pages = size_bytes // PAGE_BYTES
        self._random = random.Random(seed)
        self._written: set[int] = set()
        self._lock = threading.Lock()

    def write(self, count: int) -> None:
        """Write to `count` random pages; a page may be written twice."""
        with self._lock:
            self._written.update(self._random.choices(range(self.pages), k=count))

    def take_written(self) -> int:
        """How many pages were written since the last call."""
        with self._lock:
            written, self._written = self._written, set()
        return len(written)

    @property
    def written_bytes(self) -> int:
        return len(self._written) * PAGE_BYTES


def may_stop(left_bytes: int, rate_bps: float, allowed_blackout_s: float) -> bool:
    """Whether the remaining bytes can be sent within the allowed blackout."""
    return left_bytes * 8 <= rate_bps * allowed_blackout_s


@dataclass(frozen=True, slots=True)
class Plan:
    """How VMs are migrated.

    Attributes:
        networks: the receiver's address on each network; the connections use them in turn.
        vms: the queue of VMs, of which `at_once` migrate at a time.
        connections: the number of connections of each VM.
        dirty_bps: the rate at which a VM writes to its memory.
        allowed_blackout_s: how long a VM may be stopped while its last pages are copied.
        max_rounds: the number of rounds after which a VM stops in any case.
        connect: opens a connection from the source.
        move: moves the port of a VM.
    """

    networks: Sequence[str]
    port: int
    vms: Sequence[str]
    at_once: int
    connections: int
    memory_bytes: int
    dirty_bps: float
    allowed_blackout_s: float
    max_rounds: int
    connect: Callable[[tuple[str, int]], socket.socket]
    move: Callable[[str], None]


@dataclass(slots=True)
class Round:
    """One round of copying; times are on the monotonic clock."""

    start_s: float
    end_s: float
    copied_bytes: int


@dataclass(slots=True)
class Migration:
    """The record of one VM's migration; times are on the monotonic clock.

    Attributes:
        rounds: all rounds; the VM was stopped during the last one.
        stopped_s: when the VM was stopped.
        copied_s: when all of its memory had arrived.
        moved_s: when its port had moved.
    """

    vm: str
    start_s: float
    stopped_s: float = 0.0
    copied_s: float = 0.0
    moved_s: float = 0.0
    rounds: list[Round] = field(default_factory=list)


@contextlib.contextmanager
def background_writes(memory: Memory, dirty_bps: float) -> Iterator[None]:
    """Write to the memory at a given rate during the context."""
    stopped = threading.Event()

    def write() -> None:
        start_s, written = time.monotonic(), 0
        while not stopped.wait(WRITE_INTERVAL_S):
            due = int((time.monotonic() - start_s) * dirty_bps / 8 / PAGE_BYTES)
            memory.write(due - written)
            written = due

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stopped.set()
        writer.join()


class Sender:
    """The source's connections for the migration of one VM.

    Raises:
        OSError: the receiver is unreachable, or a connection stalled.
        RuntimeError: the receiver has not received all bytes that were sent.
    """

    def __init__(self, vm: str, plan: Plan) -> None:
        self._sockets: list[socket.socket] = []
        self._pool = ThreadPoolExecutor(plan.connections)
        self._lock = threading.Lock()
        self._pending = self._received_bytes = 0
        try:
            for index in range(plan.connections):
                address = plan.networks[index % len(plan.networks)]
                connection = plan.connect((address, plan.port))
                self._sockets.append(connection)
                connection.settimeout(STALL_TIMEOUT_S)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(f"{vm}\n".encode())
        except OSError:
            self.close()
            raise

    def copy(self, pages: int) -> Round:
        """Send this number of pages over all connections, and wait until the receiver has them."""
        start_s = time.monotonic()
        self._pending = pages
        answers = list(self._pool.map(self._send_pending, self._sockets))
        copied_bytes, before = pages * PAGE_BYTES, self._received_bytes
        self._received_bytes = max(answers)
        if self._received_bytes != before + copied_bytes:
            received_bytes = self._received_bytes - before
            raise RuntimeError(f"the receiver got {received_bytes} of {copied_bytes} bytes")
        return Round(copied_bytes=copied_bytes, start_s=start_s, end_s=time.monotonic())

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._sockets:
            connection.close()

    def _send_pending(self, connection: socket.socket) -> int:
        """Send pending pages until none is left; the receiver's answer."""
        while pages := self._take():
            connection.sendall(BLOCK.pack(pages * PAGE_BYTES) + bytes(pages * PAGE_BYTES))
        connection.sendall(BLOCK.pack(END_OF_ROUND))
        (received_bytes,) = RECEIVED.unpack(_receive_exactly(connection, RECEIVED.size))
        return int(received_bytes)

    def _take(self) -> int:
        with self._lock:
            taken = min(BLOCK_PAGES, self._pending)
            self._pending -= taken
        return taken


def migrate(vm: str, memory: Memory, plan: Plan) -> Migration:
    """Migrate one VM, its port included."""
    migration = Migration(vm, start_s=time.monotonic())
    with contextlib.closing(Sender(vm, plan)) as sender:
        with background_writes(memory, plan.dirty_bps):
            pages = memory.pages
            while True:
                done = sender.copy(pages)
                migration.rounds.append(done)
                rate_bps = done.copied_bytes * 8 / max(1e-6, done.end_s - done.start_s)
                if may_stop(memory.written_bytes, rate_bps, plan.allowed_blackout_s):
                    break
                if len(migration.rounds) == plan.max_rounds:
                    break
                pages = memory.take_written()
        migration.stopped_s = time.monotonic()
        migration.rounds.append(sender.copy(memory.take_written()))
        migration.copied_s = time.monotonic()
        plan.move(vm)
        migration.moved_s = time.monotonic()
    return migration


def migrate_all(plan: Plan) -> list[Migration]:
    """Migrate all VMs in the order of the queue, `at_once` at a time."""
    memories = {vm: Memory(plan.memory_bytes, seed) for seed, vm in enumerate(plan.vms)}
    with ThreadPoolExecutor(plan.at_once) as pool:
        return list(pool.map(lambda vm: migrate(vm, memories[vm], plan), plan.vms))


class Receiver:
    """The destination: accepts connections and counts the bytes that it receives of each VM."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._received_bytes: Counter[str] = Counter()

    def run(self) -> None:
        """Serve until the listener is closed."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            vm = stream.readline().decode().strip()
            while header := stream.read(BLOCK.size):
                (left_bytes,) = BLOCK.unpack(header)
                if left_bytes == END_OF_ROUND:
                    connection.sendall(RECEIVED.pack(self._received_bytes[vm]))
                    continue
                content = stream.read(left_bytes)
                with self._lock:
                    self._received_bytes[vm] += len(content)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    content = connection.recv(size, socket.MSG_WAITALL)
    if len(content) < size:
        raise ConnectionResetError(f"the peer closed after {len(content)} of {size} bytes")
    return content
