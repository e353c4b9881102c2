"""Builds a team's OpenFlow pipeline (all our flows and groups on the bridge), and computes changes.

Each feature is a module. The module's docstring lists the feature's tables, groups and invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from controller.dataplane import (
    classify,
    endpoints,
    flooding,
    hashing,
    learning,
    normal,
    output,
    path_probes,
    per_address,
    reflection,
    unicast,
)
from controller.dataplane.specs import EMPTY, Changes, FlowSpec, Match, Pipeline
from controller.dataplane.tables import Table
from controller.dataplane.team import Team

Key = TypeVar("Key")
Spec = TypeVar("Spec")

# Different features must not have flows with the same table, priority and match, or the same group ID.
FLOWS: tuple[Callable[[Team], Iterable[FlowSpec]], ...] = (
    classify.flows,
    learning.flows,
    reflection.flows,
    unicast.flows,
    flooding.flows,
    hashing.flows,
    per_address.flows,
    endpoints.flows,
    path_probes.flows,
    output.flows,
    normal.flows,
)
GROUPS = (
    reflection.groups,
    unicast.groups,
    hashing.binding_groups,
    flooding.groups,
    normal.groups,
    hashing.groups,
    per_address.groups,
    endpoints.groups,
)


def build(team: Team, before: tuple[Team, Pipeline] | None = None) -> Pipeline:
    """Build the pipeline of a team. The result depends only on the team.

    `before`: an earlier team and its pipeline. A move changes no flow: if the teams differ only in
    which uplinks their units use, the `flows` object of the earlier pipeline is reused.
    """
    flows: Mapping[tuple[int, int, Match], FlowSpec]
    if (
        before
        and team.unheard != before[0].unheard
        and replace(before[0], unheard=team.unheard) == team
    ):
        # During a flood, `unheard` changes several times a second, so only path-check flows are built.
        replaced = {flow.key for flow in path_probes.flows(before[0])}
        flows = {key: flow for key, flow in before[1].flows.items() if key not in replaced}
        flows |= {flow.key: flow for flow in path_probes.flows(team)}
        return Pipeline(flows, before[1].groups)
    if before is not None and _besides_places(before[0]) == _besides_places(team):
        flows = before[1].flows
    else:
        flows = {flow.key: flow for flows_of in FLOWS for flow in flows_of(team)}
    groups = {group.group_id: group for groups_of in GROUPS for group in groups_of(team)}
    return Pipeline(flows, groups)


def _besides_places(team: Team) -> tuple[object, ...]:
    """Return what a team's flows depend on. The uplinks that units use now are not part of it."""
    vm_ports = [replace(port, order=()) for port in team.vm_ports]
    hashes = [(made.number, made.classifier, len(made.buckets)) for made in team.hashes]
    addresses = [replace(address, order=()) for address in team.addresses]
    reach = (
        [frozenset(port.order) for port in team.vm_ports],
        [frozenset().union(*made.buckets) for made in team.hashes],
        [frozenset(address.order) for address in team.addresses],
    )
    others = replace(team, vm_ports=(), hashes=(), addresses=())
    return vm_ports, hashes, addresses, reach, others


def changes(desired: Pipeline, installed: Pipeline) -> Changes:
    """Return the changes that turn `installed` into `desired`; none for equal flows and groups."""
    if desired == EMPTY:
        # `clear` deletes all flows, so that they need not be encoded.
        return Changes(delete_groups=tuple(installed.groups), clear=bool(installed.flows))
    groups = list(_differing(desired.groups, installed.groups))
    same_flows = desired.flows is installed.flows
    deleted = () if same_flows else (k for k in installed.flows if k not in desired.flows)
    return Changes(
        add_groups=tuple(g for g in groups if g.group_id not in installed.groups),
        modify_groups=tuple(g for g in groups if g.group_id in installed.groups),
        add_flows=() if same_flows else tuple(_differing(desired.flows, installed.flows)),
        delete_flows=tuple(installed.flows[key] for key in deleted),
        delete_groups=tuple(i for i in installed.groups if i not in desired.groups),
    )


def _differing(desired: Mapping[Key, Spec], installed: Mapping[Key, Spec]) -> Iterator[Spec]:
    """Yield the desired specs that differ from the installed ones. Most are the same objects."""
    for key, spec in desired.items():
        if (present := installed.get(key)) is not spec and present != spec:
            yield spec


def opening(desired: Pipeline, installed: Pipeline) -> Pipeline | None:
    """Return the pipeline of a step that accepts unicast on all uplinks before moves; None if not needed.

    As soon as a VM port sends frames out on another uplink, upstream switches may send unicast there. So
    the switch must have applied this step to its flow cache before moves.
    """
    dropping = (f.key for f in installed.flows.values() if f.table == Table.INBOUND and f.actions)
    opened = {key: f for key in dropping if (f := desired.flows.get(key)) and not f.actions}
    return Pipeline({**installed.flows, **opened}, installed.groups) if opened else None


def closing(desired: Pipeline, installed: Pipeline, live: Collection[int]) -> Pipeline:
    """Return the pipeline of the first step towards `desired`, without broadcasts from new uplinks.

    `live`: the ofports of ports that carry traffic.

    The switch applies a change to its flow cache entry by entry. If it accepted frames from a new uplink
    before it dropped those from the old one, broadcasts would arrive twice; in the other order, a few are
    lost. For a VM port that is new to the service, NORMAL may have delivered broadcasts so far.

    Flows with a timeout drop broadcasts from the new uplinks. So a VM port receives broadcasts even if
    the service ends before the second step.
    """
    if desired.groups is installed.groups:
        return desired
    before = dict(installed.groups)
    if (new := desired.groups.keys() - before.keys()) and flooding.no_flood(installed) is not None:
        before.update({group_id: replace(desired.groups[group_id], buckets=()) for group_id in new})
    opened = [
        group
        for group_id, group in desired.groups.items()
        if group_id in before
        and before[group_id] is not group
        and flooding.opens(before[group_id], group, live)
    ]
    if not (closed := [flow for flow in map(flooding.held, opened) if flow]):
        return desired
    closed += [flow for flow in installed.flows.values() if flooding.is_held(flow)]
    return Pipeline({**desired.flows, **{flow.key: flow for flow in closed}}, desired.groups)
