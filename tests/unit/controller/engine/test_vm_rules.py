"""Operators' rules and reservations for VM ports, from the key in the database to the group on the switch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.dataplane import tables
from tests.said import says
from tests.unit.controller.engine.told import entries, explained, offer, shown, steady
from tests.unit.examples import examples
from tests.unit.fake_switch import World, done, moves, refusal, reports, world
from tests.unit.rows import VMS, host, with_interface

OFPORTS = {"eth1": 1, "eth2": 2, "eth3": 3}


def team(
    rules: dict[str, dict[str, str]],
    binding: str | None = None,
    *,
    policy: str = "load-based",
    uplinks: int = 3,
    speed_bps: float = 10e9,
) -> World:
    row = host(policy=policy, binding=binding, uplinks=uplinks, failback_delay_s="5")
    bound = {"binding": binding} if binding else {}
    for name, keys in rules.items():
        row = with_interface(row, name, **bound, **keys)
    return world(row, speed_bps=speed_bps).start().run_for(1)


def broken(here: World) -> set[tuple[str, str]]:
    return {(one["port"], one["rule"]) for one in shown(here)["rules_broken"]}


def order_of(here: World, name: str) -> list[int]:
    """The uplinks of a VM port's binding group, as the switch fails over by itself."""
    group = here.switch.groups[tables.Group.BINDING.id_of(10 + int(name[-1]))]
    return [b.watch_port for b in group.buckets if b.watch_port is not None]


def carried(here: World) -> dict[str, str | None]:
    """The uplink by which each VM port leaves, as the switch has it."""
    names = {ofport: name for name, ofport in OFPORTS.items()}
    return {
        name: names.get(here.switch.uplink_of(10 + int(name[-1])) or 0)
        for name in VMS
        if tables.Group.BINDING.id_of(10 + int(name[-1])) in here.switch.groups
    }


# ---- allow -----------------------------------------------------------------------------


def test_rather_no_traffic_than_by_another_uplink() -> None:
    here = team({"vnet0": {"allow": "eth1"}})
    assert here.bindings()["vnet0"] == "eth1" and order_of(here, "vnet0") == [1]
    assert broken(here) == set()
    since_s = here.now_s
    here.set_link(1, up=False).run_for(1)
    assert "vnet0" not in here.bindings() and carried(here)["vnet0"] is None
    assert set(here.bindings()) == set(VMS[1:]), "all others have failed over"
    assert broken(here) == {("vnet0", "allow")}
    text = "vnet0 allow: has no uplink until eth1 carries traffic"
    assert f"  rule broken  {text}" in done(here.ask("show")).splitlines()
    assert f"br0: rule broken: {text}" in reports(here, "warning")
    (entry,) = entries(here, "rule-broken")
    assert (entry["port"], entry["why"]) == ("vnet0", text)
    told = explained(here, "vnet0")
    assert "eth1" in told["said"]["to change"]
    assert told["rules_broken"] == {"allow": "has no uplink until eth1 carries traffic"}

    here.switch.learned = [(10, "02:00:00:00:00:10", 0)]
    back_s = here.now_s
    here.set_link(1, up=True).run_for(1)
    assert here.bindings()["vnet0"] == "eth1", "as the switch has it: no other could take it"
    assert list(here.bindings().values()).count("eth1") == 1, "others wait for the delay"
    assert [ofport for at_s, ofport in here.frames() if at_s < back_s + 0.5], "and is announced"
    here.run_for(9)
    assert here.bindings()["vnet0"] == "eth1" and carried(here)["vnet0"] == "eth1"
    assert broken(here) == set()
    assert [e["port"] for e in entries(here, "rule-kept")] == ["vnet0"]
    (returned,) = [m for e in entries(here, "moved") for m in e["moves"] if m["port"] == "vnet0"]
    assert "source" not in returned
    assert (returned["target"], returned["reason"]) == ("eth1", "failback")
    assert [ofport for at_s, ofport in here.frames() if at_s > since_s + 1], "it is announced"


@pytest.mark.parametrize(
    ("allow", "left"),
    [
        ("eth1,eth3", {"eth1", "eth3"}),
        ("!eth1", {"eth2", "eth3"}),
        ("!eth1,!eth2", {"eth3"}),
        ("eth1, eth3,!eth2", {"eth1", "eth3"}),
        ("eth1,eth2,eth3", {"eth1", "eth2", "eth3"}),
    ],
)
def test_what_is_named_is_allowed_less_what_is_ruled_out(allow: str, left: set[str]) -> None:
    here = team({"vnet0": {"allow": allow}})
    assert {f"eth{n}" for n in order_of(here, "vnet0")} == left
    assert shown(here)["config_errors"] == []


