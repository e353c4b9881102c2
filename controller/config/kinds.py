"""Defines the kinds of values that keys can have, each with a parser and a description."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, TypeVar

from controller.text.wording import one_of
from policies.damping import Moved
from policies.model import MAX_UPLINKS

# Python's own parsing of numbers also accepts digits of other scripts, spaces and underscores.
NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", re.ASCII)
WHOLE_NUMBER = re.compile(r"[0-9]+", re.ASCII)
MOST_DIGITS = 40
# The limits for `moved`: the end of the year 9999, and an unreachable number of consecutive moves.
LAST_S = 253_402_300_799.0
MOST_STEPS = 100
# The longest sensible window or delay: a day.
DAY_S = 86400.0
MAX_MBPS = 10_000_000.0
MOST_NAME_CHARACTERS = 64
_SET_NAME = re.compile(rf"[^\s,]{{1,{MOST_NAME_CHARACTERS}}}")
MOST_NOTE_CHARACTERS = 100
MOST_HOSTS = 8
FAIL_MODES = ("standalone", "secure")
WRITTEN_BY_US = "a value that only the service writes"
# The seconds in each unit of a duration.
PARTS_S = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value that a key can have: how it is parsed and described.

    `parse` converts text to a value or raises ValueError. `expected`: the description of valid
    values in errors and documents. `salvage`: returns the usable part of an invalid value, which is
    used if there is no earlier valid value. `by_service`: whether only the service writes such
    values. `unlimited`: whether the value has no maximum length. `words`: all valid words, if any.
    """

    parse: Callable[[str], Any]
    expected: str
    salvage: Callable[[str], Any] | None = None
    by_service: bool = False
    unlimited: bool = False
    words: Collection[str] = ()


def checked(parse: Callable[[str], T], is_valid: Callable[[T], object]) -> Callable[[str], T]:
    """Return a parser that also refuses values for which `is_valid` returns a false value."""

    def parse_valid(text: str) -> T:
        if not is_valid(value := parse(text)):
            raise ValueError(text)
        return value

    return parse_valid


def name_in(names: Collection[str]) -> Kind:
    """Return the kind of a value that is one of `names`. Names can be added to `names` later."""
    return Kind(checked(str, lambda text: text in names), one_of(names), words=names)


def amount(
    unit: str, lowest: float, highest: float, convert: Callable[[float], float] = float
) -> Kind:
    """Return the kind of a number from `lowest` to `highest`, described by `unit`, converted by `convert`."""
    within = checked(lambda text: float(_number(text, NUMBER)), lambda n: lowest <= n <= highest)
    return Kind(lambda text: convert(within(text)), f"{unit} from {lowest:.10g} to {highest:.10g}")


def seconds(lowest: float, highest: float) -> Kind:
    return amount("a number of seconds", lowest, highest)


def integer(lowest: int, highest: int) -> Kind:
    parse = checked(lambda text: int(_number(text, WHOLE_NUMBER)), lambda n: lowest <= n <= highest)
    return Kind(parse, f"an integer from {lowest} to {highest}")


def _number(text: str, pattern: re.Pattern[str]) -> str:
    """Return the text of a number that is not negative. Raises ValueError for anything else."""
    if len(text) > MOST_DIGITS or not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def written(parse: Callable[[str], Any] = str, unlimited: bool = False) -> Kind:
    """Return the kind of a value that only the service writes."""
    return Kind(parse, WRITTEN_BY_US, by_service=True, unlimited=unlimited)


@dataclass(frozen=True, slots=True)
class CheckedHost:
    """A host that each uplink queries to check the uplink's path. `vlan`: 0 for untagged frames."""

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


