"""Raw sockets in any network namespace: send frames, and hear what passes an interface."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import math
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.switch import frames
from tests.switch.waiting import HANG_S, wait_until
from topologies.network.private_ovs import NICENESS

NETNS_DIRECTORY = Path("/run/netns")
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
ETH_P_ALL = 0x0003
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_STATISTICS, PACKET_AUXDATA = 1, 6, 8
SO_ATTACH_FILTER = 26
# Of Linux's classic packet filters: instructions, and where they find a frame's direction.
BPF_LD_ABS, BPF_LD_LEN, BPF_LD_IND, BPF_SUB, BPF_TAX = 0x20, 0x80, 0x40, 0x14, 0x07
BPF_JEQ, BPF_JGE, BPF_RET = 0x15, 0x35, 0x06
SKF_PKTTYPE = 0xFFFFF004
PACKET_MR_PROMISC = 1
PACKET_OUTGOING = 4
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35
TP_STATUS_VLAN_VALID = 1 << 4
VLAN_ID_MASK = 0xFFF
RECEIVE_BUFFER_BYTES = 64 << 20
FRAME_BYTES_MAX = 9216
STREAM_SHIFT = 48
SEQUENCE_MASK = (1 << STREAM_SHIFT) - 1
# It may take a busy machine that long to take up what was heard.
QUIET_TIMEOUT_S = HANG_S

_closing = ThreadPoolExecutor(8, "closes ears")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Point:
    """Somewhere to send and to listen: an interface, in a namespace or the root one."""

    name: str
    interface: str
    netns: str | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Heard:
    """A frame at a point. `vlan` 0: untagged. `outgoing`: out of the interface, not into it."""

    at_s: float
    data: bytes
    vlan: int
    outgoing: bool

    @property
    def frame_id(self) -> int | None:
        return frames.trailer_id(self.data)

    @property
    def destination(self) -> str:
        return self.data[:6].hex(":")

    @property
    def source(self) -> str:
        return self.data[6:12].hex(":")

    @property
    def ethertype(self) -> int:
        return int.from_bytes(self.data[12:14], "big")


@contextlib.contextmanager
def inside(netns: str | None) -> Iterator[None]:
    """Sockets made in this block belong to the namespace, and stay there."""
    if netns is None:
        yield
        return
    with open("/proc/thread-self/ns/net") as home, open(NETNS_DIRECTORY / netns) as there:
        _set_namespace(there.fileno())
        try:
            yield
        finally:
            _set_namespace(home.fileno())


class OwnNetwork:
    """A network of our own, and names of networks of our own, that end with the last process in it.

    Two switches with userspace datapaths cannot share a network: both want a device
    called `ovs-netdev`. So the private one gets its own, and the host's keep theirs.
    Several processes, each with an Open vSwitch, can so run these tests beside each other.

    The names (`ip netns`) are files, which would outlive a process that is killed. So this thread
    and what it starts see others than the machine's from now on.

    Raises:
        OSError: the machine does not permit namespaces.
    """

    def __init__(self) -> None:
        _check(_libc.unshare(CLONE_NEWNS))
        _check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
        NETNS_DIRECTORY.mkdir(exist_ok=True)
        _check(_libc.mount(b"tmpfs", bytes(NETNS_DIRECTORY), b"tmpfs", 0, None))
        with open("/proc/thread-self/ns/net") as home:
            _check(_libc.unshare(CLONE_NEWNET))
            self._own = open("/proc/thread-self/ns/net")  # noqa: SIM115
            _set_namespace(home.fileno())
        with self.entered():
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and every process it starts, is in this network."""
        with open("/proc/thread-self/ns/net") as home:
            _set_namespace(self._own.fileno())
            try:
                yield
            finally:
                _set_namespace(home.fileno())


def _set_namespace(fd: int) -> None:
    _check(_libc.setns(fd, CLONE_NEWNET))


