"""HTB queues of an uplink's device as values, and the `tc` commands that change or remove them.

A device gets an HTB qdisc with a class for each VM port. A classic BPF program determines a frame's
class from the source address. So tagged and untagged frames are treated alike, with the userspace and
the kernel datapath. The program begins with a digest of the whole configuration, so that a service
that starts recognizes ovs-lbt's queues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# The handle of our root qdisc, "lb", which distinguishes this qdisc from those of other programs.
HANDLE = 0x6C62
# Minor numbers that are not valid ofports: OFPP_MAX is 0xff00, and LOCAL is 0xfffe.
ROOT_CLASS, DEFAULT_CLASS, AMBIGUOUS_CLASS = 0xFFF0, 0xFFF1, 0xFFF2
FILTERS = "protocol all prio 1"
# `tc` sends messages of 16 KiB, and an address takes fewer than six instructions of 8 bytes.
ADDRESSES_A_FILTER = 300
MAX_ADDRESSES = 3000
# The guaranteed rate of a class without a reservation.
LEAST_RATE_BPS = 8_000
# The length of a burst that a class may send after it was idle, or after a late timer.
BURST_S = 0.002
LEAST_BURST_BYTES = 15_000
# The bytes that a link adds to a frame (preamble, check sequence and gap), and a link's shortest frame.
ETHERNET_OVERHEAD_BYTES, ETHERNET_LEAST_BYTES = 24, 84
ETHERNET_HEADER_BYTES = 18
# The longest frame that the kernel may pass to a device, and segment later.
SUPERFRAME_BYTES = 65_536
# The memory that a frame takes in a socket's buffer, divided by the frame's length: 2304 bytes for 1514.
FOOTPRINT_RATIO = 2304 / 1514
LEAST_QUEUE_FRAMES = 3

# Classic BPF (linux/bpf_common.h): load an immediate, load from the frame, jump, return.
_LD_IMM, _LD_W, _LD_H, _JA, _JEQ, _JGE, _RET = 0x00, 0x20, 0x28, 0x05, 0x15, 0x35, 0x06
_FAR = 255
# Up to this number of addresses are compared one by one. For more, the search is binary.
_BRANCH = 4
# 01:80:c2:00:00:00 to 0f: LACP and other link-local protocols, which VMs cannot send.
_LINK_LOCAL_HIGH, _LINK_LOCAL_END = 0x0180C200, 0x0010

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Leaf:
    """The bandwidth of one class of frames.

    `rate_bps` is guaranteed. Unused bandwidth is divided among classes in proportion to `shares`, up to
    `ceil_bps` for this class.
    """

    minor: int
    shares: int
    rate_bps: int
    ceil_bps: int


@dataclass(frozen=True, slots=True)
class Shaper:
    """The queues that a device should have.

    `sources`: the class of each source address; frames from other addresses are in the default class.
    `on_wire`: whether preambles and inter-frame gaps also use capacity, as on the link. `queues`:
    the number of queues that share a socket's send buffer (userspace datapath); None: no shared buffer.
    """

    capacity_bps: int
    on_wire: bool
    leaves: tuple[Leaf, ...]
    sources: tuple[tuple[str, int], ...]
    queues: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """Properties of the kernel and the device that determine the queues."""

    fq_codel: bool = False
    send_buffer_bytes: int = 212_992
    mtu_bytes: int = 1500


@dataclass(frozen=True, slots=True)
class Found:
    """The queues on a device. `marks`: the digests in our filters. `drops`: dropped frames by class."""

    kind: str = "noqueue"
    handle: int = 0
    marks: tuple[int | None, ...] = ()
    minors: frozenset[int] = frozenset()
    queued: frozenset[int] = frozenset()
    drops: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        return (self.kind, self.handle) == ("htb", HANDLE)

    @property
    def is_foreign(self) -> bool:
        """Whether another program added this qdisc; False for the default qdisc, which has no handle."""
        return self.handle != 0 and not self.is_ours

    def __str__(self) -> str:
        return f"{self.kind} {self.handle:x}:"


# A device with its default qdisc, and one that could not be read.
UNTOUCHED, UNREAD = Found(), Found("unknown")


def class_minor(ofport: int) -> int:
    """Return the minor number of a VM port's class, which is also the handle of the class's queue."""
    assert ofport not in (ROOT_CLASS, DEFAULT_CLASS, AMBIGUOUS_CLASS), "other classes' numbers"
    return AMBIGUOUS_CLASS if ofport == HANDLE else ofport


def mark(shaper: Shaper, host: Host) -> int:
    """Return a digest of `shaper` and `host`, which the filters on the device contain."""
    digest = hashlib.blake2b(repr((shaper, host)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def commands(
    device: str, found: Found, wanted: Shaper | None, host: Host, known: Shaper | None = None
) -> tuple[str, ...]:
    """Return the fewest `tc -batch` lines that change the queues `found` to `wanted` (None: no queues).

    `known`: the shaper that this service installed last; None if unknown. Another program's qdisc is
    replaced, so do not call this function if that qdisc must be kept. Queued frames are sent, except
    those in classes that are removed.
    """
    if wanted is None:
        return (f"qdisc del dev {device} root",) if found.is_ours else ()
    if found.is_ours and is_complete(found, wanted, host):
        return ()
    lines: list[str] = []
    if not found.is_ours:
        found = UNTOUCHED
        default = f"htb default {DEFAULT_CLASS:x}"
        lines.append(f"qdisc replace dev {device} root handle {HANDLE:x}: {default}")
    installed = known if known and is_complete(found, known, host) else None
    before = set(_lines(device, installed, host)) if installed else set()
    lines += [line for line in _lines(device, wanted, host) if line not in before]
    filters = _filter_lines(device, wanted, host)
    surplus = range(len(filters) + 1, len(found.marks) + 1)
    lines += [*filters, *(f"filter del {_filter(device, number)}" for number in surplus)]
    minors = {ROOT_CLASS, *(leaf.minor for leaf in wanted.leaves)}
    gone = sorted(found.minors - minors)
    lines += [f"class del dev {device} classid {HANDLE:x}:{minor:x}" for minor in gone]
    return tuple(lines)


def is_complete(found: Found, shaper: Shaper, host: Host) -> bool:
    """Whether all classes, queues and filters of `shaper` were found on the device."""
    minors = {leaf.minor for leaf in shaper.leaves}
    marks = (mark(shaper, host),) * len(_chunks(shaper))
    return found.minors == minors | {ROOT_CLASS} and found.queued == minors and found.marks == marks


def _lines(device: str, shaper: Shaper, host: Host) -> Iterator[str]:
    """Yield the `tc` lines for all classes (the root class first), and then for the classes' queues."""
    # A quantum below the device's largest frame would be unfair.
    frame_bytes, replace = SUPERFRAME_BYTES, f"class replace dev {device}"
    if shaper.queues is not None:
        frame_bytes = host.mtu_bytes + ETHERNET_HEADER_BYTES
    capacity_bps, least = shaper.capacity_bps, min(leaf.shares for leaf in shaper.leaves)
    assert least > 0, "every VM port has a share"
    assert all(leaf.rate_bps <= leaf.ceil_bps for leaf in shaper.leaves), "rates within limits"
    wire = f" overhead {ETHERNET_OVERHEAD_BYTES} mpu {ETHERNET_LEAST_BYTES}"
    root = _htb(capacity_bps, capacity_bps, frame_bytes)
    root += f" quantum {frame_bytes}" + (wire if shaper.on_wire else "")
    yield f"{replace} parent {HANDLE:x}: classid {HANDLE:x}:{ROOT_CLASS:x} {root}"
    for leaf in shaper.leaves:
        at = f"parent {HANDLE:x}:{ROOT_CLASS:x} classid {HANDLE:x}:{leaf.minor:x}"
        quantum_bytes = frame_bytes * leaf.shares // least
        htb = _htb(leaf.rate_bps, leaf.ceil_bps, frame_bytes)
        yield f"{replace} {at} {htb} quantum {quantum_bytes}"
    replace = f"qdisc replace dev {device} parent {HANDLE:x}"
    for leaf, queue in zip(shaper.leaves, _queues(shaper, host), strict=True):
        yield f"{replace}:{leaf.minor:x} handle {leaf.minor:x}: {queue}"


