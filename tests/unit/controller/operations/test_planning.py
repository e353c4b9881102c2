"""Plans and their application: what is shown is what is made, or nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controller.api.engine_commands import Apply
from controller.config.rows import BridgeRow
from controller.operations.planning import KEPT_S, LEAST_S
from controller.teaming import buckets
from controller.text.wording import STARTED
from policies.model import Role
from policies.presets import PRESETS
from tests.said import says
from tests.unit.controller.engine.told import offer, steady
from tests.unit.controller.load.counted_late import counted_late, vms
from tests.unit.fake_switch import World, done, moves, re_tagged, refusal, world
from tests.unit.rows import VMS, host, port, with_ids, with_interface

CROWDED_BPS = (3e9, 2.5e9, 1e9, 2e9)
# Loads are known so long after a start, whatever of it is needed.
KNOWN_AT_S = 12.0
NO_PLAN = "no plan to apply; run ovs-lbt plan first"


def loaded(row: BridgeRow, bps: Sequence[float] = CROWDED_BPS) -> World:
    """A host whose VMs send this, each over one uplink of 10 Gbit/s."""
    return offer(world(row), bps).start()


def crowded(**keys: str) -> World:
    """Four VMs on eth1, 85 % of it, and nobody has waited for a window yet."""
    return loaded(with_ids(host(binding="eth1"), **keys)).run_until(KNOWN_AT_S)


def plan(here: World) -> dict[str, Any]:
    (found,) = json.loads(done(here.ask("plan", "br0", "--json")))["bridges"]
    return found


def ways(planned: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(m.get("port") or m["policy"], m["source"], m["target"]) for m in planned["moves"]]


def utilizations(planned: dict[str, Any], key: str = "") -> dict[str, tuple[float, float]]:
    return {
        u["name"]: (round(u[f"{key}transmit_ratio"], 2), round(u[f"{key}receive_ratio"], 2))
        for u in planned["uplinks"]
    }


# ---- what is planned -------------------------------------------------------------------


def test_a_plan_is_what_the_policy_will_do_and_moves_nothing() -> None:
    here = crowded()
    here.log.clear()
    planned = plan(here)
    assert ways(planned) == [("vnet0", "eth1", "eth2")]
    assert utilizations(planned) == {"eth1": (0.85, 0), "eth2": (0, 0)}
    assert utilizations(planned, "expected_") == {"eth1": (0.55, 0), "eth2": (0.3, 0)}
    assert planned["moves"][0]["tx_bps"] == pytest.approx(3e9)
    assert 10 <= planned["loads_cover_s"] <= 12
    assert here.commands(Apply) == [] and moves(here) == {}
    here.run_until(60)
    assert here.bindings()["vnet0"] == "eth2" and moves(here) == {"threshold": 1}


def test_one_move_a_window_is_asked_for_again_until_there_are_no_more() -> None:
    here = loaded(host(binding="eth1", uplinks=3), (6e9, 5e9, 4e9, 2e9)).run_until(KNOWN_AT_S)
    planned = plan(here)
    assert ways(planned) == [("vnet0", "eth1", "eth2"), ("vnet1", "eth1", "eth3")]
    here.run_until(300)
    assert here.bindings() == {"vnet0": "eth2", "vnet1": "eth3", "vnet2": "eth1", "vnet3": "eth1"}


def test_before_loads_are_known_it_is_said_when_they_will_be() -> None:
    here = loaded(host(binding="eth1")).run_until(2.5)
    planned = plan(here)
    assert planned["moves"] == [] and planned["policies"][0]["rest"] == "loads-unknown"
    wait_s = planned["policies"][0]["wait_s"]
    assert 0 < wait_s < LEAST_S
    assert "are needed; try again in" in done(here.ask("plan"))
    here.run_for(wait_s + 1)
    assert ways(plan(here)) == [("vnet0", "eth1", "eth2")]


def test_while_flow_counters_are_late_no_load_is_known_and_it_is_said_since_when() -> None:
    here = counted_late("load-based", vms(10, 30) | vms(11, 30), 0.5, paused=(40.0, 70.0))
    for at_s, covered_s, wait_s in ((39, 30.0, 0.0), (55, 0.0, LEAST_S), (71, 30.0, 0.0)):
        (policy,) = plan(here.run_until(at_s))["policies"]
        assert (policy["covered_s"], policy["wait_s"]) == (covered_s, wait_s)
        assert (policy["rest"] == "loads-unknown") is (covered_s == 0.0)
        late = "(the switch last counted the traffic of VM ports 15 s ago)"
        for words in ("plan", "explain vnet0"):
            told = " ".join(done(here.ask(*words.split())).split())
            assert (late in told) is (covered_s == 0.0), told


def test_loads_from_before_the_last_move_do_not_count() -> None:
    here = loaded(host(binding="eth1")).run_until(25)
    here.do("move vnet1 eth2")
    assert plan(here)["policies"][0]["rest"] == "loads-unknown"
    here.run_for(8)
    planned = plan(here)
    assert 4 <= planned["loads_cover_s"] <= 8
    assert utilizations(planned) == {"eth1": (0.6, 0), "eth2": (0.25, 0)}
    assert planned["moves"] == []


@pytest.mark.parametrize(
    ("row", "bps", "why"),
    [
        (host(binding="eth1"), (1e9,), ("75%", "eth1", "10.0%")),
        (
            host(binding="eth1"),
            (9e9, 0.01e9),
            ("eth1", "90.1%", "75%", "vnet0", "eth2", "90.0%", "vnet1, vnet2, vnet3"),
        ),
        (host("originating-port"), (9e9,), ("static policy",)),
        (host("dynamic"), (0.0,), ("eth2", "0%", "eth1", "0%")),
    ],
)
def test_where_nothing_is_to_move_the_policy_says_why(
    row: BridgeRow, bps: Sequence[float], why: tuple[str, ...]
) -> None:
    here = loaded(row, bps).run_until(40)
    planned = plan(here)
    assert planned["moves"] == []
    assert says(" ".join(s for p in planned["policies"] for s in p["said"]), *why)
    assert says(done(here.ask("apply")), "br0", "no moves"), "done at once"


def test_buckets_are_told_by_the_way_they_go() -> None:
    here = world(host("slb")).start().run_until(20)
    bound = here.bridge.placing.planned.bound
    on_eth1 = [name for name in bound if name.startswith("slb/") and bound[name].uplink == "eth1"]
    number = buckets.number_of("slb")
    keys = [(number, int(name.partition("/")[2])) for name in on_eth1[:8]]
    here.switch.hashed_bps = dict.fromkeys(keys, steady(1e9))
    # After a move, the policy waits for 12 s.
    here.do("move vnet0 eth2")
    planned = plan(here.run_for(6))
    (moved,) = planned["moves"]
    assert (moved["policy"], moved["source"], moved["target"]) == ("slb", "eth1", "eth2")
    assert moved["buckets"] == 4 and moved["tx_bps"] == pytest.approx(4e9)
    assert utilizations(planned, "expected_") == {"eth1": (0.4, 0), "eth2": (0.4, 0)}
    made = done(here.ask("apply", "br0"))
    assert says(made, "br0: 4 moves", "slb, 4 buckets", "eth1 -> eth2", "rebalance")
    assert moves(here) == {"manual": 1, "rebalance": 4}


def test_policies_side_by_side_are_planned_together() -> None:
    """A port group that never moves counts as load, and keeps its place."""
    row = with_interface(host(binding="eth1"), "vnet0", binding="eth1", policy="explicit")
    here = loaded(row).run_until(KNOWN_AT_S)
    planned = plan(here)
    assert ways(planned) == [("vnet1", "eth1", "eth2")]
    assert [p["policy"] for p in planned["policies"]] == ["explicit", "load-based"]


def test_an_observed_bridge_shows_what_it_would_do_and_applies_nothing() -> None:
    here = crowded(mode="observe")
    planned = plan(here)
    assert planned["observed"] and ways(planned) == [("vnet0", "eth1", "eth2")]
    text = done(here.ask("plan"))
    assert "would be made now in enforce mode" in text and "NOW" not in text
    assert says(text, "FROM", "IF ENFORCED", "EXPECTED", "observe mode: ", "as they would be")
    enforce = "to make moves: ovs-lbt set bridge br0 mode=enforce"
    assert refusal(here.ask("apply")) == f"bridge br0 is in observe mode; {enforce}"
    here.run_until(100)
    assert utilizations(plan(here)) == {"eth1": (0.55, 0), "eth2": (0.3, 0)}, "as if it were made"


def test_who_waits_to_return_is_told_with_what_for() -> None:
    here = loaded(host("originating-port")).run_until(20)
    here.set_link(1, up=False).run_for(1)
    (one, other) = plan(here)["waiting"]
    assert (one["port"], other["port"]) == ("vnet0", "vnet2") and one["why"] == "link down"
    here.set_link(1, up=True).run_for(5)
    text = " ".join(done(here.ask("plan")).split())
    assert says(text, "eth2 to eth1", "vnet0, vnet2", "failback delay", "40 s")


def test_a_bridge_that_is_away_says_so() -> None:
    here = crowded()
    here.disconnect()
    assert "NOT CONNECTED" in done(here.ask("plan"))
    assert plan(here)["connected"] is False
    assert refusal(here.ask("apply")) == f"bridge br0: the switch is not connected; {STARTED}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_there_is_an_answer_and_apply_keeps_to_the_plan(seed: int) -> None:
    """Operators, links, VMs and loads at random, under every policy."""
    random = Random(seed)
    policies = ["load-based"] * len(PRESETS) + sorted(PRESETS)
    here = loaded(host(binding="eth1", uplinks=random.choice((2, 3)), window_s="60"))
    names = [*VMS, "vnet4"]
    happenings: list[Callable[[], object]] = [
        lambda: here.set_link(random.choice((1, 2)), up=random.random() < 0.7),
        lambda: offer(here, [random.choice((0.0, 1e9, 2.5e9, 4e9, 9e9)) for _ in VMS]),
        lambda: offer(here, CROWDED_BPS),
        lambda: [here.ask("move", name, "eth1") for name in names],
        lambda: here.ask("move", random.choice(names), "eth2"),
        lambda: here.ask("pin", random.choice(names), "eth1"),
        lambda: [here.ask("unpin", name) for name in names],
        lambda: here.ask("set", "bridge", "br0", f"policy={random.choice(policies)}"),
        lambda: here.ask(
            "set", "interface", random.choice(names), f"policy={random.choice(policies)}"
        ),
        lambda: here.ask("set", "interface", "eth2", f"role={random.choice(tuple(Role))}"),
        lambda: here.ask("set", "interface", "eth2", "role=active"),
        lambda: here.ask("set", "bridge", "br0", "mode=observe"),
        lambda: here.ask("set", "bridge", "br0", "mode=enforce"),
        lambda: here.disconnect().run_for(1).connect(),
        lambda: _comes_or_goes(here, "vnet4"),
    ]
    for _ in range(25):
        random.choice(happenings)()
        here.run_for(random.choice((0.3, 2.0, 8.0, 20.0)))
        text = done(here.ask("plan"))
        assert max(map(len, text.splitlines())) <= 80, text
        planned = plan(here)
        for name in here.bindings():
            explanation = done(here.ask("explain", name))
            assert max(map(len, explanation.splitlines())) <= 80, explanation
            json.loads(done(here.ask("explain", name, "--json")))
        if random.random() < 0.2:
            random.choice(happenings)()
        before = here.bindings()
        moved = {m["port"]: m["target"] for m in planned["moves"] if "port" in m}
        reply = here.ask("apply")
        assert reply is not None
        if not reply.refused:
            assert here.bindings() == before | moved


def _comes_or_goes(here: World, name: str) -> None:
    if any(p.name == name for p in here.rows["br0"].ports):
        here.remove_port(name)
    else:
        here.add_port(port(name, 14))


# ---- what is applied -------------------------------------------------------------------


def test_apply_makes_exactly_what_was_shown_in_one_bundle_and_says_so() -> None:
    here = loaded(host(binding="eth1", uplinks=3), (6e9, 5e9, 4e9, 2e9)).run_until(KNOWN_AT_S)
    here.do("plan")
    here.switch.holds_answers = True
    here.log.clear()
    assert here.ask("apply") is None, "answered once the switch has followed"
    assert len(here.applied()) == 1
    here.answer_held().run_for(1)
    made = here.replies[here.asked].text
    assert says(made, "br0: 2 moves", "vnet0: eth1 -> eth2 (threshold)", "vnet1: eth1 -> eth3 (")
    assert here.bindings() == {"vnet0": "eth2", "vnet1": "eth3", "vnet2": "eth1", "vnet3": "eth1"}
    assert moves(here) == {"threshold": 2}
    assert refusal(here.ask("apply")) == f"there is {NO_PLAN}", "it is used up"


def test_the_window_begins_anew_with_what_was_applied() -> None:
    here = crowded()
    here.do("plan")
    here.do("apply")
    offer(here, (1e9, 4e9, 3e9, 2e9))
    here.run_for(30)
    assert moves(here) == {"threshold": 1}
    here.run_for(5)
    assert moves(here) != {"threshold": 1}


def test_without_a_plan_nothing_is_applied() -> None:
    here = crowded()
    assert refusal(here.ask("apply")) == f"there is {NO_PLAN}"
    assert refusal(here.ask("apply", "br0")) == f"bridge br0 has {NO_PLAN}"
    assert refusal(here.ask("apply", "br9")).startswith("no bridge is named br9 (did")


def test_a_refused_bundle_leaves_everything_as_it_was() -> None:
    here = crowded()
    here.do("plan")
    before = here.bindings()
    here.switch.refuse_next = "out of groups"
    assert refusal(here.ask("apply")) == "the switch refused the change: out of groups"
    here.run_for(2)
    assert here.bindings() == before and moves(here) == {}


def test_a_plan_of_a_bridge_that_was_given_back_is_forgotten() -> None:
    here = crowded()
    here.do("plan")
    row = here.rows["br0"]
    here.key_loss_grace_s = "0"
    here.write(replace(row, external_ids={})).run_for(1)
    assert done(here.ask("plan")).endswith("ovs-lbt attach BRIDGE"), "there is no bridge"
    here.write(row).run_for(KNOWN_AT_S)
    assert refusal(here.ask("apply", "br0")) == f"bridge br0 has {NO_PLAN}"


def link_down(here: World) -> None:
    here.set_link(2, up=False).run_for(0.1)


def tagged(here: World) -> None:
    re_tagged(here, "vnet0", tag=5)
    re_tagged(here, "bond0", trunks=(7,)).run_for(0.1)


# What happens, or an operator asks for; and what the refusal names.
CHANGES: dict[str, tuple[Callable[[World], object] | str, tuple[str, ...]]] = {
    "link down": (link_down, ("uplink eth2: ", "link down")),
    "slower": (
        lambda here: here.set_link(2, up=True, speed_bps=1e9),
        ("capacity of eth2: ", "10000 Mbit/s", "1000 Mbit/s"),
    ),
    "role": ("set interface eth2 role=standby", ("role of eth2: ", "active", "standby")),
    "threshold": ("set bridge br0 threshold=60", ("threshold: ", "75%", "60%")),
    "observed": ("set bridge br0 mode=observe", ("bridge br0 is in observe mode", "mode=enforce")),
    "pinned": ("pin vnet0 eth1", ("pin of vnet0: none", "eth1")),
    "excluded": ("set interface vnet0 exclude=true", ("vnet0: excluded",)),
    "policy": (
        "set interface vnet0 policy=explicit",
        ("policy of vnet0: ", "load-based", "explicit"),
    ),
    "moved": ("move vnet0 eth2", ("vnet0: ", "eth1", "eth2")),
    "another moved": ("move vnet3 eth2", ("vnet3: ", "eth1", "eth2")),
    "gone": (
        lambda here: here.remove_port("vnet0").run_for(0.1),
        ("vnet0: was removed, or has no uplink now",),
    ),
    "tagged": (tagged, ("vnet0: was removed, or has no uplink now",)),
    "too late": (lambda here: offer(here, (0.0,)).run_for(KEPT_S + 1), ("plan: 301 s", "300 s")),
    "load gone": (lambda here: offer(here, (0.0,)).run_for(20), ("loads: ", "utilization is", "%")),
    "grows": (lambda here: offer(here, (30e9,)).run_for(20), ("loads: eth2", "%")),
    "reconnected": (
        lambda here: here.disconnect().run_for(1).connect().run_for(2),
        ("loads: ",),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_situation_is_told_and_nothing_moves(name: str) -> None:
    change, why = CHANGES[name]
    if name in ("load gone", "grows"):
        # Windows that forget what the plan was based on, and a policy that has no other move.
        row = host(binding="eth1", window_s="15")
        for vm in VMS[1:]:
            row = with_interface(row, vm, binding="eth1", pin="eth1")
        here = loaded(row).run_until(8)
    else:
        here = crowded(window_s="400")
    here.do("plan")
    if isinstance(change, str):
        done(here.ask(*change.split()))
    else:
        change(here)
    before, made = here.bindings(), moves(here)
    here.log.clear()
    found = refusal(here.ask("apply", "br0"))
    assert says(found, *why)
    assert found.endswith("; make a new plan: ovs-lbt plan br0") or name == "observed"
    assert here.bindings() == before and moves(here) == made and here.commands(Apply) == []
    noted = [entry.why for entry in here.bridge.decision_log.entries]
    assert name == "observed" or noted[-1] == found


def test_a_refused_plan_counts_as_moves_that_were_planned_and_refused() -> None:
    here = crowded()
    here.do("plan")
    link_down(here)
    refusal(here.ask("apply"))
    counts = here.status.moves_planned, here.status.moves_refused, here.status.moves_applied
    assert [of["threshold"] for of in counts] == [1, 1, 0]


@pytest.mark.parametrize("factor", [0.96, 0.99, 1.01, 1.03])
def test_noise_refuses_nothing(factor: float) -> None:
    here = crowded(window_s="15")
    here.do("plan")
    offer(here, [bps * factor for bps in CROWDED_BPS])
    here.run_for(1.5)
    assert "1 move made" in done(here.ask("apply"))


def test_noise_refuses_nothing_where_a_target_was_filled_to_the_threshold() -> None:
    row = with_interface(host(binding="eth1", window_s="20"), "vnet3", pin="eth2")
    here = loaded(row, (3.5e9, 2.5e9, 2e9, 4e9)).run_until(KNOWN_AT_S)
    assert utilizations(plan(here), "expected_")["eth2"] == (0.75, 0)
    offer(here, (3.6e9, 2.5e9, 2e9, 4.1e9))
    here.run_for(3)
    assert "1 move made" in done(here.ask("apply"))


def test_of_several_bridges_the_one_that_is_meant_must_be_named() -> None:
    others = ("vnet4", "vnet5", "vnet6", "vnet7")
    rows = [host(binding="eth1"), replace(host(binding="eth1", vms=others), name="br1")]
    here = World(*rows)
    for row, first in zip(rows, (10, 14), strict=True):
        here.switches |= world(row).switches
        offered = {first + i: steady(bps) for i, bps in enumerate(CROWDED_BPS)}
        here.switches[row.name].offered_bps = offered
    here.start().run_until(KNOWN_AT_S)
    assert done(here.ask("plan")).count("1 move would be made now") == 2
    assert refusal(here.ask("apply")) == "2 bridges have a plan; name one of br0, br1"
    assert done(here.ask("apply", "br1")).startswith("br1: 1 move made")
    assert done(here.ask("apply")).startswith("br0: 1 move made"), "the only one left"


def test_buckets_of_another_policy_that_move_all_the_time_refuse_nothing() -> None:
    row = with_interface(host(binding="eth1"), "vnet3", binding="eth1", policy="dynamic")
    here = loaded(row, (3e9, 2.5e9, 2.1e9)).run_until(KNOWN_AT_S)
    bound = here.bridge.placing.planned.bound
    there = (n for n, b in bound.items() if n.startswith("dynamic/") and b.uplink == "eth1")
    busy = buckets.number_of("dynamic"), int(next(there).partition("/")[2])
    assert ways(plan(here)) == [("vnet0", "eth1", "eth2")]
    here.switch.hashed_bps = {busy: steady(1.5e9)}
    here.run_for(6)
    assert moves(here) == {"rebalance": 1}
    assert "vnet0: eth1 -> eth2 (threshold)" in done(here.ask("apply"))


def test_what_one_operator_planned_another_can_apply_with_new_vms_beside_it() -> None:
    here = crowded()
    here.do("plan")
    here.add_port(port("vnet7", 17)).run_for(1)
    assert says(done(here.ask("apply")), "br0: 1 move", "vnet0: eth1 -> eth2 (threshold)")
    assert set(VMS) < here.bindings().keys()


def test_only_the_plan_that_was_shown_is_applied() -> None:
    here = crowded()
    shown = plan(here)
    assert shown["moves"] and plan(here)["id"] == shown["id"], "the same moves, the same ID"
    before = here.bindings()
    said = refusal(here.ask("apply", "br0", "--plan", "0123abcd"))
    assert says(said, "0123abcd", "br0", shown["id"], "ovs-lbt plan br0")
    assert here.bindings() == before
    assert f"ovs-lbt apply br0 --plan {shown['id']}" in done(here.ask("plan", "br0"))
    done(here.ask("apply", "--plan", shown["id"]))
    assert here.bindings() != before
    assert plan(here)["id"] != shown["id"]
