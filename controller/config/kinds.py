"""Defines the kinds of values that keys can have: parses a text, and describes the valid values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeVar

from controller.text.wording import one_of
from policies.damping import Moved
from policies.model import MAX_UPLINKS

# Python's own parsing of numbers also accepts digits of other scripts, spaces and underscores.
NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", re.ASCII)
WHOLE_NUMBER = re.compile(r"[0-9]+", re.ASCII)
MOST_DIGITS = 40
# The end of the year 9999, and more consecutive moves than are possible.
LAST_S = 253_402_300_799.0
MOST_STEPS = 100
# The longest sensible window or delay: a day.
DAY_S = 86400.0
MAX_MBPS = 10_000_000.0
MOST_NAME_CHARACTERS = 64
MOST_NOTE_CHARACTERS = 100
MOST_HOSTS = 8
FAIL_MODES = ("standalone", "secure")
WRITTEN_BY_US = "a value that only the service writes"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    `parse` returns the value of a text or raises ValueError. `expected`: the description of valid
    values in errors and documents. `salvage`: returns the usable part of an invalid value, which is used
    if there is no earlier valid value. `by_service`: whether only the service writes such values.
    `unlimited`: whether the value may be longer than other values. `words`: all valid words, if limited.
    """

    parse: Callable[[str], Any]
    expected: str
    salvage: Callable[[str], Any] | None = None
    by_service: bool = False
    unlimited: bool = False
    words: Collection[str] = ()


def checked(parse: Callable[[str], T], is_valid: Callable[[T], bool]) -> Callable[[str], T]:
    """Return a parser that also refuses values for which `is_valid` returns False."""

    def parse_valid(text: str) -> T:
        if not is_valid(value := parse(text)):
            raise ValueError(text)
        return value

    return parse_valid


def word(*words: str) -> Kind:
    """Return the kind for one of these words."""
    return name_in(words)


def name_in(names: Collection[str]) -> Kind:
    """Return the kind for one of these names, to which further names may be added later."""
    return Kind(checked(str, lambda text: text in names), one_of(names), words=names)


def flag() -> Kind:
    """Return the kind for on or off, which is parsed to a bool."""
    words = ("on", "off", "true", "false")
    parse = name_in(words).parse
    return Kind(lambda text: parse(text) in ("on", "true"), one_of(words), words=words)


def percent(lowest: float, highest: float) -> Kind:
    """Return the kind for a percentage, which is parsed to a ratio."""
    return _amount("a percentage", lowest, highest, lambda value: value / 100)


def seconds(lowest: float, highest: float) -> Kind:
    return _amount("a number of seconds", lowest, highest)


def seconds_or_never(lowest: float, highest: float) -> Kind:
    """Return the kind for seconds, or `never` (infinity)."""
    amount = seconds(lowest, highest)

    def parse(text: str) -> float:
        return math.inf if text == "never" else float(amount.parse(text))

    return Kind(parse, f"{amount.expected}, or never")


@dataclass(frozen=True, slots=True)
class CheckedHost:
    """A host to which each uplink sends queries to check its path. `vlan`: 0 for untagged frames."""

    address: str
    vlan: int

    @classmethod
    def of(cls, text: str) -> CheckedHost:
        """Parse ADDRESS or ADDRESS%VLAN. Raises ValueError for anything else."""
        host, percent, vlan = text.strip().partition("%")
        address = ip_address(host)
        if address.is_multicast or address.is_unspecified or address.is_loopback:
            raise ValueError(text)
        return cls(str(address), integer(1, 4094).parse(vlan) if percent else 0)


def hosts() -> Kind:
    """Return the kind for a list of hosts in the network, each with its VLAN."""

    def parse(text: str) -> tuple[CheckedHost, ...]:
        return tuple(map(CheckedHost.of, text.split(",")))

    def is_valid(found: tuple[CheckedHost, ...]) -> bool:
        return len(found) == len(set(found)) <= MOST_HOSTS

    expected = f"1 to {MOST_HOSTS} IP addresses of hosts, comma-separated; ADDRESS%VLAN for a host in a VLAN"
    return Kind(checked(parse, is_valid), expected)


def milliseconds(lowest: float, highest: float) -> Kind:
    """Return the kind for milliseconds, which are parsed to seconds."""
    return _amount("a number of milliseconds", lowest, highest, lambda value: value / 1000)


def mbps() -> Kind:
    """Return the kind for a rate in Mbit/s, which is parsed to bits per second."""
    return _amount("a rate in Mbit/s", 0.001, MAX_MBPS, lambda value: value * 1e6)


def integer(lowest: int, highest: int) -> Kind:
    parse = checked(whole_number, lambda value: lowest <= value <= highest)
    return Kind(parse, f"an integer from {lowest} to {highest}")


def interface_names() -> Kind:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in text.split(","))
        if not 2 <= len(names) <= MAX_UPLINKS or not all(names) or len(set(names)) != len(names):
            raise ValueError(text)
        return names

    return Kind(parse, f"2 to {MAX_UPLINKS} interface names, comma-separated")


