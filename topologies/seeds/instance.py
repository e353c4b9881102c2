"""A load jump: the uplinks, and each VM's home, rates and start time.

A JSON file has a list of jumps:

    {"instances": [
      {"name": "two-on-one", "uplinks_mbps": [100, 50], "vms": [
        {"home": 1, "before_mbps": 0.5, "after_mbps": 70.5, "start_ms": 0},
        {"home": 1, "before_mbps": 0.5, "after_mbps": 40, "start_ms": 35.5},
        {"home": 2, "before_mbps": 5, "after_mbps": 1, "start_ms": 120}]}]}

`home` counts the uplinks from 1. Rates include Ethernet headers. A VM's load changes from
`before_mbps` to `after_mbps` when `start_ms` have passed since the beginning of the jump.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The limits of a bench's networks, and of the traffic that one machine can forward.
UPLINKS = (2, 8)
VMS = (1, 64)
UPLINK_MBPS = (1, 1000)
MOST_START_MS = 5000.0
MOST_OFFERED_MBPS = 1000.0
# A jump is feasible if a placement keeps every uplink below this share of its capacity.
FEASIBLE_RATIO = 0.85
# Each jump has a file of its name; `report.json` has the results of all jumps.
RESERVED_NAME = "report"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM's load. `home` is the index of its uplink before the jump."""

    home: int
    before_bps: float
    after_bps: float
    start_s: float


@dataclass(frozen=True, slots=True)
class Instance:
    """A load jump. `name` is unique and valid as a file name."""

    name: str
    capacities_bps: tuple[int, ...]
    vms: tuple[Vm, ...]

    @property
    def last_start_s(self) -> float:
        """When the last load starts, since the beginning of the jump."""
        return max(vm.start_s for vm in self.vms)

    @property
    def offered_bps(self) -> float:
        """The total rate after all loads have started."""
        return sum(vm.after_bps for vm in self.vms)

    def home_utilizations(self) -> tuple[float, ...]:
        """Each uplink's offered load over its capacity after the jump, if no VM moves."""
        offered = [0.0] * len(self.capacities_bps)
        for vm in self.vms:
            offered[vm.home] += vm.after_bps
        return tuple(
            bps / capacity for bps, capacity in zip(offered, self.capacities_bps, strict=True)
        )

    def as_json(self) -> dict[str, Any]:
        """The entry of this jump in a JSON file."""
        return {
            "name": self.name,
            "uplinks_mbps": [bps // 10**6 for bps in self.capacities_bps],
            "vms": [
                {
                    "home": vm.home + 1,
                    "before_mbps": vm.before_bps / 1e6,
                    "after_mbps": vm.after_bps / 1e6,
                    "start_ms": vm.start_s * 1e3,
                }
                for vm in self.vms
            ],
        }


def read(path: Path) -> list[Instance]:
    """Read the jumps of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has another format; the message names the place.
    """
    try:
        document = json.loads(path.read_text())
    except ValueError as error:  # not JSON, or not UTF-8
        raise ValueError(f"{path} is not JSON: {error}") from None
    try:
        listed = _table(document, "", ("instances",))["instances"]
        found = [_instance(one, f"instances[{n}]") for n, one in enumerate(_list(listed))]
    except _InvalidEntry as error:
        raise ValueError(f"{path}: {error}") from None
    names = [one.name for one in found]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(
                f"{path}: instances[{number}].name is {name}, as in another jump; choose another name"
            )
    return found


class _InvalidEntry(ValueError):
    """A place in the file has a wrong value."""


def _instance(given: object, where: str) -> Instance:
    table = _table(given, where, ("name", "uplinks_mbps", "vms"))
    name = table["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "expected up to 40 letters, digits, `.`, `_` and `-`"
        raise _InvalidEntry(f"{where}.name is {name!r}; {expected}")
    if name == RESERVED_NAME:
        raise _InvalidEntry(f"{where}.name is {name!r}, which is reserved; choose another name")
    speeds = _list(table["uplinks_mbps"], f"{where}.uplinks_mbps", UPLINKS)
    capacities_bps = tuple(
        int(_number(mbps, f"{where}.uplinks_mbps[{n}]", *UPLINK_MBPS, whole=True)) * 10**6
        for n, mbps in enumerate(speeds)
    )
    listed = _list(table["vms"], f"{where}.vms", VMS)
    vms = tuple(_vm(one, f"{where}.vms[{n}]", len(speeds)) for n, one in enumerate(listed))
    made = Instance(name, capacities_bps, vms)
    if not made.offered_bps:
        raise _InvalidEntry(f"no VM in {where}.vms sends; set an after_mbps above 0")
    if made.offered_bps > MOST_OFFERED_MBPS * 1e6:
        offered = f"{made.offered_bps / 1e6:g} Mbit/s in total"
        raise _InvalidEntry(
            f"{where}.vms send {offered}; expected at most {MOST_OFFERED_MBPS:g} Mbit/s"
        )
    return made


def _vm(given: object, where: str, uplinks: int) -> Vm:
    table = _table(given, where, ("home", "before_mbps", "after_mbps", "start_ms"))

    def number(key: str, least: float, most: float, *, whole: bool = False) -> float:
        return _number(table[key], f"{where}.{key}", least, most, whole=whole)

    return Vm(
        home=int(number("home", 1, uplinks, whole=True)) - 1,
        before_bps=number("before_mbps", 0, MOST_OFFERED_MBPS) * 1e6,
        after_bps=number("after_mbps", 0, MOST_OFFERED_MBPS) * 1e6,
        start_s=number("start_ms", 0, MOST_START_MS) / 1e3,
    )


def _table(given: object, where: str, keys: Sequence[str]) -> Mapping[str, Any]:
    place = where or "the file"
    if not isinstance(given, dict):
        raise _InvalidEntry(f"{place} is {_kind(given)}; expected an object with {', '.join(keys)}")
    for key in given:
        if key not in keys:
            raise _InvalidEntry(f"{place} has the key {key}; expected only {', '.join(keys)}")
    for key in keys:
        if key not in given:
            raise _InvalidEntry(f"{place} has no {key}; expected {', '.join(keys)}")
    return given


def _list(
    given: object, where: str = "instances", count: tuple[int, int] | None = None
) -> list[object]:
    least, most = count or (1, 10_000)
    if not isinstance(given, list) or not least <= len(given) <= most:
        found = f"a list of {len(given)}" if isinstance(given, list) else _kind(given)
        raise _InvalidEntry(f"{where} is {found}; expected a list of {least} to {most}")
    return given


def _number(given: object, where: str, least: float, most: float, *, whole: bool = False) -> float:
    good = (
        isinstance(given, int | float)
        and not isinstance(given, bool)
        and math.isfinite(given)
        and least <= given <= most
        and (not whole or given == int(given))
    )
    if not good:
        kind = "a whole number" if whole else "a number"
        found = given if isinstance(given, int | float | str) else _kind(given)
        raise _InvalidEntry(f"{where} is {found}; expected {kind} from {least:g} to {most:g}")
    assert isinstance(given, int | float)
    return float(given)


def _kind(given: object) -> str:
    if isinstance(given, dict):
        return "an object"
    if isinstance(given, list):
        return "a list"
    return json.dumps(given)
