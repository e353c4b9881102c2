"""A change that waits to be confirmed, as the database keeps it: what was changed, and how to undo it.

The key `unconfirmed` of the bridge holds it, also while the bridge is not attached. So a service
that starts, or a command that runs without a service, can read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Any

from controller.api.commands import MOST_CONFIRM_S
from controller.api.engine_commands import Setting
from controller.config.keys import BRIDGE_KEYS
from controller.config.kinds import LAST_S
from controller.config.rows import PREFIX, BridgeRow
from controller.text.wording import Refused, quoted

UNCONFIRMED = PREFIX + "unconfirmed"
# A change is reverted this much after the time to confirm it has passed. So a confirmation that
# was given in time is in the database before anybody looks whether there is one.
GRACE_S = 1.0
# What attach writes anew. It must see the bridge as it is then.
_ANEW = ("before", "no-flood-before", "team", "unconfirmed")
# What the service writes on interfaces of an attached bridge.
_OF_SERVICE = (PREFIX + "binding", PREFIX + "moved")


class What(StrEnum):
    """The kinds of changes that can wait to be confirmed."""

    ATTACH = "attach"
    DETACH = "detach"
    SET = "set"


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A change that is reverted unless it is confirmed.

    `until_s`: until when it can be confirmed, since the epoch. `seconds`: how long it could be from
    the start; a wrong clock does not make that longer. `back`: the settings from before.
    `linked`: of plain uplinks, those that had a link before. `begun`: it is being reverted.
    """

    what: What
    until_s: float
    seconds: float
    back: tuple[Setting, ...] = ()
    linked: tuple[str, ...] = ()
    begun: bool = False

    def __post_init__(self) -> None:
        assert self.seconds > 0.0, "there is time to confirm a change"

    def is_same(self, other: Unconfirmed) -> bool:
        """Whether both are the same change, reverted or not."""
        return (self.what, self.until_s, self.back) == (other.what, other.until_s, other.back)

    def left_s(self, epoch_now_s: float) -> float:
        """How long it can still be confirmed, by the wall clock."""
        return min(max(self.until_s - epoch_now_s, 0.0), self.seconds)

    def as_setting(self, bridge: str) -> Setting:
        return Setting("Bridge", bridge, UNCONFIRMED, as_text(self))


def as_text(change: Unconfirmed) -> str:
    """The value of the key."""
    fields: dict[str, Any] = {
        "what": change.what.value,
        "until": round(change.until_s, 3),
        "seconds": change.seconds,
        "back": [[s.table, s.record, s.key, s.value] for s in change.back],
    }
    if change.linked:
        fields["linked"] = list(change.linked)
    if change.begun:
        fields["begun"] = True
    return json.dumps(fields, separators=(",", ":"))


def parse(text: str) -> Unconfirmed:
    """Parse the value of the key.

    Raises:
        ValueError: the service did not write this.
    """
    try:
        found = json.loads(text)
        back = tuple(_setting(*one) for one in found["back"])
        linked = tuple(str(name) for name in found.get("linked", ()))
        until_s, seconds = float(found["until"]), float(found["seconds"])
        what, begun = What(found["what"]), bool(found.get("begun", False))
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(text) from error
    if not (0 <= until_s <= LAST_S and 0 < seconds <= MOST_CONFIRM_S):
        raise ValueError(text)
    return Unconfirmed(what, until_s, seconds, back, linked, begun)


def _setting(table: Any, record: Any, key: Any, value: Any) -> Setting:
    """A setting to restore. Only keys of ovs-lbt are accepted, because any program can write the value."""
    words = (table, record, key, *(() if value is None else (value,)))
    if not all(isinstance(word, str) for word in words) or not key.startswith(PREFIX):
        raise ValueError(key)
    if table not in ("Bridge", "Port", "Interface"):
        raise ValueError(table)
    return Setting(table, record, key, value)


def of(row: BridgeRow) -> Unconfirmed | None:
    """The change of a bridge that waits to be confirmed; None if the service wrote none there."""
    text = row.external_ids.get(UNCONFIRMED)
    try:
        return None if text is None else parse(text)
    except ValueError:
        return None


# ---- what was there before, and how to restore it ---------------------------------------


