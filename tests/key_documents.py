"""The keys in the man page and in architecture.md, made of the table of keys.

`python -m tests.key_documents` writes both anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from controller.config import manual
from controller.config.keys import KEYS, Key, Record
from tests import documents

COMMAND = "python -m tests.key_documents"
MAN_PAGE = documents.ROOT / "docs" / "ovs-lbt.8"
ARCHITECTURE = documents.ROOT / "docs" / "architecture.md"
# The marks around what is made: of each document, as comments are written in it.
MARKS = {
    MAN_PAGE: (f'.\\" keys: begin ({COMMAND})', '.\\" keys: end'),
    ARCHITECTURE: (f"<!-- keys: begin ({COMMAND}) -->", "<!-- keys: end -->"),
}
# Where architecture.md tells more of a key.
MORE = {
    (Record.BRIDGE, "policy"): "policies.md",
    (Record.BRIDGE, "uplinks"): "#which-interfaces-are-uplinks",
    (Record.BRIDGE, "teaming"): "#teaming",
    (Record.BRIDGE, "mode"): "#observing",
    (Record.BRIDGE, "failback-delay-s"): "#uplink-roles",
    (Record.BRIDGE, "no-flood-before"): "#vms-started-without-the-service",
    (Record.BRIDGE, "before"): "#attach-and-detach",
    (Record.BRIDGE, "team"): "#which-interfaces-are-uplinks",
    (Record.BRIDGE, "unconfirmed"): "#changes-that-undo-themselves",
    (Record.UPLINK, "qdisc"): "#queues",
    (Record.UPLINK, "role"): "#uplink-roles",
    (Record.VM_PORT, "pin"): "policies/rules.md",
    (Record.VM_PORT, "allow"): "policies/rules.md",
    (Record.VM_PORT, "prefer"): "policies/rules.md",
    (Record.VM_PORT, "affinity"): "policies/rules.md",
    (Record.VM_PORT, "anti-affinity"): "policies/rules.md",
    (Record.VM_PORT, "shares"): "#queues",
    (Record.VM_PORT, "unit"): "#addresses-as-units",
    (Record.VM_PORT, "forged-transmits"): "#whose-address-it-is",
    (Record.VM_PORT, "moved"): "policies/adaptive.md",
}
HEAD = "| record | key | value | default | meaning |\n|---|---|---|---|---|"
TITLES = {
    Record.BRIDGE: "Of a bridge:",
    Record.UPLINK: "Of an uplink's interface:",
    Record.VM_PORT: "Of a VM port's interface.\n"
    "Where the VM has an identity\n"
    '.RB ( vm\\-id ", " vm\\-uuid " or " iface\\-id ),\n'
    ".B set\n"
    "keeps them on the bridge, where they outlive the port:",
}


def made() -> dict[str, str]:
    """Both documents as the table makes them, by path."""
    return {
        str(MAN_PAGE): documents.with_made(MAN_PAGE.read_text(), *MARKS[MAN_PAGE], roff()),
        str(ARCHITECTURE): documents.with_made(
            ARCHITECTURE.read_text(), *MARKS[ARCHITECTURE], f"\n{markdown()}\n"
        ),
    }


def markdown() -> str:
    """All keys, as a table."""
    return "\n".join([HEAD, *map(_row, KEYS)])


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
    return f"| {key.record} | `{key.name}` | {key.expected} | {manual.default(key)} | {meaning} |"


def _paragraph(key: Key) -> str:
    return "\n".join(
        [f".TP\n.B {_escaped(key.name)}", *_lines(f"{key.meaning} {manual.value(key)}")]
    )


def _lines(text: str) -> Iterable[str]:
    """One line for each sentence, with what is typed in bold."""
    for sentence in re.split(r"(?<=[.)]) (?=[A-Z])", text):
        yield re.sub(r"`([^`]+)`", r"\\fB\1\\fP", _escaped(sentence))


def _escaped(text: str) -> str:
    return text.replace("-", "\\-")


def main() -> None:
    for path, text in made().items():
        with open(path, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
