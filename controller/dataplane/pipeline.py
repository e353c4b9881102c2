"""The pipeline of a team: every flow and group that its bridge should have from us.

Each feature is a module. Its docstring says which tables it fills and what always holds of them.
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

# No two features have a flow with the same table, priority and match, or a group with the same id.
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
    """The pipeline of a team; a pure function of it.

    `before`: another team and its pipeline, built earlier. A move changes no flow, so if the teams
    differ only in where their units are, the flows are those of that pipeline: the same object.
    """
    flows: Mapping[tuple[int, int, Match], FlowSpec]
    if (
        before
        and team.unheard != before[0].unheard
        and replace(before[0], unheard=team.unheard) == team
    ):
        # A flood changes that several times a second, which must not cost the time for all flows.
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
    """All that flows depend on: which uplinks a unit may use, and not which one it uses first."""
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
