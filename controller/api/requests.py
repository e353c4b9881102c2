"""Defines the types in the table of commands, and parses requests.

A request consists of the name of a command and words, as `ovs-appctl` sends them: names, settings
of the form KEY=VALUE, and options. `words` builds the words from the command line, and `parse` parses
them; `assignments` and `changes` check the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.config.keys import BRIDGE_KEYS, Key, Record
from controller.text.wording import Refused, invalid, shortened, unknown

EXAMPLE_WIDTH = 44
WHOSE = {Record.BRIDGE: "a bridge", Record.UPLINK: "an uplink", Record.VM_PORT: "a VM port"}


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a command: an option if its name begins with a dash, else positional."""

    name: str
    # The placeholder for the value in the help. An option without a placeholder has no value.
    metavar: str = ""
    help: str | None = None
    # The number of values: one, or, as in argparse, ?, * or +.
    nargs: str | None = None
    # An older name that still works.
    older: str | None = None
    # An option that can be given several times.
    repeated: bool = False
    # Checks a value. Raises ValueError with the problem and the valid values.
    parse: Callable[[str], Any] | None = None
    choices: tuple[str, ...] = ()
    default: Any = None
    # In a request, this option is a setting with this key. Its value is the option's, or `setting_value`.
    setting: str | None = None
    setting_value: str | None = None
    # The argument is used on the command line only, and is not part of the request.
    local: bool = False

    @property
    def is_option(self) -> bool:
        return self.name.startswith("-")

    @property
    def dest(self) -> str:
        """The attribute name of this argument in the argparse result."""
        return self.name.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its help, arguments and examples. The table of commands has one row for each."""

    name: str
    help: str
    arguments: tuple[Argument, ...] = ()
    # Each example: a command line, and a shell comment that describes the result.
    examples: tuple[str, ...] = ()
    # Used instead of `help` at the top of `--help`.
    description: str = ""
    # Text between the arguments and the examples of `--help`.
    details: Callable[[], str] | None = None
    # Other names of the command.
    aliases: tuple[str, ...] = ()
    # The service carries out the command. Other commands work without a service.
    requested: bool = True
    # The command takes longer on a bridge with thousands of VM ports.
    slow: bool = False
    # The command does not change a bridge.
    reads: bool = False
    # The largest number of settings in a request.
    most_settings: int = 0
    # The first two arguments are mutually exclusive.
    exclusive: bool = False
    # One of the first two arguments is required.
    one_required: bool = False

    @property
    def changes(self) -> bool:
        """Whether the command changes a bridge, and therefore has a dry run."""
        return self.name == "rescue" or (self.requested and not self.reads)

    @property
    def carried(self) -> list[Argument]:
        """The arguments that are part of a request."""
        return [argument for argument in self.arguments if not argument.local]

    @property
    def positionals(self) -> list[Argument]:
        return [argument for argument in self.arguments if not argument.is_option]

    @property
    def options(self) -> list[Argument]:
        """The arguments that a request contains as options rather than settings."""
        return [a for a in self.carried if a.is_option and a.setting is None]

    def example_pairs(self) -> list[list[str]]:
        """Return the examples, each as [command line, description]."""
        return [example.split("  # ") for example in self.examples]

    def examples_text(self) -> str:
        """Return the examples as text with a title; empty if there are none."""
        lines = []
        for typed, does in self.example_pairs():
            first = f"  {typed}"
            together = f"{first:<{EXAMPLE_WIDTH}}  {does}"
            fits = len(first) <= EXAMPLE_WIDTH
            lines += [together] if fits else [first, f"{'':<{EXAMPLE_WIDTH}}  {does}"]
        title = "example" if len(self.examples) == 1 else "examples"
        return "\n".join([f"{title}:", *lines]) if lines else ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A parsed request: names, settings and options."""

    names: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    # The value of each option; empty for an option without a value.
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def as_json(self) -> bool:
        return "--json" in self.options

    @property
    def dry_run(self) -> bool:
        """Whether to check the request and describe its effect, without making changes."""
        return "--dry-run" in self.options

    @property
    def confirm_s(self) -> float | None:
        """The time in seconds after which an unconfirmed change is rolled back; None: no rollback."""
        text = self.options.get("--rollback-after")
        return None if text is None else float(text)


