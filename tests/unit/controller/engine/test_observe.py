"""Observing: everything is decided and reported, and nothing is moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import Apply, ReadLearned, Record, SendFrame
from controller.config.rows import BridgeRow
from controller.dataplane.specs import EMPTY
from tests.unit.controller.engine.told import desired, offer
from tests.unit.fake_switch import World, moves, reports, world
from tests.unit.rows import backed_up, host, port

on_each = pytest.mark.parametrize("plain", [False, True], ids=["bond", "plain"])


def planned(here: World) -> dict[str, int]:
    return {reason: n for reason, n in here.status.moves_planned.items() if n}


def would_be(here: World) -> dict[str, str | None]:
    return {p.port.name: p.planned_uplink for p in here.status.ports}


def loaded(row: BridgeRow, bps: float) -> World:
    return offer(world(row), [bps] * 4).start()


@on_each
def test_planning_goes_on_as_if_its_moves_were_made(plain: bool) -> None:
    """The same moves at the same pace as enforcing, counted as planned and nowhere else."""
    enforced = loaded(host(plain=plain, binding="eth1"), 3e9).run_until(300)
    here = loaded(host(plain=plain, binding="eth1", mode="observe"), 3e9)
    installed = here.switch.installed
    here.log.clear()
    here.run_until(300)
    assert planned(here) == moves(enforced) == {"threshold": 2}
    assert would_be(here) == enforced.bindings()
    assert set(would_be(enforced).values()) == {None}, "nothing is planned that is not made"
    assert moves(here) == {} and here.commands(Apply) == []
    assert here.switch.installed == installed
    told = [line for line in reports(here, "info") if "not made" in line]
    assert told[0] == "br0: vnet0: eth1 -> eth2 (threshold), not made"


# ---- from one to the other -------------------------------------------------------------


def test_from_enforce_to_observe_a_bond_is_given_back_to_normal_with_its_vms_introduced() -> None:
    here = world(host()).start()
    here.switch.learned = ((10, "52:54:00:00:00:01", 0),)
    before = here.bindings()
    here.log.clear()
    here.do("set bridge br0 mode=observe")
    assert here.switch.installed == EMPTY
    assert would_be(here) == before
    kinds = [type(c) for _, c in here.log if isinstance(c, Apply | ReadLearned | SendFrame)]
    assert kinds == [ReadLearned, Apply, Apply, SendFrame], "what was learned goes with the flows"
    assert [ofport for _, ofport in here.frames()] == [10]


@pytest.mark.parametrize("back", [False, True], ids=["observe", "observe-enforce"])
def test_vm_ports_are_on_the_active_member_before_normal_takes_over(back: bool) -> None:
    """It takes nothing from the others; a change of mind meanwhile leads home again."""
    here = world(backed_up()).start()
    switch, homes = here.switch, here.bindings()
    assert set(homes.values()) == {"eth1", "eth2"}
    here.write_keys(mode="observe")
    assert {switch.uplink_of(10), switch.uplink_of(11)} == {2}
    here.run_for(1.1)
    assert switch.installed != EMPTY
    if back:
        here.write_keys(mode="enforce").run_for(3)
        assert here.bindings() == homes
        assert {switch.uplink_of(10), switch.uplink_of(11)} == {1, 2}
    else:
        here.run_for(0.5)
        assert switch.installed == EMPTY
        assert would_be(here) == homes
    gathered = next(c.entry for _, c in here.log if isinstance(c, Record) and c.entry.moves)
    assert {move.reason for move in gathered.moves} == {"manual"}, "nobody has drained anything"
    assert gathered.why == "requested by an operator: NORMAL takes over on eth2"
    assert not any("(drain)" in line for line in reports(here, "info"))


def test_a_window_begins_with_enforcing() -> None:
    """Under NORMAL all was on eth1; what that loaded says nothing of our bindings."""
    here = loaded(host(mode="observe"), 3e9).run_until(100)
    here.switch.sent_bytes[1] = here.switch.sent_bytes.get(1, 0) + 9e9 / 8 * 60
    here.run_until(101)
    here.do("set bridge br0 mode=enforce").run_for(31)
    assert moves(here) == {}


def test_a_bond_member_left_out_does_not_confuse_it() -> None:
    """NORMAL goes on with the bond as it stands, so nothing of ours comes to be on the switch."""
    row = host(mode="observe", uplinks=2)
    row = replace(row, ports=(*row.ports, port("eth3", 3)))
    here = world(row).start()
    here.write_keys(uplinks="eth1,eth3").run_for(1)
    assert here.switch.installed == desired(here) == EMPTY
    (error,) = map(str, here.status.config.errors)
    assert error.startswith("Bridge br0 ovs-lbt-uplinks: eth1,eth3 are not the members of bond0; ")
