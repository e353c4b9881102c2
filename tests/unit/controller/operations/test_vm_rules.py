"""Rules by the names that a VM's interface has on every host, and for VMs that are elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.config.rows import PREFIX
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import host, ours, port

UUID = "3a5c1f2e-9b1d-4c58-8a2e-0123456789ab"
MAC, OTHER = "52:54:00:00:00:01", "52:54:00:00:00:02"
IDS = {"vm-id": UUID, "iface-id": "first", "attached-mac": MAC}
SECOND = {"vm-id": UUID, "iface-id": "second", "attached-mac": OTHER}
NAME = f"{UUID}/{MAC}"


def with_vm(**vms: dict[str, str]) -> World:
    row = host(vms=())
    ports = (port(name, 10 + number, ids) for number, (name, ids) in enumerate(vms.items()))
    return world(replace(row, ports=(*row.ports, *ports))).start()


def kept(here: World) -> dict[str, str]:
    """The rules that the bridge keeps."""
    ids, prefix = here.rows["br0"].external_ids, f"{PREFIX}vm-"
    return {k.removeprefix(prefix): v for k, v in ids.items() if k.startswith(prefix)}


def test_a_rule_for_a_vm_that_is_elsewhere_waits_for_it() -> None:
    here = with_vm()
    done(here.ask("pin", NAME.upper(), "eth2"))
    assert kept(here) == {f"{NAME}-pin": "eth2"}
    here.add_port(port("vnet0", 10, IDS)).add_port(port("vnet1", 11, SECOND))
    assert here.bindings()["vnet0"] == "eth2"
    here.remove_port("vnet0").add_port(port("vnet7", 17, IDS | {"iface-id": "made anew"}))
    assert here.bindings()["vnet7"] == "eth2"
    assert done(here.ask("explain", NAME)) == done(here.ask("explain", "vnet7"))


@pytest.mark.parametrize("name", [NAME, "101i0"])
def test_rules_for_a_vm_that_is_elsewhere_are_set_and_removed(name: str) -> None:
    here = with_vm()
    done(here.ask("set", "interface", name, "prefer=!eth1", "shares=50"))
    assert kept(here) == {f"{name}-prefer": "!eth1", f"{name}-shares": "50"}
    done(here.ask("set", "interface", name, "prefer=", "pin=eth1"))
    done(here.ask("unpin", name))
    assert kept(here) == {f"{name}-shares": "50"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            f"pin {NAME} eth9",
            "pin: eth9 is invalid (did you mean eth2?); expected one of eth1, eth2",
        ),
        (
            f"set interface {NAME} allow=eth9",
            "allow: eth9 is invalid; expected some of eth1, eth2, comma-separated",
        ),
        (
            f"set interface {NAME} pni=eth1",
            "no key of a VM port is named pni (did you mean pin?); ",
        ),
        (f"move {NAME} eth1", f"no interface of an attached bridge is named {NAME}; "),
        ("pin nobody/02:00 eth1", "no interface of an attached bridge is named nobody/02:00; "),
    ],
)
def test_what_is_refused_for_a_vm_that_is_elsewhere(words: str, why: str) -> None:
    here = with_vm(vnet0={})
    assert refusal(here.ask(*words.split())).startswith(why)
    assert kept(here) == {}


def test_a_pin_to_an_uplink_out_of_service_is_refused_as_for_a_vm_that_is_here() -> None:
    here = with_vm(vnet0={})
    done(here.ask("set", "interface", "eth2", "role=standby"))
    why = "uplink eth2 is standby; a pin needs an active uplink: one of eth1"
    assert refusal(here.ask("pin", NAME, "eth2")) == why


def test_with_several_bridges_it_is_not_known_where_the_vm_will_be() -> None:
    rows = [replace(host(), name=name) for name in ("br0", "br1")]
    here = World(*rows).start()
    why = refusal(here.ask("pin", NAME, "eth1"))
    assert why.startswith(f"VM {NAME} is not on this host (attached bridges: br0, br1); ")
    assert f"""'external_ids:"{PREFIX}vm-{NAME}-KEY"=VALUE'""" in why


def test_the_rule_that_was_set_last_holds_wherever_it_is_kept() -> None:
    here = with_vm(vnet0=IDS, vnet1=SECOND)
    done(here.ask("pin", "vnet0", "eth1"))
    assert kept(here) == {"first-pin": "eth1"}
    done(here.ask("pin", NAME, "eth2"))
    assert (kept(here), here.bindings()["vnet0"]) == ({f"{NAME}-pin": "eth2"}, "eth2")
    done(here.ask("set", "interface", "vnet0", "pin=eth1"))
    assert (kept(here), here.bindings()["vnet0"]) == ({"first-pin": "eth1"}, "eth1")


@pytest.mark.parametrize("name", ["vnet0", NAME])
def test_unpin_removes_what_holds_the_port(name: str) -> None:
    here = with_vm(vnet0=IDS | ours(pin="eth1"))
    done(here.ask("pin", NAME, "eth2"))
    assert here.bindings()["vnet0"] == "eth2"
    done(here.ask("unpin", name))
    assert kept(here) == {}
    done(here.ask("move", NAME, "eth1"))
    assert here.bindings()["vnet0"] == "eth1"


def test_a_vm_of_proxmox_keeps_its_rules_over_a_power_cycle() -> None:
    here = with_vm(tap101i0={}, tap101i1={}, fwln102o0={})
    done(here.ask("pin", "tap101i0", "eth2"))
    assert kept(here) == {"101i0-pin": "eth2"}
    here.remove_port("tap101i0").add_port(port("tap101i0", 21))
    assert here.bindings()["tap101i0"] == "eth2"
    here.remove_port("tap101i0").add_port(port("fwln101o0", 22))
    assert here.bindings()["fwln101o0"] == "eth2", "its firewall was enabled"
