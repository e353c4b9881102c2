"""Live migration as memory pre-copy: copies pages over TCP while the VM still writes to them.

Two programs, one for the network stack of each host:

    memory_copy.py receive PORT
    memory_copy.py send PLAN.json RESULTS.json

The sender migrates `at_once` VMs of its queue at a time. Round 1 copies all of a VM's memory. Each
later round copies the pages that the VM wrote during the round before. The rounds end when the
remaining pages fit into the allowed blackout at the rate just measured, or at the maximum number
of rounds. Then the VM stops and the sender copies the remaining pages. The sender requests the
move of the VM's port over a Unix socket (one line with the VM's name) and waits for the answer
before it starts the next VM.

A VM has one TCP connection, or several that share its pages, over one network or several. Each
connection begins with one line of JSON about the VM. Extents follow: the first page, the number of
pages, and the pages. An extent of no pages ends a round; the receiver answers it once it has
received the round. At the end the receiver reports the bytes that it received and the digest of
the memory, and the sender compares both with its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import random
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

PAGE_BYTES = 4096
EXTENT_PAGES = 16
EXTENT = struct.Struct("!II")
ROUND = struct.Struct("!I")
RECEIPT = struct.Struct("!Q32s")
# Page counts with a meaning of their own: the end of a round, and of the migration.
END_OF_ROUND, END_OF_MEMORY = 0, 0xFFFFFFFF
# The kernel doubles it. This fills the network's queues. A larger buffer would hold pages for a
# slow connection that a faster one could send.
SEND_BUFFER_BYTES = 128 * 1024
STALL_TIMEOUT_S = 20.0
# The receiver prints it once it accepts connections.
LISTENING = "listening"
WRITE_INTERVAL_S = 0.02


class Memory:
    """A VM's memory, which records the pages that the VM has written."""

    def __init__(self, size_bytes: int, seed: int) -> None:
        self.pages = size_bytes // PAGE_BYTES
        self._random = random.Random(seed)
        self._bytes = bytearray(self._random.randbytes(self.pages * PAGE_BYTES))
        self._written: set[int] = set()
        self._lock = threading.Lock()

    def write(self, count: int) -> None:
        """Write to `count` random pages; a page may be written twice."""
        with self._lock:
            for page in self._random.choices(range(self.pages), k=count):
                at = page * PAGE_BYTES + self._random.randrange(PAGE_BYTES)
                self._bytes[at] = (self._bytes[at] + 1) % 256
                self._written.add(page)

    def take_written(self) -> list[int]:
        """The pages written since the last call, in ascending order."""
        with self._lock:
            written, self._written = self._written, set()
        return sorted(written)

    @property
    def written_bytes(self) -> int:
        return len(self._written) * PAGE_BYTES

    def read(self, first: int, count: int) -> bytes:
        """The current content of the pages."""
        return bytes(self._bytes[first * PAGE_BYTES : (first + count) * PAGE_BYTES])

    def digest(self) -> bytes:
        return hashlib.blake2b(self._bytes, digest_size=32).digest()