def _check(result: int) -> None:
    if result:
        error = ctypes.get_errno()
        hint = "run in private namespaces as root: unshare --mount --net"
        raise OSError(error, f"{os.strerror(error)}; {hint}")


def sending_socket(point: Point) -> socket.socket:
    """A socket that puts whole frames on the interface and receives nothing."""
    with inside(point.netns):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.bind((point.interface, 0))
    return made


class Ear:
    """Everything that passes one interface from now on.

    Raises:
        AssertionError: on reading, when the kernel had to drop frames: counts would be wrong.
    """

    def __init__(self, point: Point) -> None:
        self.point = point
        with inside(point.netns):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            self._prepare()
            index = socket.if_nametoindex(point.interface)
            promiscuous = struct.pack("iHH8s", index, PACKET_MR_PROMISC, 0, b"")
            self.socket.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous)
            self.socket.bind((point.interface, ETH_P_ALL))
        self.socket.setblocking(False)
        self._frames: list[Heard] = []
        # How often our frames have come in, by flow and number, and the highest number of a flow.
        # Frames of no stream are of flow 0.
        self.counts: dict[int, dict[int, int]] = {}
        self.newest: dict[int, int] = {}

    def _prepare(self) -> None:
        """What is to be said of the socket before anything is heard."""

    def frames(self) -> list[Heard]:
        """All frames since the ear was opened, or since `forget`."""
        if self.socket.fileno() >= 0:
            self.listen()
        return self._frames

    def received(self, flow: int) -> dict[int, int]:
        """How often each frame of a flow has come in, by its number."""
        if self.socket.fileno() >= 0:
            self.listen()
        return dict(self.counts.get(flow, {}))

    def forget(self) -> None:
        self.listen()
        self._frames, self.counts, self.newest = [], {}, {}

    def listen(self) -> list[int]:
        """Take what has arrived; the ids of the frames of ours among it."""
        ids = []
        while heard := self._receive():
            self._frames.append(heard)
            if (frame_id := heard.frame_id) is not None:
                ids.append(frame_id)
                if not heard.outgoing:
                    self._count(frame_id)
        self._check_drops()
        return ids

    def _count(self, frame_id: int) -> None:
        flow, number = frame_id >> STREAM_SHIFT, frame_id & SEQUENCE_MASK
        counts = self.counts.setdefault(flow, {})
        counts[number] = counts.get(number, 0) + 1
        if number > self.newest.get(flow, -1):
            self.newest[flow] = number

    def _check_drops(self) -> None:
        _, dropped = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert not dropped, f"the ear at {self.point} was too slow: {dropped} frames dropped"

    def close(self) -> None:
        """Stop listening; what was heard so far can still be read."""
        if self.socket.fileno() >= 0:
            self.listen()
            # For that the kernel waits 10 ms, for which nobody else has to.
            _closing.submit(os.close, self.socket.detach())

    def _receive(self) -> Heard | None:
        try:
            data, ancillary, _, address = self.socket.recvmsg(FRAME_BYTES_MAX, 128)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise
            # Said once when the interface goes down; frames from before may still follow.
            return self._receive()
        vlan, at_s, outer_is_off = 0, 0.0, False
        for level, kind, value in ancillary:
            if level == SOL_PACKET and kind == PACKET_AUXDATA:
                status, tci = struct.unpack_from("I12xH", value)
                outer_is_off = bool(status & TP_STATUS_VLAN_VALID)
                vlan = tci & VLAN_ID_MASK if outer_is_off else 0
            elif level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack_from("qq", value)
                at_s = seconds + nanoseconds / 1e9
        if not outer_is_off and int.from_bytes(data[12:14], "big") == frames.ETH_VLAN:
            vlan = int.from_bytes(data[14:16], "big") & VLAN_ID_MASK
            data = data[:12] + data[16:]
        return Heard(at_s, data, vlan, address[2] == PACKET_OUTGOING)