@dataclass(frozen=True, slots=True)
class Choice:
    """Uplinks that are named, in order, and uplinks that are excluded with "!"."""

    named: tuple[str, ...]
    ruled_out: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Choice:
        """Parse names. Raises ValueError if a name is missing or repeated."""
        words = [word.strip() for word in text.split(",")]
        named = tuple(word for word in words if not word.startswith("!"))
        ruled_out = tuple(word[1:].strip() for word in words if word.startswith("!"))
        if not all((*named, *ruled_out)) or len({*named, *ruled_out}) != len(words):
            raise ValueError(text)
        return cls(named, ruled_out)

    def within(self, team: Collection[str]) -> Choice | None:
        """Return the choice without uplinks that are not in the team; None if no rule is left.

        The VM therefore keeps its connectivity when an uplink leaves the team.
        """
        named, ruled_out = (
            tuple(name for name in names if name in team) for names in (self.named, self.ruled_out)
        )
        known = Choice(named, ruled_out)
        if (self.named and not named) or not known.allowed(team):
            return None
        return known if named or ruled_out else None

    def allowed(self, uplinks: Iterable[str]) -> frozenset[str]:
        """Return the allowed uplinks: the named uplinks (or all), without the excluded uplinks."""
        return frozenset(self.named or uplinks) - frozenset(self.ruled_out)


@dataclass(frozen=True, slots=True)
class Known:
    """The uplinks, VM ports and other interfaces that were last in force; empty before an attach.

    `bond`: the name of the bond that had the uplinks as members. All fields except for `vm_ports` are
    also stored in the database, as the key `team`.
    """

    bond: str | None = None
    uplinks: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()
    vm_ports: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Known:
        """Parse the value of the key `team`. Raises ValueError for anything else."""
        bond, uplinks, missing = (tuple(filter(None, part.split(","))) for part in text.split("/"))
        return cls(",".join(bond) or None, uplinks, frozenset(missing))

    @property
    def text(self) -> str:
        """The value of the key `team`."""
        return "/".join((self.bond or "", ",".join(self.uplinks), ",".join(sorted(self.missing))))


def uplinks() -> Kind:
    """Return the kind for a choice of uplinks, for use before the uplinks are known."""
    return Kind(Choice.of, "names of uplinks, comma-separated; !NAME excludes an uplink")


def uplinks_of(team: Collection[str]) -> Kind:
    """Return the kind for a choice of a team's uplinks that allows at least one uplink."""
    parse = checked(Choice.of, lambda choice: choice.within(team) == choice)

    def salvage(text: str) -> Choice | None:
        try:
            return Choice.of(text).within(team)
        except ValueError:
            return None

    expected = f"some of {', '.join(team)}, comma-separated; !NAME for all uplinks except NAME"
    return Kind(parse, expected, salvage)


def set_name() -> Kind:
    """Return the kind for the name of a set, which is printable and contains no commas or spaces."""
    pattern = re.compile(rf"[^\s,]{{1,{MOST_NAME_CHARACTERS}}}")
    parse = checked(str, lambda text: text.isprintable() and bool(pattern.fullmatch(text)))
    most = f"{MOST_NAME_CHARACTERS} characters at most"
    return Kind(parse, f"the name of a set, without commas or spaces, {most}")


def written(parse: Callable[[str], Any] = str, unlimited: bool = False) -> Kind:
    """Return the kind for a value that only the service writes."""
    return Kind(parse, WRITTEN_BY_US, by_service=True, unlimited=unlimited)


def port_names(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def moves(text: str) -> tuple[Moved, ...]:
    """Parse moves as written by `moves_text`. Raises ValueError for impossible moves."""
    pairs = [word.split(":") for word in text.split(",")]
    at, steps = seconds(0, LAST_S), integer(0, MOST_STEPS)
    return tuple(Moved(at.parse(at_s), steps.parse(step)) for at_s, step in pairs)


def moves_text(moves: Iterable[Moved]) -> str:
    """Return the value of key `moved`: the time and the number of consecutive load moves, for each move."""
    return ",".join(f"{move.at_s:.3f}:{move.step}" for move in moves)


def note() -> Kind:
    """Return the kind for the bridge's previous state, as saved by attach."""

    def parse(text: str) -> dict[str, str | None]:
        if len(text) > MOST_NOTE_CHARACTERS:
            raise ValueError(text)
        found = json.loads(text)
        if found not in [{"fail_mode": mode} for mode in (None, *FAIL_MODES)]:
            raise ValueError(text)
        return dict(found)

    return Kind(parse, f'{WRITTEN_BY_US}, as JSON: {{"fail_mode": ...}}', by_service=True)


def number(text: str) -> float:
    """Parse a number that is not negative.

    Raises:
        ValueError: the text is not such a number.
    """
    if len(text) > MOST_DIGITS or not NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def whole_number(text: str) -> int:
    """Parse a whole number that is not negative.

    Raises:
        ValueError: the text is not such a number.
    """
    if len(text) > MOST_DIGITS or not WHOLE_NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _amount(
    unit: str, lowest: float, highest: float, convert: Callable[[float], float] = float
) -> Kind:
    """Return the kind for a number within these bounds. `convert` converts the number to the value."""
    within = checked(number, lambda value: lowest <= value <= highest)
    return Kind(lambda text: convert(within(text)), f"{unit} from {lowest:.10g} to {highest:.10g}")
