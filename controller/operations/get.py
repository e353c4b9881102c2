"""Writes the answer to `get`: settings of a bridge, uplink or VM port, and where each is stored."""

from __future__ import annotations

import json
import textwrap

from controller.api.engine_commands import Setting
from controller.api.requests import Asked
from controller.bridge.bridge import Bridge
from controller.bridge.fleet import Fleet
from controller.config.keys import BRIDGE_KEYS, UPLINK_KEYS, VM_RULE_KEYS, Key, settable
from controller.config.rows import PREFIX
from controller.config.values import VmPortConfig
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
        shown = [_shown(*one) for one in chosen]
        return json.dumps({table: name, "settings": shown}, indent=2)
    if wanted:
        return lines_of(_shown(*one)["in_effect"] or "" for one in chosen)
    return lines_of(line for one in chosen for line in _lines(*one))


def _settings(fleet: Fleet, table: str, name: str) -> dict[str, tuple[Key, Setting | None, str]]:
    """Return the settings of a record by key (None: not set), each with the value that applies then."""
    if table == "bridge":
        bridge, port = named.attached_bridge(fleet, name), None
        row, keys = fleet.rows[bridge.config.name], settable(BRIDGE_KEYS)
    elif table == "interface":
        bridge, port = named.interface(fleet, name)
        row = fleet.rows[bridge.config.name]
        keys = settable(UPLINK_KEYS) if port is None else VM_RULE_KEYS
    else:
        raise Refused(invalid(table, "bridge or interface"))
    found, by_rule = {}, _by_rule(bridge, name, port)
    for name_of_key, key in keys.items():
        places = [Setting(table.capitalize(), name, PREFIX + name_of_key, None)]
        if port is not None:
            places = named.removed_rule(row, port, name_of_key)
        present = (one for one in unconfirmed.before_set(row, places) if one.value is not None)
        otherwise = by_rule.get(name_of_key) or _plain(key.in_effect)
        found[name_of_key] = key, next(present, None), otherwise
    return found


def _by_rule(bridge: Bridge, name: str, port: VmPortConfig | None) -> dict[str, str]:
    """Return the values that are in force where the default is not a fixed value, by key."""
    config, team_view = bridge.config, bridge.placing.team_view()
    if port is not None:
        forged = "accept" if port.forges else "reject"
        return {"policy": port.policy, "unit": port.unit, "forged-transmits": forged}
    known_bps = {uplink.name: team_view.known_capacity_bps(uplink) for uplink in config.uplinks}
    return {
        "uplinks": ",".join(known_bps),
        "teaming": config.teaming,
        "poll-interval-ms": f"{config.poll_interval_s * 1000:g}",
        "connection-hash": config.connection_hash,
        "capacity-mbps": f"{bps / 1e6:g}" if (bps := known_bps.get(name)) else "",
    }


def _shown(key: Key, there: Setting | None, otherwise: str) -> dict[str, str | None]:
    """Return a setting as a JSON object. `otherwise`: the value that applies if it is not set."""
    where = "" if there is None else f"{there.table} {there.record} external_ids:{there.key}"
    return {
        "key": key.name,
        "value": None if there is None else there.value,
        "in_effect": (otherwise if there is None else there.value) or None,
        "default": _plain(key.in_effect) or None,
        "where": where or None,
        "meaning": _plain(key.meaning),
    }


def _lines(key: Key, there: Setting | None, otherwise: str) -> list[str]:
    """Return lines with the value, its place in the database, its default, and its meaning."""
    shown = _shown(key, there, otherwise)
    default = f"default: {shown['default'] or 'none'}" if there or key.otherwise else "default"
    about = f"set in {shown['where']}; {default}" if there else default
    meaning = f"{shown['meaning']} Value: {_plain(key.takes.expected)}."
    filled = textwrap.wrap(meaning, WIDTH - len(INDENT), break_on_hyphens=False)
    return [
        f"{key.name} = {shown['in_effect'] or 'none'} ({about})",
        *(INDENT + line for line in filled),
    ]


def _plain(text: str) -> str:
    """Return the text without backquotes."""
    return text.replace("`", "")
