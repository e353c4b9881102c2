"""What commands say that they have done, driven through the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.text import show_view
from tests.said import says
from tests.unit.controller.engine.told import shown
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import host, port, with_interface


@pytest.fixture
def here() -> World:
    """A bridge with vnet0 on eth1."""
    made = world(host(binding="eth1")).start()
    done(made.ask("move", "vnet0", "eth1"))
    return made


def why(here: World, name: str) -> str:
    bridge = shown(here)
    (port,) = (port for port in bridge["ports"] if port["name"] == name)
    return show_view.why(port, bridge["policy"])


def test_a_move_says_from_where_to_where(here: World) -> None:
    assert says(done(here.ask("move", "vnet0", "eth2")), "vnet0", "eth1", "eth2")
    assert says(done(here.ask("move", "vnet0", "eth2")), "vnet0: already on eth2")


def test_a_pin_says_whether_the_port_moves_and_is_the_reason_from_then_on(here: World) -> None:
    assert says(done(here.ask("pin", "vnet0", "eth1")), "vnet0", "eth1")
    assert why(here, "vnet0") == "pin", "also where nothing had to move"
    assert says(done(here.ask("pin", "vnet0", "eth2")), "vnet0", "eth2", "eth1")
    assert says(done(here.ask("unpin", "vnet0")), "vnet0", "eth2")
    assert says(done(here.ask("unpin", "vnet0")), "vnet0", "no pin")


def test_a_pin_to_an_uplink_that_is_down_says_when_it_holds(here: World) -> None:
    here.set_link(2, up=False)
    assert says(done(here.ask("pin", "vnet0", "eth2")), "vnet0", "eth2", "link down", "eth1")


def test_undrain_names_the_role_that_is_back() -> None:
    here = world(with_interface(host(uplinks=3), "eth3", role="standby")).start()
    for uplink, role in (("eth2", "active"), ("eth3", "standby")):
        here.ask("drain", uplink)
        assert says(done(here.ask("undrain", uplink)), uplink, role)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bridge br0 threshold=60", "br0: threshold=60 (was the default: 75)"),
        ("bridge br0 policy=load-based", "br0: policy=load-based, as before"),
        ("interface eth1 role=standby", "eth1: role=standby (was the default: active)"),
        ("interface vnet0 prefer=eth2 limit-mbps=10", "vnet0: prefer=eth2, limit-mbps=10"),
        ("interface vnet0 limit-mbps=", "vnet0: limit-mbps was not set"),
        ("interface vnet0 policy=", "vnet0: policy was not set"),
        ("interface vnet0 policy=slb", "vnet0: policy=slb (was the default: the bridge's policy)"),
    ],
)
def test_set_says_each_value_and_what_it_was(here: World, words: str, said: str) -> None:
    assert done(here.ask("set", *words.split())) == said


def test_a_rule_that_the_bridge_keeps_for_a_vm_is_told_as_one_of_its_port() -> None:
    row = host(vms=())
    vm = port("vnet0", 10, {"iface-id": "web-1"})
    here = world(replace(row, ports=(*row.ports, vm))).start()
    for words, told in (
        ("anti-affinity=a", "anti-affinity=a"),
        ("anti-affinity=b affinity=c", "anti-affinity=b (was a), affinity=c"),
        ("affinity=", "affinity unset (was c)"),
    ):
        assert done(here.ask("set", "interface", "vnet0", *words.split())) == f"vnet0: {told}"
    assert done(here.ask("pin", "vnet0", "eth1")).startswith("vnet0 (web-1): pinned to eth1")
    for words in ("move web-1 eth1", "pin web-1 eth2", "unpin web-1"):
        assert done(here.ask(*words.split())).startswith("vnet0 (web-1): ")
    assert done(here.ask("set", "interface", "web-1", "prefer=eth1")) == "web-1: prefer=eth1"
    assert done(here.ask("get", "interface", "web-1", "prefer")) == "eth1"
    assert done(here.ask("unset", "interface", "web-1", "prefer")).startswith("web-1: prefer unset")


def test_settings_of_a_vm_with_several_ports_need_the_name_of_one() -> None:
    row = host(vms=())
    vms = [
        port(name, 10 + i, {"iface-id": name, "vm-id": "db"})
        for i, name in enumerate(("vnet0", "vnet1"))
    ]
    here = world(replace(row, ports=(*row.ports, *vms))).start()
    for command, words in (("set", "exclude=true"), ("get", "exclude"), ("unset", "exclude")):
        why = refusal(here.ask(command, "interface", "db", words))
        assert why == "VM db has 2 ports; use one of vnet0, vnet1"


def test_what_the_database_refuses_is_not_confirmed(here: World) -> None:
    here.refuse_writes = "full"
    answer = here.ask("set", "bridge", "br0", "threshold=60")
    assert answer is not None and answer.refused and "full" in answer.text


def test_a_policy_that_keeps_what_another_one_placed_is_the_reason() -> None:
    here = world(host()).start()
    before = why(here, "vnet1")
    done(here.ask("set", "bridge", "br0", "policy=adaptive"))
    assert (before, why(here, "vnet1")) == ("load-based", "adaptive")
