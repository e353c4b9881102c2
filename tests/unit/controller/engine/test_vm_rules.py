"""Rules and reservations for VM ports, whatever happens to links: from the key to the group on the switch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.dataplane import tables
from tests.unit.controller.engine.told import shown
from tests.unit.controller.story import Story, tell
from tests.unit.examples import examples
from tests.unit.rows import VMS

THREE = "bond uplinks=3 failback-delay-s=5"
LINKS = {1, 2, 3}


def of_all(*keys: str) -> str:
    return " ".join(f"{name}.{key}" for name in VMS for key in keys)


def broken(here: Story) -> set[tuple[str, str]]:
    return {(one["port"], one["rule"]) for one in shown(here)["rules_broken"]}


@pytest.mark.parametrize("policy", ["source-mac", "address-hash", "slb", "dynamic"])
def test_a_vm_port_with_rules_is_not_spread_by_a_hash(policy: str) -> None:
    here = tell(f"{THREE} policy={policy} vnet0.allow=eth1 vnet1.prefer=eth2 vnet2.pin=eth2")
    groups = (here.switch.groups[tables.Group.BINDING.id_of(10 + n)] for n in range(4))
    by_hash = [len(group.buckets[0].actions) > 1 for group in groups]
    assert by_hash == [False, False, False, True]
    assert [here.switch.uplink_of(ofport) for ofport in (10, 11, 12)] == [1, 2, 2]
    assert here.bridge.placing.rules().keys() == {"vnet0", "vnet1", "vnet2"}


@pytest.mark.parametrize("rule", ["prefer=eth1", "prefer=!eth2", "affinity=db"])
@pytest.mark.parametrize("binding", ["", "eth1", "eth2"])
def test_reservations_that_do_not_fit_one_uplink_are_shared_against_rules(
    rule: str, binding: str
) -> None:
    """And a restart moves nothing."""
    keys = of_all("reserve-mbps=410", rule, f"binding={binding}")
    here = tell(f"bond {keys} | run 1 | carries eth1=2 eth2=2")
    before = here.bindings()
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


EVENTS = st.lists(
    st.tuples(st.sampled_from([*LINKS]), st.booleans(), st.sampled_from([0.0, 0.3, 7.0])),
    max_size=8,
)
# The uplinks that each of them leaves.
ALLOW = {"": LINKS, "eth1": {1}, "!eth1": {2, 3}, "eth2,eth3": {2, 3}}
SETS = st.sampled_from(["", "a", "b"])
RULES = st.tuples(
    st.sampled_from([*ALLOW]), st.sampled_from(["", "eth2", "eth3,eth1", "!eth2"]), SETS, SETS
)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.lists(RULES, min_size=4, max_size=4), EVENTS)
def test_links_come_and_go_and_in_the_end_all_is_as_it_was(
    rules: list[tuple[str, str, str, str]], events: list[tuple[int, bool, float]]
) -> None:
    keys = ("allow", "prefer", "affinity", "anti-affinity")
    words = (
        f"{name}.{key}={value}"
        for name, values in zip(VMS, rules, strict=True)
        for key, value in zip(keys, values, strict=True)
    )
    here = tell(f"{THREE} {' '.join(words)} | run 1")
    before, broken_before = here.bindings(), broken(here)
    for link, up, seconds in events:
        here.set_link(link, up=up).run_for(seconds)
        for ofport, (allow, *_) in enumerate(rules, 10):
            group = here.switch.groups[tables.Group.BINDING.id_of(ofport)]
            assert {b.watch_port for b in group.buckets if b.watch_port} == ALLOW[allow]
            live = {uplink for uplink in ALLOW[allow] if here.switch.ports[uplink].up}
            used = here.switch.uplink_of(ofport)
            assert used in live if live else used is None
    for link in LINKS:
        here.set_link(link, up=True)
    here.run_for(20)
    assert here.bindings() == before and broken(here) == broken_before
    here.do_bound("".join(before.get(name, "eth-").removeprefix("eth") for name in VMS))
    here.restart_service().run_for(10)
    assert here.bindings() == before, "a restart moves nothing"
