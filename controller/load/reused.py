"""Caches values that are built often but rarely change: units, and plans.

Each decision, ten times a second, builds units with their loads. An unchanged unit reuses its
previous object, which saves time when units are built and compared: a replay of the example trace
with `adaptive` takes 5.2 s of CPU time, and 6.5 s without the cache. Teams are compared, not hashed:
different teams usually differ in the load of an uplink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Reused:
    """A cache of the latest value for each purpose and unit."""

    _made: dict[tuple[str, str], tuple[tuple[Any, ...], Any]] = field(default_factory=dict)

    def reuse(self, use: str, unit: str, make: Callable[..., T], parts: tuple[Any, ...]) -> T:
        """Return a unit's value for purpose `use`: `make(*parts)`, cached while `parts` stay equal.

        `make(*parts)` must depend only on `parts`. Pass the parts that change most often first.
        """
        last = self._made.get((use, unit))
        if last is None or last[0] != parts:
            last = self._made[use, unit] = parts, make(*parts)
        made: T = last[1]
        return made

    def keep_units(self, names: Collection[str]) -> None:
        """Forget all units except `names`."""
        self._made = {key: made for key, made in self._made.items() if key[1] in names}
