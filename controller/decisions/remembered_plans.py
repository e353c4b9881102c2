"""The latest plans of planners: for the same team, a planner need not plan again.

A decision asks several times about the same team, and so do the decisions after it while loads do
not change. Planners are pure functions, so the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from policies.model import Plan, Snapshot

Planner = Callable[[Snapshot], Plan]
# A decision asks about fewer teams than this, and the decision before it did.
MOST = 8


@dataclass(slots=True)
class RememberedPlans:
    """The plans of one bridge that were made or asked for last."""

    _made: dict[tuple[Planner, Snapshot], Plan] = field(default_factory=dict)

    def of(self, planner: Planner, snapshot: Snapshot) -> Plan:
        """Return what the planner plans for the team."""
        made, asked = self._made, (planner, snapshot)
        plan = made.pop(asked, None)
        if plan is None:
            plan = planner(snapshot)
        # The one that was asked for longest ago comes first.
        made[asked] = plan
        if len(made) > MOST:
            del made[next(iter(made))]
        return plan