def _htb(rate_bps: int, ceil_bps: int, frame_bytes: int) -> str:
    burst = _burst_bytes(rate_bps, 2 * frame_bytes)
    cburst = _burst_bytes(ceil_bps, max(LEAST_BURST_BYTES, 2 * frame_bytes))
    return f"htb rate {rate_bps}bit burst {burst} ceil {ceil_bps}bit cburst {cburst}"


def _burst_bytes(rate_bps: int, least_bytes: int) -> int:
    return max(least_bytes, round(rate_bps / 8 * BURST_S))


def _queues(shaper: Shaper, host: Host) -> list[str]:
    """Return the qdisc of each class. A class's part of a shared buffer depends on its rate and shares."""
    leaves = shaper.leaves
    if shaper.queues is None:
        return ["fq_codel" if host.fq_codel else "pfifo limit 1000"] * len(leaves)
    shares = sum(leaf.shares for leaf in leaves)
    weights = [leaf.rate_bps / shaper.capacity_bps + leaf.shares / shares for leaf in leaves]
    total = sum(weights)
    all_bytes = host.send_buffer_bytes / FOOTPRINT_RATIO
    own_bytes = all_bytes * len(leaves) / max(shaper.queues, len(leaves))
    least_bytes = LEAST_QUEUE_FRAMES * (host.mtu_bytes + ETHERNET_HEADER_BYTES)
    limits = (max(least_bytes, int(own_bytes * (weight / total))) for weight in weights)
    return [f"bfifo limit {limit}" for limit in limits]


