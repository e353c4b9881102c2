"""Reservations beside rules, from the keys in the database to bindings and what is told of them."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.api.engine_commands import Report
from tests.said import says
from tests.unit.controller.engine.told import entries, explained, shown
from tests.unit.fake_switch import World, done, moves, world
from tests.unit.rows import host, with_interface

CAPACITY_BPS = 100e6


def team(keys: dict[str, dict[str, str]], binding: str | None = None, uplinks: int = 2) -> World:
    """Uplinks of 100 Mbit/s each, and a service that has just started."""
    row = host(binding=binding, uplinks=uplinks, failback_delay_s="5")
    for name, values in keys.items():
        row = with_interface(row, name, **({"binding": binding} if binding else {}), **values)
    return world(row, speed_bps=CAPACITY_BPS).start().run_for(3)


def broken(here: World) -> dict[str, str]:
    found = shown(here)["rules_broken"]
    assert {one["rule"] for one in found} <= {"reserve-mbps"}
    return {one["port"]: one["how"] for one in found}


def test_what_is_cut_by_shaping_has_no_room() -> None:
    here = team({"vnet0": {"reserve_mbps": "60"}, "vnet1": {"reserve_mbps": "40"}}, "eth1")
    assert sorted(here.bindings()[name] for name in ("vnet0", "vnet1")) == ["eth1", "eth2"]
    here = team({"vnet0": {"reserve_mbps": "60"}, "vnet1": {"reserve_mbps": "35"}}, "eth1")
    assert set(here.bindings().values()) == {"eth1"}
    assert shown(here)["not_done"] == [] and broken(here) == {}


def test_a_reservation_that_comes_moves_one_and_says_why() -> None:
    here = team({"vnet0": {"reserve_mbps": "60", "prefer": "eth1"}}, "eth1")
    done(here.ask("set", "interface", "vnet1", "reserve-mbps=60"))
    bound = here.bindings()
    assert (bound["vnet0"], bound["vnet1"]) == ("eth1", "eth2")
    assert moves(here) == Counter({"rule": 1})
    assert "has room for the reservation" in explained(here, "vnet1")["said"]["why there"]
    here.run_for(60)
    assert here.bindings() == bound and moves(here)["rule"] == 1


def test_what_cannot_be_kept_is_told_of_uplink_and_vm_port_and_so_is_its_end() -> None:
    pinned = {"pin": "eth1", "reserve_mbps": "60"}
    here = team({"vnet0": pinned, "vnet1": pinned, "vnet2": {"reserve_mbps": "30"}}, "eth1")
    said = "on eth1, where 120 Mbit/s is reserved; at most 95 can be reserved"
    assert broken(here) == {"vnet0": said, "vnet1": said}
    assert here.bindings()["vnet2"] == "eth2"
    assert shown(here)["not_done"] == ["reservations on eth1 total 120 Mbit/s; expected at most 95"]
    told_of_vnet0 = explained(here, "vnet0")
    assert told_of_vnet0["rules_broken"] == {"reserve-mbps": said}
    assert f"broken: reserve-mbps, {said}" in told_of_vnet0["said"]["rules"]
    done(here.ask("unpin", "vnet1"))
    assert broken(here) == {} and here.bindings()["vnet1"] == "eth2"
    told = Counter(entry["event"] for entry in entries(here, "rule-broken", "rule-kept"))
    assert told == {"rule-broken": 2, "rule-kept": 2}


def test_an_operators_move_says_what_it_cuts_and_holds() -> None:
    asked = {"reserve_mbps": "60"}
    here = team({"vnet0": asked, "vnet1": asked})
    before, other = (here.bindings()[name] for name in ("vnet0", "vnet1"))
    moved, told = done(here.ask("move", "vnet0", other)).split("\n")
    assert moved == f"vnet0: moved from {before} to {other}"
    assert says(told, f"vnet0 reserve-mbps: on {other}, where 120 Mbit/s is reserved; at most 95")
    here.run_for(60)
    assert here.bindings()["vnet0"] == here.bindings()["vnet1"] == other
    assert broken(here).keys() == {"vnet0", "vnet1"}
    done(here.ask("set", "interface", "vnet1", "reserve-mbps=61"))
    assert here.bindings()["vnet0"] != here.bindings()["vnet1"] and broken(here) == {}


def test_while_an_uplink_is_down_others_make_room_and_all_return() -> None:
    sizes = {"vnet0": "60", "vnet1": "40", "vnet2": "40", "vnet3": "30"}
    here = team({name: {"reserve_mbps": size} for name, size in sizes.items()}, uplinks=3)
    before = here.bindings()
    assert broken(here) == {}
    for number in (1, 2, 3):
        here.set_link(number, up=False).run_for(2)
        assert f"eth{number}" not in here.bindings().values()
        assert broken(here) == {}, f"without eth{number} there is room for all"
        here.set_link(number, up=True).run_for(15)
        assert here.bindings() == before
    here.set_link(1, up=False).set_link(2, up=False).run_for(2)
    assert broken(here).keys() == sizes.keys(), "failover waits for no room"
    assert [c.text for _, c in here.log if isinstance(c, Report) and "rule broken" in c.text]


@pytest.mark.parametrize("rule", [{"prefer": "eth1"}, {"prefer": "!eth2"}, {"affinity": "db"}])
@pytest.mark.parametrize("binding", [None, "eth1", "eth2"])
def test_what_does_not_fit_one_uplink_is_shared_against_rules_and_a_restart_moves_nothing(
    rule: dict[str, str], binding: str | None
) -> None:
    asked = {"reserve_mbps": "41", **rule}
    here = team(dict.fromkeys(("vnet0", "vnet1", "vnet2", "vnet3"), asked), binding)
    before = here.bindings()
    assert Counter(before.values()) == {"eth1": 2, "eth2": 2}
    found = shown(here)
    assert found["not_done"] == []
    assert found["rules_broken"], "what was given up is told"
    assert "reserve-mbps" not in {one["rule"] for one in found["rules_broken"]}
    here.restart_service().run_for(5)
    assert here.bindings() == before
