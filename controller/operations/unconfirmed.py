"""Reads and writes an unconfirmed change in the database: the kind of change, and settings to restore.

The change is stored in the key `unconfirmed` of the bridge, even if the bridge is not attached. So
a service that starts, or a command that runs without a service, can read the change.
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
# The delay between the latest time to confirm a change and its reversal. A confirmation that was
# given in time is therefore in the database before the service checks for it.
GRACE_S = 1.0
# The keys that attach determines again from the current state of the bridge.
_ANEW = ("before", "no-flood-before", "team", "uplink-keys", "unconfirmed")
# The keys that the service writes on interfaces of an attached bridge.
_OF_SERVICE = (PREFIX + "binding", PREFIX + "moved")


class What(StrEnum):
    """The kinds of changes that are rolled back unless they are confirmed."""

    ATTACH = "attach"
    DETACH = "detach"
    SET = "set"


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A change that is rolled back unless it is confirmed.

    `until_s`: the latest time to confirm the change, since the epoch. `seconds`: the total time to
    confirm it, which a wrong clock cannot extend. `back`: the previous settings. `linked`: the plain
    uplinks that were up before the change. `begun`: whether the rollback has begun.
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
        """Whether `other` is the same change, regardless of `begun`."""
        return (self.what, self.until_s, self.back) == (other.what, other.until_s, other.back)

    def left_s(self, epoch_now_s: float) -> float:
        """Return the time that is left to confirm the change, by the wall clock."""
        return min(max(self.until_s - epoch_now_s, 0.0), self.seconds)

    def as_setting(self, bridge: str) -> Setting:
        return Setting("Bridge", bridge, UNCONFIRMED, as_text(self))


def as_text(change: Unconfirmed) -> str:
    """Return a change as the value of the key `unconfirmed`."""
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
    """Parse the value of the key `unconfirmed`.

    Raises:
        ValueError: the service did not write this value.
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
    """Return a setting to restore. Refuse other programs' keys, because any program can write the value."""
    words = (table, record, key, *(() if value is None else (value,)))
    if not all(isinstance(word, str) for word in words) or not key.startswith(PREFIX):
        raise ValueError(key)
    if table not in ("Bridge", "Port", "Interface"):
        raise ValueError(table)
    return Setting(table, record, key, value)


def of(row: BridgeRow) -> Unconfirmed | None:
    """Return a bridge's unconfirmed change; None if there is none, or the value is invalid."""
    text = row.external_ids.get(UNCONFIRMED)
    try:
        return None if text is None else parse(text)
    except ValueError:
        return None


# ---- previous settings, and how to restore them -----------------------------------------


def keys_of(row: BridgeRow) -> tuple[Setting, ...]:
    """Return all ovs-lbt keys in the records of a bridge, its ports and their interfaces."""
    return tuple(
        Setting(table, record, key, value)
        for (table, record), ids in _records(row).items()
        for key, value in sorted(ids.items())
        if key.startswith(PREFIX) and key != UNCONFIRMED
    )


def _records(row: BridgeRow) -> dict[tuple[str, str], Mapping[str, str]]:
    """Return external_ids of a bridge, its ports and their interfaces, keyed by table and name."""
    found = {("Bridge", row.name): row.external_ids}
    for port in row.ports:
        found["Port", port.name] = port.external_ids
        found |= {("Interface", i.name): i.external_ids for i in port.interfaces}
    return found


def before_attach(row: BridgeRow) -> tuple[Setting, ...]:
    """Return the settings that an attach replaces; operators' keys of uplinks and VM ports stay."""
    return tuple(s for s in keys_of(row) if s.table == "Bridge" or s.key in _OF_SERVICE)


def before_set(row: BridgeRow, settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return `settings` with the values that the records currently have."""
    ids = _records(row)

    def before(s: Setting) -> str | None:
        if s.column == "fail_mode":
            return row.fail_mode
        return ids.get((s.table, s.record), {}).get(s.key) if s.column == "external_ids" else None

    return tuple(replace(s, value=before(s)) for s in settings)


def values(change: Unconfirmed) -> dict[str, str]:
    """Return the values, by key without prefix, to attach the bridge again after a detach."""
    names = {s.key.removeprefix(PREFIX): s.value for s in change.back if s.table == "Bridge"}
    return {
        name: value
        for name, value in names.items()
        if value is not None and name in BRIDGE_KEYS and name not in _ANEW
    }


def restored(change: Unconfirmed, row: BridgeRow) -> tuple[Setting, ...]:
    """Return the settings to restore: the previous settings whose records still exist."""
    there = _records(row)
    return tuple(s for s in change.back if (s.table, s.record) in there)


def missing(change: Unconfirmed, row: BridgeRow) -> tuple[Setting, ...]:
    """Return the previous settings that a detach has removed and that `values` does not contain.

    Settings that were made after the detach stay.
    """
    present = {s.place for s in keys_of(row)}
    attached_with = {PREFIX + name for name in (*values(change), *_ANEW)}
    return tuple(
        s
        for s in restored(change, row)
        if s.place not in present and not (s.table == "Bridge" and s.key in attached_with)
    )


def merged(*several: Iterable[Setting]) -> tuple[Setting, ...]:
    """Return the settings for one transaction. If several settings have the same key, use the last."""
    return tuple({s.place: s for s in chain(*several)}.values())


def as_json(rows: Mapping[str, BridgeRow], epoch_now_s: float) -> list[dict[str, Any]]:
    """Return the unconfirmed changes of these bridges, for `show`."""
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
    """Return the answer to a request whose change must be confirmed."""
    left_s = change.left_s(epoch_now_s)
    return f"{name}: {change.what} will be rolled back in {left_s:.0f} s; to keep it: ovs-lbt confirm {quoted(name)}"


def nothing_waits(name: str) -> str:
    """Return why `confirm` and `rollback` are refused without an unconfirmed change."""
    found = f"bridge {name} has no unconfirmed change"
    return f"{found}; only a change with --rollback-after must be confirmed, within the given time"


def too_late(name: str, change: Unconfirmed) -> str:
    """Return why `confirm` is refused after the deadline of a change."""
    found = f"{change.what} was not confirmed in time, and is being rolled back"
    return f"bridge {name}: {found}; run {change.what} again"


def refuse_waiting(row: BridgeRow, epoch_now_s: float) -> None:
    """Refuse a change to a bridge that already has an unconfirmed change.

    Raises:
        Refused: the bridge has an unconfirmed change.
    """
    if (change := of(row)) is not None:
        left_s = change.left_s(epoch_now_s)
        found = f"{change.what} is not confirmed yet, and will be rolled back in {left_s:.0f} s"
        first = f"ovs-lbt confirm {quoted(row.name)}, or ovs-lbt rollback {quoted(row.name)}"
        raise Refused(f"bridge {row.name}: {found}; first run {first}")