def _filter_lines(device: str, shaper: Shaper, host: Host) -> list[str]:
    """Return the `tc` lines for all filters. Frames that match no address go on to the next filter."""
    lines, default = [], f"classid {HANDLE:x}:{DEFAULT_CLASS:x}"
    for number, sources in enumerate(_chunks(shaper), 1):
        code = program(sources, mark(shaper, host))
        text = ",".join([str(len(code)), *(" ".join(map(str, step)) for step in code)])
        lines.append(f'filter replace {_filter(device, number)} bytecode "{text}" {default}')
    return lines


def _filter(device: str, number: int) -> str:
    return f"dev {device} parent {HANDLE:x}: {FILTERS} handle {number} bpf"


def _chunks(shaper: Shaper) -> list[tuple[tuple[str, int], ...]]:
    """Return the source addresses for each filter; at least one filter, which contains the digest."""
    sources = shaper.sources[:MAX_ADDRESSES]
    starts = range(0, max(1, len(sources)), ADDRESSES_A_FILTER)
    return [sources[start : start + ADDRESSES_A_FILTER] for start in starts]


# ---- the program -----------------------------------------------------------------------


def program(sources: Iterable[tuple[str, int]], mark: int) -> tuple[Instruction, ...]:
    """Return a BPF program that returns the ID of a frame's class (0: the default class).

    For LACP and other link-local protocols, the program returns the qdisc's ID, so that these frames are
    not queued: if LACP frames were lost in a full queue, a bond would lose its members.
    """
    by_high: dict[int, dict[int, int]] = {}
    for mac, minor in sources:
        digits = mac.replace(":", "")
        by_high.setdefault(int(digits[:8], 16), {})[int(digits[8:], 16)] = minor
    blocks = []
    for high, by_low in sorted(by_high.items()):
        returns = [(low, [_returns(minor)]) for low, minor in sorted(by_low.items())]
        blocks.append((high, [(_LD_H, 0, 0, 10), *_search(returns)]))
    link_local = [
        (_LD_W, 0, 0, 0),
        (_JEQ, 0, 3, _LINK_LOCAL_HIGH),
        (_LD_H, 0, 0, 4),
        (_JGE, 1, 0, _LINK_LOCAL_END),
        _returns(0),
    ]
    return ((_LD_IMM, 0, 0, mark), *link_local, (_LD_W, 0, 0, 6), *_search(blocks))


def read_mark(code: Sequence[Instruction]) -> int | None:
    """Return the digest in a filter's BPF program; None if another program added the filter."""
    return code[0][3] if code and code[0][:3] == (_LD_IMM, 0, 0) else None


def _returns(minor: int) -> Instruction:
    return (_RET, 0, 0, HANDLE << 16 | minor)


def _search(blocks: Sequence[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Return code that runs the block whose key is in the accumulator, or returns 0 if none is."""
    if len(blocks) > _BRANCH:
        middle = len(blocks) // 2
        below, above = _search(blocks[:middle]), _search(blocks[middle:])
        return [*_unless_at_least(blocks[middle][0], below), *above]
    code: list[Instruction] = []
    for key, block in blocks:
        if len(block) <= _FAR:
            code += [(_JEQ, 0, len(block), key), *block]
        else:
            code += [(_JEQ, 1, 0, key), (_JA, 0, 0, len(block)), *block]
    return [*code, (_RET, 0, 0, 0)]


def _unless_at_least(key: int, block: list[Instruction]) -> list[Instruction]:
    if len(block) <= _FAR:
        return [(_JGE, len(block), 0, key), *block]
    return [(_JGE, 0, 1, key), (_JA, 0, 0, len(block)), *block]
