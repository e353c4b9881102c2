"""Ports of a bridge that tunnels of Open vSwitch are sent by: what operators are told of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.api.events import AddressesRead, DatabaseRead
from controller.config.rows import BridgeRow, Ovn, Tunnel
from controller.load.loads import Loads
from controller.teaming.buckets import hashed_by
from controller.teaming.splits import may_split
from policies.model import Load
from policies.presets import PRESETS
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import bridge, host, port, without_us

# VM port vnet0 stands for an internal port of the host.
OF_THE_HOST = AddressesRead({"vnet0": ("192.0.2.1",)})
ENDPOINT = {"addresses": ["192.0.2.1"], "kinds": ["geneve"], "bridges": ["br-int"]}


def integration(**tunnel: str) -> BridgeRow:
    """A bridge that is not attached, with a tunnel."""
    made = port("g1", 1)
    (one,) = made.interfaces
    made = replace(made, interfaces=(replace(one, kind="geneve", tunnel=Tunnel(**tunnel)),))
    return replace(bridge(made, ids={}), name="br-int")


def overlay(**tunnel: str) -> World:
    """A host with an attached bridge br0, whose integration bridge has this tunnel."""
    here = world(host()).start()
    return here.write(integration(**tunnel))


def shown(here: World, name: str = "vnet0") -> dict[str, Any] | None:
    (one,) = json.loads(done(here.ask("show", "br0", "--json")))["bridges"]
    endpoint: dict[str, Any] | None = next(p for p in one["ports"] if p["name"] == name).get(
        "endpoint"
    )
    return endpoint


def test_show_names_the_bridge_whose_tunnels_a_port_sends() -> None:
    here = overlay(local_ip="192.0.2.1").say(OF_THE_HOST)
    assert shown(here) == ENDPOINT
    assert shown(here, "vnet1") is None
    text = done(here.ask("show", "br0"))
    assert "  vnet0: tunnel endpoint, geneve of br-int, from 192.0.2.1\n" in text + "\n"


def test_an_endpoint_follows_its_address() -> None:
    here = overlay(local_ip="192.0.2.1")
    assert shown(here) is None
    assert shown(here.say(OF_THE_HOST)) == ENDPOINT
    here.say(AddressesRead({"vnet1": ("192.0.2.1",)}))
    assert shown(here) is None
    assert shown(here, "vnet1") == ENDPOINT


def test_an_endpoint_ends_with_its_last_tunnel() -> None:
    here = overlay(local_ip="192.0.2.1").say(OF_THE_HOST)
    here.write(replace(here.rows["br-int"], ports=()))
    assert shown(here) is None


def test_a_tunnel_without_an_address_is_found_by_its_route() -> None:
    here = overlay(device="vnet0")
    assert shown(here) == {**ENDPOINT, "addresses": []}
    assert shown(here.say(OF_THE_HOST)) == ENDPOINT


def test_endpoints_of_ovn_need_no_tunnel() -> None:
    here = world(host()).start().say(OF_THE_HOST)
    here.say(DatabaseRead(tuple(here.rows.values()), ovn=Ovn(("192.0.2.1", "192.0.2.7"))))
    assert shown(here) == ENDPOINT


# ---- what a policy may do with them --------------------------------------------------------


def spread(here: World, name: str = "vnet0") -> bool:
    """Whether the switch spreads what a port sends over buckets."""
    bridge = here.engine.fleet.bridges["br0"]
    (port,) = (p for p in bridge.config.vm_ports if p.name == name)
    return hashed_by(port, bridge.split) is not None


def not_done(here: World) -> list[str]:
    (one,) = json.loads(done(here.ask("show", "br0", "--json")))["bridges"]
    texts: list[str] = one["not_done"]
    return texts


@pytest.mark.parametrize(
    ("policy", "teaming", "in_userspace", "whole"),
    [
        ("dynamic", "switch-independent", True, True),
        ("address-hash", "switch-independent", True, True),
        ("dynamic", "static", True, False),
        ("dynamic", "switch-independent", False, False),
        ("source-mac", "switch-independent", True, False),
    ],
)
def test_an_endpoint_is_not_spread_where_peers_learn_its_address(
    policy: str, teaming: str, in_userspace: bool, whole: bool
) -> None:
    row = replace(host(policy, teaming=teaming), in_userspace=in_userspace)
    here = world(row).start().write(integration(local_ip="192.0.2.1"))
    assert spread(here) and spread(here, "vnet1") and not_done(here) == []
    here.say(OF_THE_HOST)
    assert spread(here) is not whole
    assert spread(here, "vnet1")
    assert [text.split(",")[0] for text in not_done(here)] == whole * [
        f"{policy} does not spread vnet0"
    ]
    assert here.engine.fleet.bridges["br0"].bound["vnet0"].uplink in ("eth1", "eth2")
    here.say(AddressesRead({}))
    assert spread(here) and not_done(here) == []


@pytest.mark.parametrize("in_userspace", [True, False])
def test_adaptive_splits_no_endpoint_where_peers_learn_its_address(in_userspace: bool) -> None:
    row = replace(host("adaptive"), in_userspace=in_userspace)
    here = world(row).start().write(integration(local_ip="192.0.2.1")).say(OF_THE_HOST)
    config = here.engine.fleet.bridges["br0"].config
    may = {port.name: may_split(port, config.on_a_lag) for port in config.vm_ports}
    assert may["vnet0"] is not in_userspace
    assert may["vnet1"]
    assert ["vnet0" in text for text in not_done(here)] == in_userspace * [True]


def test_attach_says_which_policy_suits() -> None:
    here = world(without_us(host())).start().write(integration(local_ip="192.0.2.1"))
    here.say(OF_THE_HOST)
    first, *notes = done(here.ask("attach", "br0")).splitlines()
    assert first == "br0: load-based over eth1, eth2, 4 VM ports"
    (note,) = notes
    assert note.startswith("note: tunnel endpoint vnet0 (geneve of br-int, from 192.0.2.1): ")
    assert "ovs-lbt set interface vnet0 policy=adaptive" in note


@pytest.mark.parametrize("policy", ["load-based", "adaptive"])
@pytest.mark.parametrize("in_userspace", [True, False])
def test_the_load_of_an_endpoint_is_what_flows_count_where_its_port_counts_no_tunnels(
    monkeypatch: pytest.MonkeyPatch, policy: str, in_userspace: bool
) -> None:
    row = replace(host(policy, poll_interval_ms="500"), in_userspace=in_userspace)
    here = world(row).start().write(integration(local_ip="192.0.2.1")).say(OF_THE_HOST)
    here.switches["br0"].offered_bps[10] = lambda _now_s: 40e6
    here.run_for(8.0)
    # The counters of the userspace datapath's ports leave tunnels out.
    port_load = Loads.port
    monkeypatch.setattr(
        Loads,
        "port",
        lambda self, ofport, *over: Load() if ofport == 10 else port_load(self, ofport, *over),
    )
    monkeypatch.setattr(Loads, "live_unit", lambda *_: Load())
    bridge = here.engine.fleet.bridges["br0"]
    (port,) = (p for p in bridge.config.vm_ports if p.name == "vnet0")
    expected_bps = pytest.approx(40e6 if in_userspace else 0.0, rel=0.1)
    assert bridge.team_view.port_load(port).tx_bps == expected_bps
    if PRESETS[policy].at_once:
        (unit,) = (unit for unit in bridge.team_view.loaded(None) if unit.name == "vnet0")
        assert unit.load.tx_bps == expected_bps