class CountingEar(Ear):
    """How often each of our frames comes into one interface.

    The kernel leaves out all that goes out there, and all that is not ours. Nothing is kept of a
    frame but its number, so that a busy machine is not kept busier.
    """

    def __init__(self, point: Point) -> None:
        super().__init__(point)
        self._buffer = bytearray(FRAME_BYTES_MAX)

    def _prepare(self) -> None:
        magic = int.from_bytes(frames.MAGIC, "big")
        size = frames.TRAILER.size
        program = [
            (BPF_LD_ABS, 0, 0, SKF_PKTTYPE),
            (BPF_JEQ, 7, 0, PACKET_OUTGOING),
            (BPF_LD_LEN, 0, 0, 0),
            (BPF_JGE, 0, 5, size),
            (BPF_SUB, 0, 0, size),
            (BPF_TAX, 0, 0, 0),
            (BPF_LD_IND, 0, 0, 0),
            (BPF_JEQ, 0, 1, magic),
            (BPF_RET, 0, 0, FRAME_BYTES_MAX),
            (BPF_RET, 0, 0, 0),
        ]
        code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
        buffer = ctypes.create_string_buffer(code)
        attached = struct.pack("HL", len(program), ctypes.addressof(buffer))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, attached)

    def forget_before(self, number: int) -> None:
        """Frames of flows whose number is lower, and frames that are of no flow."""
        self.listen()
        self.counts = {
            flow: {n: copies for n, copies in counts.items() if n >= number}
            for flow, counts in self.counts.items()
            if flow
        }

    def listen(self) -> list[int]:
        ids, buffer = [], self._buffer
        while (size := self._receive_into(buffer)) is not None:
            ids.append(frame_id := int.from_bytes(buffer[size - 8 : size], "big"))
            self._count(frame_id)
        self._check_drops()
        return ids

    def _receive_into(self, buffer: bytearray) -> int | None:
        while True:
            try:
                return self.socket.recv_into(buffer)
            except BlockingIOError:
                return None
            except OSError as error:
                # Said once when the interface goes down; frames from before may still follow.
                if error.errno != errno.ENETDOWN:
                    raise


class Ears:
    """Ears at several points, by the points' names.

    `fence`: returns when switches on the way have taken up what was sent so far.
    """

    def __init__(
        self,
        points: Sequence[Point],
        kind: type[Ear] = Ear,
        fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._fence = fence
        self.by_name: dict[str, Ear] = {}
        try:
            for point in points:
                self.by_name[point.name] = kind(point)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Ears:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, point: Point | str) -> Ear:
        return self.by_name[str(point)]

    def listen(self, within_s: float = 0.0) -> list[int]:
        """Wait for frames at most that long, take them; the ids of those of ours."""
        ears = list(self.by_name.values())
        ready, _, _ = select.select([e.socket for e in ears], [], [], within_s)
        return [frame_id for e in ears if e.socket in ready for frame_id in e.listen()]

    def frame_ids(self) -> set[int]:
        """The ids of all frames of ours that came by."""
        found = {heard.frame_id for ear in self.by_name.values() for heard in ear.frames()}
        return {frame_id for frame_id in found if frame_id is not None}

    def until_quiet(self, below_id: int = 1 << 64, quiet_s: float = 0.05) -> None:
        """Listen until no frame of ours, with an id below `below_id`, has come for a while.

        A switch that had no time may have frames for longer than that: so the fence comes first.
        """
        self._fence()
        last_s = time.monotonic()
        deadline_s = last_s + QUIET_TIMEOUT_S
        while (now_s := time.monotonic()) < last_s + quiet_s:
            assert now_s < deadline_s, f"frames keep coming for {QUIET_TIMEOUT_S:g} s"
            if any(frame_id < below_id for frame_id in self.listen(within_s=0.01)):
                last_s = time.monotonic()

    def forget(self) -> None:
        for ear in self.by_name.values():
            ear.forget()

    def close(self) -> None:
        for ear in self.by_name.values():
            ear.close()


