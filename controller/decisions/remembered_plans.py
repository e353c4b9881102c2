"""The latest plans of planners: for the same team, a planner need not plan again.

A decision needs the plan for the same team several times, and so do later decisions while loads do
not change. Planners are pure functions, so the plan is the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from policies.model import Plan, Snapshot

Planner = Callable[[Snapshot], Plan]
# A decision asks about fewer teams than this, and the decision before it did.
MOST = 8


@dataclass(slots=True)
class RememberedPlans:
    """The plans of one bridge that were made or used last."""

    # The one that was asked for longest ago comes first. To compare teams is faster than to hash
    # them: other teams mostly differ in the load of an uplink, and equal ones share their units.
    _made: deque[tuple[Planner, Snapshot, Plan]] = field(default_factory=lambda: deque(maxlen=MOST))

    def plan_of(self, planner: Planner, snapshot: Snapshot) -> Plan:
        """Return what the planner plans for the team."""
        for made in self._made:
            if made[0] is planner and made[1] == snapshot:
                self._made.remove(made)
                break
        else:
            made = planner, snapshot, planner(snapshot)
        self._made.append(made)
        return made[2]
