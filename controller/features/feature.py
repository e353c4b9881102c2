"""A feature of a bridge: a part with a state of its own, and the moments at which it acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from controller.api.engine_commands import Command
from controller.api.events import Event

if TYPE_CHECKING:
    from controller.bridge.bridge import Bridge

# The events that a feature hears.
Heard = TypeVar("Heard")
Timer = tuple[float, Callable[[float], list[Command]]]


@dataclass(eq=False)
class Feature(Generic[Heard]):
    """What a feature does when; nothing unless it says so. `Bridge` calls its features in their order."""

    bridge: Bridge
    # The events that `heard` handles.
    hears: ClassVar[tuple[type[Event], ...]] = ()

    def forget_switch(self) -> None:
        """The connection ended, and with it what the switch has said."""

    def want(self, now_s: float) -> list[Command]:
        """Ask the switch for what the feature lacks, now that the desired flows are installed."""
        return []

    def heard(self, event: Heard, now_s: float) -> list[Command]:
        """Handle an event of `hears`."""
        raise NotImplementedError

    def timers(self) -> Iterable[Timer]:
        """When each thing is due, and what does it. This is asked after each event."""
        return ()
