"""Builds the OpenFlow pipeline of a team: all our flows and groups on the bridge.

Each feature is a module. The module's docstring lists its tables, groups and invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

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
from controller.dataplane.specs import FlowSpec, Match, Pipeline
from controller.dataplane.team import Team

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

    `before`: an earlier team and its pipeline. A move changes no flow, so if the teams differ only in
    the uplinks in use of their units, the `flows` object of the earlier pipeline is used again.
    """
    flows: Mapping[tuple[int, int, Match], FlowSpec]
    if (
        before
        and team.unheard != before[0].unheard
        and replace(before[0], unheard=team.unheard) == team
    ):
        # During a flood, `unheard` changes several times a second, so only these flows are built.
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
    """All that flows depend on: the uplinks that units may use, but not which uplinks are in use."""
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
