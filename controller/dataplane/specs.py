"""OpenFlow flows, groups and actions as values: equal specs install the same flow or group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from policies.values import value

COOKIE_PREFIX = 0x6C6274 << 40

MatchValue = int | str | tuple[int, int] | tuple[str, str]
Match = tuple[tuple[str, MatchValue], ...]
Fields = dict[str, MatchValue]
Field = TypeVar("Field", bound=str)


# ---- actions ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    port: int


@dataclass(frozen=True, slots=True)
class ToGroup:
    group_id: int


@dataclass(frozen=True, slots=True)
class SetField:
    field: str
    value: int | str


@dataclass(frozen=True, slots=True)
class CopyBits:
    """Copy `bits` bits of field `source` to field `target`."""

    source: str
    source_bit: int
    target: str
    target_bit: int
    bits: int


@dataclass(frozen=True, slots=True)
class LoadBits:
    """Set `bits` bits of the register `target`, from `target_bit` on, to `value`."""

    target: str
    target_bit: int
    bits: int
    value: int


@dataclass(frozen=True, slots=True)
class PushVlan:
    pass


@dataclass(frozen=True, slots=True)
class PopVlan:
    pass


@dataclass(frozen=True, slots=True)
class Resubmit:
    table: int


@dataclass(frozen=True, slots=True)
class LearnMatch:
    """Makes the learned flow match `target` against the current value of the frame's field `source`."""

    source: str
    target: str
    bits: int


@dataclass(frozen=True, slots=True)
class LearnLoad:
    """Makes the learned flow set `target` to a constant, or to the current value of field `source`."""

    source: str | int
    target: str
    bits: int


@dataclass(frozen=True, slots=True)
class Learn:
    """Add ("learn") a flow to `table`.

    `delete_learned`: delete the learned flow together with the flow that contains this action. `limit`:
    the maximum number of flows with `cookie` in the table; 0: no limit. `success`: the register that
    is set to 1 if the learned flow exists afterwards, else to 0.
    """

    table: int
    cookie: int
    hard_timeout_s: int
    specs: tuple[LearnMatch | LearnLoad, ...]
    delete_learned: bool = False
    priority: int = 10
    limit: int = 0
    success: str | None = None


@dataclass(frozen=True, slots=True)
class Multipath:
    """Hash a frame, and set `target` to the result, a number below `buckets`.

    `fields`: Open vSwitch's name for the hashed fields. `basis` selects one of several hash functions.
    """

    fields: str
    buckets: int
    target: str
    basis: int = 0


@dataclass(frozen=True, slots=True)
class ToController:
    """Send the whole frame to this service, and to no other controller."""


Action = (
    Output
    | ToController
    | ToGroup
    | SetField
    | CopyBits
    | LoadBits
    | PushVlan
    | PopVlan
    | Resubmit
    | Learn
    | Multipath
)
Actions = tuple[Action, ...]


# ---- specs -----------------------------------------------------------------------------


@value(frozen=True, slots=True, weakref_slot=True)
class FlowSpec:
    """A flow, identified by (table, priority, match)."""

    table: int
    priority: int
    match: Match
    actions: Actions = ()
    goto: int | None = None
    cookie: int = COOKIE_PREFIX
    hard_timeout_s: int = 0

    @property
    def key(self) -> tuple[int, int, Match]:
        return (self.table, self.priority, self.match)


@value(frozen=True, slots=True)
class Bucket:
    """A bucket. It is live while the port or group that it watches (required in `ff` groups) is live."""

    actions: Actions
    watch_port: int | None = None
    watch_group: int | None = None


@value(frozen=True, slots=True, weakref_slot=True)
class GroupSpec:
    """A group. `kind`: `ff` (fast failover: the first live bucket), `all`, or `select` (hashed)."""

    group_id: int
    kind: str
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All ovs-lbt flows and groups that a bridge should have, or has."""

    flows: Mapping[tuple[int, int, Match], FlowSpec]
    groups: Mapping[int, GroupSpec]


EMPTY = Pipeline({}, {})


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes in one bundle, in the order in which the switch makes them.

    Groups are added before the flows that use the groups, and deleted after those flows: deleting a group
    would delete the flows as well. `clear`: delete all flows with our cookie, including learned flows.
    """

    add_groups: tuple[GroupSpec, ...] = ()
    modify_groups: tuple[GroupSpec, ...] = ()
    add_flows: tuple[FlowSpec, ...] = ()
    delete_flows: tuple[FlowSpec, ...] = ()
    delete_groups: tuple[int, ...] = ()
    clear: bool = False

    def __post_init__(self) -> None:
        kept = {group.group_id for group in (*self.add_groups, *self.modify_groups)}
        assert kept.isdisjoint(self.delete_groups), "no group is added and deleted in one bundle"

    def __len__(self) -> int:
        """Return the number of messages: 0 without changes, so that the object is then false."""
        groups = (*self.add_groups, *self.modify_groups, *self.delete_groups)
        return len(groups) + len(self.add_flows) + len(self.delete_flows) + self.clear


def flow(
    table: int,
    priority: int,
    fields: Mapping[Field, MatchValue],
    *actions: Action,
    goto: int | None = None,
    cookie: int = COOKIE_PREFIX,
    hard_timeout_s: int = 0,
) -> FlowSpec:
    """Return a flow in `table` for frames that match `fields`."""
    match = tuple(sorted(fields.items()))
    return FlowSpec(table, priority, match, actions, goto, cookie, hard_timeout_s)
