"""The team that a bridge shall be on its switch, from its configuration and bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane.tables import ASSIGNED
from controller.dataplane.team import Team, VmPort
from controller.teaming import buckets
from controller.teaming.stations import Station, of_team
from policies.model import Unit, Uplink


def team(
    config: BridgeConfig,
    units: Iterable[Unit],
    order: Callable[[Unit], Sequence[Uplink]],
    homes: Mapping[str, str],
    no_flood: frozenset[int],
    stations: Iterable[Station] = (),
) -> Team:
    """`order`: the uplinks of a unit, the one in force first. `homes`: where units belong."""
    units = list(units)
    orders = {unit.name: tuple(order(unit)) for unit in units if not unit.is_bucket}
    vm_ports = tuple(
        VmPort(
            ofport=port.ofport,
            order=tuple(uplink.ofport for uplink in orders[port.name]),
            vlans=port.vlans,
            attached_macs=port.attached_macs,
            forges=port.forges,
            hashed=_hashed(port),
        )
        for port in config.vm_ports
    )
    return Team(
        uplinks=tuple(uplink.ofport for uplink in config.uplinks),
        vm_ports=vm_ports,
        hears_everywhere=config.on_a_lag,
        over_normal=config.on_bond,
        uplink_vlans={uplink.ofport: uplink.vlans for uplink in config.uplinks},
        normal_takes_any=config.bond_mode == "balance-slb" and not config.on_a_lag,
        no_flood=no_flood,
        hashes=buckets.hashes(config, units, order, homes),
        off_home_macs={} if config.on_a_lag else buckets.off_home_macs(config),
        stations=tuple(of_team(stations, config, orders, homes)),
    )


def _hashed(port: VmPortConfig) -> int | None:
    if port.parted:
        return ASSIGNED
    policy = buckets.hashed_by(port)
    return None if policy is None else buckets.number_of(policy)
