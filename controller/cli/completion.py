"""Completes words on the command line of a shell: commands, options, keys, and names on this host.

The shell scripts pass the command line to this module, and offer the returned words. All shells offer
the same words, and new commands, options and keys need no change here. `ovs-vsctl` lists the names, because
the service may be stopped, and our own database code is too slow for the Tab key.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from controller.cli import arguments
from controller.config.keys import BRIDGE_KEYS, POLICIES, UPLINK_KEYS, VM_RULE_KEYS, Key, settable
from controller.config.rows import PREFIX
from controller.host.programs import run
from controller.text.wording import Refused
from policies.model import Teaming

SCRIPTS_FOLDER = Path(__file__).parents[1] / "completion"
SCRIPTS = {"bash": "ovs-lbt.bash", "zsh": "_ovs-lbt", "fish": "ovs-lbt.fish"}
# The maximum length of the description that is shown next to a word.
MOST_ABOUT = 60
# Bash inserts a word unquoted into the command line, where a name such as $(x) would be executed.
SAFE = re.compile(r"[\w@%+=:,./!-]+")
# Returned instead of words if the shell must complete file names.
FILES = ":files"
# The metavars of arguments whose value is a file or a directory.
FILE_METAVARS = ("FILE", "DIR", "TRACE")
# The timeout of `ovs-vsctl`.
TIMEOUT_S = 2
# The keys in which libvirt, OpenStack and XenServer store a VM's name.
IDENTITIES = ("vm-id", "vm-uuid", "iface-id")
TABLES = (
    ("Bridge", "name,ports,external_ids"),
    ("Port", "_uuid,name,interfaces"),
    ("Interface", "_uuid,name,external_ids"),
)
# The keys whose value is a list of names.
LISTS = ("allow", "prefer", "uplinks")
Of = TypeVar("Of")
# Candidates for the word at the cursor, each with a description.
Words = dict[str, str]


@dataclass(frozen=True, slots=True)
class Team:
    """A bridge's interfaces, each with a description, and the names of its uplinks."""

    attached: bool
    interfaces: Mapping[str, str]
    uplinks: tuple[str, ...]


class Names:
    """The names on this host, each with a description.

    `interfaces`, `uplinks`, `vm_ports`: the names on attached bridges.
    """

    def __init__(self, teams: Mapping[str, Team] | None = None) -> None:
        self.teams = teams or {}
        self.bridges = {name: "attached" if t.attached else "" for name, t in self.teams.items()}
        self.attached = {name: "" for name, team in self.teams.items() if team.attached}
        self.unattached = {name: "" for name in self.teams if name not in self.attached}
        self.interfaces, self.uplinks = dict[str, str](), dict[str, str]()
        for name in self.attached:
            self.interfaces |= self.teams[name].interfaces
            self.uplinks |= dict.fromkeys(self.teams[name].uplinks, f"of {name}")
        of_vms = (name for name in self.interfaces if name not in self.uplinks)
        self.vm_ports = {name: self.interfaces[name] for name in of_vms}

    def ports_of(self, bridge: str | None) -> dict[str, str]:
        """Return the interfaces of a bridge, attached or not."""
        team = self.teams.get(bridge or "")
        return dict(team.interfaces) if team else {}

    def uplinks_beside(self, port: str | None) -> dict[str, str]:
        """Return the uplinks of the bridge with this port; all uplinks if no bridge has this port."""
        name = port.partition("/")[0] if port else None
        for team in self.teams.values():
            if team.attached and name in team.interfaces:
                return dict.fromkeys(team.uplinks, "")
        return self.uplinks


# Reads the names on this host, called only when needed.
Known = Callable[[], Names]


@dataclass(slots=True)
class _Typed:
    """The words of a command that were typed before the cursor.

    `option`: the option whose value is at the cursor, if any.
    """

    positionals: list[str]
    options: dict[str, list[str]]
    option: argparse.Action | None = None


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    return (SCRIPTS_FOLDER / SCRIPTS[shell]).read_text()


def answer(words: Sequence[str]) -> str:
    """Return the candidates for the last word, one per line: the word, a tab, and its description.

    If the shell must not add a space, the line ends with another tab. Names that are not safe as
    unquoted words in a shell are omitted.
    """
    lines = []
    for word, meaning in complete(words, functools.cache(read)).items():
        if not SAFE.fullmatch(word):
            continue
        about = " ".join(meaning.split())
        if len(about) > MOST_ABOUT:
            about = f"{about[: MOST_ABOUT - 1].rsplit(' ', 1)[0]}…"
        lines.append(f"{word}\t{about}" + ("\t" if is_unfinished(word) else ""))
    return "\n".join(lines)


