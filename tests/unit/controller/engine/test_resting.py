"""A VM port that load may not move now says so, why, and until when."""

from __future__ import annotations

import pytest

from tests.said import says
from tests.unit.controller.engine.told import explained, offer
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import host


def on_one_uplink(*loads_bps: float) -> World:
    return offer(world(host("adaptive", binding="eth1")), loads_bps).start()


def test_one_that_load_has_moved_rests_for_a_while() -> None:
    here = on_one_uplink(6e9, 5e9, 0.0, 0.0)
    while "eth2" not in here.bindings().values():
        here.run_for(0.5)
        assert here.now_s < 30
    (moved,) = [name for name, uplink in here.bindings().items() if uplink == "eth2"]
    found = explained(here, moved)
    assert found["against"] == "resting"
    left_s = found["rests_until"] - here.now_s
    assert 0.0 < left_s <= 5.0
    assert says(found["said"]["now"], "cooldown", f"{-int(-left_s // 1)} s", "until 00:00:")
    assert found["said"]["to change"].endswith(f": ovs-lbt move {moved} UPLINK")
    assert here.engine.fleet.status()[0].budgets_spent == 0
    here.run_for(left_s + 2)
    found = explained(here, moved)
    assert (found["against"], found["rests_until"]) == ("no-use", None)


@pytest.mark.slow
def test_one_that_has_moved_four_times_has_spent_its_budget() -> None:
    first_s = 10.0
    here = on_one_uplink(0.0, 0.0, 0.0, 0.0).run_until(first_s)
    for target in ("eth2", "eth1", "eth2", "eth1"):
        done(here.ask("move", "vnet0", target))
        here.run_for(5)
    found = explained(here, "vnet0")
    assert found["against"] == "budget-spent"
    assert found["rests_until"] == first_s + 180.0
    assert says(found["said"]["now"], "4 times in 180 s", "cooldown")
    assert here.engine.fleet.status()[0].budgets_spent == 1
    done(here.ask("move", "vnet0", "eth2"))
    here.run_for(200)
    assert here.engine.fleet.status()[0].budgets_spent == 0


def test_the_budget_is_nothing_to_other_policies() -> None:
    here = world(host("load-based", binding="eth1")).start().run_until(10)
    for target in ("eth2", "eth1", "eth2", "eth1"):
        done(here.ask("move", "vnet0", target))
        here.run_for(5)
    assert here.engine.fleet.status()[0].budgets_spent == 0
    assert explained(here, "vnet0")["against"] not in ("resting", "budget-spent")