def test_nothing_moves_a_vm_port_where_it_may_not_be() -> None:
    here = team({"vnet0": {"allow": "eth1"}}, uplinks=2)
    for name in VMS[1:]:
        here.do(f"move {name} eth2")
    expected = "uplink eth2 is not allowed for vnet0; use one of eth1"
    for command in ("move vnet0 eth2", "pin vnet0 eth2", "set interface vnet0 pin=eth2"):
        assert refusal(here.ask(*command.split())) == expected
    offer(here, [9e9]).run_for(100)
    assert here.bindings()["vnet0"] == "eth1"
    assert json.loads(done(here.ask("plan", "br0", "--json")))["bridges"][0]["moves"] == []


def test_a_drain_of_the_only_uplink_allowed_says_who_still_uses_it() -> None:
    here = team({"vnet0": {"allow": "eth1"}})
    assert here.ask("drain", "eth1") is None
    here.run_for(11)
    (answer,) = (reply for reply in here.replies.values() if reply.text.startswith("uplink eth1"))
    assert "drained, but still used by vnet0" in refusal(answer)
    assert here.bindings()["vnet0"] == "eth1", "the last resort, as for everybody"
    assert broken(here) == set()


def test_a_pin_yields_to_a_must_and_that_is_told() -> None:
    here = team({"vnet0": {"allow": "!eth2", "pin": "eth2"}})
    assert here.bindings()["vnet0"] in ("eth1", "eth3")
    assert broken(here) == {("vnet0", "pin")}
    assert "pinned to eth2, which is not allowed" in shown(here)["rules_broken"][0]["how"]


def test_a_pin_is_broken_while_its_uplink_is_down() -> None:
    here = team({"vnet0": {"pin": "eth2"}})
    assert broken(here) == set()
    here.set_link(2, up=False).run_for(1)
    assert broken(here) == {("vnet0", "pin")} and here.bindings()["vnet0"] in ("eth1", "eth3")
    here.set_link(2, up=True).run_for(7)
    assert broken(here) == set() and here.bindings()["vnet0"] == "eth2"


# ---- prefer ----------------------------------------------------------------------------


def test_preferences_are_followed_in_their_order_and_back() -> None:
    here = team({"vnet0": {"prefer": "eth3,eth1"}})
    assert here.bindings()["vnet0"] == "eth3" and order_of(here, "vnet0") == [3, 1, 2]
    seen = []
    for ofport, up in ((3, False), (1, False), (1, True), (3, True)):
        here.set_link(ofport, up=up).run_for(10)
        seen.append(here.bindings()["vnet0"])
    assert seen == ["eth1", "eth2", "eth1", "eth3"]
    assert broken(here) == set()
    told = [e["event"] for e in entries(here, "rule-broken", "rule-kept")]
    assert told == ["rule-broken", "rule-kept"]


def test_what_should_not_be_used_is_the_last_resort() -> None:
    here = team({"vnet0": {"prefer": "!eth1"}}, uplinks=2)
    assert here.bindings()["vnet0"] == "eth2" and order_of(here, "vnet0") == [2, 1]
    here.set_link(2, up=False).run_for(1)
    assert here.bindings()["vnet0"] == "eth1" and broken(here) == {("vnet0", "prefer")}


@pytest.mark.parametrize("policy", ["originating-port", "explicit", "set-port"])
def test_rules_hold_under_every_policy(policy: str) -> None:
    rules = {name: {"anti_affinity": "web", "prefer": "!eth3"} for name in VMS[:2]}
    here = team({**rules, "vnet2": {"prefer": "eth2"}, "vnet3": {"allow": "eth3"}}, policy=policy)
    bound = here.bindings()
    assert {bound["vnet0"], bound["vnet1"]} == {"eth1", "eth2"}
    assert (bound["vnet2"], bound["vnet3"]) == ("eth2", "eth3")


