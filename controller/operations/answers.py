"""Writes the answer to `show`, and one-line answers to `move`, `pin`, `unpin`, `undrain` and `set`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from controller.api.engine_commands import Setting
from controller.api.events import Faulted
from controller.api.status import BridgeStatus, as_json
from controller.bridge.bridge import Bridge
from controller.config.keys import KEYS, Key, Record
from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import UplinkConfig, VmPortConfig
from controller.operations import unconfirmed
from controller.text import drawing, show_view
from controller.text.wording import shortened


def shown(
    statuses: Sequence[BridgeStatus], json_wanted: bool, faults: Sequence[Faulted], **more: Any
) -> str:
    """Return the answer to `show`: JSON, or a block for each bridge with its uplinks and VM ports.

    `more`: other fields, for example `unconfirmed`. An empty value is omitted.
    """
    more["faults"] = [
        {"part": f.part, "count": f.count, "last_at": f.at_s, "found": f.text} for f in faults
    ]
    answer = {"bridges": [*map(as_json, statuses)]} | {k: more[k] for k in more if more[k]}
    if json_wanted:
        return json.dumps(answer, indent=2)
    lines = show_view.lines(answer, drawing.Look())
    return "\n".join(drawing.plain(line).rstrip() for line in lines)


# ---- results of requests ---------------------------------------------------------------


def moved(bridge: Bridge, port: VmPortConfig, target: str) -> str:
    """Return the answer to `move`. It names the old uplink, so call this before the move."""
    source = bridge.placing.on_switch.by_unit().get(port.name)
    if source == target:
        return f"{called(port)}: already on {target}"
    return f"{called(port)}: {f'moved from {source} to' if source else 'on'} {target}"


def pinned(bridge: Bridge, port: VmPortConfig, uplink: UplinkConfig, now_s: float) -> str:
    """Return the answer to `pin`, which says when the VM port moves. Call this before pinning."""
    source, target = bridge.placing.on_switch.by_unit().get(port.name), uplink.name
    text = f"{called(port)}: pinned to {target}"
    if bridge.observing:
        return f"{text}, which it would use in enforce mode"
    if source == target:
        return f"{text}, which it already uses"
    if not bridge.connected:
        return f"{text}, which it will use once the switch is connected"
    if target not in bridge.links.usable():
        why = bridge.links.why_unused(uplink, now_s)
        return f"{text}, which it will use once {target} carries traffic ({why}); now on {source or 'none'}"
    return f"{text}, and will move from {source}" if source else text


def changed(name: str, row: BridgeRow, record: Record, settings: Sequence[Setting]) -> str:
    """Return the result of `set`: each key with its new value and its previous value.

    `name`: the bridge or interface in the request. `row`: the bridge's record before the change.
    """
    keys = {key.name: key for key in KEYS if key.record is record}
    values: dict[str, tuple[str | None, str | None]] = {}
    for setting, before in zip(settings, unconfirmed.before_set(row, settings), strict=True):
        # A rule on the bridge has the key vm-ID-KEY. `anti-affinity` also ends with `affinity`.
        kept = "-" + setting.key.removeprefix(PREFIX)
        key = max((key for key in keys if kept.endswith(f"-{key}")), key=len)
        after, earlier = values.get(key, (None, None))
        values[key] = (setting.value or after, earlier or before.value)
    parts = [_change(keys[key], *of) for key, of in values.items()]
    return f"{name}: {', '.join(parts)}"


def _change(key: Key, after: str | None, before: str | None) -> str:
    """Describe a key's new and previous value."""
    otherwise = key.otherwise.replace("`", "") or key.default
    absent = otherwise and f"the default: {otherwise}"
    was = shortened(before) if before is not None else absent
    if after is None:
        return f"{key.name} unset (was {was})" if before is not None else f"{key.name} was not set"
    if after == before:
        return f"{key.name}={shortened(after)}, as before"
    return f"{key.name}={shortened(after)}" + (f" (was {was})" if was else "")


def called(port: VmPortConfig) -> str:
    """Return the name of a VM port, followed by its VM's name if the two differ."""
    return port.name if port.vm == port.name else f"{port.name} ({port.vm})"
