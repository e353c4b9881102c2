"""Live migration as memory pre-copy: real pages over TCP while the VM goes on writing them.

Two programs, each for a host's own stack:

    memory_copy.py receive PORT
    memory_copy.py send PLAN.json RESULTS.json

The sender has a queue of VMs and migrates so many of them at once. Round 1 copies all of a
VM's memory, each further round the pages that it has written meanwhile, until what is left
can be sent within the allowed blackout at the rate just measured, or rounds run out. Then
the VM stops and its last pages go. Whoever moves its port is told over a Unix socket (one
line with the VM's name) and answers when it is done; only then the next VM begins.

A VM has one TCP connection, or several that share its pages, over one network or several.
On each connection, after one line of JSON about the VM, come extents: the first page and
the number of pages, then those pages. None ends a round, and is answered when all before it
has arrived. At the very end the receiver tells what it received in all and the digest of
the memory, which must be the source's.
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
# Instead of a number of pages: the end of a round, and of the migration.
END_OF_ROUND, END_OF_MEMORY = 0, 0xFFFFFFFF
# The kernel doubles it. Enough for the network's queues; what waits here is given to one
# connection and cannot go by another that is faster.
SEND_BUFFER_BYTES = 128 * 1024
STALL_TIMEOUT_S = 20.0
# What the receiver says when connections will be taken.
LISTENING = "listening"
WRITE_INTERVAL_S = 0.02


class Memory:
    """A VM's memory, which knows what was written since it was last asked."""

    def __init__(self, size_bytes: int, seed: int) -> None:
        self.pages = size_bytes // PAGE_BYTES
        self._random = random.Random(seed)
        self._bytes = bytearray(self._random.randbytes(self.pages * PAGE_BYTES))
        self._written: set[int] = set()
        self._lock = threading.Lock()

    def write(self, count: int) -> None:
        """Write into so many pages, anywhere; one may be written twice."""
        with self._lock:
            for page in self._random.choices(range(self.pages), k=count):
                at = page * PAGE_BYTES + self._random.randrange(PAGE_BYTES)
                self._bytes[at] = (self._bytes[at] + 1) % 256
                self._written.add(page)

    def take_written(self) -> list[int]:
        """The pages written since the last call, in order."""
        with self._lock:
            written, self._written = self._written, set()
        return sorted(written)

    @property
    def written_bytes(self) -> int:
        return len(self._written) * PAGE_BYTES

    def read(self, first: int, count: int) -> bytes:
        """These pages as they are now."""
        return bytes(self._bytes[first * PAGE_BYTES : (first + count) * PAGE_BYTES])

    def digest(self) -> bytes:
        return hashlib.blake2b(self._bytes, digest_size=32).digest()