@pytest.mark.parametrize("policy", ["source-mac", "address-hash", "slb", "dynamic"])
def test_a_vm_port_with_rules_is_not_spread_by_a_hash(policy: str) -> None:
    rules = {"vnet0": {"allow": "eth1"}, "vnet1": {"prefer": "eth2"}, "vnet2": {"pin": "eth2"}}
    here = team(rules, policy=policy)
    groups = (here.switch.groups[tables.Group.BINDING.id_of(10 + n)] for n in range(4))
    ways = [group.buckets[0].actions for group in groups]
    assert [len(way) > 1 for way in ways] == [False, False, False, True], (
        "straight out, or by a hash"
    )
    assert list(carried(here).values())[:3] == ["eth1", "eth2", "eth2"]
    assert here.bridge.placing.rules().keys() == rules.keys()


# ---- sets ------------------------------------------------------------------------------


def test_members_of_an_anti_affinity_set_are_apart_and_stay_so_whatever_the_load() -> None:
    web = {name: {"anti_affinity": "web"} for name in VMS[:2]}
    here = team({**web, "vnet2": {"pin": "eth2"}}, uplinks=2, policy="load-based")
    before = here.bindings()
    assert before["vnet0"] != before["vnet1"]
    alone = next(name for name in VMS[:2] if before[name] == "eth2")
    # eth2 is over the threshold, eth1 empty, and only the member could go.
    here.switch.offered_bps = {10 + int(alone[-1]): steady(5e9), 12: steady(4e9)}
    here.run_for(100)
    assert {n: here.bindings()[n] for n in VMS[:2]} == {n: before[n] for n in VMS[:2]}
    assert broken(here) == set()


def test_members_of_an_affinity_set_share_an_uplink_and_fail_over_together() -> None:
    db = {name: {"affinity": "db"} for name in VMS[:3]}
    here = team(db, policy="originating-port")
    (home,) = {here.bindings()[name] for name in VMS[:3]}
    assert len({tuple(order_of(here, name)) for name in VMS[:3]}) == 1, "also without the service"
    here.set_link(OFPORTS[home], up=False).run_for(1)
    assert len({here.bindings()[name] for name in VMS[:3]}) == 1
    assert {here.bindings()[name] for name in VMS[:3]} != {home}
    here.set_link(OFPORTS[home], up=True).run_for(10)
    assert {here.bindings()[name] for name in VMS[:3]} == {home}


@pytest.mark.parametrize("held", [False, True])
def test_members_of_an_affinity_set_move_by_load_together_or_not_at_all(held: bool) -> None:
    db = {name: {"affinity": "db"} for name in VMS[:2]}
    apart = {"vnet2": {"pin": "eth1"}, "vnet3": {"policy": "explicit", "pin": "eth1"}}
    here = team(db | apart, uplinks=2)
    for name in VMS[:2]:
        here.do(f"move {name} eth1")
    if held:
        here.do("set interface vnet1 exclude=true")
    offer(here, (2e9, 1e9, 4e9, 2e9)).run_for(100)
    bound = here.bindings()
    assert {bound["vnet0"], bound["vnet1"]} == ({"eth1"} if held else {"eth2"})
    assert moves(here).get("threshold", 0) == (0 if held else 2)
    assert broken(here) == set()


def test_members_of_an_affinity_set_that_fit_nowhere_together_stay() -> None:
    here = team({name: {"affinity": "db"} for name in VMS[:2]}, uplinks=2)
    for name in VMS:
        here.do(f"move {name} eth1")
    offer(here, (4e9, 4e9)).run_for(100)
    assert {here.bindings()[name] for name in VMS[:2]} == {"eth1"}
    told = explained(here, "vnet0")
    assert (told["against"], told["expected_ratio"]) == ("no-room", {"eth2": 0.8})


def test_one_makes_room_for_another_and_both_return() -> None:
    """vnet0 may use eth1 and eth2; where eth1 fails, vnet1 has to leave eth2 for it."""
    rules = {
        "vnet0": {"anti_affinity": "web", "allow": "eth1,eth2", "prefer": "eth1"},
        "vnet1": {"anti_affinity": "web", "prefer": "eth2"},
    }
    here = team(rules)
    before = here.bindings()
    assert (before["vnet0"], before["vnet1"]) == ("eth1", "eth2")
    here.set_link(1, up=False).run_for(1)
    assert (here.bindings()["vnet0"], here.bindings()["vnet1"]) == ("eth2", "eth3")
    assert moves(here)["rule"] == 1
    here.set_link(1, up=True).run_for(10)
    assert here.bindings() == before


