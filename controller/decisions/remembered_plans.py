"""Caches the latest plans of planners, so that they need not plan for the same team again.

A decision needs the plan for the same team several times, and so do later decisions while loads do
not change. Planners are pure functions, so the plan is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from policies.model import Plan, Snapshot

Planner = Callable[[Snapshot], Plan]
# More than the number of teams for which one decision and the one before it need plans.
MOST = 8


@dataclass(slots=True)
class RememberedPlans:
    """The most recently used plans of one bridge."""

    # The least recently used plan comes first. Comparing teams is faster than hashing them:
    # different teams usually differ in the load of an uplink, and equal teams share their units.
    _made: deque[tuple[Planner, Snapshot, Plan]] = field(default_factory=lambda: deque(maxlen=MOST))

    def plan_of(self, planner: Planner, snapshot: Snapshot) -> Plan:
        """Return the planner's plan for `snapshot`."""
        for made in self._made:
            if made[0] is planner and made[1] == snapshot:
                self._made.remove(made)
                break
        else:
            made = planner, snapshot, planner(snapshot)
        self._made.append(made)
        return made[2]
