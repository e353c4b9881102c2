"""Uplinks that return or leave while VM ports move: the steps of a return, and what ends with them."""

from __future__ import annotations

import itertools

import pytest

from controller.api.events import DatabaseRead, PortChanged, PortRemoved
from controller.teaming.bindings import RETURN_INTERVAL_S, RETURNS_AT_ONCE
from tests.unit.controller.story import Story, tell
from tests.unit.fake_switch import refusal, world
from tests.unit.rows import host

MANY = "bond vms=40 failback-delay-s=10 | down eth1 | run 1 | up eth1"


def test_a_bridge_detached_during_a_drain_ends_it() -> None:
    here = world(host()).start()
    assert here.ask("drain", "eth1") is None
    here.do("detach br0")
    assert "was detached" in refusal(here.replies[1])


def test_vm_ports_return_in_steps() -> None:
    here = tell(f"{MANY} | run 10.5 | carries eth1={RETURNS_AT_ONCE} | run 10 | carries eth1=20")
    here.do_moves("failover=20", "failback=20")
    bound = here.bridge.placing.bound.values()
    returned_s = sorted(one.since_s for one in bound if one.reason == "failback")
    steps = [(at_s, len([*group])) for at_s, group in itertools.groupby(returned_s)]
    assert max(count for _, count in steps) <= RETURNS_AT_ONCE
    assert steps[0][0] == 11
    apart_s = [later - at_s for (at_s, _), (later, _) in itertools.pairwise(steps)]
    assert apart_s == pytest.approx([RETURN_INTERVAL_S] * (len(steps) - 1))


@pytest.mark.parametrize("reconnects", [False, True])
def test_an_uplink_that_was_removed_waits_when_it_returns(reconnects: bool) -> None:
    here = Story("bond failback-delay-s=45").tell()
    state = here.switch.ports.pop(1)
    if reconnects:
        here.disconnect().connect()
    else:
        here.say(PortRemoved("br0", 1))
    here.do_bound("2222")
    here.switch.ports[1] = state
    here.say(PortChanged("br0", state)).run_for(44)
    here.do_bound("2222")
    here.run_for(3)
    here.do_bound("1212")


def test_a_bond_member_that_joins_again_waits_for_its_failback_delay() -> None:
    here = Story("bond uplinks=3 policy=explicit failback-delay-s=45").tell()
    before = here.rows["br0"]
    here.write(here._with_members("eth1")).run_for(5)
    here.do_bound("2222")
    here.write(before).run_for(40)
    here.do_bound("2222")
    here.run_for(6)
    here.do_bound("1111")


def test_nothing_waits_for_ever_where_the_team_goes_away_during_a_return() -> None:
    here = tell(f"{MANY} | run 10 | set uplinks=eth8,eth9 | run 30")
    here.say(PortRemoved("br0", 1), DatabaseRead(())).run_for(30)
