"""Plans and their application: what is shown is what is made, or nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controller.operations.planning import KEPT_S, LEAST_S, Basis
from controller.operations.plans import unknown
from controller.teaming import buckets
from controller.text.wording import STARTED
from policies.model import Role
from policies.presets import PRESETS
from tests.said import says
from tests.unit.controller.engine.told import explained, offer, steady
from tests.unit.controller.load.counted_late import counted_late, vms
from tests.unit.controller.story import ALL_ON_ETH1, Story
from tests.unit.fake_switch import World, done, moves, world
from tests.unit.rows import VMS, host, port


class PlanStory(Story):
    """With steps about the plan of br0."""

    def _ask_plan(self) -> dict[str, Any]:
        (found,) = json.loads(done(self.ask("plan", "br0", "--json")))["bridges"]
        return found

    def do_plans(self, *ways: str) -> None:
        """The moves of the plan, each as `vnet0:eth1-eth2`."""
        self._plan = self._ask_plan()
        moved = self._plan["moves"]
        found = [f"{m.get('port') or m['policy']}:{m['source']}-{m['target']}" for m in moved]
        assert found == [*ways], found

    def do_ratios(self, *uplinks: str) -> None:
        """Of the last plan: what uplinks send and are expected to, in percent, as `eth1=85/55`."""
        found = [
            f"{u['name']}={100 * u['transmit_ratio']:.0f}/{100 * u['expected_transmit_ratio']:.0f}"
            for u in self._plan["uplinks"]
        ]
        assert found == [*uplinks], found

    def do_covers(self, least_s: str, most_s: str) -> None:
        """How much time the loads of the last plan cover."""
        assert float(least_s) <= self._plan["loads_cover_s"] <= float(most_s), self._plan

    def do_policies(self, *names: str) -> None:
        assert [p["policy"] for p in self._plan["policies"]] == [*names]

    def do_unknown_loads(self, is_soon: str = "") -> None:
        (policy,) = self._plan["policies"]
        assert policy["rest"] == "loads-unknown"
        assert not is_soon or 0 < policy["wait_s"] < LEAST_S

    def do_because(self, *text: str) -> None:
        """What the policies say of why nothing is to move."""
        said = " ".join(s for p in self._plan["policies"] for s in p["said"])
        assert says(said, *" ".join(text).split("…")), said

    def do_waits(self, *ports: str) -> None:
        """The VM ports that wait for their uplinks, each as `vnet0:REASON`."""
        found = [f"{one['port']}:{one['why'].replace(' ', '-')}" for one in self._plan["waiting"]]
        assert found == [*ports], found

    def do_same_plan(self, is_same: str) -> None:
        assert (self._ask_plan()["id"] == self._plan["id"]) is (is_same == "yes")

    def do_apply_plan(self, plan_id: str = "") -> None:
        """With --plan, and the ID of the last one unless another is given."""
        self.ask("apply", "br0", "--plan", plan_id or self._plan["id"])

    def do_agrees(self) -> None:
        """What `explain` says will move is what the plan moves first."""
        first = [(m["port"], m["target"]) for m in self._ask_plan()["moves"]][:1]
        verdicts = {name: explained(self, name) for name in VMS}
        said = [(name, v["target"]) for name, v in verdicts.items() if v["against"] == "moves"]
        assert said == first

    def do_noted(self, is_noted: str) -> None:
        """Whether the last entry of the decision log is the refusal."""
        noted = [entry.why for entry in self.bridge.decision_log.entries]
        assert (noted[-1:] == [self.replies[self.asked].text]) is (is_noted == "yes")


FIRST_LOADS = "loads 3e8 2.5e8 1e8 2e8"
# Four VMs on eth1, 85 % of it, and nobody has waited for a window yet. Loads are known so long after a
# start, whatever of it is needed.
CROWDED = f"bond {ALL_ON_ETH1} | {FIRST_LOADS} | run 12"
LONG, SHORT = (CROWDED.replace("bond", f"bond window-s={s}") for s in (400, 15))
OF_THREE = f"bond uplinks=3 {ALL_ON_ETH1} | loads 6e8 5e8 4e8 2e8 | run 12"
NO_PLAN = "no plan to apply; run ovs-lbt plan first"
DOWN_2 = "down eth2 | run 0.1"
# A policy that has no other move, with windows that forget what the plan was based on.
ALONE = f"""bond window-s=15 {ALL_ON_ETH1} vnet1.pin=eth1 vnet2.pin=eth1 vnet3.pin=eth1 | {FIRST_LOADS}
    | run 8"""
ENFORCE = "to make moves: ovs-lbt set bridge br0 mode=enforce"
STORIES = {
    "what the policy will do, and moves nothing": f"""{CROWDED} | watch | plans vnet0:eth1-eth2
        | ratios eth1=85/55 eth2=0/30 | covers 10 12 | unchanged | moves | agrees | run 48
        | bound 2111 | moves threshold=1""",
    "one move a window, until there are no more": f"""{OF_THREE} | plans vnet0:eth1-eth2
        vnet1:eth1-eth3 | run 288 | bound 2311""",
    "before loads are known": f"""bond {ALL_ON_ETH1} | {FIRST_LOADS} | run 2.5 | plans | unknown-loads soon
        | ask plan | told …are needed; try again in… | run {LEAST_S} | plans vnet0:eth1-eth2""",
    "loads from before the last move": f"""bond {ALL_ON_ETH1} | {FIRST_LOADS} | run 25
        | do move vnet1 eth2 | plans | unknown-loads | run 8 | plans | covers 4 8
        | ratios eth1=60/60 eth2=25/25""",
    **{
        f"nothing is to move: {why}": f"""{team} | loads {loads} | run 40 | plans | because {why}
        | ask apply | told br0…no moves…"""
        for team, loads, why in (
            (f"bond {ALL_ON_ETH1}", "1e8", "75%…eth1…10.0%"),
            (
                *(f"bond {ALL_ON_ETH1}", "9e8 0.01e8"),
                "eth1…90.1%…75%…vnet0…eth2…90.0%…vnet1, vnet2, vnet3",
            ),
            ("bond policy=originating-port", "9e8", "static policy"),
            ("bond policy=dynamic", "0", "eth2…0%…eth1…0%"),
        )
    },
    # A port group that never moves counts as load, and keeps its place.
    "policies side by side": f"""bond {ALL_ON_ETH1} vnet0.policy=explicit | {FIRST_LOADS} | run 12
        | plans vnet1:eth1-eth2 | policies explicit load-based""",
    "an observed bridge": f"""bond mode=observe {ALL_ON_ETH1} | {FIRST_LOADS} | run 12
        | plans vnet0:eth1-eth2 | ask plan
        | told …would be made now in enforce mode…FROM…IF ENFORCED…EXPECTED…observe mode: …as they
        would be… | ask apply | refused bridge br0 is in observe mode; {ENFORCE} | run 88 | plans
        | ratios eth1=55/55 eth2=30/30""",
    "who waits to return": """bond policy=originating-port | run 20 | down eth1 | run 1 | plans
        | waits vnet0:link-down vnet2:link-down | up eth1 | run 5 | ask plan
        | told …eth2 to eth1…vnet0, vnet2…failback delay…40 s…""",
    "a bridge that is away": f"""{CROWDED} | gone | ask plan | told …NOT CONNECTED… | ask apply
        | refused bridge br0: the switch is not connected; {STARTED}""",
    "apply makes what was shown in one bundle": f"""{OF_THREE} | do plan | hold | watch | ask apply
        | unanswered | sent Apply Apply | answer | run 1
        | told br0: 2 moves…vnet0: eth1 -> eth2 (threshold)…vnet1: eth1 -> eth3 (… | bound 2311
        | moves threshold=2 | ask apply | refused there is {NO_PLAN}""",
    "the window begins anew with what was applied": f"""{CROWDED} | do plan | do apply
        | loads 1e8 4e8 3e8 2e8 | run 30 | moves threshold=1 | run 5 | moves threshold=2""",
    "without a plan": f"""{CROWDED} | ask apply | refused there is {NO_PLAN} | ask apply br0
        | refused bridge br0 has {NO_PLAN} | ask apply br9 | refused no bridge is named br9 (did…""",
    "a bundle that is refused": f"""{CROWDED} | do plan | refuse bundle full | ask apply
        | refused the switch refused the change: full | run 2 | bound 1111 | moves""",
    "a bridge that was given back": f"""{CROWDED} | do plan | grace 0 | lose-keys | run 1 | ask plan
        | told …ovs-lbt attach BRIDGE | find-keys | run 12 | ask apply br0
        | refused bridge br0 has {NO_PLAN}""",
    # What happens, or an operator asks for; and what the refusal names.
    **{
        f"a changed situation: {change}": f"""{team} | do plan | {change} | watch | ask apply br0
        | refused {why}; make a new plan: ovs-lbt plan br0 | unchanged | noted yes"""
        for team, change, why in (
            (LONG, DOWN_2, "…uplink eth2: …link down…"),
            (LONG, "up eth2 1e8", "…capacity of eth2: …1000 Mbit/s…100 Mbit/s…"),
            (LONG, "do set interface eth2 role=standby", "…role of eth2: …active…standby…"),
            (LONG, "do set bridge br0 threshold=60", "…threshold: …75%…60%…"),
            (LONG, "do pin vnet0 eth1", "…pin of vnet0: none…eth1…"),
            (LONG, "do set interface vnet0 exclude=true", "…vnet0: excluded…"),
            (
                *(LONG, "do set interface vnet0 policy=explicit"),
                "…policy of vnet0: …load-based…explicit…",
            ),
            (LONG, "do move vnet0 eth2", "…vnet0: …eth1…eth2…"),
            (LONG, "do move vnet3 eth2", "…vnet3: …eth1…eth2…"),
            (LONG, "del vnet0 | run 0.1", "…vnet0: was removed, or has no uplink now…"),
            (
                *(LONG, "set vnet0:tag=5 | set bond0:trunks=(7,) | run 0.1"),
                "…vnet0: was removed, or has no uplink now…",
            ),
            (LONG, f"loads 0 | run {KEPT_S + 1}", "…plan: 301 s…300 s…"),
            (LONG, "gone | run 1 | back | run 2", "…loads: …"),
            (ALONE, "loads 0 | run 20", "…loads: …utilization is…%…"),
            (ALONE, "loads 3e9 | run 20", "…loads: eth2…%…"),
        )
    },
    "a changed situation: observed": f"""{LONG} | do plan | do set bridge br0 mode=observe | watch
        | ask apply br0 | refused bridge br0 is in observe mode…mode=enforce… | unchanged""",
    "a plan that is refused is counted": f"""{CROWDED} | do plan | {DOWN_2} | ask apply
        | metric moves_planned_total{{bridge="br0",reason="threshold"}} 1.0
        | metric moves_refused_total{{bridge="br0",reason="threshold"}} 1.0
        | moves""",
    **{
        f"noise refuses nothing: {loads}": f"""{SHORT} | do plan | loads {loads} | run 1.5 | ask apply
        | told …1 move made…"""
        for loads in (
            "2.88e8 2.4e8 0.96e8 1.92e8",
            "2.97e8 2.48e8 0.99e8 1.98e8",
            "3.03e8 2.53e8 1.01e8 2.02e8",
            "3.09e8 2.58e8 1.03e8 2.06e8",
        )
    },
    "noise where a target was filled to the threshold": """bond window-s=20 vnet0.binding=eth1
        vnet1.binding=eth1 vnet2.binding=eth1 vnet3.pin=eth2 | loads 3.5e8 2.5e8 2e8 4e8 | run 12
        | plans vnet0:eth1-eth2 | ratios eth1=80/45 eth2=40/75 | loads 3.6e8 2.5e8 2e8 4.1e8 | run 3
        | ask apply | told …1 move made…""",
    "of several bridges the one that is meant is named": f"""bond {ALL_ON_ETH1} + bond
        vnet0-br1.binding=eth1-br1 vnet1-br1.binding=eth1-br1 vnet2-br1.binding=eth1-br1
        vnet3-br1.binding=eth1-br1 | {FIRST_LOADS} | on br1 | {FIRST_LOADS} | run 12 | ask plan
        | told …1 move would be made now…1 move would be made now… | ask apply
        | refused 2 bridges have a plan; name one of br0, br1 | ask apply br1
        | told br1: 1 move made… | ask apply | told br0: 1 move made…""",
    "new VMs beside it": f"""{CROWDED} | do plan | add vnet7 17 | run 1 | ask apply
        | told br0: 1 move…vnet0: eth1 -> eth2 (threshold)…""",
    "only the plan that was shown": f"""{CROWDED} | plans vnet0:eth1-eth2 | same-plan yes
        | apply-plan 0123abcd | refused …0123abcd…br0…ovs-lbt plan br0… | bound 1111 | ask plan br0
        | told …ovs-lbt apply br0 --plan … | apply-plan | told … | bound 2111 | same-plan no""",
    **{
        f"explain and plan agree: {loads}": f"bond {ALL_ON_ETH1} | loads {loads} | run 12 | agrees"
        for loads in ("6e8 3e8", "1e8 1e8 1e8 1e8", "9e8")
    },
}


@pytest.mark.parametrize("story", STORIES)
def test_plan(story: str) -> None:
    PlanStory(STORIES[story]).tell()


def test_while_flow_counters_are_late_no_load_is_known_and_it_is_said_since_when() -> None:
    here = counted_late("load-based", vms(10, 30) | vms(11, 30), 0.5, paused=(40.0, 70.0))
    for at_s, covered_s, wait_s in ((39, 30.0, 0.0), (55, 0.0, LEAST_S), (71, 30.0, 0.0)):
        answer = done(here.run_until(at_s).ask("plan", "br0", "--json"))
        (policy,) = json.loads(answer)["bridges"][0]["policies"]
        assert (policy["covered_s"], policy["wait_s"]) == (covered_s, wait_s)
        assert (policy["rest"] == "loads-unknown") is (covered_s == 0.0)
        late = "(the switch last counted the traffic of VM ports 15 s ago)"
        for words in ("plan", "explain vnet0"):
            told = " ".join(done(here.ask(*words.split())).split())
            assert (late in told) is (covered_s == 0.0), told


def test_a_command_in_a_plan_stays_on_one_line() -> None:
    """So it can be pasted into a shell."""
    row = host("load-based")
    inner = (replace(p, vlan_mode="dot1q-tunnel") if p.name == "vnet0" else p for p in row.ports)
    here = world(replace(row, ports=tuple(inner))).start().run_until(20)
    lines = done(here.ask("plan", "br0")).splitlines()
    assert any(line.endswith("ovs-vsctl set port vnet0 vlan_mode=access") for line in lines), lines


def test_buckets_are_told_by_the_way_they_go() -> None:
    here = world(host("slb")).start().run_until(20)
    bound = here.bridge.placing.planned.bound
    on_eth1 = [name for name in bound if name.startswith("slb/") and bound[name].uplink == "eth1"]
    number = buckets.number_of("slb")
    keys = [(number, int(name.partition("/")[2])) for name in on_eth1[:8]]
    here.switch.hashed_bps = dict.fromkeys(keys, steady(1e9))
    # After a move, the policy waits for 12 s.
    here.do("move vnet0 eth2")
    (planned,) = json.loads(done(here.run_for(6).ask("plan", "--json")))["bridges"]
    (moved,) = planned["moves"]
    assert (moved["policy"], moved["source"], moved["target"]) == ("slb", "eth1", "eth2")
    assert moved["buckets"] == 4 and moved["tx_bps"] == pytest.approx(4e9)
    assert [round(u["expected_transmit_ratio"], 2) for u in planned["uplinks"]] == [0.4, 0.4]
    made = done(here.ask("apply", "br0"))
    assert says(made, "br0: 4 moves", "slb, 4 buckets", "eth1 -> eth2", "rebalance")
    assert moves(here) == {"manual": 1, "rebalance": 4}


CROWDED_BPS = (3e9, 2.5e9, 1e9, 2e9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_there_is_an_answer_and_apply_keeps_to_the_plan(seed: int) -> None:
    """Operators, links, VMs and loads at random, under every policy."""
    random = Random(seed)
    policies = ["load-based"] * len(PRESETS) + sorted(PRESETS)
    row = host(binding="eth1", uplinks=random.choice((2, 3)), window_s="60")
    here = offer(world(row), CROWDED_BPS).start()
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
        (planned,) = json.loads(done(here.ask("plan", "br0", "--json")))["bridges"]
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


def test_buckets_of_another_policy_that_move_all_the_time_refuse_nothing() -> None:
    here = PlanStory(
        f"bond {ALL_ON_ETH1} vnet3.policy=dynamic | loads 3e8 2.5e8 2.1e8 | run 12"
    ).tell()
    bound = here.bridge.placing.planned.bound
    there = (n for n, b in bound.items() if n.startswith("dynamic/") and b.uplink == "eth1")
    busy = buckets.number_of("dynamic"), int(next(there).partition("/")[2])
    here.do_plans("vnet0:eth1-eth2")
    here.switch.hashed_bps = {busy: steady(1.5e8)}
    here.run_for(6)
    assert moves(here) == {"rebalance": 1}
    assert "vnet0: eth1 -> eth2 (threshold)" in done(here.ask("apply"))


def test_a_time_that_is_too_short_is_not_rounded_up() -> None:
    text = unknown(Basis(window_s=30.0, covered_s=2.6, needed_s=3.0))
    assert text == "loads have been measured for 2 s, but 3 s are needed; try again in 1 s"
