"""What uplinks are for: roles, drain, the way back, and what a pin is worth against them."""

from __future__ import annotations

import itertools
import re

import pytest

from controller.api.engine_commands import Apply, Write
from controller.api.events import DatabaseRead, PortChanged, PortRemoved
from controller.teaming.bindings import RETURN_INTERVAL_S, RETURNS_AT_ONCE
from controller.text.wording import UNREACHED
from tests.said import pattern, says
from tests.unit.controller.engine.told import desired, offer
from tests.unit.fake_switch import World, done, moves, refusal, world
from tests.unit.rows import VMS, host, with_interface

MANY = tuple(f"vnet{i}" for i in range(40))


def team(*roles: str, vms: tuple[str, ...] = VMS, **keys: str) -> World:
    """A world whose uplinks eth1, eth2… have these roles."""
    row = host(uplinks=len(roles), vms=vms, plain=False, **keys)
    for i, role in enumerate(roles, start=1):
        row = with_interface(row, f"eth{i}", role=role)
    return world(row).start()


def used(here: World) -> set[str]:
    """The uplinks that carry traffic, which the service and the switch agree about."""
    names = {port.ofport: port.name for port in here.switch.ports.values()}
    ofports = {10 + int(name.removeprefix("vnet")): name for name in here.bindings()}
    carried = {name: names[here.switch.uplink_of(ofport) or 0] for ofport, name in ofports.items()}
    assert carried == here.bindings()
    return set(carried.values())


# ---- roles -----------------------------------------------------------------------------


def test_a_standby_uplink_is_used_while_no_active_one_is_and_by_nothing_else() -> None:
    here = offer(team("active", "standby", failback_delay_s="45"), [4e9] * 4).run_for(100)
    assert used(here) == {"eth1"}, "whatever the load"
    told = refusal(here.ask("move", "vnet0", "eth2"))
    assert says(told, "uplink eth2: standby", "; use one of eth1")
    here.set_link(1, up=False).run_for(1)
    assert used(here) == {"eth2"}
    here.set_link(1, up=True).run_for(44)
    assert used(here) == {"eth2"}
    here.run_for(2)
    assert used(here) == {"eth1"}
    assert moves(here) == {"failover": 4, "failback": 4}


def test_load_is_balanced_over_standby_uplinks_while_they_are_all_there_is() -> None:
    here = team("active", "standby", "standby", policy="load-based")
    here.set_link(1, up=False).run_for(1)
    for name in VMS:
        here.do(f"move {name} eth2")
    offer(here, [2.4e9] * 4).run_for(70)
    assert used(here) == {"eth2", "eth3"}


def test_an_unused_uplink_is_not_even_the_last_resort() -> None:
    here = team("active", "unused")
    here.set_link(1, up=False).run_for(60)
    assert set(here.bindings().values()) == {"eth1"}
    assert {here.switch.uplink_of(10 + i) for i in range(4)} == {None}


def test_a_team_of_unused_uplinks_binds_nothing_and_recovers() -> None:
    here = team("unused", "unused")
    assert here.bindings() == {}
    assert here.switch.installed == desired(here)
    here.write_keys_of("eth2", role="active")
    assert used(here) == {"eth2"}


def test_a_drained_uplink_is_the_last_resort() -> None:
    here = team("drained", "active", "standby", failback_delay_s="45")
    assert used(here) == {"eth2"}
    here.set_link(2, up=False).run_for(1)
    assert used(here) == {"eth3"}
    here.set_link(3, up=False).run_for(1)
    assert used(here) == {"eth1"}
    here.set_link(2, up=True).run_for(1)
    assert used(here) == {"eth2"}, "one that waits is better than one somebody works on"


def test_originating_port_counts_active_uplinks_up_or_not() -> None:
    here = team("active", "standby", "active", policy="originating-port", vms=MANY)
    expected = {f"vnet{i}": ("eth1", "eth3")[(10 + i) % 2] for i in range(40)}
    assert here.bindings() == expected
    here.set_link(3, up=False).run_for(1)
    assert used(here) == {"eth1"}
    here.set_link(3, up=True).run_for(60)
    assert here.bindings() == expected


def test_a_drain_moves_only_the_vm_ports_of_its_uplink_and_they_return_after_it() -> None:
    here = team("active", "active", "active", policy="originating-port")
    before = here.bindings()
    here.write_keys_of("eth2", role="drained")
    during, of_eth2 = here.bindings(), {n for n in VMS if before[n] == "eth2"}
    assert {n for n in VMS if during[n] != before[n]} == of_eth2 != set()
    here.write_keys_of("eth2", role="active").run_for(1)
    assert here.bindings() == before
    assert set(moves(here)) == {"drain", "failback"}


