"""A request to the switch: numbered, answered or refused, and made again some time after a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from controller.api.engine_commands import Command, Report

Wanted = TypeVar("Wanted")
# A refused request is made again after this time.
RETRY_AFTER_S = 30.0


@dataclass(slots=True)
class Request(Generic[Wanted]):
    """The requests of one kind to one switch, of which one is under way at most."""

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
