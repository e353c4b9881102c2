"""Writes the answer to `get`: settings of a bridge, uplink or VM port, and where each is stored."""

from __future__ import annotations

import json
import textwrap

from controller.api.engine_commands import Setting
from controller.api.requests import Asked
from controller.bridge.fleet import Fleet
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_RULE_KEYS, Key, settable
from controller.config.rows import PREFIX
from controller.operations import named, unconfirmed
from controller.text.wording import Refused, invalid, lines_of, quoted, unknown

WIDTH, INDENT = 80, 4 * " "


def answer(fleet: Fleet, asked: Asked) -> str:
    """Return the value of one setting, or all settings of a record.

    Raises:
        Refused: no bridge, uplink or VM port has this name, or it does not have this setting.
    """
    table, name, *wanted = asked.names
    found = _settings(fleet, table, name)
    if wanted and wanted[0] not in found:
        listing = f"ovs-lbt get {quoted(table)} {quoted(name)}"
        raise Refused(unknown(f"key of {name}", wanted[0], found, listing))
    chosen = [found[key] for key in wanted or found]
    if asked.as_json:
        shown = [_shown(key, there) for key, there in chosen]
        return json.dumps({table: name, "settings": shown}, indent=2)
    if wanted:
        return lines_of(_text(key, there) for key, there in chosen)
    return lines_of(line for key, there in chosen for line in _lines(key, there))


def _settings(fleet: Fleet, table: str, name: str) -> dict[str, tuple[Key, Setting | None]]:
    """Return the settings of a record by key. None: the key is not set, so that its default applies."""
    if table == "bridge":
        row = fleet.rows[named.attached_bridge(fleet, name).config.name]
        keys, port = settable(BRIDGE_KEYS), None
    elif table == "interface":
        bridge, port = named.interface(fleet, name)
        row = fleet.rows[bridge.config.name]
        keys = settable(UPLINK_KEYS) if port is None else VM_RULE_KEYS
    else:
        raise Refused(invalid(table, "bridge or interface"))
    found = {}
    for name_of_key, key in keys.items():
        places = [Setting(table.capitalize(), name, PREFIX + name_of_key, None)]
        if port is not None:
            places = named.removed_rule(row, port, name_of_key)
        present = (one for one in unconfirmed.before_set(row, places) if one.value is not None)
        found[name_of_key] = key, next(present, None)
    return found


def _shown(key: Key, there: Setting | None) -> dict[str, str | None]:
    """Return a setting as a JSON object."""
    where = "" if there is None else f"{there.table} {there.record} external_ids:{there.key}"
    return {
        "key": key.name,
        "value": None if there is None else there.value,
        "default": _plain(key.in_effect) or None,
        "where": where or None,
        "meaning": _plain(key.meaning),
    }


def _text(key: Key, there: Setting | None) -> str:
    """Return the stored value, or the default if none is stored."""
    return _plain(key.in_effect) if there is None else there.value or ""


def _lines(key: Key, there: Setting | None) -> list[str]:
    """Return lines with the value, its place in the database, its default, and its meaning."""
    shown = _shown(key, there)
    default = f"default: {shown['default'] or 'none'}"
    about = f"set in {shown['where']}; {default}" if there else "default"
    meaning = f"{shown['meaning']} Value: {_plain(key.expected)}."
    filled = textwrap.wrap(meaning, WIDTH - len(INDENT), break_on_hyphens=False)
    return [
        f"{key.name} = {_text(key, there) or 'none'} ({about})",
        *(INDENT + line for line in filled),
    ]


def _plain(text: str) -> str:
    """Return the text without backquotes."""
    return text.replace("`", "")
