"""The pipeline of a team: every flow and group that its bridge should have from us.

Each feature is a module. Its docstring says which tables it fills and what always holds of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controller.dataplane import (
    announcements,
    binding_groups,
    classify,
    endpoints,
    flooding,
    hashing,
    learning,
    normal,
    output,
    path_probes,
    per_address,
    presence,
    reflection,
    unicast,
)
from controller.dataplane.specs import FlowSpec, Pipeline
from controller.dataplane.team import Team

# No two features have a flow with the same table, priority and match, or a group with the same id.
FLOWS: tuple[Callable[[Team], Iterable[FlowSpec]], ...] = (
    classify.flows,
    learning.flows,
    announcements.flows,
    reflection.flows,
    presence.flows,
    unicast.flows,
    flooding.flows,
    binding_groups.flows,
    hashing.flows,
    per_address.flows,
    endpoints.flows,
    path_probes.flows,
    output.flows,
    normal.flows,
)
GROUPS = (
    presence.groups,
    unicast.groups,
    binding_groups.groups,
    flooding.groups,
    normal.groups,
    hashing.groups,
    per_address.groups,
    endpoints.groups,
)


def build(team: Team) -> Pipeline:
    """The pipeline of a team; a pure function of it."""
    flows = {flow.key: flow for flows_of in FLOWS for flow in flows_of(team)}
    groups = {group.group_id: group for groups_of in GROUPS for group in groups_of(team)}
    return Pipeline(flows, groups)