@pytest.mark.parametrize("role", ["standby", "drained", "unused"])
def test_a_role_wins_over_a_pin_and_the_pin_holds_again_after_it(role: str) -> None:
    here = team("active", "active")
    here.do("pin vnet0 eth2")
    here.write_keys_of("eth2", role=role)
    assert here.bindings()["vnet0"] == "eth1"
    refused = f"uplink eth2 is {role}; a pin needs an active uplink: one of eth1"
    assert refusal(here.ask("pin", "vnet2", "eth2")) == refused, "it would not hold"
    assert refusal(here.ask("set", "interface", "vnet2", "pin=eth2")) == refused
    here.write_keys_of("eth2", role="active").run_for(2)
    assert here.bindings()["vnet0"] == "eth2"


# ---- drain -----------------------------------------------------------------------------


def test_a_drain_is_over_when_the_neighbours_know_and_undrain_gives_all_back() -> None:
    here = team("active", "active")
    before = here.bindings()
    here.switch.learned = ((10, "52:54:00:00:00:01", 0),)
    assert here.ask("drain", "eth1") is None
    assert used(here) == {"eth2"}
    here.run_for(2.8)
    assert here.replies == {}, "the last learning packet is still to come"
    here.run_for(0.2)
    assert done(here.replies[1]) == "eth1: idle, 2 VM ports moved"
    assert moves(here) == {"drain": 2}
    assert len(here.frames()) == 3
    here.do("undrain eth1").run_for(2)
    assert here.bindings() == before
    (eth1, _) = here.rows["br0"].ports[0].interfaces
    assert eth1.external_ids == {}


def test_drain_of_what_is_drained_is_done_already() -> None:
    here = team("active", "drained")
    here.log.clear()
    assert done(here.ask("drain", "eth2")) == "eth2: idle, 0 VM ports moved"
    assert here.commands(Write) == []


def test_a_standby_uplink_is_a_standby_uplink_again_after_a_drain() -> None:
    here = team("active", "standby")
    here.ask("drain", "eth2")
    here.do("undrain eth2")
    (_, eth2) = here.rows["br0"].ports[0].interfaces
    assert eth2.external_ids == {"ovs-lbt-role": "standby"}
    assert here.status.config.errors == ()


def test_a_drain_during_which_the_other_uplink_fails_says_what_remains() -> None:
    here = team("active", "active")
    assert here.ask("drain", "eth1") is None
    here.set_link(2, up=False).run_for(4)
    told = refusal(here.replies[1])
    assert says(told, "uplink eth1: drained", "vnet0, vnet1, vnet2, vnet3; ", "another uplink")


def test_a_drain_of_a_switch_that_goes_away_is_answered() -> None:
    here = team("active", "active")
    here.switch.holds_answers = True
    assert here.ask("drain", "eth1") is None
    here.disconnect().run_for(11)
    assert refusal(here.replies[1]).endswith(f"not connected, because {UNREACHED}")


def test_a_drain_on_a_lag_says_that_the_switch_upstream_decides_what_it_sends() -> None:
    here = team("active", "active", teaming="static")
    text = done(here.ask("drain", "eth1"))
    assert says(text, "eth1: idle, 2 VM ports moved; ", "upstream switch")


def test_a_bridge_detached_during_a_drain_ends_it() -> None:
    here = team("active", "active")
    assert here.ask("drain", "eth1") is None
    here.do("detach br0")
    assert "was detached" in refusal(here.replies[1])


# Some of it the command refuses by itself, and another client may send it.
REFUSALS = {
    "drain eth3": "uplink eth3 is unused; expected an active or standby uplink",
    "move vnet0 eth3": "uplink eth3: unused; use one of eth1, eth2",
    "set interface eth1 role-before=standby": (
        "no key of an uplink is named role-before; to list the names: ovs-lbt set --help"
    ),
    "set port vnet0 pin=eth1": "table: port is invalid; expected bridge or interface",
    "set bridge br0 threshold=75 threshold=60": "threshold is given 2 times",
    "set interface vnet0 pin= pin=eth1": "pin is given 2 times",
    "set bridge br0 no-flood-before=vnet0": "no key of a bridge is named no-flood-before; …",
    "set interface vnet0 binding=eth2": "no key of a VM port is named binding; …",
}


@pytest.mark.parametrize("command", REFUSALS)
def test_a_refusal_says_what_was_found_and_what_is_expected(command: str) -> None:
    here = team("active", "active", "unused")
    here.log.clear()
    assert re.fullmatch(pattern(REFUSALS[command]), refusal(here.ask(*command.split())))
    assert not here.commands(Write) and not here.commands(Apply)


def test_the_last_uplink_that_works_is_not_drained() -> None:
    here = team("active", "active").set_link(2, up=False)
    assert says(refusal(here.ask("drain", "eth1")), "uplink eth1 is the last working uplink; ")


