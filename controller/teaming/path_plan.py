"""Plans path checks: the paths to probe for each VLAN and MTU that VM ports use.

Also finds the units to keep off uplinks that lose the frames of single VLANs, or long frames.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from controller.config.values import BridgeConfig, UplinkConfig, VmPortConfig
from controller.teaming.address_units import AddressUnit
from policies.model import Role
from policies.path_faults import PathFault

# Each uplink sends probes to this many other uplinks, and receives probes from as many. That connects
# all uplinks, and the number of probes grows with the number of uplinks, not with its square.
NEIGHBOURS = 3
# An OpenFlow message holds 64 kB, but the database accepts any MTU.
LONGEST_MTU = 65_000
NONE: frozenset[str] = frozenset()

# Addresses learned on VM ports, by the port's name, each with its VLAN.
Learned = Mapping[str, Iterable[tuple[str, int]]]


@dataclass(frozen=True, slots=True, order=True)
class Path:
    """A path through the network for frames in one VLAN.

    `sender`: an uplink. `receiver`: an uplink, or the address of a host that is queried (`to_host`).
    `mtu`: the MTU that a frame fills; 0: the shortest frame.
    """

    mtu: int
    vlan: int
    sender: str
    receiver: str
    to_host: bool = False

    @property
    def asked(self) -> tuple[str, str, int]:
        """The uplink, host and VLAN of a query, from which its answers are recognized."""
        return self.sender, self.receiver, self.vlan


def vlans_of(port: VmPortConfig, learned: Learned) -> frozenset[int]:
    """Return a VM port's VLANs: an access port's VLAN, or the VLANs of a trunk's learned addresses."""
    if not port.vlans.takes_tagged and port.vlans.native is not None:
        return frozenset({port.vlans.native})
    return frozenset(vlan for _, vlan in learned.get(port.name, ()))


def paths(config: BridgeConfig, up: Collection[str], learned: Learned) -> tuple[Path, ...]:
    """Return the paths to probe, sorted. `up`: the uplinks whose link is up.

    Paths for short frames come first. Return no paths if fewer than two uplinks can be probed.
    """
    uplinks = [u for u in config.uplinks if u.role is not Role.UNUSED and u.name in up]
    used: dict[int, set[int]] = {}
    for port in config.vm_ports:
        for vlan in vlans_of(port, learned):
            used.setdefault(vlan, {0}).add(min(max(port.mtu or 0, 0), LONGEST_MTU))
    found = [
        Path(mtu, vlan, *way)
        for vlan, mtus in used.items()
        for way in {*_ways(config, uplinks, vlan)}
        for mtu in mtus
    ]
    return tuple(sorted(found))


def _ways(
    config: BridgeConfig, uplinks: Sequence[UplinkConfig], vlan: int
) -> Iterator[tuple[str, str, bool]]:
    """Yield the paths of a VLAN: both directions of pairs of uplinks, and each uplink to each host.

    With few uplinks, some paths are yielded twice.
    """
    able = [uplink for uplink in uplinks if vlan in uplink.vlans.carried]
    if len(able) < 2:
        return
    for at, one in enumerate(able):
        for step in range(1, min(NEIGHBOURS, len(able) - 1) + 1):
            other = able[(at + step) % len(able)]
            yield one.name, other.name, False
            yield other.name, one.name, False
    for host in config.path_check_targets:
        if host.vlan == vlan:
            for uplink in able:
                yield uplink.name, host.address, True


@dataclass(frozen=True, slots=True)
class KeptOff:
    """The uplinks that units must not use while other uplinks carry traffic.

    `by_unit`: for VM ports and addresses behind them, by name; units without such uplinks are
    omitted. `by_policy`: for the buckets of each policy, which all its VM ports share.
    """

    by_unit: Mapping[str, frozenset[str]] = field(default_factory=dict)
    by_policy: Mapping[str, frozenset[str]] = field(default_factory=dict)


NOTHING = KeptOff()


def kept_off(
    config: BridgeConfig,
    faults: Iterable[PathFault],
    learned: Learned,
    units: Iterable[AddressUnit],
) -> KeptOff:
    """Return the uplinks that units must not use because of path faults. `learned`: the addresses of VM
    ports. `units`: the addresses with their own uplinks.
    """
    faults = tuple(faults)
    by_unit: dict[str, frozenset[str]] = {}
    by_policy: dict[str, frozenset[str]] = {}
    mtus = {port.name: port.mtu for port in config.vm_ports}
    for port in config.vm_ports:
        if off := _losing(faults, vlans_of(port, learned), port.mtu):
            by_unit[port.name] = off
            by_policy[port.policy] = by_policy.get(port.policy, NONE) | off
    for unit in units:
        if off := _losing(faults, (unit.vlan,), mtus.get(unit.port)):
            by_unit[unit.name] = off
    return KeptOff(by_unit, by_policy)


def _losing(faults: Iterable[PathFault], vlans: Collection[int], mtu: int | None) -> frozenset[str]:
    """Return the uplinks that lose frames of these VLANs, up to this MTU (None: not known).

    A fault of a VLAN has no MTU. An uplink that is cut off, whose fault has no VLAN, is not included.
    """
    return frozenset(
        fault.uplinks[0]
        for fault in faults
        if fault.decided and fault.vlan in vlans and (fault.mtu or 0) <= (mtu or 0)
    )
