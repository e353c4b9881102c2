"""Each variant of the planner that can be measured still plans."""

from __future__ import annotations

from policies.planners import splitting
from tests.unit.policies.placements import instance
from tests.unit.policies.taken_out import made, piled, variants


def test_every_variant_plans() -> None:
    snapshot = piled(instance(3, uplinks=3, units=12))
    for variant in variants():
        with variant.applied():
            assert splitting.plan(snapshot).moves, variant.name
            assert made(snapshot).moves, variant.name