def extents(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Consecutive pages as extents: the first page of each, and the number of pages."""
    breaks = [i for i, (a, b) in enumerate(pairwise(pages), 1) if b != a + 1]
    for start, end in pairwise([0, *breaks, len(pages)]):
        for at in range(start, end, EXTENT_PAGES):
            yield pages[at], min(EXTENT_PAGES, end - at)


def may_stop(left_bytes: int, rate_bps: float, allowed_blackout_s: float) -> bool:
    """Whether the remaining bytes can be sent within the allowed blackout."""
    return left_bytes * 8 <= rate_bps * allowed_blackout_s


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of the sender.

    Attributes:
        networks: the receiver's address on each network; the connections use them in turn.
        vms: the queue of VMs, of which `at_once` migrate at a time.
        connections: the number of connections of each VM.
        dirty_bps: the rate at which a VM writes to its memory.
        allowed_blackout_s: how long a VM may be stopped while its last pages are copied.
        max_rounds: the number of rounds after which a VM stops in any case.
        mover: the path of the Unix socket that accepts requests to move a port.
        start_s: when the first migrations begin, on the monotonic clock.
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
    mover: str
    start_s: float


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
        RuntimeError: the receiver's data differ from the sent data.
    """

    def __init__(
        self, vm: str, memory: Memory, port: int, networks: Sequence[str], connections: int
    ) -> None:
        self._memory = memory
        self._sockets: list[socket.socket] = []
        self._pool = ThreadPoolExecutor(connections)
        self._round = 0
        try:
            for index in range(connections):
                address = (networks[index % len(networks)], port)
                connection = socket.create_connection(address, STALL_TIMEOUT_S)
                self._sockets.append(connection)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(json.dumps({"vm": vm, "pages": memory.pages}).encode() + b"\n")
        except OSError:
            self.close()
            raise

    def copy(self, pages: Sequence[int]) -> Round:
        """Send the pages over all connections and wait until the receiver has them."""
        start_s = time.monotonic()
        self._round += 1
        pending = deque(extents(pages))
        copied = self._pool.map(
            lambda connection: self._send_pending(connection, pending), self._sockets
        )
        return Round(copied_bytes=sum(copied), start_s=start_s, end_s=time.monotonic())

    def verify(self, copied_bytes: int) -> None:
        """Check that the receiver has the same memory, and received this number of bytes."""
        self._sockets[0].sendall(EXTENT.pack(0, END_OF_MEMORY))
        received_bytes, digest = RECEIPT.unpack(_receive_exactly(self._sockets[0], RECEIPT.size))
        if received_bytes != copied_bytes:
            raise RuntimeError(f"received {received_bytes} bytes -> {copied_bytes}")
        if digest != self._memory.digest():
            raise RuntimeError("destination memory: digest differs -> the source's digest")

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._sockets:
            connection.close()

    def _send_pending(self, connection: socket.socket, pending: deque[tuple[int, int]]) -> int:
        """Send pending extents until none is left; the bytes that this connection sent."""
        copied = 0
        while taken := _take(pending):
            parts: list[bytes] = []
            for first, count in taken:
                parts += [EXTENT.pack(first, count), self._memory.read(first, count)]
                copied += count
            # One call for all pages: each call would end in a short packet.
            connection.sendall(b"".join(parts))
        connection.sendall(EXTENT.pack(self._round, END_OF_ROUND))
        (number,) = ROUND.unpack(_receive_exactly(connection, ROUND.size))
        if number != self._round:
            raise RuntimeError(f"answer to round {number} -> to round {self._round}")
        return copied * PAGE_BYTES


def _take(pending: deque[tuple[int, int]]) -> list[tuple[int, int]]:
    """Take extents of about `EXTENT_PAGES` pages together; an empty list if none is pending."""
    taken: list[tuple[int, int]] = []
    with contextlib.suppress(IndexError):  # another connection took the last one
        while sum(count for _, count in taken) < EXTENT_PAGES:
            taken.append(pending.popleft())
    return taken


def migrate(vm: str, memory: Memory, plan: Plan) -> Migration:
    """Migrate one VM, its port included."""
    migration = Migration(vm, start_s=time.monotonic())
    sender = Sender(vm, memory, plan.port, plan.networks, plan.connections)
    with contextlib.closing(sender):
        with background_writes(memory, plan.dirty_bps):
            pages: Sequence[int] = range(memory.pages)
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
        _move_port(vm, plan.mover)
        migration.moved_s = time.monotonic()
        sender.verify(sum(one.copied_bytes for one in migration.rounds))
    return migration


def _move_port(vm: str, mover: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(STALL_TIMEOUT_S)
        connection.connect(mover)
        connection.sendall(f"{vm}\n".encode())
        if not connection.recv(1):
            raise RuntimeError(f"port of {vm}: no answer -> moved")


def send(plan: Plan) -> list[Migration]:
    """Migrate all VMs in the order of the queue, `at_once` at a time."""
    memories = {vm: Memory(plan.memory_bytes, seed) for seed, vm in enumerate(plan.vms)}
    time.sleep(max(0.0, plan.start_s - time.monotonic()))
    with ThreadPoolExecutor(plan.at_once) as pool:
        futures = [pool.submit(migrate, vm, memory, plan) for vm, memory in memories.items()]
        return [future.result() for future in futures]


class Receiver:
    """The destination: accepts connections and stores the pages that it receives."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._memories: dict[str, mmap.mmap] = {}
        self._received_bytes: dict[str, int] = {}

    def run(self) -> None:
        """Serve until the listener is closed."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            header_line = json.loads(_receive_line(connection))
            vm = header_line["vm"]
            with self._lock:
                if vm not in self._memories:
                    # A bytearray would be written to (zeroed) before the first page arrives.
                    self._memories[vm] = mmap.mmap(-1, header_line["pages"] * PAGE_BYTES)
                    self._received_bytes[vm] = 0
                memory = self._memories[vm]
            content = memoryview(memory)
            while header := connection.recv(EXTENT.size, socket.MSG_WAITALL):
                first, count = EXTENT.unpack(header)
                if count == END_OF_ROUND:
                    connection.sendall(ROUND.pack(first))
                elif count == END_OF_MEMORY:
                    digest = hashlib.blake2b(memory, digest_size=32).digest()
                    connection.sendall(RECEIPT.pack(self._received_bytes[vm], digest))
                    with self._lock:
                        del self._memories[vm], self._received_bytes[vm]
                else:
                    extent = content[first * PAGE_BYTES : (first + count) * PAGE_BYTES]
                    _fill(connection, extent)
                    with self._lock:
                        self._received_bytes[vm] += len(extent)


def _fill(connection: socket.socket, content: memoryview) -> None:
    filled = 0
    while filled < len(content):
        read = connection.recv_into(content[filled:])
        if not read:
            raise ConnectionResetError(f"connection closed after {filled} bytes -> {len(content)}")
        filled += read


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    _fill(connection, memoryview(content))
    return bytes(content)


def _receive_line(connection: socket.socket) -> bytes:
    def read() -> Iterable[bytes]:
        while (one := connection.recv(1)) not in (b"", b"\n"):
            yield one

    return b"".join(read())


def main(arguments: Sequence[str]) -> None:
    if arguments[0] == "receive":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with socket.create_server(("", int(arguments[1])), backlog=128) as listener:
            print(LISTENING, flush=True)
            Receiver(listener).run()
    else:
        _, plan, results = arguments
        migrations = send(Plan(**json.loads(Path(plan).read_text())))
        Path(results).write_text(json.dumps([asdict(one) for one in migrations]))


if __name__ == "__main__":
    main(sys.argv[1:])
