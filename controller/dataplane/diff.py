"""Computes the smallest set of changes from the installed to the desired flows and groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from controller.dataplane.flooding import held, is_held, no_flood, opens
from controller.dataplane.specs import EMPTY, Changes, Pipeline

Key = TypeVar("Key")
Spec = TypeVar("Spec")


def changes(desired: Pipeline, installed: Pipeline) -> Changes:
    """The changes that turn `installed` into `desired`. Equal flows and groups are not changed."""
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
    """The specs that differ from the installed ones. Most are the same objects, and not compared."""
    for key, spec in desired.items():
        if (present := installed.get(key)) is not spec and present != spec:
            yield spec


def closing(desired: Pipeline, installed: Pipeline, live: Collection[int]) -> Pipeline:
    """The pipeline of the first step to `desired`: it does not yet accept broadcasts on new uplinks.

    `live`: the ofports of ports that carry traffic.

    The switch applies a change to its flow cache entry by entry. If it accepted frames from a new uplink
    before it drops those from the old one, broadcasts would be delivered twice; in the other order, a few
    are lost. For a VM port that is new to the service, NORMAL may have delivered broadcasts before.

    Flows with a timeout drop broadcasts from the new uplinks. So a VM port receives broadcasts even if
    the service ends before the second step.
    """
    if desired.groups is installed.groups:
        return desired
    before = dict(installed.groups)
    if (new := desired.groups.keys() - before.keys()) and no_flood(installed) is not None:
        before.update({group_id: replace(desired.groups[group_id], buckets=()) for group_id in new})
    opened = [
        group
        for group_id, group in desired.groups.items()
        if group_id in before
        and before[group_id] is not group
        and opens(before[group_id], group, live)
    ]
    if not (closed := [flow for flow in map(held, opened) if flow]):
        return desired
    closed += [flow for flow in installed.flows.values() if is_held(flow)]
    return Pipeline({**desired.flows, **{flow.key: flow for flow in closed}}, desired.groups)
