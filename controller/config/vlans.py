"""Represents sets of VLAN IDs, and determines the VLANs that a port or an uplink carries."""

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
    """A set of VLAN IDs from 0 to 4095, with a bit for each ID; ID 0 stands for untagged frames."""

    bits: int = 0

    def __str__(self) -> str:
        """Return ranges, for example "0,100-199"."""
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
    """Return the smallest set of (value, mask) pairs that match the IDs of exactly these VLANs."""

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
    """Divide all VLANs into classes, largest first, so that each of `sets` is a union of classes."""
    parts = [EVERY_VLAN]
    for vlans in sets:
        parts = [half for part in parts for half in (part & vlans, part - vlans) if half]
    return tuple(sorted(parts, key=lambda part: (-len(part), next(iter(part)))))


def most_ports(carried: Iterable[VlanSet]) -> int:
    """Return the largest number of ports that carry the same VLAN. `carried`: the VLANs of each port."""
    counts = Counter(carried)
    sizes = (
        sum(count for vlans, count in counts.items() if part <= vlans)
        for part in classes(frozenset(counts))
    )
    return max(sizes, default=0)


@dataclass(frozen=True, slots=True)
class PortVlans:
    """The VLANs that a port carries, and their tagging, in the terms of ovs-vswitchd.conf.db(5).

    `native`: the VLAN of frames without a tag or with tag 0; None if such frames are dropped.
    `takes_tagged`: False for an access port. `native_tagged`: whether frames of the native VLAN are
    sent with a tag. `untags`: whether a tag without a VLAN, which has only a priority, is removed from
    frames that the port sends. `not_flooded`: the VLANs in which the port sends only frames to known
    addresses. The default is a trunk for all VLANs.
    """

    carried: VlanSet = EVERY_VLAN
    native: int | None = 0
    takes_tagged: bool = True
    native_tagged: bool = False
    untags: bool = False
    not_flooded: VlanSet = VlanSet()

    def vlan_of(self, tag: int) -> int | None:
        """Return the VLAN of a received frame with this tag (0: no tag); None if the frame is dropped."""
        if not tag:
            return self.native
        return tag if self.takes_tagged and tag in self.carried else None

    def tag_in(self, vlan: int) -> int:
        """Return the tag of frames of this VLAN that the port receives; 0 for the native VLAN."""
        return 0 if vlan == self.native else vlan

    def tag_out(self, vlan: int) -> int:
        """Return the tag of frames of this VLAN that the port sends; 0 if they are untagged."""
        return 0 if vlan == self.native and not self.native_tagged else vlan

    @property
    def flooded(self) -> VlanSet:
        """The VLANs whose flooded frames the port sends."""
        return self.carried - self.not_flooded if self.not_flooded else self.carried

    @property
    def essential(self) -> VlanSet:
        """The VLANs that an uplink must carry for this port: an access port's VLAN, or a native VLAN."""
        if self.native is None or (self.takes_tagged and not self.native):
            return VlanSet()
        return VlanSet.of(self.native)


@functools.lru_cache
def digest(of: PortVlans) -> int:
    """Return a 16-bit hash of a port's VLAN settings. Different settings rarely share a hash."""
    written = f"{of.carried.bits:x} {of.native} {of.takes_tagged} {of.native_tagged}"
    return zlib.crc32(written.encode()) & 0xFFFF


TRUNK = PortVlans()


def access(vlan: int) -> PortVlans:
    """Return the configuration of an access port in `vlan`."""
    return PortVlans(VlanSet.of(vlan), vlan, takes_tagged=False, untags=True)


def port_vlans(mode: str | None, tag: int | None, trunks: Iterable[int]) -> PortVlans:
    """Return the VLANs of a Port record, with the same interpretation as in ovs-vswitchd.

    A dot1q-tunnel port is treated as an access port: inner (customer) tags are not supported.
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
        tagged = mode == "native-tagged"
        if native:
            return PortVlans(carried, native, native_tagged=tagged)
        # Open vSwitch floods untagged frames to the port only if `trunks` contains 0.
        return PortVlans(carried, untags=not tagged, not_flooded=UNTAGGED - named)
    return PortVlans(named, 0 if 0 in named else None)


def carriers(port: PortVlans, uplinks: Mapping[str, PortVlans]) -> frozenset[str]:
    """Return the names of the uplinks that a VM port can use because of its VLANs.

    These are the uplinks that carry all VLANs of the port. If there are none, or if the port is a
    trunk without a list of VLANs, they are the uplinks that carry at least one VLAN of the port,
    including its native VLAN (if any).
    """
    sharing = {
        name
        for name, uplink in uplinks.items()
        if uplink.carried & port.carried and port.essential <= uplink.carried
    }
    names_them = len(port.carried) < len(EVERY_VLAN) - 1
    whole = {name for name in sharing if port.carried <= uplinks[name].carried}
    return frozenset(whole if whole and names_them else sharing)