def test_explain_lists_what_is_asked_for_and_what_is_not_so() -> None:
    asked = {"anti_affinity": "web", "allow": "!eth3", "prefer": "eth2,!eth3"}
    here = team({"vnet0": asked, "vnet1": {"anti_affinity": "web", "pin": "eth2"}})
    rules, _, broken_rules = explained(here, "vnet0")["said"]["rules"].partition("broken: ")
    for name in ("eth1, eth2", "anti-affinity set web", "prefers eth2", "eth3"):
        assert name in rules
    assert says(broken_rules, "prefer", "on eth1, although eth2 is preferred")


def test_a_set_that_is_too_large_is_spread_evenly_and_shown_as_broken() -> None:
    here = team({name: {"anti_affinity": "web"} for name in VMS}, uplinks=2)
    assert sorted(here.bindings()[name] for name in VMS) == ["eth1", "eth1", "eth2", "eth2"]
    assert broken(here) == {(name, "anti-affinity") for name in VMS}
    assert "of anti-affinity set web; all members" in shown(here)["rules_broken"][0]["how"]


def test_rules_that_contradict_each_other_are_shown_and_all_else_is_met() -> None:
    both = {"anti_affinity": "web", "affinity": "db"}
    apart = {
        "vnet2": {"affinity": "x", "allow": "eth1"},
        "vnet3": {"affinity": "x", "allow": "eth2"},
    }
    here = team({"vnet0": both, "vnet1": both, **apart})
    assert here.bindings()["vnet0"] == here.bindings()["vnet1"]
    apart_or_not = {(name, "anti-affinity") for name in VMS[:2]}
    assert broken(here) == apart_or_not | {(name, "affinity") for name in VMS[2:]}


def test_by_itself_the_switch_fails_over_to_where_no_other_member_is() -> None:
    here = team({name: {"anti_affinity": "web"} for name in VMS[:2]})
    first, second = (OFPORTS[here.bindings()[name]] for name in VMS[:2])
    assert order_of(here, "vnet0")[-1] == second and order_of(here, "vnet1")[-1] == first


def test_a_rule_that_comes_moves_what_it_must_and_nothing_more() -> None:
    here = team({}, uplinks=2, policy="load-based")
    for name in VMS:
        here.do(f"move {name} eth1")
    for name in VMS[:2]:
        here.do(f"set interface {name} anti-affinity=web")
    bound = here.bindings()
    assert sorted(bound[name] for name in VMS[:2]) == ["eth1", "eth2"]
    assert (bound["vnet2"], bound["vnet3"]) == ("eth1", "eth1")
    assert moves(here)["rule"] == 1


# ---- reservations ----------------------------------------------------------------------


def reserving(
    keys: dict[str, dict[str, str]], binding: str | None = None, uplinks: int = 2
) -> World:
    """Uplinks of 100 Mbit/s each."""
    return team(keys, binding, uplinks=uplinks, speed_bps=100e6)


def test_what_is_cut_by_shaping_has_no_room() -> None:
    here = reserving({"vnet0": {"reserve_mbps": "60"}, "vnet1": {"reserve_mbps": "40"}}, "eth1")
    assert sorted(here.bindings()[name] for name in ("vnet0", "vnet1")) == ["eth1", "eth2"]
    here = reserving({"vnet0": {"reserve_mbps": "60"}, "vnet1": {"reserve_mbps": "35"}}, "eth1")
    assert set(here.bindings().values()) == {"eth1"}
    assert shown(here)["not_done"] == [] and broken(here) == set()


def test_a_reservation_that_comes_moves_one_and_says_why() -> None:
    here = reserving({"vnet0": {"reserve_mbps": "60", "prefer": "eth1"}}, "eth1")
    here.do("set interface vnet1 reserve-mbps=60")
    bound = here.bindings()
    assert (bound["vnet0"], bound["vnet1"]) == ("eth1", "eth2")
    assert moves(here) == {"rule": 1}
    assert "has room for the reservation" in explained(here, "vnet1")["said"]["why there"]
    here.run_for(60)
    assert here.bindings() == bound and moves(here)["rule"] == 1


