"""Flows and groups as values: two specs that are equal install the same flow or group."""

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
    """Copy `bits` bits of one field to another."""

    source: str
    source_bit: int
    target: str
    target_bit: int
    bits: int


@dataclass(frozen=True, slots=True)
class LoadBits:
    """Set `bits` bits of a register."""

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
    """The learned flow matches `target` on the frame's present value of `source`."""

    source: str
    target: str
    bits: int


@dataclass(frozen=True, slots=True)
class LearnLoad:
    """The learned flow loads a constant, or the frame's present value of a field."""

    source: str | int
    target: str
    bits: int


@dataclass(frozen=True, slots=True)
class Learn:
    """Add a flow to `table`. `delete_learned`: the learned flow is deleted together with the flow
    that has this action.

    `limit`: no new one is added where the table has that many with this cookie; 0: no
    limit. `success`: a register that becomes 1 if the flow is there afterwards, else 0.
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
    """Hash a frame's `fields`, named as Open vSwitch does, to a number below `buckets`.

    Another `basis` makes another hash of the same fields.
    """

    fields: str
    buckets: int
    target: str
    basis: int = 0


@dataclass(frozen=True, slots=True)
class ToController:
    """Give the whole frame to this service, and to no other controller."""


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


@value(frozen=True, slots=True)
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
    """A group's bucket. It is live while the watched port is; None: it watches none (only in ALL groups)."""

    actions: Actions
    watch_port: int | None = None
    watch_group: int | None = None


@value(frozen=True, slots=True)
class GroupSpec:
    """`kind` is `ff` (fast failover: the first live bucket), `all`, or `select` (one by a hash)."""

    group_id: int
    kind: str
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All flows and groups that a bridge should have from us."""

    flows: Mapping[tuple[int, int, Match], FlowSpec]
    groups: Mapping[int, GroupSpec]


EMPTY = Pipeline({}, {})


@dataclass(frozen=True, slots=True)
class Changes:
    """What one bundle does, in the order of its fields.

    Groups come before the flows that use them and go after them: deleting a group deletes
    the flows that point to it. `clear`: delete all our flows, also learned ones, by their cookie.
    """

    add_groups: tuple[GroupSpec, ...] = ()
    modify_groups: tuple[GroupSpec, ...] = ()
    add_flows: tuple[FlowSpec, ...] = ()
    delete_flows: tuple[FlowSpec, ...] = ()
    delete_groups: tuple[int, ...] = ()
    clear: bool = False

    def __post_init__(self) -> None:
        kept = {group.group_id for group in (*self.add_groups, *self.modify_groups)}
        assert kept.isdisjoint(self.delete_groups), "no group comes and goes in one bundle"

    def __len__(self) -> int:
        """The number of messages. Without any, there are no changes: the value is false."""
        groups = (*self.add_groups, *self.modify_groups, *self.delete_groups)
        return len(groups) + len(self.add_flows) + len(self.delete_flows) + self.clear


def match(**fields: MatchValue) -> Match:
    return tuple(sorted(fields.items()))


def flow(
    table: int,
    priority: int,
    fields: Mapping[Field, MatchValue],
    *actions: Action,
    goto: int | None = None,
    cookie: int = COOKIE_PREFIX,
) -> FlowSpec:
    """A flow for frames with these fields: a row of a table of the pipeline."""
    return FlowSpec(table, priority, tuple(sorted(fields.items())), actions, goto, cookie)
