"""Probes that a network loses although their paths are well, and how many lost in a row prove a fault in it.

A congested network loses some frames of all kinds. By chance, it also loses several probes of one path in
a row, and that must not count as a broken path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# So many losses in a row prove a fault as would be lost by chance this rarely.
CHANCE = 1e-6
# At most so many are awaited: 10 s. A network that loses half of all frames is no good anyway.
MOST = 20
# How many probes are remembered, about: those of 5 s with three uplinks, and of 16 s with two.
REMEMBERED = 64


@dataclass(slots=True)
class SingleLosses:
    """The share of probes that was lost of late on paths that turned out to be well, of one bridge."""

    ratio: float = 0.0

    def note_losses(self, lost: int) -> None:
        """A probe has arrived on a path that is well. `lost`: how many before it were lost in a row."""
        for found in (*[1.0] * lost, 0.0):
            self.ratio += (found - self.ratio) / REMEMBERED

    def in_a_row(self, least: int) -> int:
        """How many lost in a row prove a fault; `least` in a network that loses none otherwise."""
        if self.ratio <= 0.0:
            return least
        by_chance = math.ceil(math.log(CHANCE) / math.log(self.ratio))
        return max(least, min(MOST, by_chance))
