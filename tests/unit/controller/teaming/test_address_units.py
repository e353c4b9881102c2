"""Addresses behind one VM port as units of their own: placed, moved, followed, remembered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType

import pytest

from controller.api.engine_commands import Apply, ReadLearned, Record, SendFrame
from controller.api.history import Entry, Happened, Moved, Query, as_line, read
from controller.config.rows import BridgeRow, InterfaceRow, PortRow
from controller.dataplane import tables
from controller.features.announcer import LEARNED_INTERVAL_S
from controller.teaming import address_units
from controller.teaming.address_units import PER_PORT_MAX
from tests.unit.fake_switch import World, done, moves, refusal, reports, world
from tests.unit.rows import VMS, backed_up, bridge, host, ours, port, with_interface

PATCH = 10  # the number of vnet0
MACS = tuple(f"52:54:00:00:00:{number:02x}" for number in range(8))
MACS_ALL = tuple(f"52:54:00:00:{n >> 8:02x}:{n & 0xFF:02x}" for n in range(PER_PORT_MAX + 44))


def behind(macs: Iterable[str] = MACS, vlan: int = 0) -> tuple[tuple[int, str, int], ...]:
    return tuple((PATCH, mac, vlan) for mac in macs)


def nested(
    policy: str = "load-based", macs: Iterable[str] = MACS, plain: bool = False, **keys: str
) -> World:
    """A bridge with VMs behind its VM port vnet0, which the switch has learned."""
    keys = {"failback_delay_s": "5", **keys}
    team = host(policy, vms=VMS[:2], uplinks=2, plain=plain, **keys)
    row = with_interface(team, "vnet0", unit="source-mac")
    here = world(row, speed_bps=100e6).start()
    here.switch.learned = behind(macs)
    return here.run_for(3)


def ways(here: World, macs: Iterable[str] = MACS, vlan: int = 0) -> list[int | None]:
    """The uplink of each address on the switch."""
    return [here.switch.uplink_of_address(PATCH, mac, vlan) for mac in macs]


def announced(here: World, since_s: float) -> Counter[str]:
    """The learning packets since then, by the address that they announce."""
    return Counter(c.frame[6:12].hex(":") for c in here.commands(SendFrame, since_s))


@pytest.mark.parametrize("policy", ["load-based", "originating-port", "set-port"])
def test_addresses_are_placed_over_the_uplinks_by_a_number_of_their_own(policy: str) -> None:
    here = nested(policy)
    assert ways(here) == [1, 2] * 4
    assert here.switch.uplink_of(PATCH) == 1
    assert here.port_status().units == {"eth1": 4, "eth2": 4}
    assert "vnet0: 8 addresses, eth1 4, eth2 4" in done(here.ask("show"))
    (shown,) = json.loads(done(here.ask("show", "--json")))["bridges"]
    assert shown["ports"][0]["units"] == {"eth1": 4, "eth2": 4}
    assert "units" not in shown["ports"][1]
    assert moves(here) == {}


@pytest.mark.parametrize("policy", ["source-mac", "slb", "dynamic"])
def test_what_a_hash_parts_is_not_parted_again(policy: str) -> None:
    here = nested(policy)
    assert here.switch.slots() == {}
    assert here.port_status().units is None


@pytest.mark.parametrize(
    "rule", ["pin=eth2", "allow=eth2", "prefer=eth2", "affinity=db", "anti-affinity=web"]
)
def test_a_rule_is_one_for_the_port_as_a_whole(rule: str) -> None:
    here = nested()
    here.do(f"set interface vnet0 {rule}").run_for(3)
    assert here.port_status().units is None
    assert here.switch.slots() == {}
    assert set(ways(here)) == ({2} if "eth2" in rule else {1})
    assert json.loads(done(here.ask("show", "--json")))["bridges"][0].get("rules_broken", []) == []


def test_a_reservation_is_the_ports_and_not_that_of_each_address() -> None:
    here = nested()
    here.do("set interface vnet0 reserve-mbps=60").run_for(3)
    assert ways(here) == [1, 2] * 4, "60 of 100 Mbit/s are promised, once"
    promised = {u.name: u.reserved_bps for u in here.bridge.placing.uplinks()}
    assert promised == {"eth1": 60e6, "eth2": 0.0}


def test_whoever_leaves_otherwise_than_before_is_announced_and_nobody_else() -> None:
    here = nested()
    at_eth2 = set(MACS[1::2])
    assert announced(here, 0.0).keys() == at_eth2
    start_s = here.run_for(5).now_s
    here.switch.learned = behind((*MACS, "52:54:00:00:01:00", "52:54:00:00:01:01"))
    here.run_for(8)
    assert announced(here, start_s) == {"52:54:00:00:01:01": 3}, "three times each"


def test_addresses_that_are_one_unit_again_are_announced_by_their_home() -> None:
    here = nested().run_for(5)
    start_s = here.now_s
    here.write_keys_of("vnet0", binding="eth1").run_for(5)
    assert here.switch.slots() == {} and set(ways(here)) == {1}
    assert announced(here, start_s).keys() == set(MACS)


def test_an_address_that_is_forgotten_or_elsewhere_is_a_unit_no_more() -> None:
    here = nested().run_for(5)
    before = ways(here)
    slots = here.switch.slots()
    here.switch.learned = (*behind(MACS[1:]), (11, MACS[0], 0))
    here.run_for(LEARNED_INTERVAL_S + 0.5)
    assert here.switch.slots() == {key: slot for key, slot in slots.items() if key[1] != MACS[0]}
    assert ways(here)[1:] == before[1:]
    assert here.port_status().units == {"eth1": 3, "eth2": 4}
    assert announced(here, here.now_s - LEARNED_INTERVAL_S - 0.5) == {}
    here.switch.learned = behind()
    here.run_for(LEARNED_INTERVAL_S + 0.5)
    assert here.switch.slots()[PATCH, MACS[0], 0] not in slots.values(), "another slot"


def test_an_address_that_announces_itself_outside_is_a_unit_no_more() -> None:
    here = nested().run_for(5)
    here.switch.learned, here.switch.elsewhere = behind(MACS[1:]), ((MACS[0], 0),)
    here.run_for(LEARNED_INTERVAL_S + 0.5)
    assert (PATCH, MACS[0], 0) not in here.switch.slots()
    assert len(here.bridge.placing.planned.bound) == 3 + len(MACS) - 2


@pytest.mark.slow
def test_a_silent_address_keeps_its_uplink_for_as_long_as_others_may_remember_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(address_units, "SILENT_S", 400.0)
    here = nested().run_for(5)
    here.switch.learned = behind(MACS[2:])
    start_s = here.now_s
    here.run_for(address_units.SILENT_S - 10)
    assert ways(here) == [1, 2] * 4
    here.do("move vnet0 eth2").run_for(5)
    assert ways(here) == [1, 2, *[2] * 6], "nobody would be told that a silent one moves"
    assert not announced(here, start_s).keys() & set(MACS[:2])
    here.switch.learned = behind(MACS[1:])
    here.run_for(20)
    assert {key[1] for key in here.switch.slots()} == set(MACS[1:]), "it has spoken again"


@pytest.mark.parametrize(("fails", "other"), [(1, 2), (2, 1)], ids=["the home's", "another one"])
def test_an_uplink_that_fails_concerns_its_own_addresses_and_gets_them_back(
    fails: int, other: int
) -> None:
    here = nested().run_for(5)
    start_s, before = here.now_s, ways(here)
    here.set_link(fails, up=False).run_for(1)
    assert set(ways(here)) == {other} and here.switch.uplink_of(PATCH) == other
    concerned = {mac for mac, uplink in zip(MACS, before, strict=True) if uplink == fails}
    assert announced(here, start_s).keys() == concerned, "who stayed is not announced"
    here.set_link(fails, up=True).run_for(8)
    assert ways(here) == before == [1, 2] * 4
    assert announced(here, start_s).keys() == concerned


@pytest.mark.parametrize("is_down", [False, True])
def test_a_restart_of_the_service_moves_nothing(is_down: bool) -> None:
    here = nested().run_for(5)
    here.do("move vnet0 eth2").run_for(5)
    before = ways(here)
    assert set(before) == {2}
    if is_down:
        here.set_link(2, up=False).run_for(1)
    installed = here.switch.installed
    slots = here.switch.slots()
    here.restart_service().connect().run_for(5)
    assert here.switch.slots() == slots
    assert here.switch.installed == installed
    assert moves(here) == {} and here.commands(Apply) == [] and here.frames() == []
    assert here.port_status().units is not None
    if is_down:
        here.set_link(2, up=True).run_for(10)
        assert ways(here) == before


def test_a_switch_that_lost_everything_gets_it_back() -> None:
    here = nested().run_for(15).restart_switch().run_for(5)
    assert ways(here) == [1, 2] * 4 and len(here.switch.slots()) == len(MACS)


def test_a_move_takes_the_home_and_all_addresses() -> None:
    here = nested()
    here.do("move vnet0 eth2")
    assert here.bindings()["vnet0"] == "eth2" and set(ways(here)) == {2}
    assert moves(here) == {"manual": 5}
    assert f"br0: vnet0/{MACS[0]}: eth1 -> eth2 (manual)" in reports(here, "info")


def with_vms() -> World:
    """The VM port vnet0 is a patch port, behind which the first VM has a name. Two VLANs have the last."""
    here = nested()
    row = here.rows["br0"]
    patch = replace(row.ports[-2].interfaces[0], kind="patch", peer="to-ex")
    assert patch.name == "vnet0"
    row = replace(row, ports=(*row.ports[:-2], PortRow("vnet0", (patch,)), row.ports[-1]))
    inner = InterfaceRow("to-ex", 1, kind="patch", peer="vnet0")
    vm = port("vif0", 2, {"attached-mac": MACS[0], "iface-id": "web"})
    here.rows["br-int"] = BridgeRow("br-int", (PortRow("to-ex", (inner,)), vm))
    here.write(row).run_for(1)
    here.switch.learned = (*behind(), *behind(MACS[-1:], 7))
    return here.run_for(3)


@pytest.mark.parametrize("name", [f"vnet0/{MACS[0]}", f"vnet0/{MACS[0].upper()}%0"])
def test_one_address_moves(name: str) -> None:
    here = with_vms()
    here.do(f"move {name} eth2")
    assert ways(here) == [2, 2, 1, 2, 1, 2, 1, 2]
    assert here.switch.uplink_of(PATCH) == 1
    assert moves(here) == {"manual": 1}


def test_an_address_has_its_vms_name() -> None:
    here = with_vms()
    name = f"vnet0/{MACS[0]}"
    here.do(f"move {name} eth2")
    for asked in (name, "web"):
        assert done(here.ask("explain", asked)).startswith(f"{name} (web) on br0, load-based\n")
    shown = json.loads(done(here.ask("explain", "vnet0", "--json")))["addresses"]
    assert {one["mac"]: one["vm"] for one in shown}[MACS[0]] == "web"
    (entry,) = [c.entry for _, c in here.log if isinstance(c, Record)]
    assert [(move.unit, move.vm) for move in entry.moves] == [(name, "web")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            f"move vnet0/{MACS[-1]} eth1",
            f"is in several VLANs; use one of vnet0/{MACS[-1]}, vnet0/{MACS[-1]}%7",
        ),
        (
            "move vnet0/02:00:00:00:00:99 eth1",
            "99 is not known; to list known addresses: ovs-lbt explain vnet0",
        ),
        (f"pin vnet0/{MACS[1]} eth1", f"address vnet0/{MACS[1]} belongs to no known VM; "),
        (
            f"explain vnet9/{MACS[1]}",
            f"no interface of an attached bridge is named vnet9/{MACS[1]}; ",
        ),
    ],
)
def test_an_address_that_is_none_or_of_nobody_is_refused(words: str, said: str) -> None:
    assert said in refusal(with_vms().ask(*words.split()))


def test_an_address_is_pinned_for_its_vm() -> None:
    here = with_vms()
    name = f"vnet0/{MACS[0]}"
    here.ask("pin", name, "eth2")
    here.run_for(2)
    assert here.rows["br0"].external_ids["ovs-lbt-vm-web-pin"] == "eth2"
    assert ways(here)[0] == 2
    assert moves(here) == {"pin": 1}
    pinned = f"port {name} is pinned to eth2; to remove the pin: ovs-lbt unpin {name}"
    assert refusal(here.ask("move", name, "eth1")) == pinned
    here.ask("unpin", name)
    here.run_for(2)
    assert "ovs-lbt-vm-web-pin" not in here.rows["br0"].external_ids
    here.do(f"move {name} eth1")
    assert ways(here)[0] == 1


def test_a_silent_address_is_not_moved_by_anybody() -> None:
    """It could not be announced, and upstream switches may still send by its old uplink."""
    here = with_vms()
    name = f"vnet0/{MACS[0]}"
    here.switch.learned = behind(MACS[1:])
    here.run_for(3)
    silent = f"the switch has no entry for address {name}; send a frame from the VM (for example a ping), and try again"
    assert refusal(here.ask("move", name, "eth2")) == silent
    here.ask("pin", name, "eth2")
    here.run_for(3)
    assert ways(here)[0] == 1
    here.switch.learned = behind()
    here.run_for(3)
    assert ways(here)[0] == 2, "it speaks again"


def test_a_drain_takes_its_addresses_too() -> None:
    here = nested()
    here.ask("drain", "eth2")
    here.run_for(5)
    assert set(ways(here)) == {1}
    text = "eth2: idle, 1 VM port and 4 addresses moved"
    assert done(here.replies[here.asked]) == text


@pytest.mark.parametrize(
    ("module", "limit", "per_port", "macs"),
    [
        pytest.param(address_units, "PER_PORT_MAX", PER_PORT_MAX, MACS_ALL, id="of a port"),
        pytest.param(tables, "SLOTS", 4, MACS, id="of the bridge's slots"),
    ],
)
def test_what_is_beyond_a_limit_leaves_by_the_home(
    module: ModuleType,
    limit: str,
    per_port: int,
    macs: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, limit, per_port)
    here = nested(macs=macs)
    assert len(here.switch.slots()) == per_port and set(ways(here, macs[per_port:])) == {1}
    spoken = macs[-per_port:]
    here.switch.learned = behind(spoken)
    here.run_for(3)
    assert {key[1] for key in here.switch.slots()} == set(spoken), "in place of silent ones"
    assert set(ways(here, spoken)) == {1, 2}


def test_load_is_balanced_among_addresses_as_among_ports() -> None:
    """88 Mbit/s on eth1: one of four moves; what is left on either is below the threshold."""
    here = nested(window_s="5")
    here.do("move vnet0 eth1")
    here.switch.behind_bps = {(PATCH, mac, 0): (lambda _: 22e6) for mac in MACS[:4]}
    start_s = here.now_s
    here.run_for(30)
    assert Counter(ways(here, MACS[:4])) == {1: 3, 2: 1}
    assert here.switch.uplink_of(PATCH) == 1, "the home itself carries nothing"
    assert moves(here)["threshold"] == 1
    moved = [mac for mac, way in zip(MACS[:4], ways(here, MACS[:4]), strict=True) if way == 2]
    assert announced(here, start_s + 4).keys() == set(moved)
    assert here.status.optimality_ratio == pytest.approx(66 / 44, rel=0.02)


def test_what_the_home_carries_itself_is_not_counted_twice() -> None:
    here = nested(window_s="5", policy="load-based")
    here.switch.behind_bps = {
        (PATCH, MACS[0], 0): lambda _: 20e6,
        (PATCH, "52:54:ff:00:00:01", 0): lambda _: 5e6,
    }
    here.run_for(10)
    loads = {u.name: u.load.tx_bps for u in here.bridge.placing.team_view().loaded(5.0)}
    assert loads["vnet0"] == pytest.approx(5e6, rel=0.02)
    assert loads[f"vnet0/{MACS[0]}"] == pytest.approx(20e6, rel=0.02)


def test_addresses_of_a_vlan_use_the_uplinks_that_carry_it() -> None:
    uplinks = (port("eth1", 1), port("eth2", 2, trunks=(7,)))
    trunk = port("vnet0", PATCH, ours(unit="source-mac"), trunks=(7, 8))
    row = bridge(*uplinks, trunk, ids=ours(policy="load-based", uplinks="eth1,eth2"))
    here = world(row).start()
    here.switch.learned = (*behind(vlan=7), *behind(vlan=8))
    here.run_for(3)
    assert set(ways(here, vlan=8)) == {1}
    names = here.bridge.address_units.by_name
    assert f"vnet0/{MACS[0]}%7" in names


def test_learned_addresses_are_read_often_only_where_they_are_units() -> None:
    for row, least, most in (
        (host(vms=VMS[:1]), 0, 3),
        (with_interface(host(vms=VMS[:1]), "vnet0", unit="source-mac"), 9, 15),
    ):
        here = world(row).start()
        here.run_for(20)
        assert least <= len(here.commands(ReadLearned)) <= most


def test_an_address_behind_a_port_is_never_kept_alive() -> None:
    """Whether a VM behind it is silent or gone, nobody knows."""
    one = nested(macs=MACS[:1])
    one.run_for(300)
    assert not [c for _, c in one.log if type(c).__name__ == "Renew"]


def test_a_lag_needs_no_announcement() -> None:
    here = nested(plain=True, teaming="static").run_for(5)
    assert ways(here) == [1, 2] * 4 and here.frames() == []


def test_giving_back_a_bond_gathers_addresses_too() -> None:
    row = backed_up(mode="enforce", failback_delay_s="5")
    here = world(with_interface(row, "vnet0", unit="source-mac", binding="eth2")).start()
    here.switch.learned = behind()
    here.run_for(5)
    here.ask("move", "vnet1", "eth2")
    here.run_for(2)
    assert 1 in ways(here)
    here.write_keys(mode="observe").run_for(0.5)
    assert set(ways(here)) == {2}, "all at the active member before NORMAL takes over"
    here.run_for(5)
    assert here.switch.flows == {}
    assert here.bridge.address_units.by_name == {}
    assert here.port_status().units == {"eth1": 0, "eth2": 0}


def test_a_policy_that_places_anew_places_addresses_anew() -> None:
    here = nested("explicit").run_for(3)
    assert set(ways(here)) == {1}, "the first uplink in order"
    here.write_keys(policy="originating-port").run_for(5)
    assert ways(here) == [1, 2] * 4


def test_a_bundle_that_is_refused_leaves_them_where_they_were() -> None:
    here = nested().run_for(5)
    here.switch.refuse_next = "no"
    assert "refused" in refusal(here.ask("move", "vnet0", "eth2"))
    here.run_for(5)
    assert ways(here) == [1, 2] * 4


@pytest.mark.parametrize(
    ("asked", "found"), [("vnet0", True), (f"vnet0/{MACS[0]}", True), ("vnet", False), ("", False)]
)
def test_the_history_of_a_port_has_its_addresses(asked: str, found: bool) -> None:
    entry = Entry(
        Happened.MOVED, 1.0, "br0", "why", (Moved(f"vnet0/{MACS[0]}", "eth1", "eth2", "manual"),)
    )
    line = as_line(entry, 0.0)
    assert bool(read([line], Query(port=asked))) is found


def test_a_plan_names_addresses_and_is_applied() -> None:
    here = nested(window_s="30")
    here.do("move vnet0 eth1")
    here.switch.behind_bps = {(PATCH, mac, 0): (lambda _: 22e6) for mac in MACS[:4]}
    here.run_for(12)
    planned = done(here.ask("plan"))
    assert f"vnet0/{MACS[0]}" in planned
    assert f"vnet0/{MACS[0]}: eth1 -> eth2 (threshold)" in done(here.ask("apply"))
    assert ways(here, MACS[:4]) == [2, 1, 1, 1]


def test_explain_tells_the_busiest_and_where_they_are() -> None:
    here = nested()
    here.switch.behind_bps = {(PATCH, MACS[3], 0): lambda _: 7e6}
    here.run_for(40)
    said = " ".join(done(here.ask("explain", "vnet0")).split())
    assert "8 addresses, eth1 4, eth2 4. The busiest" in said
    assert f": {MACS[3]} on eth2 7.00, 0.00;" in said
    told = json.loads(done(here.ask("explain", "vnet0", "--json")))
    assert len(told["addresses"]) == len(MACS)
    assert told["addresses"][0]["mac"] == MACS[3] and told["addresses"][0]["uplink"] == "eth2"
    assert "addresses" not in json.loads(done(here.ask("explain", "vnet1", "--json")))


def test_observed_on_plain_uplinks_they_stay_and_others_are_planned() -> None:
    here = nested(plain=True, window_s="5", mode="observe")
    here.switch.behind_bps = {(PATCH, mac, 0): (lambda _: 20e6) for mac in MACS[::2]}
    here.run_for(30)
    assert ways(here) == [1, 2] * 4
    planned, made = here.status.moves_planned, here.status.moves_applied
    assert (planned["threshold"], made["threshold"]) == (1, 0)


def test_the_unit_of_a_vm_may_be_kept_on_the_bridge() -> None:
    row = host(vms=(), vm_web_unit="source-mac")
    with_vm = replace(row, ports=(*row.ports, port("vnet0", PATCH, {"iface-id": "web"})))
    assert world(with_vm).start().port_status().units == {"eth1": 0, "eth2": 0}
