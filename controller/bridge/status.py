"""Builds the status of a bridge (`BridgeStatus`) from its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from controller.api.events import UNSUPPORTED, PortCounters
from controller.api.status import BridgeStatus, PortStatus, UplinkStatus
from controller.bridge.bridge import Bridge
from controller.config.values import UplinkConfig, VmPortConfig
from controller.load.team_view import TeamView
from controller.teaming.bindings import Bound
from policies import optimum
from policies.model import IDLE, Load, Reason, Uplink
from policies.presets import PRESETS
from policies.rules import Rule

# Loads for the optimality ratio are averaged over this time.
LATELY_S = 2.0
# The counters of a port for which the switch has reported none.
UNCOUNTED = PortCounters(0, 0.0, *[UNSUPPORTED] * 4)


def status(bridge: Bridge) -> BridgeStatus:
    """Return the current status of a bridge."""
    config, decided_s = bridge.config, bridge.scheduler.last_s
    units = {port.name: _units(bridge, port) for port in config.vm_ports if port.per_address}
    placing = bridge.placing
    team_view, rules, bound = placing.team_view(), placing.rules(), placing.bound
    # The switch does not have the absent ones, so they are unusable.
    absent = (
        Uplink(u.name, u.ofport, team_view.capacity_bps(u), u.role, usable=False)
        for u in config.absent
    )
    configs = (*config.uplinks, *config.absent)
    uplinks = tuple(
        _uplink(bridge, team_view, uplink, of_record, units)
        for uplink, of_record in zip((*team_view.uplinks(), *absent), configs, strict=True)
    )
    utilizations = [one.uplink.utilization_ratio for one in uplinks if one.up]
    return BridgeStatus(
        config=config.asked,
        connected=bridge.connected,
        imbalance_ratio=max(utilizations, default=0.0) - min(utilizations, default=0.0),
        optimality_ratio=_optimality_ratio(team_view),
        uplinks=uplinks,
        ports=tuple(
            _port(bridge, p, bound.get(p.name), _load(team_view, p), rules.get(p.name, {}))
            for p in config.asked.vm_ports
        ),
        not_done=(*config.not_done, *bridge.shaping.impossible(), *bridge.shaping.not_done()),
        moves_planned=_by_reason(bridge.placing.counts.planned),
        moves_applied=_by_reason(bridge.placing.counts.applied),
        moves_refused=_by_reason(bridge.placing.counts.refused),
        last_decision_at=None if decided_s is None else bridge.epoch_s + decided_s,
        buckets=_bucket_counts(bridge, team_view),
        on_normal=bridge.on_normal,
        fallen_back=config.fallen_back,
        budgets_spent=_budgets_spent(bridge, team_view),
        reannounced=bridge.inbound_check.reannounced,
        not_followed=bridge.inbound_check.not_followed,
        connection_hash=bridge.connection_hash.in_use,
        flooded_pps=bridge.flooded.pps,
        repeated_pps=bridge.repeated.pps,
        overruling=len(bridge.overruling),
        path_rounds=_path_counts(bridge, "judged", "void"),
        path_frames=_path_counts(bridge, "arrived", "lost", "full", "hindered", "astray"),
    )


def _path_counts(bridge: Bridge, *results: str) -> dict[str, int]:
    """Count path-check rounds or frames by result. Return an empty dict while path checks are off."""
    return {name: bridge.paths.counts[name] for name in results if bridge.checks_paths}


def _optimality_ratio(team_view: TeamView) -> float:
    """Return the optimality ratio of means over `LATELY_S`, because flow counters are late."""
    window_s = team_view.covered(LATELY_S)
    units = [replace(unit, load=unit.own_load) for unit in team_view.loaded(window_s)]
    return optimum.optimality_ratio(team_view.uplinks(window_s), units)


def _bucket_counts(bridge: Bridge, team_view: TeamView) -> dict[str, dict[str, int]]:
    """Return the number of buckets of each hashed policy on each uplink."""
    bound, found = bridge.placing.on_switch.bound, Counter[tuple[str, str]]()
    for unit in team_view.units():
        if unit.is_bucket and unit.name in bound:
            found[unit.policy, bound[unit.name].uplink] += 1
    names = [uplink.name for uplink in bridge.config.uplinks]
    return {p: {n: found[p, n] for n in names} for p in team_view.in_use}


def _budgets_spent(bridge: Bridge, team_view: TeamView) -> int:
    """Return the number of units that had no move budget left at the last decision."""
    decided_s = bridge.scheduler.last_s
    if decided_s is None:
        return 0
    cooldowns = bridge.scheduler.cooldowns(team_view, decided_s)
    return sum(spent for _, spent in cooldowns.values())


def _uplink(
    bridge: Bridge,
    team_view: TeamView,
    uplink: Uplink,
    config: UplinkConfig,
    units: Mapping[str, dict[str, int]],
) -> UplinkStatus:
    absent = config in bridge.config.absent
    return UplinkStatus(
        uplink=uplink,
        up=not absent and uplink.ofport in bridge.links.ports and bridge.links.up(config),
        counters=bridge.loads.counters.get(uplink.ofport, UNCOUNTED),
        unrelieved=uplink.name in bridge.decision_log.unrelieved,
        link_changes=bridge.links.by_name[uplink.name].changes,
        units=sum(count.get(uplink.name, 0) for count in units.values()) if units else None,
        silent=bridge.links.silent(config),
        decided=bridge.decision_log.decided.get(uplink.name),
        path_faults=tuple(
            (fault, bridge.epoch_s + since_s)
            for fault, since_s in sorted(bridge.paths.since_s.items())
            if uplink.name in fault.uplinks
        ),
        path_hindered=tuple(one for one in bridge.probing.hindrances if one.uplink == uplink.name),
        waits=bridge.links.why_waiting(config),
        absent=absent,
        capacity_guessed=team_view.known_capacity_bps(config) is None,
    )


def _load(team_view: TeamView, port: VmPortConfig) -> Load:
    """Return the current traffic of a VM port.

    A late counter may show more than all uplinks carry. If all traffic of the VM port crosses
    uplinks, the result is limited to the total load of the uplinks.
    """
    if port.counted_by_flows and not team_view.on_normal:
        return team_view.live_load(port)
    load, counted = team_view.loads.port(port.ofport, None), team_view.loads.at(port.ofport)
    if not counted.rates.late or not counted.share.is_whole:
        return load
    carried = sum((uplink.load for uplink in team_view.uplinks()), IDLE)
    return Load(min(load.tx_bps, carried.tx_bps), min(load.rx_bps, carried.rx_bps))


def _port(
    bridge: Bridge, port: VmPortConfig, bound: Bound | None, load: Load, rules: Mapping[Rule, str]
) -> PortStatus:
    planned = bridge.placing.planned.bound.get(port.name) if bridge.observing else None
    return PortStatus(
        port=port,
        uplink=bound.uplink if bound else None,
        load=load,
        reason=_reason(bridge, port, bound),
        bound_at=bridge.epoch_s + bound.since_s if bound else None,
        counters=bridge.loads.counters.get(port.ofport, UNCOUNTED),
        planned_uplink=planned.uplink if planned else None,
        rules={rule.value: how for rule, how in rules.items()},
        shaped_drops=bridge.shaping.drops(port),
        dropped_on_purpose=dict(bridge.dropped.by_port.get(port.name, {})),
        units=_units(bridge, port) if port.per_address else None,
        split=port.name in bridge.scheduler.splits.since_s,
    )


def _reason(bridge: Bridge, port: VmPortConfig, bound: Bound | None) -> str | None:
    """Return the reason for the current uplink of a VM port: split, its policy, or a move.

    A VM port that an earlier policy placed is shown with its current policy, which has kept it there.
    """
    if bound is None:
        return None
    if port.name in bridge.scheduler.splits.since_s:
        return Reason.SPLIT.value
    return port.policy if bound.reason in PRESETS else bound.reason


def _units(bridge: Bridge, port: VmPortConfig) -> dict[str, int]:
    """Return the number of address units behind a VM port on each uplink."""
    bound = bridge.placing.on_switch.bound
    counts = {uplink.name: 0 for uplink in bridge.config.uplinks}
    for unit in bridge.address_units.by_name.values():
        where = bound.get(unit.name) if unit.port == port.name else None
        if where is not None and where.uplink in counts:
            counts[where.uplink] += 1
    return counts


def _by_reason(counter: Counter[Reason]) -> dict[str, int]:
    return {reason.value: counter[reason] for reason in Reason}