def form(row: Command) -> tuple[str, int, int]:
    """Return the usage of a request, and its minimum and maximum number of words."""
    alone, least, most = list[str](), 0, 0
    for argument in row.positionals:
        optional = argument.nargs == "?"
        many = "..." if argument.nargs == "+" else ""
        alone.append(f"[{argument.metavar}]" if optional else argument.metavar + many)
        least += not optional
        most += not many
    if any(argument.setting for argument in row.arguments):
        settings = "[KEY=VALUE]..."
        # Settings have no meaning without a bridge.
        alone[-1:] = [f"[{alone[-1][1:-1]} {settings}]"] if least == 0 else [alone[-1], settings]
    for option in row.options:
        alone.append(f"[{option.name} {option.metavar}]" if option.metavar else f"[{option.name}]")
        most += 2 if option.metavar else 1
    return " ".join(alone), least, most + row.most_settings


def words(row: Command, given: Mapping[str, Any]) -> list[str]:
    """Return the words of a request, from the arguments that argparse has parsed."""
    # An empty name is kept: the service then reports it.
    present = [(a, value) for a in row.carried if (value := given[a.dest]) not in (None, False, [])]
    names, settings, options = list[str](), dict[str, str](), list[str]()
    for argument, value in present:
        if argument.setting:
            one = argument.setting_value or value
            settings[argument.setting] = ",".join(one) if argument.repeated else one
        elif argument.is_option:
            options += [argument.name] if value is True else [argument.name, str(value)]
        else:
            names += value if argument.nargs == "+" else [value]
    return [*names, *(f"{key}={settings[key]}" for key in BRIDGE_KEYS if key in settings), *options]


def parse(name: str, row: Command, given: Sequence[str]) -> Asked:
    """Parse the words of a request.

    Raises:
        Refused: the words are not a valid request.
    """
    rest, options = list(given), dict[str, str]()
    for option in row.options:
        typed = next((word for word in rest if word in (option.name, option.older)), None)
        if typed is None:
            continue
        if not option.metavar:
            options[option.name] = ""
            rest = [word for word in rest if word != typed]
            continue
        at = rest.index(typed)
        options[option.name] = "".join(rest[at + 1 : at + 2])
        del rest[at : at + 2]
        try:
            if option.parse is not None:
                option.parse(options[option.name])
        except ValueError as error:
            raise Refused(f"{typed}: {error}") from None
    usage, least, _ = form(row)
    if len(rest) < least:
        what = [a.name for a in row.positionals if a.nargs != "?"][-1]
        raise Refused(f"{name}: {what} is missing; usage: {usage}")
    alone = sum(argument.nargs != "+" for argument in row.positionals)
    if len(rest) > alone and not row.most_settings:
        flag = next((option.name for option in row.options if not option.metavar), "")
        raise Refused(f"{' '.join(rest)} is invalid; expected one name [{flag}]")
    return Asked(tuple(rest[:alone]), tuple(rest[alone:]), options)


def assignments(words: Sequence[str], keys: Mapping[str, Key]) -> dict[str, str]:
    """Parse and check words of the form KEY=VALUE."""
    refuse_unknown(words, keys)
    values = {key: text for key, _, text in (word.partition("=") for word in words)}
    for key, text in values.items():
        try:
            keys[key].parse(text)
        except ValueError:
            problem = invalid(text, keys[key].expects(text), keys[key].takes.words)
            raise Refused(f"{key}: {problem}") from None
    return values


def refuse_unknown(words: Sequence[str], keys: Mapping[str, Key]) -> None:
    """Refuse words that are not of the form KEY=VALUE with a key in `keys`, and repeated keys."""
    _refuse_repeated(words)
    for key, equals, _ in (word.partition("=") for word in words):
        if key not in keys:
            records = {WHOSE[of.record] for of in keys.values()}
            what = f"key of {' or '.join(sorted(records))}"
            raise Refused(unknown(what, key, keys, "ovs-lbt set --help"))
        if not equals:
            raise Refused(f"{key} has no value; for valid values: ovs-lbt set --help")


def changes(words: Sequence[str], keys: Mapping[str, Key]) -> dict[str, str | None]:
    """Parse and check words of the form KEY=VALUE or KEY=. KEY= removes a key: its value is None."""
    _refuse_repeated(words)
    ended = [word[:-1] for word in words if word.endswith("=") and word[:-1] in keys]
    values = assignments([word for word in words if word[:-1] not in ended], keys)
    return {**values, **dict.fromkeys(ended)}


def _refuse_repeated(words: Sequence[str]) -> None:
    """Refuse a key that is given more than once, because only one value could apply."""
    named = [word.partition("=")[0] for word in words]
    if repeated := sorted({key for key in named if named.count(key) > 1}):
        raise Refused(f"{shortened(repeated[0])} is given {named.count(repeated[0])} times")