@pytest.mark.parametrize("role", ["drained", "unused"])
def test_the_last_uplink_in_service_is_not_taken_out_of_it(role: str) -> None:
    here = team("active", "unused")
    expected = "active or standby, because the bridge has no other active or standby uplink"
    text = f"role: {role} is invalid; expected {expected}"
    assert refusal(here.ask("set", "interface", "eth1", f"role={role}")) == text


# ---- the way back ----------------------------------------------------------------------


def test_vm_ports_return_in_steps() -> None:
    here = team("active", "active", vms=MANY, failback_delay_s="10")
    here.set_link(1, up=False).run_for(1)
    here.set_link(1, up=True).run_for(10.5)
    assert used(here) == {"eth1", "eth2"}, "the switch has returned no more than the service"
    assert list(here.bindings().values()).count("eth1") == RETURNS_AT_ONCE
    here.run_for(10)
    returned: dict[float, int] = {}
    on_eth1 = 0
    for bound in here.bridge.placing.bound.values():
        if bound.reason == "failback":
            returned[bound.since_s] = returned.get(bound.since_s, 0) + 1
            on_eth1 += bound.uplink == "eth1"
    assert on_eth1 == 20
    assert max(returned.values()) <= RETURNS_AT_ONCE
    steps = sorted(returned)
    assert steps[0] == 11
    apart_s = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert apart_s == pytest.approx([RETURN_INTERVAL_S] * (len(steps) - 1))
    assert moves(here) == {"failover": 20, "failback": 20}


def test_a_link_that_flaps_while_vm_ports_return_waits_again_and_none_returns_twice() -> None:
    here = team("active", "active", vms=MANY, failback_delay_s="10")
    here.set_link(1, up=False).run_for(1)
    here.set_link(1, up=True).run_for(11)
    returned = moves(here)["failback"]
    assert 0 < returned < 20
    here.set_link(1, up=False).run_for(0.5)
    here.set_link(1, up=True).run_for(9.9)
    assert used(here) == {"eth2"}
    here.run_for(10)
    assert moves(here) == {"failover": 20 + returned, "failback": 20 + returned}


def test_a_move_during_a_staged_return_goes_ahead() -> None:
    here = team("active", "active", vms=MANY, failback_delay_s="10")
    here.set_link(1, up=False).run_for(1)
    here.set_link(1, up=True).run_for(10.1)
    last = max(n for n, uplink in here.bindings().items() if uplink == "eth2")
    here.do(f"move {last} eth1")
    assert here.bindings()[last] == "eth1"
    assert moves(here)["manual"] == 1


def test_a_link_that_is_present_and_not_live_yet_delays_no_return() -> None:
    here = team("active", "active", failback_delay_s="0")
    home = here.bindings()
    here.set_link(1, up=False).run_for(1)
    here.set_link(1, up=False).set_link(1, up=True).run_for(0)
    assert here.switch.uplink_of(10) == int(home["vnet0"].removeprefix("eth"))
    assert here.bindings() == home


def test_a_move_to_an_uplink_that_waits_says_how_long() -> None:
    here = team("active", "active", failback_delay_s="45").set_link(2, up=False)
    text = "uplink eth2: link down; use one of eth1"
    assert refusal(here.ask("move", "vnet0", "eth2")) == text
    here.run_until(10).set_link(2, up=True).run_until(20)
    told = refusal(here.ask("move", "vnet0", "eth2"))
    assert says(told, "uplink eth2: ", "failback delay: 35 s", "use one of eth1")


@pytest.mark.parametrize("reconnects", [False, True])
def test_an_uplink_that_was_removed_waits_when_it_returns(reconnects: bool) -> None:
    here = team("active", "active", failback_delay_s="45")
    state = here.switch.ports.pop(1)
    if reconnects:
        here.disconnect().connect()
    else:
        here.say(PortRemoved("br0", 1))
    assert set(here.bindings().values()) == {"eth2"}
    here.switch.ports[1] = state
    here.say(PortChanged("br0", state)).run_for(44)
    assert used(here) == {"eth2"}
    here.run_for(3)
    assert used(here) == {"eth1", "eth2"}


def test_a_refused_failover_is_made_when_the_switch_takes_it_and_homes_stay() -> None:
    here = team("active", "active", failback_delay_s="5")
    before = here.bindings()
    here.switch.refuse_next = "no"
    here.set_link(1, up=False).run_for(3)
    assert used(here) == {"eth2"}
    here.set_link(1, up=True).run_for(8)
    assert here.bindings() == before


def test_nothing_waits_for_ever_where_the_team_goes_away_during_a_return() -> None:
    here = team("active", "active", vms=MANY, failback_delay_s="10")
    here.set_link(1, up=False).run_for(1)
    here.set_link(1, up=True).run_for(10)
    here.write_keys(uplinks="eth8,eth9").run_for(30)
    here.say(PortRemoved("br0", 1), DatabaseRead(())).run_for(30)
