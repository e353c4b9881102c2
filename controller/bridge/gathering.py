"""Gathering: all units leave by one member of a bond before NORMAL takes over by that member.

On an active-backup bond, NORMAL drops what the backup members receive, so frames under way to a VM
by one of them would be lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from controller.config.values import BridgeConfig
from controller.teaming.bindings import Bound

# Frames for a VM keep coming by the member it was moved from until the upstream switch has
# carried the learning packet into its flow cache: at once, or after the second one (1 s).
GATHERED_AFTER_S = 1.2


@dataclass(slots=True)
class Gathering:
    """The gathering of one bridge."""

    # When frames no longer come by other members, in engine time; None: units do not gather.
    until_s: float | None = None

    def begin(self, now_s: float) -> None:
        self.until_s = now_s + GATHERED_AFTER_S

    def end(self) -> None:
        self.until_s = None

    @property
    def is_under_way(self) -> bool:
        return self.until_s is not None

    def is_over(self, now_s: float) -> bool:
        """Whether units have gathered; true until `end`."""
        return self.until_s is not None and now_s >= self.until_s

    def deadline_s(self) -> float:
        """When units have gathered; infinity if they do not gather."""
        return math.inf if self.until_s is None else self.until_s


def member_to_use(config: BridgeConfig, bound: Mapping[str, Bound]) -> str | None:
    """The member on which units have to gather; None if any will do, or all are there."""
    member = config.active_member
    if member is None or all(at.uplink == member for at in bound.values()):
        return None
    return member
