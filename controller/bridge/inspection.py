"""Finds flows and groups of other programs that conflict with ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.api.events import ForeignFlow, InstalledRead
from controller.dataplane.specs import ToGroup
from controller.dataplane.tables import GROUP_IDS, Table

# From this priority up, our flows in table 0 match every frame of a known port. Flows of others
# with a lower priority never see such frames, but they may handle unknown ports.
CLASSIFY_PRIORITY = 90
# On plain uplinks we drop frames from unknown ports, so flows with a lower priority do not matter.
CLASSIFY_PRIORITY_ON_PLAIN_UPLINKS = 1
OUR_TABLES = range(Table.CLASSIFY + 1, len(Table))
NAMED_AT_MOST = 3


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Flows or groups of other programs that conflict with ours: the problem, and what to do."""

    found: str
    expected: str


def obstacles(read: InstalledRead, on_bond: bool) -> tuple[Obstacle, ...]:
    """Flows and groups of other programs that conflict with our pipeline; empty if there are none."""
    found = []
    if groups := foreign_groups(read):
        ids = f"{GROUP_IDS.start} to {GROUP_IDS.stop - 1}"
        found.append(
            Obstacle(f"other programs have groups {named(groups)}", f"remove all groups {ids}")
        )
    if flows := flows_before_ours(read, on_bond):
        lowest = _classify_priority(on_bond)
        ours = f"{OUR_TABLES.start}-{OUR_TABLES.stop - 1}"
        remedy = f"remove all flows in table 0 from priority {lowest} up, and in tables {ours}"
        found.append(Obstacle(f"other programs have flows {named(flows)}", remedy))
    return tuple(found)


def foreign_groups(read: InstalledRead) -> tuple[int, ...]:
    """The groups in our range that belong to other programs.

    Groups carry no mark. Ours are installed and removed together with our flows that use them, in
    one bundle. So without our flows, no group is ours. Otherwise those are foreign that foreign
    flows use and ours do not.
    """
    present = sorted(group.group_id for group in read.groups)
    if not read.flows:
        return tuple(present)
    ours = {a.group_id for flow in read.flows for a in flow.actions if isinstance(a, ToGroup)}
    others = {group_id for flow in read.foreign for group_id in flow.groups}
    return tuple(group_id for group_id in present if group_id in others - ours)


def flows_before_ours(read: InstalledRead, on_bond: bool) -> list[str]:
    """The flows of other programs that match frames before ours do, in words."""
    lowest = _classify_priority(on_bond)
    return [
        _flow_text(flow)
        for flow in sorted(read.foreign, key=lambda f: (f.table, -f.priority, f.match))
        if flow.table in OUR_TABLES or (flow.table == Table.CLASSIFY and flow.priority >= lowest)
    ]


def _classify_priority(on_bond: bool) -> int:
    return CLASSIFY_PRIORITY if on_bond else CLASSIFY_PRIORITY_ON_PLAIN_UPLINKS


def named(things: Sequence[object]) -> str:
    """The first few, and the number of the rest."""
    words = " ".join(str(thing) for thing in things[:NAMED_AT_MOST])
    more = len(things) - NAMED_AT_MOST
    return f"{words} and {more} more" if more > 0 else words


def _flow_text(flow: ForeignFlow) -> str:
    match = f",{flow.match}" if flow.match else ""
    return f"table={flow.table},priority={flow.priority}{match}"
