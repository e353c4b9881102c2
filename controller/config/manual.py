"""The table of keys as text, for `set --help` and `attach --help`."""

from __future__ import annotations

import textwrap

from controller.config.keys import BRIDGE_KEYS, KEYS, Key, Record

TITLES = {
    Record.BRIDGE: "keys of a bridge",
    Record.UPLINK: "keys of an uplink's interface",
    Record.VM_PORT: "keys of a VM port's interface (KEY= removes one)",
}
# What each policy places, and when it moves something because of load.
POLICIES = {
    "load-based": "VM ports; off an uplink above the threshold, one at a time",
    "adaptive": "VM ports; off a full uplink within 0.2 s, the fewest that help; connections of a VM"
    " port that is too much for one uplink",
    "originating-port": "VM ports, by number; never moves",
    "explicit": "everything on the first uplink that works; never moves",
    "dynamic": "connections; every 3 s",
    "address-hash": "connections; never moves",
    "ip-hash": "pairs of IP addresses, on a LAG; never moves",
    "source-mac": "source MAC addresses; never moves",
    "slb": "source MAC addresses in each VLAN; every 10 s",
    "set": "as dynamic, for teams of Switch Embedded Teaming",
    "set-port": "as originating-port, for teams of Switch Embedded Teaming",
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
    """The policies, and the keys that options of `attach` set."""
    policies = [_filled(name, text) for name, text in POLICIES.items()]
    values = [_entry(BRIDGE_KEYS[name]) for name in ("policy", "teaming")]
    return "\n".join(["policies, and what each places:", *policies, "", "values:", *values])


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
    return _filled(key.name, f"{key.meaning} {value(key)}".replace("`", ""))


def _filled(name: str, text: str) -> str:
    first = f"  {name} ".ljust(INDENT)
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * INDENT,
        break_on_hyphens=False,
    )
