"""The table of keys as text, for `set --help` and `attach --help`."""

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
    """All keys that operators may set."""
    parts = []
    for record, title in TITLES.items():
        keys = (key for key in KEYS if key.record is record and key.settable)
        parts.append("\n".join([f"{title}:", *map(_entry, keys)]))
    return "\n\n".join(parts)


def of_attach() -> str:
    """The keys that options of `attach` set."""
    return "\n".join(["values:", *(_entry(BRIDGE_KEYS[name]) for name in ("policy", "teaming"))])


def default(key: Key) -> str:
    """What applies without a key, if anything. Literal words are between backquotes."""
    return key.otherwise or (f"`{key.default}`" if key.default else "")


def value(key: Key) -> str:
    """The values that a key accepts, and what applies without it."""
    text = f"Value: {key.expected}."
    if otherwise := default(key):
        text += f" Default: {otherwise}."
    return text


def _entry(key: Key) -> str:
    first = f"  {key.name} ".ljust(INDENT)
    text = f"{key.meaning} {value(key)}".replace("`", "")
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * INDENT,
        break_on_hyphens=False,
    )
