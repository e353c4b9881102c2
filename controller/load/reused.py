"""Caches values that are built often but rarely change.

Each decision, ten times a second, builds units with their loads. An unchanged unit reuses its
previous object. This is faster to build, and faster to compare with the previous object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Reused:
    """The latest value for each use and each unit."""

    _made: dict[str, dict[str, tuple[tuple[Any, ...], Any]]] = field(default_factory=dict)

    def reuse(self, use: str) -> Callable[[str, Callable[..., T], tuple[Any, ...]], T]:
        """Return a function that makes a unit's value, or returns the last one if parts are equal.

        `make(*parts)` must depend only on `parts`. The parts that change most often come first.
        """
        made = self._made.setdefault(use, {})

        def value(name: str, make: Callable[..., T], parts: tuple[Any, ...]) -> T:
            last = made.get(name)
            if last is not None and last[0] == parts:
                found: T = last[1]
                return found
            new = make(*parts)
            made[name] = parts, new
            return new

        return value

    def keep_units(self, names: Collection[str]) -> None:
        """Forget all units except `names`."""
        for use, made in self._made.items():
            if len(made) > len(names) or not made.keys() <= set(names):
                self._made[use] = {name: made[name] for name in made if name in names}
