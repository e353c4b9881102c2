"""VLANs: sets of VLAN ids, and the VLANs that a port carries."""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

VLAN_IDS = 4096
_ID_MASK = VLAN_IDS - 1


@dataclass(frozen=True, slots=True)
class VlanSet:
    """A set of VLAN ids from 0 to 4095, with one bit for each; 0 stands for untagged."""

    bits: int = 0

    def __str__(self) -> str:
        """Ranges, for example "0,100-199"."""
        firsts = [v for v in self if v - 1 not in self]
        lasts = [v for v in self if v + 1 not in self]
        return ",".join(f"{a}-{b}" if a < b else str(a) for a, b in zip(firsts, lasts, strict=True))

    @classmethod
    def of(cls, *vlans: int) -> VlanSet:
        return cls(sum(1 << vlan for vlan in {*vlans}))

    def __contains__(self, vlan: int) -> bool:
        return vlan >= 0 and bool(self.bits >> vlan & 1)

    def __iter__(self) -> Iterator[int]:
        return (vlan for vlan in range(VLAN_IDS) if vlan in self)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __and__(self, other: VlanSet) -> VlanSet:
        return VlanSet(self.bits & other.bits)

    def __or__(self, other: VlanSet) -> VlanSet:
        return VlanSet(self.bits | other.bits)

    def __sub__(self, other: VlanSet) -> VlanSet:
        return VlanSet(self.bits & ~other.bits)

    def __le__(self, other: VlanSet) -> bool:
        return not self.bits & ~other.bits


EVERY_VLAN = VlanSet((1 << VLAN_IDS) - 1)
UNTAGGED = VlanSet.of(0)


@functools.lru_cache(maxsize=4096)
def blocks(vlans: VlanSet) -> tuple[tuple[int, int], ...]:
    """The fewest (value, mask) pairs on ids that match these VLANs and no other."""

    def cover(first: int, size: int) -> Iterator[tuple[int, int]]:
        full = (1 << size) - 1
        here = vlans.bits >> first & full
        if here == full:
            yield first, _ID_MASK & ~(size - 1)
        elif here:
            yield from cover(first, size // 2)
            yield from cover(first + size // 2, size // 2)

    return tuple(cover(0, VLAN_IDS))


@functools.lru_cache(maxsize=256)
def classes(sets: frozenset[VlanSet]) -> tuple[VlanSet, ...]:
    """All VLANs in classes, largest first. VLANs of one class are in the same ones of `sets`."""
    parts = [EVERY_VLAN]
    for vlans in sets:
        parts = [half for part in parts for half in (part & vlans, part - vlans) if half]
    return tuple(sorted(parts, key=lambda part: (-len(part), next(iter(part)))))


def most_ports(carried: Iterable[VlanSet]) -> int:
    """How many of some ports, given what each carries, are in one VLAN at most."""
    counts = Counter(carried)
    sizes = (
        sum(count for vlans, count in counts.items() if part <= vlans)
        for part in classes(frozenset(counts))
    )
    return max(sizes, default=0)


@dataclass(frozen=True, slots=True)
class PortVlans:
    """The VLANs that a port carries and how, in the terms of ovs-vswitchd.conf.db(5).

    `native`: the VLAN of frames without a tag or with tag 0; None if such frames are dropped.
    `takes_tagged`: False for an access port. `native_tagged`: frames of the native VLAN leave with
    its tag. The default is a trunk of every VLAN.
    """

    carried: VlanSet = EVERY_VLAN
    native: int | None = 0
    takes_tagged: bool = True
    native_tagged: bool = False

    def vlan_of(self, tag: int) -> int | None:
        """The VLAN of a frame that arrives with this tag (0: no tag); None if it is dropped."""
        if not tag:
            return self.native
        return tag if self.takes_tagged and tag in self.carried else None

    def tag_in(self, vlan: int) -> int:
        """The tag by which the port's configuration names this VLAN; 0: none."""
        return 0 if vlan == self.native else vlan

    def tag_out(self, vlan: int) -> int:
        """The tag of frames of this VLAN that leave on the port; 0: none."""
        return 0 if vlan == self.native and not self.native_tagged else vlan

    @property
    def digest(self) -> int:
        """A hash of 16 bits, so that different configurations usually differ in it."""
        return _digest(self)

    @property
    def essential(self) -> VlanSet:
        """The VLANs without which an uplink is useless: an access port's VLAN, or a native VLAN."""
        if self.native is None or (self.takes_tagged and not self.native):
            return VlanSet()
        return VlanSet.of(self.native)


@functools.lru_cache
def _digest(of: PortVlans) -> int:
    written = f"{of.carried.bits:x} {of.native} {of.takes_tagged} {of.native_tagged}"
    return zlib.crc32(written.encode()) & 0xFFFF


TRUNK = PortVlans()


def access(vlan: int) -> PortVlans:
    """An access port of one VLAN."""
    return PortVlans(VlanSet.of(vlan), vlan, takes_tagged=False)


def port_vlans(mode: str | None, tag: int | None, trunks: Iterable[int]) -> PortVlans:
    """The VLANs of a Port record, interpreted as ovs-vswitchd does.

    A dot1q-tunnel port counts as an access port: customers' tags inside are not supported.
    """
    named = VlanSet.of(*trunks) or EVERY_VLAN
    if mode is None:
        mode = "trunk" if tag is None else "access"
    native = tag or 0
    if mode in ("access", "dot1q-tunnel"):
        return access(native)
    if mode in ("native-tagged", "native-untagged"):
        # Untagged frames belong to the native VLAN, so no frame can belong to VLAN 0.
        carried = (named - UNTAGGED) | VlanSet.of(native)
        return PortVlans(carried, native, native_tagged=mode == "native-tagged" and native > 0)
    return PortVlans(named, 0 if 0 in named else None)


def carriers(port: PortVlans, uplinks: Mapping[str, PortVlans]) -> frozenset[str]:
    """The uplinks that a VM port may use, by name.

    These are the uplinks that carry all VLANs that the port names. If there are none, or if the
    port is a trunk that names none, they are those that carry its native VLAN, if it has one, and
    at least one of its other VLANs.
    """
    sharing = {
        name
        for name, uplink in uplinks.items()
        if uplink.carried & port.carried and port.essential <= uplink.carried
    }
    names_them = len(port.carried) < len(EVERY_VLAN) - 1
    whole = {name for name in sharing if port.carried <= uplinks[name].carried}
    return frozenset(whole if whole and names_them else sharing)
