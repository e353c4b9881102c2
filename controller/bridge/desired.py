"""Builds the desired team of a bridge from the bridge's bindings, as input for building the pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from controller.config.values import VmPortConfig
from controller.dataplane.tables import ASSIGNED
from controller.dataplane.team import Team, VmPort
from controller.teaming import buckets
from controller.teaming.address_units import of_team
from controller.teaming.bindings import Bindings, ordered
from controller.teaming.own_addresses import probe_group, probe_macs, question_macs
from policies import failover
from policies.model import IDLE, OfPort, Unit, Uplink

if TYPE_CHECKING:
    from controller.bridge.bridge import Bridge


def desired_team(bridge: Bridge, of: Bindings) -> Team | None:
    """Return the team for building the pipeline with bindings `of`; None if there should be no pipeline.

    A bridge that is being detached or handed over to NORMAL keeps its pipeline until NORMAL floods
    to all ports again.
    """
    config, placing = bridge.config, bridge.placing
    given_back = bridge.interrupted or bridge.no_flood.given_back
    if not config.forwards or (not bridge.serves and (not bridge.installed_anything or given_back)):
        return None
    uplinks, units, split = _links(bridge), placing.units_on_switch, placing.split_on_switch

    def order(unit: Unit) -> tuple[Uplink, ...]:
        """Return the uplinks that a unit can use, the current one first."""
        parts = of.whereabouts(unit), unit, uplinks
        return placing.reused.reuse("order", unit.name, ordered, parts)

    orders = {unit.name: order(unit) for unit in units if not unit.is_bucket}
    address_units = bridge.address_units.by_name.values()
    macs = probe_macs(config) if bridge.checks_paths else {}
    endpoints = tuple(buckets.endpoints(config))
    return Team(
        uplinks=tuple(uplink.ofport for uplink in config.uplinks),
        vm_ports=tuple(
            bridge.inbound_check.known(_vm_port(p, orders[p.name], split)) for p in config.vm_ports
        ),
        hears_everywhere=config.on_a_lag,
        over_normal=config.on_bond,
        strangers=bool(config.missing),
        forwards_bpdu=config.forwards_bpdu,
        snoops=config.snoops,
        uplink_vlans={uplink.ofport: uplink.vlans for uplink in config.uplinks},
        normal_takes_any=config.bond_mode == "balance-slb" and not config.on_a_lag,
        no_flood=(bridge.no_flood.ports if bridge.serves else None) or frozenset(),
        hashes=buckets.hashes(config, split, units, order, of.homes),
        off_home_macs={} if config.on_a_lag else buckets.off_home_macs(config, split),
        addresses=tuple(of_team(address_units, config, orders, of.homes)),
        dp_hash=bridge.connection_hash.by_dp_hash,
        endpoints=endpoints,
        lanes=_lanes(uplinks) if endpoints else {},
        probe_macs=macs,
        question_macs=question_macs(config) if macs and config.path_check_targets else {},
        probe_group=probe_group(config) if macs else "",
        unheard=frozenset(bridge.paths.foreign.dropped),
    )


def _links(bridge: Bridge) -> tuple[Uplink, ...]:
    """Return the uplinks without loads: the same object until a link, role or speed changes."""
    placing = bridge.placing
    idle = tuple(uplink.carrying(IDLE, reserved_bps=0.0) for uplink in placing.uplinks())
    return placing.reused.reuse("links", "", tuple, (idle,))


def _vm_port(port: VmPortConfig, order: Iterable[Uplink], split: frozenset[str]) -> VmPort:
    """Convert a VM port for the pipeline. `split`: the VM ports that are split on the switch."""
    policy = buckets.hashed_by(port, split)
    hashed = None if policy is None else buckets.number_of(policy)
    return VmPort(
        ofport=port.ofport,
        order=tuple(uplink.ofport for uplink in order),
        vlans=port.vlans,
        attached_macs=port.attached_macs,
        forges=port.forges,
        trusted=port.trusted,
        hashed=ASSIGNED if port.per_address else hashed,
    )


def _lanes(uplinks: Sequence[Uplink]) -> dict[OfPort, tuple[OfPort, ...]]:
    """Return the uplinks that serve each uplink's off-home addresses, the current one first."""
    found = {}
    for own in uplinks:
        order = failover.order(own.name, own.name, uplinks, failover.as_configured)
        found[own.ofport] = tuple(uplink.ofport for uplink in failover.usable_first(order))
    return found
