"""Plans that were made already."""

from __future__ import annotations

from dataclasses import replace

from controller.decisions.remembered_plans import MOST, RememberedPlans
from policies.model import Load, Move, OfPort, Plan, Reason, Snapshot, Unit, Uplink


def team(bps: float) -> Snapshot:
    uplinks = tuple(Uplink(f"eth{n}", OfPort(n), 1e9) for n in (1, 2))
    return Snapshot(uplinks, (Unit("vnet0", 3, uplink="eth1", load=Load(bps)),))


def test_a_team_is_planned_again_only_if_it_is_another_or_was_asked_for_long_ago() -> None:
    asked: list[Snapshot] = []

    def planner(snapshot: Snapshot) -> Plan:
        asked.append(snapshot)
        return Plan((Move("vnet0", "eth1", "eth2", Reason.REBALANCE),))

    plans = RememberedPlans()
    for _ in range(3):
        assert plans.plan_of(planner, team(1e6)).moves
        assert plans.plan_of(lambda _: Plan(), team(1e6)) == Plan(), "another planner"
    assert asked == [team(1e6)]
    plans.plan_of(planner, replace(team(1e6), threshold_ratio=0.5))
    plans.plan_of(planner, team(1e6 + 1))
    assert len(asked) == 3
    for number in range(MOST):
        plans.plan_of(planner, team(2e6 + number))
    plans.plan_of(planner, team(1e6))
    assert len(asked) == 3 + MOST + 1