def test_what_cannot_be_kept_is_told_of_uplink_and_vm_port_and_so_is_its_end() -> None:
    pinned = {"pin": "eth1", "reserve_mbps": "60"}
    here = reserving({"vnet0": pinned, "vnet1": pinned, "vnet2": {"reserve_mbps": "30"}}, "eth1")
    said = "on eth1, where 120 Mbit/s is reserved; at most 95 can be reserved"
    assert broken(here) == {("vnet0", "reserve-mbps"), ("vnet1", "reserve-mbps")}
    assert {one["how"] for one in shown(here)["rules_broken"]} == {said}
    assert here.bindings()["vnet2"] == "eth2"
    assert shown(here)["not_done"] == ["reservations on eth1 total 120 Mbit/s; expected at most 95"]
    told_of_vnet0 = explained(here, "vnet0")
    assert told_of_vnet0["rules_broken"] == {"reserve-mbps": said}
    assert f"broken: reserve-mbps, {said}" in told_of_vnet0["said"]["rules"]
    here.do("unpin vnet1")
    assert broken(here) == set() and here.bindings()["vnet1"] == "eth2"
    events = [entry["event"] for entry in entries(here, "rule-broken", "rule-kept")]
    assert events == ["rule-broken"] * 2 + ["rule-kept"] * 2


def test_an_operators_move_may_break_reservations_and_holds() -> None:
    asked = {"reserve_mbps": "60"}
    here = reserving({"vnet0": asked, "vnet1": asked})
    before, other = (here.bindings()[name] for name in ("vnet0", "vnet1"))
    moved, told = done(here.ask("move", "vnet0", other)).split("\n")
    assert moved == f"vnet0: moved from {before} to {other}"
    assert says(told, f"vnet0 reserve-mbps: on {other}, where 120 Mbit/s is reserved; at most 95")
    here.run_for(60)
    assert here.bindings()["vnet0"] == here.bindings()["vnet1"] == other
    assert broken(here) == {(name, "reserve-mbps") for name in VMS[:2]}
    here.do("set interface vnet1 reserve-mbps=61")
    assert here.bindings()["vnet0"] != here.bindings()["vnet1"] and broken(here) == set()


def test_while_an_uplink_is_down_others_make_room_and_all_return() -> None:
    sizes = {"vnet0": "60", "vnet1": "40", "vnet2": "40", "vnet3": "30"}
    here = reserving({name: {"reserve_mbps": size} for name, size in sizes.items()}, uplinks=3)
    before = here.bindings()
    assert broken(here) == set()
    for number in (1, 2, 3):
        here.set_link(number, up=False).run_for(2)
        assert f"eth{number}" not in here.bindings().values()
        assert broken(here) == set(), f"without eth{number} there is room for all"
        here.set_link(number, up=True).run_for(15)
        assert here.bindings() == before
    here.set_link(1, up=False).set_link(2, up=False).run_for(2)
    assert broken(here) == {(name, "reserve-mbps") for name in sizes}, "failover waits for no room"
    assert any("rule broken" in text for text in reports(here, "warning"))


@pytest.mark.parametrize("rule", [{"prefer": "eth1"}, {"prefer": "!eth2"}, {"affinity": "db"}])
@pytest.mark.parametrize("binding", [None, "eth1", "eth2"])
def test_what_does_not_fit_one_uplink_is_shared_against_rules_and_a_restart_moves_nothing(
    rule: dict[str, str], binding: str | None
) -> None:
    asked = {"reserve_mbps": "41", **rule}
    here = reserving(dict.fromkeys(VMS, asked), binding)
    before = here.bindings()
    assert Counter(before.values()) == {"eth1": 2, "eth2": 2}
    assert shown(here)["not_done"] == []
    assert broken(here), "what was given up is told"
    assert "reserve-mbps" not in {of for _, of in broken(here)}
    here.restart_service().run_for(5)
    assert here.bindings() == before


# ---- operators -------------------------------------------------------------------------


def test_an_operators_move_may_break_what_should_be_and_holds() -> None:
    here = team({name: {"anti_affinity": "web"} for name in VMS[:2]}, uplinks=2)
    before, other = (here.bindings()[name] for name in ("vnet0", "vnet1"))
    moved, told = done(here.ask("move", "vnet0", other)).split("\n")
    assert moved == f"vnet0: moved from {before} to {other}"
    assert says(told, f"vnet0 anti-affinity: on {other}", "vnet1 of anti-affinity set web; ")
    here.run_for(60)
    assert here.bindings()["vnet0"] == here.bindings()["vnet1"] == other
    assert broken(here) == {("vnet0", "anti-affinity"), ("vnet1", "anti-affinity")}
    # Another rule, and all of them are looked at anew.
    here.do(f"set interface vnet1 prefer={other}")
    assert here.bindings()["vnet0"] != here.bindings()["vnet1"] == other


