"""Desired against installed: the smallest set of changes that makes them equal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from controller.dataplane.flooding import held, is_held, no_flood, opens
from controller.dataplane.specs import EMPTY, Changes, Pipeline

Key = TypeVar("Key")
Spec = TypeVar("Spec")


def changes(desired: Pipeline, installed: Pipeline) -> Changes:
    """What to send so that `installed` becomes `desired`. Equal specs cost nothing."""
    if desired == EMPTY:
        # What is removed need not be encoded.
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
    """The specs that are not installed so. Most are the same objects, which need no comparison."""
    for key, spec in desired.items():
        if (present := installed.get(key)) is not spec and present != spec:
            yield spec


def closing(desired: Pipeline, installed: Pipeline, live: Collection[int]) -> Pipeline:
    """The first step towards `desired`: all changes except those that let more broadcasts in.

    `live`: the numbers of ports that carry traffic.

    The switch applies a change to its flow cache entry by entry. A way that opens before
    the old one closes would deliver a broadcast twice; the other order loses a few. For a VM port
    that is new to the service, NORMAL may have been such a way.

    Flows with a timeout keep the new ways closed, so that they open even if no second step follows: a
    service that ended between the two would leave a VM port without broadcasts.
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
