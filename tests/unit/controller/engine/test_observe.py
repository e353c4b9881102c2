"""Observing: everything is decided and reported, and nothing is moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.engine_commands import Apply, ReadLearned, Record, SendFrame
from controller.config.rows import BridgeRow
from controller.dataplane.specs import EMPTY
from tests.unit.controller.engine.told import desired, offer, shown
from tests.unit.fake_switch import World, done, moves, refusal, reports, world
from tests.unit.rows import VMS, backed_up, host, port, with_ids, with_interface

on_each = pytest.mark.parametrize("plain", [False, True], ids=["bond", "plain"])


def changed(row: BridgeRow, what: str) -> BridgeRow:
    """The bridge with a pin of vnet1, another policy or a role of eth2, which all ask for eth1."""
    if what == "pin":
        return with_interface(row, "vnet1", binding="eth2", pin="eth1")
    if what == "policy":
        return with_ids(row, policy="explicit")
    return with_interface(row, "eth2", role=what)


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


def test_on_plain_uplinks_the_bindings_in_force_are_shown_beside_the_planned_ones() -> None:
    here = loaded(host(plain=True, binding="eth1", mode="observe"), 3e9).run_until(300)
    assert set(here.bindings().values()) == {"eth1"}
    assert sorted(str(u) for u in would_be(here).values()) == ["eth1", "eth1", "eth2", "eth2"]
    assert set(here.stored_bindings().values()) == {"eth1", None}
    text = done(here.ask("show"))
    assert "observe mode: no moves to balance load" in text and "eth1 (eth2)" in text
    here.restart_service().run_for(1)
    assert set(here.bindings().values()) == {"eth1"}
    assert here.commands(Apply) == []


def test_a_failover_on_an_observed_bond_is_planned_only() -> None:
    here = world(host(mode="observe", failback_delay_s="5")).start()
    here.set_link(1, up=False).run_for(1)
    assert set(would_be(here).values()) == {"eth2"}
    here.set_link(1, up=True).run_for(10)
    assert planned(here) == {"failover": 2, "failback": 2}
    assert moves(here) == {} and here.status.moves_applied["failover"] == 0
    assert not here.commands(Apply) and not here.commands(SendFrame)


def test_a_failover_on_observed_plain_uplinks_is_followed() -> None:
    here = world(host(plain=True, mode="observe", failback_delay_s="5")).start()
    before = here.bindings()
    here.set_link(1, up=False).run_for(1)
    assert set(here.bindings().values()) == {"eth2"}
    here.set_link(1, up=True).run_for(4)
    assert here.switch.uplink_of(10) == 2, "no snap-back"
    here.run_for(6)
    assert here.bindings() == before
    assert moves(here) == planned(here) == {"failover": 2, "failback": 2}
    assert here.switch.installed == desired(here)


@pytest.mark.parametrize("change", ["pin", "drained", "unused", "standby", "policy"])
@on_each
def test_rules_and_roles_are_planned_and_not_followed(plain: bool, change: str) -> None:
    here = world(host(plain=plain, mode="observe")).start()
    before = here.bindings()
    here.write(changed(here.rows["br0"], change)).run_for(100)
    assert would_be(here)["vnet1"] == "eth1"
    assert moves(here) == {}
    if not plain:
        assert here.switch.installed == EMPTY
        return
    assert here.bindings() == before
    used = [here.switch.uplink_of(10 + i) for i in range(4)]
    assert used == [int(before[name].removeprefix("eth")) for name in VMS]
    here.restart_service().run_for(100)
    assert here.bindings() == before and here.commands(Apply) == []
    assert change == "policy" or would_be(here)["vnet1"] == "eth1"


@on_each
def test_what_would_move_something_now_is_refused(plain: bool) -> None:
    here = world(host(plain=plain, mode="observe")).start()
    here.log.clear()
    text = "bridge br0 is in observe mode; to make moves: ovs-lbt set bridge br0 mode=enforce"
    assert refusal(here.ask("move", "vnet0", "eth2")) == text
    assert refusal(here.ask("drain", "eth1")) == text
    here.run_for(5)
    assert planned(here) == {"manual": 1, "drain": 1}, "wanted, and refused"
    assert moves(here) == {} and here.commands(Apply) == []


def test_a_new_vm_port_on_observed_plain_uplinks_is_placed_by_the_rules_there_are() -> None:
    row = with_interface(host(plain=True, mode="observe"), "eth1", role="unused")
    here = world(row).start()
    assert set(here.bindings().values()) == {"eth2"}
    here.add_port(port("vnet4", 14)).run_for(1)
    assert here.bindings()["vnet4"] == "eth2"


# ---- from one to the other -------------------------------------------------------------


def test_a_vm_port_without_an_uplink_gets_none_when_plain_uplinks_are_only_observed() -> None:
    here = world(host(plain=True)).start()
    here.do("set interface vnet0 allow=eth1")
    here.write_keys_of("eth1", role="unused").run_for(2)
    assert "vnet0" not in here.bindings()
    here.write_keys(mode="observe").run_for(2)
    assert "vnet0" not in here.bindings(), "an unused uplink carries nothing more than before"
    here.restart_service().run_for(2)
    assert "vnet0" not in here.bindings(), "nor after a restart"
    here.write_keys_of("eth1", role="active").run_for(2)
    assert here.bindings()["vnet0"] == "eth1"


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


def test_from_observe_to_enforce_a_bond_gets_the_bindings_that_were_planned() -> None:
    here = loaded(host(binding="eth1", mode="observe"), 3e9).run_until(300)
    assert here.applied() == [] and here.switch.installed == EMPTY
    virtual, told = would_be(here), shown(here)
    assert sorted(str(u) for u in virtual.values()) == ["eth1", "eth1", "eth2", "eth2"]
    assert told["mode"] == "observe"
    for key in ("uplink", "planned_uplink"):
        assert {p["name"]: p[key] for p in told["ports"]} == virtual
    assert "observe mode: the bond forwards as before" in done(here.ask("show"))
    here.do("set bridge br0 mode=enforce").run_for(200)
    assert "observe mode" not in done(here.ask("show"))
    assert here.bindings() == virtual
    assert moves(here) == {}
    assert here.switch.installed == desired(here) != EMPTY


def test_a_window_begins_with_enforcing() -> None:
    """Under NORMAL all was on eth1; what that loaded says nothing of our bindings."""
    here = loaded(host(mode="observe"), 3e9).run_until(100)
    here.switch.sent_bytes[1] = here.switch.sent_bytes.get(1, 0) + 9e9 / 8 * 60
    here.run_until(101)
    here.do("set bridge br0 mode=enforce").run_for(31)
    assert moves(here) == {}


def test_on_plain_uplinks_neither_way_moves_anything_by_itself() -> None:
    here = loaded(host(plain=True, binding="eth1"), 1e9)
    here.log.clear()
    here.write_keys(mode="observe").run_for(10)
    here.write_keys_of("vnet1", binding="eth1", pin="eth2").run_for(10)
    assert here.commands(Apply) == []
    here.write_keys(mode="enforce").run_for(1)
    assert here.bindings() == {n: "eth2" if n == "vnet1" else "eth1" for n in VMS}
    assert moves(here) == {"pin": 1}


def test_an_uplink_that_failed_before_is_not_returned_to_with_or_without_a_restart() -> None:
    """Its failback is planned. A service that starts knows no other home than the uplink in use."""
    row = with_interface(host(plain=True), "eth2", role="standby")
    here = world(row).start().set_link(1, up=False).run_for(1)
    here.write_keys(mode="observe").run_for(1)
    here.set_link(1, up=True).run_for(100)
    for _ in range(2):
        assert set(here.bindings().values()) == {"eth2"}
        assert set(would_be(here).values()) == {"eth1"}
        assert here.switch.installed == desired(here)
        here.restart_service().run_for(100)
        assert here.commands(Apply) == []


def test_a_bridge_whose_switch_is_away_changes_its_mode_when_it_is_back() -> None:
    here = world(host()).start().disconnect()
    here.write_keys(mode="observe").connect()
    assert here.switch.installed == EMPTY
    here.disconnect()
    here.write_keys(mode="enforce").connect()
    assert here.switch.installed == desired(here) != EMPTY


def test_a_bond_member_left_out_does_not_confuse_it() -> None:
    """NORMAL goes on with the bond as it stands, so nothing of ours comes to be on the switch."""
    row = host(mode="observe", uplinks=2)
    row = replace(row, ports=(*row.ports, port("eth3", 3)))
    here = world(row).start()
    here.write_keys(uplinks="eth1,eth3").run_for(1)
    assert here.switch.installed == desired(here) == EMPTY
    (error,) = map(str, here.status.config.errors)
    assert error.startswith("Bridge br0 ovs-lbt-uplinks: eth1,eth3 are not the members of bond0; ")
