"""How long policies take until they have nothing more to move.

From the first move that a policy makes because of load until the switch has confirmed the last one
before all policies have looked at the loads that came of it and moved nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Settling:
    """One bridge's. `_since_s` None: it is at rest."""

    _since_s: float | None = None
    _made_s: float | None = None

    @property
    def at_rest(self) -> bool:
        return self._since_s is None

    def moves(self, now_s: float) -> None:
        """A policy moves something because of load."""
        if self._since_s is None:
            self._since_s = now_s

    def made(self, now_s: float) -> None:
        """The switch has confirmed moves; those at rest were no policy's."""
        if not self.at_rest:
            self._made_s = now_s

    def rests(self) -> float | None:
        """All policies have looked, and moved nothing: how long it took, if it did not rest before.

        None, too, where the switch refused all of it.
        """
        since_s, made_s = self._since_s, self._made_s
        self._since_s = self._made_s = None
        return made_s - since_s if since_s is not None and made_s is not None else None