def is_unfinished(word: str) -> bool:
    """Whether more text can follow the word without a space: a value, or more names in a list."""
    key, equals, value = word.partition("=")
    return bool(equals) and (not value or key in LISTS)


def complete(words: Sequence[str], names: Known) -> Words:
    """Return the candidates for the last of `words`, which are the words after `ovs-lbt`."""
    parser, (*before, current) = arguments.parser(), words or ("",)
    # The command is the first word that is neither an option nor an option's value.
    at = next(
        (at for at in range(len(before)) if _read(parser, before[: at + 1]).positionals), None
    )
    if at is None:
        return _of_parser(parser, "", before, current, names)
    command = before[at]
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    sub = commands.choices.get(command)
    if command in arguments.SEPARATE:
        sub = arguments.separate_parser(command)
    return {} if sub is None else _of_parser(sub, command, before[at + 1 :], current, names)


def _of_parser(
    parser: argparse.ArgumentParser, command: str, before: Sequence[str], current: str, names: Known
) -> Words:
    typed, found = _read(parser, before), Words()
    if typed.option is not None:
        found = _values(typed.option, command, typed, current, names)
    else:
        number = len(typed.positionals)
        positionals = enumerate(a for a in parser._actions if not a.option_strings)
        # The last positional may accept several values.
        fits = (
            a for at, a in positionals if at == number or (a.nargs in ("+", "*") and number > at)
        )
        positional = None if current.startswith("-") else next(fits, None)
        if positional is not None and positional.dest not in _barred(parser, typed):
            found = _values(positional, command, typed, current, names)
        found = found or _options(parser, typed)
    return {word: found[word] for word in found if word == FILES or word.startswith(current)}


def _read(parser: argparse.ArgumentParser, before: Sequence[str]) -> _Typed:
    """Return the positionals and the options that were typed before the cursor."""
    typed = _Typed([], {})
    for word in before:
        taken, typed.option = typed.option, None
        if word.startswith("-") and (action := parser._option_string_actions.get(word)):
            typed.options.setdefault(action.dest, [])
            typed.option = action if action.nargs != 0 else None
        elif taken is not None:
            typed.options[taken.dest].append(word)
            # An option with several values also takes the next word.
            typed.option = taken if taken.nargs == "+" else None
        elif not word.startswith("-"):
            typed.positionals.append(word)
    return typed


def _options(parser: argparse.ArgumentParser, typed: _Typed) -> Words:
    """Return the options that can still be added, by their long names, with their help."""
    barred, found = _barred(parser, typed), {}
    for action in parser._actions:
        again = isinstance(action, argparse._AppendAction | argparse._ExtendAction)
        if not action.option_strings or (action.dest in typed.options and not again):
            continue
        if action.dest in barred or action.help == argparse.SUPPRESS:
            continue
        long = next((o for o in action.option_strings if o.startswith("--")), None)
        about = action.help or ""
        found[long or action.option_strings[0]] = "" if "%(" in about else about
    return found


def _barred(parser: argparse.ArgumentParser, typed: _Typed) -> set[str]:
    """Return the arguments that are mutually exclusive with typed arguments."""
    positionals = [a.dest for a in parser._actions if not a.option_strings]
    given = {*typed.options, *positionals[: len(typed.positionals)]}
    groups = [[a.dest for a in g._group_actions] for g in parser._mutually_exclusive_groups]
    return {dest for group in groups if given.intersection(group) for dest in group}


def _values(
    action: argparse.Action, command: str, typed: _Typed, current: str, names: Known
) -> Words:
    """Return candidates for the value of an argument. The argument's metavar selects them."""
    if isinstance(action, argparse._SubParsersAction):
        return {choice.dest: choice.help or "" for choice in action._choices_actions}
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    bridge = typed.positionals[0] if typed.positionals else None
    match metavar:
        case "BRIDGE" if command in ("attach", "check"):
            return names().bridges if command == "check" else names().unattached
        case "BRIDGE":
            return _without(names().attached, typed.positionals)
        case "IF":
            return _without(names().ports_of(bridge), typed.options.get(action.dest, ()))
        case "UPLINK":
            port = typed.positionals[0] if command in ("move", "pin") and bridge else None
            return names().uplinks_beside(port)
        case "PORT":
            return names().vm_ports
        case "P" | "POLICY":
            return POLICIES
        case "T":
            return dict.fromkeys(Teaming, "")
        case "NAME" if command in ("get", "settings", "set", "unset"):
            table = {"bridge": names().attached, "interface": names().interfaces}
            return table.get(bridge or "", {})
        case "NAME" if command == "bench":
            return dict.fromkeys((action.help or "").split(" | "), "")
        case "KEY=VALUE" if command == "set":
            return _settings(typed.positionals, current, names)
        case "KEY":
            kind, of, *given = typed.positionals
            return _without(dict.fromkeys(_keys(kind, of, names), ""), given)
    return dict.fromkeys([FILES] if metavar in FILE_METAVARS else action.choices or (), "")


