"""The table of keys for people: what `set --help` and `attach --help` say of them."""

from __future__ import annotations

import textwrap

from controller.config.keys import BRIDGE_KEYS, KEYS, Key, Record

TITLES = {
    Record.BRIDGE: "keys of a bridge",
    Record.UPLINK: "keys of an uplink's interface",
    Record.VM_PORT: "keys of a VM port's interface (KEY= removes one)",
}
WIDTH = 80
INDENT = 21


def text() -> str:
    """All keys that are an operator's to set."""
    parts = []
    for record, title in TITLES.items():
        keys = (key for key in KEYS if key.record is record and key.settable)
        parts.append("\n".join([f"{title}:", *map(_entry, keys)]))
    return "\n\n".join(parts)


def of_attach() -> str:
    """The keys that options of `attach` set."""
    return "\n".join(["values:", *(_entry(BRIDGE_KEYS[name]) for name in ("policy", "teaming"))])


def value(key: Key) -> str:
    """What a key takes, and what holds without it; what is typed stands between backquotes."""
    told = f"Value: {key.expected}."
    if default := key.otherwise or (key.default and f"`{key.default}`"):
        told += f" Default: {default}."
    return told


def _entry(key: Key) -> str:
    first = f"  {key.name} ".ljust(INDENT)
    told = f"{key.meaning} {value(key)}".replace("`", "")
    return textwrap.fill(
        told,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * INDENT,
        break_on_hyphens=False,
    )