@dataclass(frozen=True, slots=True)
class Sent:
    """What a stream did; `latest_s` is how far it was behind its clock at worst."""

    count: int
    refused: tuple[int, ...]
    elapsed_s: float
    latest_s: float


class Stream:
    """Flows of numbered frames at a steady rate, sent by a process of their own.

    Each flow is a point to send from and the frame to send; flow i's frames carry the ids
    `first_id(i)`, `first_id(i) + 1`, ... . The first frame is out when the block begins. A sender
    that is late catches up, unless it is later than `catch_up_s`: what it has missed is then never sent.
    """

    def __init__(
        self,
        flows: Sequence[tuple[Point, bytes]],
        pps: float,
        number: int = 1,
        catch_up_s: float = math.inf,
    ) -> None:
        self._flows = flows
        self._catch_up_s = catch_up_s
        self._pps = pps
        self._number = number
        self._sockets: list[socket.socket] = []
        self._process: subprocess.Popen[str] | None = None
        self.sent: Sent | None = None

    def first_id(self, flow: int) -> int:
        return (self._number + flow) << STREAM_SHIFT

    def __enter__(self) -> Stream:
        self._sockets = [sending_socket(point) for point, _ in self._flows]
        numbered = [
            (s.fileno(), (frame[:-8] + self.first_id(i).to_bytes(8, "big")).hex())
            for i, (s, (_, frame)) in enumerate(zip(self._sockets, self._flows, strict=True))
        ]
        # As the switch: what a sender that had no time sends at once is more than the switch's sockets hold.
        sender = ["nice", "-n", str(NICENESS), sys.executable]
        self._process = subprocess.Popen(
            [*sender, str(Path(__file__).with_name("sender.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[fd for fd, _ in numbered],
            text=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        order = {"pps": self._pps, "flows": numbered, "catch_up_s": self._catch_up_s}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "started\n", "the sender did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> Sent:
        """End it; what it did. Frames are still on their way for a moment."""
        if self.sent is None:
            assert self._process is not None, "the stream was not started"
            answer, _ = self._process.communicate(timeout=HANG_S)
            report = json.loads(answer)
            self.sent = Sent(
                report["sent"], tuple(report["refused"]), report["elapsed_s"], report["latest_s"]
            )
            for made in self._sockets:
                made.close()
        return self.sent

    def received(self, ear: Ear, flow: int) -> Mapping[int, int]:
        """How often each sequence number of a flow came into the interface."""
        return ear.received(self._number + flow)

    def newest(self, ears: Sequence[Ear]) -> int:
        """The number of which, or of a later one, a frame of each flow has come to the flow's ear."""
        return min(self._newest(ear, i) for i, ear in enumerate(ears))

    def _newest(self, ear: Ear, flow: int) -> int:
        ear.listen()
        return ear.newest.get(self._number + flow, 0)

    def more(self, ears: Sequence[Ear], count: int) -> int:
        """Wait for so many more frames of each flow at the flow's ear; the number that all are past."""
        goal = max(self._newest(ear, i) for i, ear in enumerate(ears)) + count
        wait_until(lambda: self.newest(ears) >= goal, f"{count} more frames of each flow")
        return self.newest(ears)

    def arrivals(self, ear: Ear, flow: int) -> list[tuple[int, float]]:
        """The number of each copy of a flow's frames that came into the interface, and when."""
        first = self.first_id(flow)
        return [
            (heard.frame_id - first, heard.at_s)
            for heard in ear.frames()
            if not heard.outgoing
            and heard.frame_id is not None
            and heard.frame_id >> STREAM_SHIFT == first >> STREAM_SHIFT
        ]

    def lost(self, ear: Ear, flow: int) -> int:
        """Frames of a stopped flow that never came into the interface."""
        assert self.sent is not None, "the stream still runs"
        return self.sent.count - len(self.received(ear, flow))