@dataclass(frozen=True, slots=True)
class Choice:
    """The uplinks that a rule names, in the rule's order, and those that it excludes with "!"."""

    named: tuple[str, ...]
    ruled_out: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Choice:
        """Parse comma-separated names. Raises ValueError if a name is empty or repeated."""
        words = [word.strip() for word in text.split(",")]
        named = tuple(word for word in words if not word.startswith("!"))
        ruled_out = tuple(word[1:].strip() for word in words if word.startswith("!"))
        if not all((*named, *ruled_out)) or len({*named, *ruled_out}) != len(words):
            raise ValueError(text)
        return cls(named, ruled_out)

    def within(self, team: Collection[str]) -> Choice | None:
        """Return the choice without uplinks outside the team; None if no rule or no allowed uplink is left.

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
    """The last valid team: its uplinks, VM ports and other interfaces; empty before `attach`.

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


def uplinks_of(team: Collection[str]) -> Kind:
    """Return the kind of a `Choice` of a team's uplinks that allows at least one uplink."""
    parse = checked(Choice.of, lambda choice: choice.within(team) == choice)

    def salvage(text: str) -> Choice | None:
        try:
            return Choice.of(text).within(team)
        except ValueError:
            return None

    expected = f"some of {', '.join(team)}, comma-separated; !NAME for all uplinks except NAME"
    return Kind(parse, expected, salvage)


def moves(text: str) -> tuple[Moved, ...]:
    """Parse the output of `moves_text`. Raises ValueError if a time or number is out of range."""
    pairs = [word.split(":") for word in text.split(",")]
    at, steps = seconds(0, LAST_S), integer(0, MOST_STEPS)
    return tuple(Moved(at.parse(at_s), steps.parse(step)) for at_s, step in pairs)


def moves_text(moves: Iterable[Moved]) -> str:
    """Return the value of the key `moved`: the time and the cooldown step of each move."""
    return ",".join(f"{move.at_s:.3f}:{move.step}" for move in moves)


def _previous_state(text: str) -> dict[str, str | None]:
    if len(text) > MOST_NOTE_CHARACTERS:
        raise ValueError(text)
    found = json.loads(text)
    if found not in [{"fail_mode": mode} for mode in (None, *FAIL_MODES)]:
        raise ValueError(text)
    return dict(found)


_ON_OR_OFF = name_in(("on", "off", "true", "false"))
# Parsed to a bool.
FLAG = replace(_ON_OR_OFF, parse=lambda text: _ON_OR_OFF.parse(text) in ("on", "true"))
# Parsed to bits per second.
MBPS = amount("a rate in Mbit/s", 0.001, MAX_MBPS, lambda mbps: mbps * 1e6)
# Parsed to seconds.
DURATION = Kind(
    checked(lambda text: integer(1, 10**6).parse(text[:-1]) * PARTS_S.get(text[-1:], 0), bool),
    "a duration such as 90m, 12h, 7d or 2w",
)
# Hosts in the network, each with its VLAN.
HOSTS = Kind(
    checked(
        lambda text: tuple(map(CheckedHost.of, text.split(","))),
        lambda hosts: len(hosts) == len(set(hosts)) <= MOST_HOSTS,
    ),
    f"1 to {MOST_HOSTS} IP addresses of hosts, comma-separated; ADDRESS%VLAN for a host in a VLAN",
)
INTERFACE_NAMES = Kind(
    checked(
        lambda text: tuple(part.strip() for part in text.split(",")),
        # No name is empty or given twice.
        lambda names: 2 <= len(names) == len({*names} - {""}) <= MAX_UPLINKS,
    ),
    f"2 to {MAX_UPLINKS} interface names, comma-separated",
)
# A choice of uplinks, for use before the uplinks are known.
UPLINKS = Kind(Choice.of, "names of uplinks, comma-separated; !NAME excludes an uplink")
SET_NAME = Kind(
    checked(str, lambda text: text.isprintable() and bool(_SET_NAME.fullmatch(text))),
    f"the name of a set, without commas or spaces, {MOST_NAME_CHARACTERS} characters at most",
)
# The bridge's settings before `attach`, as saved by `attach`.
PREVIOUS_STATE = Kind(
    _previous_state, f'{WRITTEN_BY_US}, as JSON: {{"fail_mode": ...}}', by_service=True
)
