"""The base class `Feature`: a task that changes the switch or the database, at intervals or on events.

This module also defines what several features use: a `Request` to the switch, and a `Schedule` of actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, TypeVar, get_args

from controller.api.engine_commands import Command, Report
from controller.config.values import BridgeConfig

if TYPE_CHECKING:
    from controller.bridge.bridge import Bridge

# The type of events that a feature handles.
Heard = TypeVar("Heard")
Wanted = TypeVar("Wanted")
T = TypeVar("T")
Timer = tuple[float, Callable[[float], list[Command]]]
# A refused request is repeated after this time.
RETRY_AFTER_S = 30.0


@dataclass(eq=False)
class Feature(Generic[Heard]):
    """A task of a bridge. `Bridge` calls each method for all features, in a fixed order."""

    bridge: Bridge
    # The type of events that `heard` handles: the argument of the base class, or nothing for `Never`.
    hears: ClassVar[Any] = ()

    def __init_subclass__(cls) -> None:
        (heard,) = get_args(cls.__dict__["__orig_bases__"][0])
        cls.hears = () if heard is Never else heard

    @property
    def config(self) -> BridgeConfig:
        """The bridge's current configuration."""
        return self.bridge.config

    def forget_switch(self) -> None:
        """Forget everything that the switch has reported, because the connection ended."""

    def want(self, now_s: float) -> list[Command]:
        """Return the feature's requests to the switch. Called when the desired flows are installed."""
        return []

    def heard(self, event: Heard, now_s: float) -> list[Command]:
        """Handle an event of a type in `hears`."""
        raise NotImplementedError

    def timers(self) -> Iterable[Timer]:
        """Return the feature's timers: (due time, function). Called after each event."""
        return ()


@dataclass(slots=True)
class Request(Generic[Wanted]):
    """Requests of one kind to one switch, at most one of them pending at a time.

    Each request has a number. A refused request is repeated after RETRY_AFTER_S.
    """

    # The error if the switch refused the last request; else None.
    error: str | None = None
    # The requested state while a request is pending; else None.
    asked: Wanted | None = None
    # The state that the switch last confirmed; None if it is not known, and must be requested.
    confirmed: Wanted | None = None
    # The number of the last request.
    _number: int = 0
    # The state that the switch last refused, and the time before which it is not requested again.
    _refused: Wanted | None = None
    _not_before_s: float = 0.0

    def number_for(self, wanted: Wanted, now_s: float) -> int | None:
        """Begin a request for state `wanted`. Return its number; None if no request is needed or possible."""
        waits = wanted == self._refused and now_s < self._not_before_s
        if self.asked is not None or wanted == self.confirmed or waits:
            return None
        self.asked = wanted
        assert wanted is not None, "a request asks for something"
        self._number += 1
        return self._number

    def is_under_way(self, number: int) -> bool:
        """Whether the request with this number is pending."""
        return self.asked is not None and number == self._number

    def finish(self, error: str | None, what: str, now_s: float) -> list[Command]:
        """End the pending request. If the error is new, return a warning with `what` and the error."""
        assert self.asked is not None
        warns = error not in (None, self.error)
        if error is None:
            self.confirmed = self.asked
        else:
            self._refused, self._not_before_s = self.asked, now_s + RETRY_AFTER_S
        self.asked, self.error = None, error
        return [Report("warning", f"{what}: {error}")] if warns else []

    def forget_switch(self) -> None:
        """Forget the pending request and the confirmed state, because the connection ended."""
        self.asked = self.confirmed = self._refused = None

    def forget_refusal(self) -> None:
        """Forget that the switch refused a request, so that it can be repeated immediately."""
        self.error = self._refused = None


@dataclass(slots=True)
class Schedule(Generic[T]):
    """Sets of items that are due at certain times. An empty schedule is falsy."""

    # The due time of each set, in seconds of engine time, and the set.
    _due: list[tuple[float, frozenset[T]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._due)

    def plan(self, things: Iterable[T], now_s: float, after_s: Iterable[float]) -> None:
        """Schedule `things` once after each of the delays in `after_s`."""
        things = frozenset(things)
        self._due += [(now_s + one_s, things) for one_s in after_s]

    def due_s(self) -> float:
        """Return when the next items are due; infinity if nothing is scheduled."""
        return min([at_s for at_s, _ in self._due]) if self._due else math.inf

    def take_due(self, now_s: float) -> frozenset[T]:
        """Remove the sets that are due, and return their union."""
        due = [things for at_s, things in self._due if at_s <= now_s]
        if due:
            self._due = [entry for entry in self._due if entry[0] > now_s]
            assert self.due_s() > now_s, "what was due is not due again"
        return frozenset[T]().union(*due)

    def cancel(self, things: Iterable[T]) -> None:
        """Remove `things` from all scheduled sets."""
        cancelled = frozenset(things)
        left = ((at_s, due - cancelled) for at_s, due in self._due)
        self._due = [(at_s, due) for at_s, due in left if due]

    def clear(self) -> None:
        self._due.clear()