def _settings(positionals: Sequence[str], current: str, names: Known) -> Words:
    """Return candidates of the form KEY= while the key is typed, and KEY=VALUE after that."""
    table, name, *given = positionals
    keys = _keys(table, name, names)
    key, equals, value = current.partition("=")
    if equals:
        return _values_of_key(keys[key], name, value, names) if key in keys else {}
    free = _without(keys, [word.partition("=")[0] for word in given])
    meanings = {name: key.meaning.split(". ")[0].replace("`", "") for name, key in free.items()}
    return {f"{name}=": meaning for name, meaning in meanings.items()}


def _keys(table: str, name: str, names: Known) -> Mapping[str, Key]:
    if table == "bridge":
        return settable(BRIDGE_KEYS)
    if name in names().uplinks:
        return settable(UPLINK_KEYS)
    return VM_RULE_KEYS if name in names().interfaces else settable(UPLINK_KEYS) | VM_RULE_KEYS


def _values_of_key(key: Key, name: str, value: str, names: Known) -> Words:
    """Return candidates for a key's value: words, or uplink names; in lists, for the last name."""
    if key.name == "pin":
        return {f"pin={uplink}": "" for uplink in names().uplinks_beside(name)}
    if key.name in LISTS:
        known = names().ports_of(name) if key.name == "uplinks" else names().uplinks_beside(name)
        *listed, last = value.split(",")
        out = "!" if last.startswith("!") else ""
        before = "".join(f"{one}," for one in listed)
        free = _without(known, [word.lstrip("!") for word in listed])
        return {f"{key.name}={before}{out}{one}": "" for one in free}
    about = POLICIES if key.name == "policy" else {}
    return {f"{key.name}={word}": about.get(word, "") for word in key.takes.words}


def _without(found: Mapping[str, Of], typed: Container[str]) -> dict[str, Of]:
    return {name: of for name, of in found.items() if name not in typed}


# ---- names -----------------------------------------------------------------------------


def read() -> Names:
    """Read the names on this host; return no names if the database does not answer in time."""
    database = os.environ.get("OVS_LBT_OVSDB")
    command = ["ovs-vsctl", "--no-wait", "--format=json"]
    command += [f"--db={database}"] if database else []
    for table, columns in TABLES:
        command += ["--", f"--columns={columns}", "list", table]
    try:
        return parse(run(*command, timeout_s=TIMEOUT_S))
    except Refused:
        return Names()


def parse(printed: str) -> Names:
    """Return the names from the output of `ovs-vsctl`: a line of JSON for each of `TABLES`."""
    bridges, ports, interfaces = (
        [dict(zip(table["headings"], row, strict=True)) for row in table["data"]]
        for table in map(json.loads, printed.splitlines())
    )
    by_id = {row["_uuid"][1]: row for row in (*ports, *interfaces)}
    return Names({row["name"]: _team(row, by_id) for row in sorted(bridges, key=_name)})


def _team(bridge: Mapping[str, Any], by_id: Mapping[str, Mapping[str, Any]]) -> Team:
    keys = dict(bridge["external_ids"][1])
    members = [
        [by_id[one] for one in _ids(by_id[port]["interfaces"])] for port in _ids(bridge["ports"])
    ]
    bonded = [row["name"] for rows in members if len(rows) > 1 for row in sorted(rows, key=_name)]
    asked = keys.get(PREFIX + "uplinks")
    uplinks = [name.strip() for name in asked.split(",")] if asked else bonded
    rows = sorted((row for rows in members for row in rows), key=_name)
    about = {row["name"]: "uplink" if row["name"] in uplinks else _vm(row) for row in rows}
    return Team(f"{PREFIX}policy" in keys, about, tuple(uplinks))


def _ids(column: Sequence[Any]) -> list[str]:
    """Return the UUIDs in a column that contains one UUID or a set of UUIDs."""
    kind, value = column
    return [value] if kind == "uuid" else [one for _, one in value]


def _vm(interface: Mapping[str, Any]) -> str:
    ids = dict(interface["external_ids"][1])
    return next((ids[name] for name in IDENTITIES if name in ids), "")


def _name(row: Mapping[str, Any]) -> str:
    return str(row["name"])
