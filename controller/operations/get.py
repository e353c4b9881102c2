"""Writes the answer of `get`: settings of a bridge, uplink or VM port, and the record of each setting."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass

from controller.api.engine_commands import Setting
from controller.api.requests import Asked
from controller.bridge.fleet import Fleet
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_RULE_KEYS, Key, settable
from controller.config.rows import PREFIX
from controller.operations import named, unconfirmed
from controller.text.wording import Refused, invalid, lines_of, quoted, unknown

WIDTH, INDENT = 80, 4 * " "


@dataclass(frozen=True, slots=True)
class Value:
    """A setting in the database. `there`: None if the key is not set, so that its default applies."""

    key: Key
    there: Setting | None

    @property
    def default(self) -> str:
        """The value that applies if it is not set, in words if it has no literal form."""
        return _plain(self.key.in_effect)

    @property
    def text(self) -> str:
        """The value that was set or that applies by default."""
        return self.default if self.there is None else self.there.value or ""

    @property
    def where(self) -> str:
        """The record and the key in external_ids; empty if the key is not set."""
        at = self.there
        return "" if at is None else f"{at.table} {at.record} external_ids:{at.key}"

    def lines(self) -> list[str]:
        """Return lines with the value, its place in the database, its default, and its meaning."""
        default = f"default: {self.default or 'none'}"
        about = f"set in {self.where}; {default}" if self.where else "default"
        first = f"{self.key.name} = {self.text or 'none'} ({about})"
        meaning = _plain(f"{self.key.meaning} Value: {self.key.expected}.")
        filled = textwrap.wrap(meaning, WIDTH - len(INDENT), break_on_hyphens=False)
        return [first, *(INDENT + line for line in filled)]


def answer(fleet: Fleet, asked: Asked) -> str:
    """Return the value of one setting, or all settings of a record.

    Raises:
        Refused: no bridge, uplink or VM port has this name, or it does not have this setting.
    """
    table, name, *wanted = asked.names
    values = _values(fleet, table, name)
    if wanted and wanted[0] not in values:
        listing = f"ovs-lbt get {quoted(table)} {quoted(name)}"
        raise Refused(unknown(f"key of {name}", wanted[0], values, listing))
    values = {key: values[key] for key in wanted or values}
    if asked.as_json:
        found = [
            {
                "key": value.key.name,
                "value": None if value.there is None else value.there.value,
                "default": value.default or None,
                "where": value.where or None,
                "meaning": _plain(value.key.meaning),
            }
            for value in values.values()
        ]
        return json.dumps({table: name, "settings": found}, indent=2)
    of_each = (([one.text] if wanted else one.lines()) for one in values.values())
    return lines_of(line for lines in of_each for line in lines)


def _values(fleet: Fleet, table: str, name: str) -> dict[str, Value]:
    """Return the settings of a record, keyed by the names of their keys."""
    if table == "bridge":
        row = fleet.rows[named.attached_bridge(fleet, name).config.name]
        keys, port = settable(BRIDGE_KEYS), None
    elif table == "interface":
        bridge, port = named.interface(fleet, name)
        row = fleet.rows[bridge.config.name]
        keys = settable(UPLINK_KEYS) if port is None else VM_RULE_KEYS
    else:
        raise Refused(invalid(table, "bridge or interface"))
    values = {}
    for name_of_key, key in keys.items():
        places = [Setting(table.capitalize(), name, PREFIX + name_of_key, None)]
        if port is not None:
            places = named.removed_rule(row, port, name_of_key)
        present = (one for one in unconfirmed.before_set(row, places) if one.value is not None)
        values[name_of_key] = Value(key, next(present, None))
    return values


def _plain(text: str) -> str:
    """The text without the marks of literal words."""
    return text.replace("`", "")
