"""Operators' rules and reservations for VM ports, from the key in the database to the group on the switch."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.dataplane import tables
from tests.unit.controller.engine.told import shown
from tests.unit.examples import examples
from tests.unit.fake_switch import World, world
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


@pytest.mark.parametrize("rule", [{"prefer": "eth1"}, {"prefer": "!eth2"}, {"affinity": "db"}])
@pytest.mark.parametrize("binding", [None, "eth1", "eth2"])
def test_what_does_not_fit_one_uplink_is_shared_against_rules_and_a_restart_moves_nothing(
    rule: dict[str, str], binding: str | None
) -> None:
    asked = {"reserve_mbps": "41", **rule}
    here = team(dict.fromkeys(VMS, asked), binding, uplinks=2, speed_bps=100e6)
    before = here.bindings()
    assert Counter(before.values()) == {"eth1": 2, "eth2": 2}
    assert shown(here)["not_done"] == []
    assert broken(here), "what was given up is told"
    assert "reserve-mbps" not in {of for _, of in broken(here)}
    here.restart_service().run_for(5)
    assert here.bindings() == before


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
