"""Finds other programs' flows and groups that conflict with ours."""

from __future__ import annotations

from controller.api.events import InstalledRead
from controller.dataplane.specs import ToGroup
from controller.dataplane.tables import GROUP_IDS, Table
from controller.text.wording import first_of

# Our flows in table 0 with this or a higher priority match every frame from a known port. Other programs'
# flows with a lower priority never match such frames, but may handle frames from unknown ports.
CLASSIFY_PRIORITY = 90
# On plain uplinks, we drop frames from unknown ports, so flows with a lower priority have no effect.
CLASSIFY_PRIORITY_ON_PLAIN_UPLINKS = 1
OUR_TABLES = range(Table.CLASSIFY + 1, len(Table))


def obstacles(read: InstalledRead, on_bond: bool) -> str:
    """Describe how other programs' flows and groups conflict with our pipeline, and what to do.

    Return an empty text if there is no conflict.
    """
    found, remedies = list[str](), list[str]()
    if groups := foreign_groups(read):
        found.append(f"other programs have groups {first_of(groups, between=' ')}")
        remedies.append(f"remove all groups {GROUP_IDS.start} to {GROUP_IDS.stop - 1}")
    if flows := flows_before_ours(read, on_bond):
        lowest = _classify_priority(on_bond)
        ours = f"{OUR_TABLES.start}-{OUR_TABLES.stop - 1}"
        found.append(f"other programs have flows {first_of(flows, between=' ')}")
        remedies.append(
            f"remove all flows in table 0 with priority {lowest} or higher, and in tables {ours}"
        )
    return "; ".join(found + remedies)


def foreign_groups(read: InstalledRead) -> tuple[int, ...]:
    """Return the IDs of groups in our range that belong to other programs.

    Groups have no cookie. Our groups are installed and removed together with our flows that use them,
    in one bundle. So without our flows, no group is ours. Otherwise, a group belongs to another program
    if that program's flows use the group and our flows do not.
    """
    present = sorted(group.group_id for group in read.groups)
    if not read.flows:
        return tuple(present)
    ours = {a.group_id for flow in read.flows for a in flow.actions if isinstance(a, ToGroup)}
    others = {group_id for flow in read.foreign for group_id in flow.groups}
    return tuple(group_id for group_id in present if group_id in others - ours)


def flows_before_ours(read: InstalledRead, on_bond: bool) -> list[str]:
    """Return descriptions of other programs' flows that take precedence over ours."""
    lowest = _classify_priority(on_bond)
    return [
        f"table={flow.table},priority={flow.priority}" + (f",{flow.match}" if flow.match else "")
        for flow in sorted(read.foreign, key=lambda f: (f.table, -f.priority, f.match))
        if flow.table in OUR_TABLES or (flow.table == Table.CLASSIFY and flow.priority >= lowest)
    ]


def _classify_priority(on_bond: bool) -> int:
    return CLASSIFY_PRIORITY if on_bond else CLASSIFY_PRIORITY_ON_PLAIN_UPLINKS