def test_rules_end_as_they_begin_by_set() -> None:
    here = team({})
    here.do("set interface vnet0 allow=eth1 prefer=eth1 affinity=db")
    assert here.bindings()["vnet0"] == "eth1"
    here.do("set interface vnet0 allow= prefer= affinity=").run_for(2)
    port = here.bridge.config.vm_ports[0]
    assert not port.rules.unsplittable and len(order_of(here, "vnet0")) == 3


def test_of_a_bad_rule_the_last_good_one_stays_in_force() -> None:
    here = team({"vnet0": {"allow": "eth2"}})
    here.write_keys_of("vnet0", allow="eth9")
    assert order_of(here, "vnet0") == [2]
    (error,) = shown(here)["config_errors"]
    assert error.startswith(
        "Interface vnet0 ovs-lbt-allow: eth9 is invalid; expected some of eth1, eth2, eth3"
    )


@pytest.mark.parametrize("restarts", [False, True])
def test_an_uplink_that_leaves_the_team_takes_no_vm_with_it(restarts: bool) -> None:
    here = team({"vnet0": {"allow": "eth1,eth3"}, "vnet1": {"allow": "eth3", "prefer": "eth3"}})
    row = here.rows["br0"]
    bond0, *rest = row.ports
    bond0 = replace(bond0, interfaces=bond0.interfaces[:2])
    here.write(replace(row, ports=(bond0, *rest))).run_for(1)
    if restarts:
        here.restart_service().run_for(1)
    assert order_of(here, "vnet0") == [1], "what is left of the must holds"
    assert here.bindings()["vnet1"] in ("eth1", "eth2"), "of this, nothing is left"
    assert len(shown(here)["config_errors"]) == 3


@pytest.mark.slow
def test_a_service_with_sets_does_without_the_graph_library() -> None:
    """It would cost 7 MB and 60 ms."""
    script = """
import sys
from controller import service
from policies.homes import homes
from policies.model import OfPort, Rules, Unit, Uplink
team = tuple(Uplink(f"eth{i}", OfPort(i), 1e9) for i in (1, 2))
assert homes([Unit("a", 1, rules=Rules(prefer=("eth2",)))], team).by_name == {"a": "eth2"}
assert homes([Unit("a", 1, rules=Rules(affinity="x"))], team).by_name == {"a": "eth2"}
homes([Unit(name, 1, rules=Rules(anti_affinity="x")) for name in "ab"], team)
assert sys.modules.keys().isdisjoint({"networkx", "numpy"})
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# ---- whatever happens ------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.booleans(), st.sampled_from([0.0, 0.3, 7.0])),
    max_size=8,
)
ALLOW = st.sampled_from([None, "eth1", "!eth1", "eth2,eth3"])
PREFER = st.sampled_from([None, "eth2", "eth3,eth1", "!eth2"])
SET = st.sampled_from([None, "a", "b"])


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.lists(st.tuples(ALLOW, PREFER, SET, SET), min_size=4, max_size=4), EVENTS)
def test_links_come_and_go_and_in_the_end_all_is_as_it_was(
    rules: list[tuple[str | None, str | None, str | None, str | None]],
    events: list[tuple[int, bool, float]],
) -> None:
    keys = ("allow", "prefer", "affinity", "anti_affinity")
    given_rules = {
        name: {key: value for key, value in zip(keys, values, strict=True) if value}
        for name, values in zip(VMS, rules, strict=True)
    }
    here = team(given_rules)
    before, broken_before = here.bindings(), broken(here)
    for ofport, up, seconds in events:
        here.set_link(ofport, up=up)
        here.run_for(seconds)
        for name, values in given_rules.items():
            allow = values.get("allow", "eth1,eth2,eth3")
            may = {"eth2", "eth3"} if allow == "!eth1" else set(allow.split(","))
            assert {f"eth{n}" for n in order_of(here, name)} == may
            live = {u for u in may if here.switch.ports[OFPORTS[u]].up}
            assert (carried(here)[name] in live) if live else carried(here)[name] is None
    for ofport in (1, 2, 3):
        here.set_link(ofport, up=True)
    here.run_for(20)
    assert here.bindings() == before and broken(here) == broken_before
    assert carried(here) == before
    here.restart_service().run_for(10)
    assert here.bindings() == before, "a restart moves nothing"
