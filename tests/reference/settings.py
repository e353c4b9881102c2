"""The settings, as tables for settings.md and as paragraphs for the man page, from the table of keys."""

from __future__ import annotations

import re
from collections.abc import Iterable

from controller.config.keys import KEYS, Key, Record

# Pages with more about a key.
MORE = {
    (Record.BRIDGE, "policy"): "../policies.md",
    (Record.BRIDGE, "uplinks"): "../guide/uplinks-and-rules.md",
    (Record.BRIDGE, "teaming"): "../policies/hashing.md#teaming-modes",
    (Record.BRIDGE, "mode"): "../guide/adopt.md",
    (Record.BRIDGE, "path-check"): "../guide/path-checks.md",
    (Record.BRIDGE, "path-check-targets"): "../guide/path-checks.md#targets",
    (Record.BRIDGE, "connection-hash"): "../guide/datapaths.md#many-connections",
    (Record.BRIDGE, "patch-unit"): "../policies/many-vms.md",
    (Record.BRIDGE, "unconfirmed"): "../guide/adopt.md#changes-that-roll-back",
    (Record.UPLINK, "qdisc"): "../policies/shares.md",
    (Record.UPLINK, "role"): "../guide/uplinks-and-rules.md#work-on-an-uplink",
    (Record.VM_PORT, "pin"): "../policies/rules.md",
    (Record.VM_PORT, "allow"): "../policies/rules.md",
    (Record.VM_PORT, "prefer"): "../policies/rules.md",
    (Record.VM_PORT, "affinity"): "../policies/rules.md",
    (Record.VM_PORT, "anti-affinity"): "../policies/rules.md",
    (Record.VM_PORT, "shares"): "../policies/shares.md",
    (Record.VM_PORT, "reserve-mbps"): "../policies/shares.md",
    (Record.VM_PORT, "limit-mbps"): "../policies/shares.md",
    (Record.VM_PORT, "unit"): "../policies/many-vms.md",
    (Record.VM_PORT, "forged-transmits"): "../guide/vm-security.md",
    (Record.VM_PORT, "moved"): "../policies/adaptive.md",
}
HEAD = "| key | value | default | meaning |\n|---|---|---|---|"
TITLES = {
    Record.BRIDGE: "Keys of a bridge:",
    Record.UPLINK: "Keys of an uplink's interface:",
    Record.VM_PORT: "Keys of a VM port's interface.\n"
    "If the VM has an identity\n"
    '.RB ( vm\\-id ", " vm\\-uuid " or " iface\\-id ),\n'
    ".B set\n"
    "writes these keys to the bridge, where they remain when the port is removed:",
}


def markdown() -> str:
    """A table of the keys of each record, those for operators first."""
    parts = []
    for record in Record:
        keys = sorted((key for key in KEYS if key.record is record), key=lambda k: not k.settable)
        parts.append("\n".join([f"## {record}", "", HEAD, *map(_row, keys)]))
    return "\n\n".join(parts)


def roff() -> str:
    """The keys that are an operator's to set, a tagged paragraph each."""
    parts = []
    for record, title in TITLES.items():
        keys = (key for key in KEYS if key.record is record and key.settable)
        parts.append("\n".join([title, *map(_paragraph, keys)]))
    return "\n.PP\n".join(parts)


def _row(key: Key) -> str:
    more = MORE.get((key.record, key.name))
    meaning = key.meaning + (f" [More]({more})" if more else "")
    return f"| `{key.name}` | {key.takes.expected} | {key.in_effect} | {meaning} |"


def _paragraph(key: Key) -> str:
    return "\n".join([f".TP\n.B {_escaped(key.name)}", *_lines(f"{key.meaning} {key.accepts}")])


def _lines(text: str) -> Iterable[str]:
    """One line for each sentence, with what is typed in bold."""
    for sentence in re.split(r"(?<=[.)]) (?=[A-Z])", text):
        yield re.sub(r"`([^`]+)`", r"\\fB\1\\fP", _escaped(sentence))


def _escaped(text: str) -> str:
    return text.replace("-", "\\-")
