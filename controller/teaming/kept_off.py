"""The uplinks that lose frames of single VLANs, or long ones, and the units that are kept off them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from controller.config.values import BridgeConfig
from controller.teaming.address_units import AddressUnit
from controller.teaming.path_plan import Learned, vlans_of
from policies.path_faults import Fault, PathFault

NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KeptOff:
    """The uplinks that units must not use while others carry traffic.

    `by_unit`: of VM ports and of addresses behind them, by name; those without are left out.
    `by_policy`: of the buckets of each policy, which all its VM ports share.
    """

    by_unit: Mapping[str, frozenset[str]] = field(default_factory=dict)
    by_policy: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def uplinks_of(self, unit: str) -> frozenset[str]:
        return self.by_unit.get(unit, NONE)

    def of_buckets(self, policy: str) -> frozenset[str]:
        return self.by_policy.get(policy, NONE)


NOTHING = KeptOff()


def of_team(
    config: BridgeConfig,
    faults: Iterable[PathFault],
    learned: Learned,
    units: Iterable[AddressUnit],
) -> KeptOff:
    """What follows from path faults. `learned`: the addresses of VM ports. `units`: those with uplinks
    of their own.
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
    """The uplinks that lose frames of these VLANs, up to this MTU (None: not known)."""
    return frozenset(
        fault.uplinks[0]
        for fault in faults
        if fault.decided
        and fault.vlan in vlans
        and (
            fault.kind is Fault.VLAN or (fault.kind is Fault.MTU and (fault.mtu or 0) <= (mtu or 0))
        )
    )
