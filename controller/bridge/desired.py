"""The team that the pipeline and the queues of a bridge are built from, given its bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane.tables import ASSIGNED
from controller.dataplane.team import Team, VmPort
from controller.teaming import buckets
from controller.teaming.address_units import AddressUnit, of_team
from controller.teaming.own_addresses import probe_group, question_macs
from policies import failover
from policies.model import OfPort, Unit, Uplink


def team(
    config: BridgeConfig,
    split: frozenset[str],
    units: Iterable[Unit],
    order: Callable[[Unit], Sequence[Uplink]],
    homes: Mapping[str, str],
    no_flood: frozenset[int],
    address_units: Iterable[AddressUnit] = (),
    dp_hash: bool = False,
    uplinks: Sequence[Uplink] = (),
    probe_macs: Mapping[OfPort, str] = MappingProxyType({}),
    unheard: frozenset[tuple[OfPort, bool]] = frozenset(),
) -> Team:
    """The team that the pipeline is built from.

    `split`: the VM ports whose frames the switch spreads. `order`: the uplinks that a unit may use,
    the one in force first. `homes`: the home of each unit, by name. `no_flood`: the ofports with the
    flag `no-flood`. `dp_hash`: whether the switch has the group that hashes connections. `uplinks`:
    the team as it is now. `probe_macs`: the addresses of probes, where paths are checked.
    `unheard`: the frames of path checks that the switch drops now.
    """
    units = list(units)
    orders = {unit.name: tuple(order(unit)) for unit in units if not unit.is_bucket}
    endpoints = tuple(buckets.endpoints(config))
    vm_ports = tuple(
        VmPort(
            ofport=port.ofport,
            order=tuple(uplink.ofport for uplink in orders[port.name]),
            vlans=port.vlans,
            attached_macs=port.attached_macs,
            forges=port.forges,
            trusted=port.trusted,
            hashed=_hashed(port, split),
        )
        for port in config.vm_ports
    )
    return Team(
        uplinks=tuple(uplink.ofport for uplink in config.uplinks),
        vm_ports=vm_ports,
        hears_everywhere=config.on_a_lag,
        over_normal=config.on_bond,
        strangers=bool(config.missing),
        forwards_bpdu=config.forwards_bpdu,
        uplink_vlans={uplink.ofport: uplink.vlans for uplink in config.uplinks},
        normal_takes_any=config.bond_mode == "balance-slb" and not config.on_a_lag,
        no_flood=no_flood,
        hashes=buckets.hashes(config, split, units, order, homes),
        off_home_macs={} if config.on_a_lag else buckets.off_home_macs(config, split),
        addresses=tuple(of_team(address_units, config, orders, homes)),
        dp_hash=dp_hash,
        endpoints=endpoints,
        lanes=lanes(uplinks) if endpoints else {},
        probe_macs=probe_macs,
        question_macs=question_macs(config) if probe_macs and config.path_check_targets else {},
        probe_group=probe_group(config) if probe_macs else "",
        unheard=unheard,
    )


def lanes(uplinks: Sequence[Uplink]) -> dict[OfPort, tuple[OfPort, ...]]:
    """For the off-home addresses of each uplink, the uplinks that serve them, the one in use first."""
    return {
        own.ofport: tuple(
            u.ofport
            for u in failover.usable_first(
                failover.order(own.name, own.name, uplinks, failover.as_configured)
            )
        )
        for own in uplinks
    }


def _hashed(port: VmPortConfig, split: frozenset[str]) -> int | None:
    if port.per_address:
        return ASSIGNED
    policy = buckets.hashed_by(port, split)
    return None if policy is None else buckets.number_of(policy)
