"""How many moves a bridge has planned, made and refused, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from policies.model import Move, Reason


@dataclass(slots=True)
class Counts:
    """The counts of one bridge since the service began to manage it."""

    planned: Counter[str] = field(default_factory=Counter)
    # Confirmed by the switch.
    applied: Counter[str] = field(default_factory=Counter)
    # Refused by the switch, or to an operator.
    refused: Counter[str] = field(default_factory=Counter)

    def plan(self, moves: Iterable[Move]) -> None:
        self.planned.update(move.reason.value for move in moves)

    def apply(self, moves: Iterable[Move]) -> None:
        self.applied.update(move.reason.value for move in moves)

    def refuse(self, moves: Iterable[Move]) -> None:
        """The switch refused moves that were planned."""
        self.refused.update(move.reason.value for move in moves)

    def refuse_request(self, reasons: Iterable[Reason]) -> None:
        """Count moves that an operator asked for and did not get, as planned and as refused."""
        values = [reason.value for reason in reasons]
        self.planned.update(values)
        self.refused.update(values)