def keys_of(row: BridgeRow) -> tuple[Setting, ...]:
    """All our keys of a bridge's records."""
    return tuple(
        Setting(table, record, key, value)
        for (table, record), ids in _records(row).items()
        for key, value in sorted(ids.items())
        if key.startswith(PREFIX) and key != UNCONFIRMED
    )


def _records(row: BridgeRow) -> dict[tuple[str, str], Mapping[str, str]]:
    """The external_ids of a bridge, its ports and their interfaces, by table and name."""
    found = {("Bridge", row.name): row.external_ids}
    for port in row.ports:
        found["Port", port.name] = port.external_ids
        found |= {("Interface", i.name): i.external_ids for i in port.interfaces}
    return found


def before_attach(row: BridgeRow) -> tuple[Setting, ...]:
    """The settings that an attach replaces. It does not change those of uplinks and VM ports."""
    return tuple(s for s in keys_of(row) if s.table == "Bridge" or s.key in _OF_SERVICE)


def before_set(row: BridgeRow, settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """The present values of what these settings change."""
    ids = _records(row)

    def before(s: Setting) -> str | None:
        if s.column == "fail_mode":
            return row.fail_mode
        return ids.get((s.table, s.record), {}).get(s.key) if s.column == "external_ids" else None

    return tuple(replace(s, value=before(s)) for s in settings)


def values(change: Unconfirmed) -> dict[str, str]:
    """The keys with which a bridge is attached again, without their prefix."""
    names = {s.key.removeprefix(PREFIX): s.value for s in change.back if s.table == "Bridge"}
    return {
        name: value
        for name, value in names.items()
        if value is not None and name in BRIDGE_KEYS and name not in _ANEW
    }


def restored(change: Unconfirmed, row: BridgeRow) -> tuple[Setting, ...]:
    """The settings from before, as far as their records exist."""
    there = _records(row)
    return tuple(s for s in change.back if (s.table, s.record) in there)


def missing(change: Unconfirmed, row: BridgeRow) -> tuple[Setting, ...]:
    """The settings from before that a detach has removed, besides those of `values`.

    Settings made since then stay.
    """
    present = {s.place for s in keys_of(row)}
    attached_with = {PREFIX + name for name in (*values(change), *_ANEW)}
    return tuple(
        s
        for s in restored(change, row)
        if s.place not in present and not (s.table == "Bridge" and s.key in attached_with)
    )


def merged(*several: Iterable[Setting]) -> tuple[Setting, ...]:
    """Settings for one transaction. If several set one key, the last one counts."""
    return tuple({s.place: s for s in chain(*several)}.values())


def as_json(rows: Mapping[str, BridgeRow], epoch_now_s: float) -> list[dict[str, Any]]:
    """The changes of these bridges that wait to be confirmed, for `show`."""
    return [
        {
            "bridge": name,
            "change": change.what.value,
            "until": change.until_s,
            "left_s": round(change.left_s(epoch_now_s), 1),
        }
        for name, row in sorted(rows.items())
        if (change := of(row)) is not None
    ]


def waiting(name: str, change: Unconfirmed, epoch_now_s: float) -> str:
    """The answer to an operator who has just made a change that must be confirmed."""
    left_s = change.left_s(epoch_now_s)
    return f"{name}: {change.what} is rolled back in {left_s:.0f} s; to keep it: ovs-lbt confirm {quoted(name)}"


def nothing_waits(name: str) -> str:
    """The refusal to confirm or revert if no change waits."""
    found = f"bridge {name} has no change that waits to be confirmed"
    return f"{found}; a change made with --rollback-after waits until its time has passed"


def too_late(name: str, change: Unconfirmed) -> str:
    """The refusal to confirm a change whose time has passed."""
    found = f"{change.what} was not confirmed in time, and is being rolled back"
    return f"bridge {name}: {found}; {change.what} it again"


def refuse_waiting(row: BridgeRow, epoch_now_s: float) -> None:
    """Refuse a change of a bridge on which another one waits to be confirmed.

    Raises:
        Refused: one does.
    """
    if (change := of(row)) is not None:
        left_s = change.left_s(epoch_now_s)
        found = f"{change.what} waits to be confirmed, for another {left_s:.0f} s"
        first = f"ovs-lbt confirm {quoted(row.name)}, or ovs-lbt rollback {quoted(row.name)}"
        raise Refused(f"bridge {row.name}: {found}; first run {first}")
