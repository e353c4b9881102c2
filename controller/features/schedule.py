"""What has to be done later: sets of things, each at its time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Schedule(Generic[T]):
    """The sets that are not due yet. It is false if there is none."""

    # When each set is due, in seconds of engine time.
    _due: list[tuple[float, frozenset[T]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._due)

    def plan(self, things: Iterable[T], now_s: float, after_s: Iterable[float]) -> None:
        """These are due so many seconds from now."""
        things = frozenset(things)
        self._due += [(now_s + one_s, things) for one_s in after_s]

    def due_s(self) -> float:
        """When the next set is due; infinity if there is none."""
        return min([at_s for at_s, _ in self._due]) if self._due else math.inf

    def take_due(self, now_s: float) -> frozenset[T]:
        """Return what is due, and forget it."""
        due = [things for at_s, things in self._due if at_s <= now_s]
        if due:
            self._due = [entry for entry in self._due if entry[0] > now_s]
            assert self.due_s() > now_s, "what was due is not due again"
        return frozenset[T]().union(*due)

    def cancel(self, things: Iterable[T]) -> None:
        """These are not due any more."""
        cancelled = frozenset(things)
        left = ((at_s, due - cancelled) for at_s, due in self._due)
        self._due = [(at_s, due) for at_s, due in left if due]

    def clear(self) -> None:
        self._due.clear()
