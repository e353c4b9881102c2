"""The convergence timer: measures the time until policies have nothing more to move.

It runs from the first move that a policy makes because of load. It ends when the switch confirms
the last move, after which all policies have judged the resulting loads and moved nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ConvergenceTimer:
    """The convergence timer of one bridge."""

    # When the first move was decided, in seconds of engine time; None: the bridge is at rest.
    _since_s: float | None = None
    # When the switch last confirmed moves.
    _made_s: float | None = None

    @property
    def at_rest(self) -> bool:
        return self._since_s is None

    def start(self, now_s: float) -> None:
        """Start the timer unless it runs. Call this when a policy moves a unit because of load."""
        if self._since_s is None:
            self._since_s = now_s

    def confirm_moves(self, now_s: float) -> None:
        """Record that the switch has confirmed moves; ignored if no policy chose them."""
        if not self.at_rest:
            self._made_s = now_s

    def stop(self) -> float | None:
        """Stop the timer after no policy moved anything. Return the measured time in seconds.

        None if the timer did not run, or the switch refused all moves.
        """
        since_s, made_s = self._since_s, self._made_s
        self._since_s = self._made_s = None
        return made_s - since_s if since_s is not None and made_s is not None else None