def extents(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pages in order as runs: the first page of each and how many there are."""
    breaks = [i for i, (a, b) in enumerate(pairwise(pages), 1) if b != a + 1]
    for start, end in pairwise([0, *breaks, len(pages)]):
        for at in range(start, end, EXTENT_PAGES):
            yield pages[at], min(EXTENT_PAGES, end - at)


def may_stop(left_bytes: int, rate_bps: float, allowed_blackout_s: float) -> bool:
    """Whether what is left can be sent while the VM is stopped."""
    return left_bytes * 8 <= rate_bps * allowed_blackout_s


@dataclass(frozen=True, slots=True)
class Plan:
    """What the sender does.

    Attributes:
        networks: the receiver's address on each network; connections are dealt out to them.
        vms: the queue, of which `at_once` migrate together.
        connections: of each VM.
        dirty_bps: how much of its memory a VM writes in a second.
        allowed_blackout_s: how long a VM may be stopped for its last pages.
        most_rounds: after so many a VM is stopped, whatever is left.
        mover: path of the Unix socket where ports are moved.
        start_s: when the first begin, on the monotonic clock.
    """

    networks: Sequence[str]
    port: int
    vms: Sequence[str]
    at_once: int
    connections: int
    memory_bytes: int
    dirty_bps: float
    allowed_blackout_s: float
    most_rounds: int
    mover: str
    start_s: float


@dataclass(slots=True)
class Round:
    """One pass over pages; times on the monotonic clock."""

    start_s: float
    end_s: float
    copied_bytes: int


@dataclass(slots=True)
class Migrated:
    """How one VM's migration went; times on the monotonic clock.

    Attributes:
        rounds: those while it ran, and last the one while it was stopped.
        stopped_s: when it was stopped; `copied_s`: when all of it had arrived;
            `moved_s`: when its port had moved.
    """

    vm: str
    start_s: float
    stopped_s: float = 0.0
    copied_s: float = 0.0
    moved_s: float = 0.0
    rounds: list[Round] = field(default_factory=list)


@contextlib.contextmanager
def writing(memory: Memory, dirty_bps: float) -> Iterator[None]:
    """Meanwhile the VM writes to its memory, as much as that in a second."""
    stopped = threading.Event()

    def go_on() -> None:
        start_s, written = time.monotonic(), 0
        while not stopped.wait(WRITE_INTERVAL_S):
            due = int((time.monotonic() - start_s) * dirty_bps / 8 / PAGE_BYTES)
            memory.write(due - written)
            written = due

    writer = threading.Thread(target=go_on, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stopped.set()
        writer.join()


class Outgoing:
    """The connections of one VM's migration, at the source.

    Raises:
        OSError: the receiver cannot be reached, or something stalled.
        RuntimeError: what arrived is not what was sent.
    """

    def __init__(
        self, vm: str, memory: Memory, port: int, networks: Sequence[str], connections: int
    ) -> None:
        self._memory = memory
        self._sockets: list[socket.socket] = []
        self._pool = ThreadPoolExecutor(connections)
        self._number = 0
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
        """Send these pages over all connections and wait until they have arrived."""
        start_s = time.monotonic()
        self._number += 1
        waiting = deque(extents(pages))
        copied = self._pool.map(lambda connection: self._share(connection, waiting), self._sockets)
        return Round(copied_bytes=sum(copied), start_s=start_s, end_s=time.monotonic())

    def verify(self, copied_bytes: int) -> None:
        """Make sure that the receiver has the memory as it is here, and got these bytes."""
        self._sockets[0].sendall(EXTENT.pack(0, END_OF_MEMORY))
        received_bytes, digest = RECEIPT.unpack(_exactly(self._sockets[0], RECEIPT.size))
        if received_bytes != copied_bytes:
            raise RuntimeError(f"received {received_bytes} bytes -> {copied_bytes}")
        if digest != self._memory.digest():
            raise RuntimeError("memory at the destination: another digest -> the source's")

    def close(self) -> None:
        self._pool.shutdown()
        for connection in self._sockets:
            connection.close()

    def _share(self, connection: socket.socket, waiting: deque[tuple[int, int]]) -> int:
        copied = 0
        while taken := _take(waiting):
            parts: list[bytes] = []
            for first, count in taken:
                parts += [EXTENT.pack(first, count), self._memory.read(first, count)]
                copied += count
            # In one go: a page by itself would end in a short packet.
            connection.sendall(b"".join(parts))
        connection.sendall(EXTENT.pack(self._number, END_OF_ROUND))
        (number,) = ROUND.unpack(_exactly(connection, ROUND.size))
        if number != self._number:
            raise RuntimeError(f"round {number} arrived -> round {self._number}")
        return copied * PAGE_BYTES


def _take(waiting: deque[tuple[int, int]]) -> list[tuple[int, int]]:
    """The next extents, about as many pages as one may have; none when all are taken."""
    taken: list[tuple[int, int]] = []
    with contextlib.suppress(IndexError):  # another connection took the last one
        while sum(count for _, count in taken) < EXTENT_PAGES:
            taken.append(waiting.popleft())
    return taken


def migrate(vm: str, memory: Memory, plan: Plan) -> Migrated:
    """Migrate one VM, its port included."""
    found = Migrated(vm, start_s=time.monotonic())
    outgoing = Outgoing(vm, memory, plan.port, plan.networks, plan.connections)
    with contextlib.closing(outgoing):
        with writing(memory, plan.dirty_bps):
            pages: Sequence[int] = range(memory.pages)
            while True:
                done = outgoing.copy(pages)
                found.rounds.append(done)
                rate_bps = done.copied_bytes * 8 / max(1e-6, done.end_s - done.start_s)
                if may_stop(memory.written_bytes, rate_bps, plan.allowed_blackout_s):
                    break
                if len(found.rounds) == plan.most_rounds:
                    break
                pages = memory.take_written()
        found.stopped_s = time.monotonic()
        found.rounds.append(outgoing.copy(memory.take_written()))
        found.copied_s = time.monotonic()
        _move_port(vm, plan.mover)
        found.moved_s = time.monotonic()
        outgoing.verify(sum(one.copied_bytes for one in found.rounds))
    return found


def _move_port(vm: str, mover: str) -> None:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(STALL_TIMEOUT_S)
        asked.connect(mover)
        asked.sendall(f"{vm}\n".encode())
        if not asked.recv(1):
            raise RuntimeError(f"port of {vm}: no answer -> moved")


def send(plan: Plan) -> list[Migrated]:
    """Migrate all VMs, so many at once, in the order in which they are queued."""
    memories = {vm: Memory(plan.memory_bytes, seed) for seed, vm in enumerate(plan.vms)}
    time.sleep(max(0.0, plan.start_s - time.monotonic()))
    with ThreadPoolExecutor(plan.at_once) as pool:
        futures = [pool.submit(migrate, vm, memory, plan) for vm, memory in memories.items()]
        return [future.result() for future in futures]


class Receiver:
    """The destination: takes connections, and fills memories with what comes."""

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
            about = json.loads(_line(connection))
            vm = about["vm"]
            with self._lock:
                if vm not in self._memories:
                    # Unlike a bytearray it is not written to before pages come.
                    self._memories[vm] = mmap.mmap(-1, about["pages"] * PAGE_BYTES)
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
            raise ConnectionResetError(f"{filled} bytes of an extent -> {len(content)}")
        filled += read


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    _fill(connection, memoryview(content))
    return bytes(content)


def _line(connection: socket.socket) -> bytes:
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
        migrated = send(Plan(**json.loads(Path(plan).read_text())))
        Path(results).write_text(json.dumps([asdict(one) for one in migrated]))


if __name__ == "__main__":
    main(sys.argv[1:])
