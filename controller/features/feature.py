"""A feature of a bridge: a part with its own state, and the moments at which it acts.

Also common parts of features: a request to the switch, and a schedule of later actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from controller.api.engine_commands import Command, Report
from controller.api.events import Event
from controller.config.values import BridgeConfig

if TYPE_CHECKING:
    from controller.bridge.bridge import Bridge

# The events that a feature hears.
Heard = TypeVar("Heard")
Wanted = TypeVar("Wanted")
T = TypeVar("T")
Timer = tuple[float, Callable[[float], list[Command]]]
# A refused request is made again after this time.
RETRY_AFTER_S = 30.0


@dataclass(eq=False)
class Feature(Generic[Heard]):
    """The hooks of a feature, which do nothing by default. `Bridge` calls its features in order."""

    bridge: Bridge
    # The events that `heard` handles.
    hears: ClassVar[tuple[type[Event], ...]] = ()

    @property
    def config(self) -> BridgeConfig:
        """The configuration in force."""
        return self.bridge.config

    def forget_switch(self) -> None:
        """The connection ended: forget everything that the switch has reported."""

    def want(self, now_s: float) -> list[Command]:
        """Ask the switch for what the feature lacks, now that the desired flows are installed."""
        return []

    def heard(self, event: Heard, now_s: float) -> list[Command]:
        """Handle an event of `hears`."""
        raise NotImplementedError

    def timers(self) -> Iterable[Timer]:
        """The due time and the function of each timer. Called after each event."""
        return ()


@dataclass(slots=True)
class Request(Generic[Wanted]):
    """The requests of one kind to one switch, of which one is under way at most.

    Each has a number. A refused request is repeated some time later.
    """

    # Why the switch refused the last one; None: it did not.
    error: str | None = None
    # What the request under way asks for; None: none is under way.
    asked: Wanted | None = None
    # What the switch has confirmed last; None: not known, so ask.
    confirmed: Wanted | None = None
    # The number of the last request.
    _number: int = 0
    # What the switch has refused last, which is not asked for again before this time.
    _refused: Wanted | None = None
    _not_before_s: float = 0.0

    def number_for(self, wanted: Wanted, now_s: float) -> int | None:
        """The number of the request to make now; None if none is needed or possible."""
        waits = wanted == self._refused and now_s < self._not_before_s
        if self.asked is not None or wanted == self.confirmed or waits:
            return None
        self.asked = wanted
        assert wanted is not None, "a request asks for something"
        self._number += 1
        return self._number

    def is_under_way(self, number: int) -> bool:
        """Whether the request of this number is the one under way."""
        return self.asked is not None and number == self._number

    def finish(self, error: str | None, what: str, now_s: float) -> list[Command]:
        """The switch has answered the request under way, which is for `what`. Warn of a new error."""
        assert self.asked is not None
        warns = error not in (None, self.error)
        if error is None:
            self.confirmed = self.asked
        else:
            self._refused, self._not_before_s = self.asked, now_s + RETRY_AFTER_S
        self.asked, self.error = None, error
        return [Report("warning", f"{what}: {error}")] if warns else []

    def forget_switch(self) -> None:
        """The connection ended, and with it any request under way."""
        self.asked = self.confirmed = self._refused = None

    def forget_refusal(self) -> None:
        """Ask again when this is wanted again: the switch may accept it then."""
        self.error = self._refused = None


@dataclass(slots=True)
class Schedule(Generic[T]):
    """Later actions: sets of things, each at its time. It is false if there are none."""

    # When each set is due, in seconds of engine time.
    _due: list[tuple[float, frozenset[T]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._due)

    def plan(self, things: Iterable[T], now_s: float, after_s: Iterable[float]) -> None:
        """Schedule a set so many seconds from now."""
        things = frozenset(things)
        self._due += [(now_s + one_s, things) for one_s in after_s]

    def due_s(self) -> float:
        """When the next set is due; infinity if there is none."""
        return min([at_s for at_s, _ in self._due]) if self._due else math.inf

    def take_due(self, now_s: float) -> frozenset[T]:
        """Return the due sets, and forget them."""
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
