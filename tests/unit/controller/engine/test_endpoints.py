"""Ports of a bridge that tunnels of Open vSwitch are sent by: what operators are told of them."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest

from controller.api.engine_commands import AnnounceEndpoints, SendFrame
from controller.api.events import AddressesRead, DatabaseRead
from controller.config.rows import BridgeRow, InterfaceRow, Ovn, Tunnel
from controller.dataplane.frames import advertisement, garp, rarp
from controller.features.off_home import INTERVAL_S
from controller.load.loads import Loads
from controller.teaming import buckets
from controller.teaming.buckets import hashed_by
from controller.teaming.splits import may_split
from controller.text.wording import endpoint_of
from policies.model import Load
from policies.presets import PRESETS
from tests.unit.fake_switch import World, done, world
from tests.unit.rows import bridge, host, ours, port, without_us

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


def test_explain_and_tables_say_what_an_endpoint_is_for() -> None:
    here = overlay(local_ip="192.0.2.1")
    assert done(here.ask("explain", "vnet0")).startswith("vnet0 on br0, ")
    assert "USED-BY" not in done(here.ask("show", "br0"))
    here.say(OF_THE_HOST)
    assert done(here.ask("explain", "vnet0")).startswith(
        "vnet0 (br-int's Geneve endpoint) on br0, "
    )
    assert json.loads(done(here.ask("explain", "vnet0", "--json")))["endpoint"] == ENDPOINT
    assert "endpoint" not in json.loads(done(here.ask("explain", "vnet1", "--json")))
    rows = [line.split("  ") for line in done(here.ask("show", "br0")).splitlines()]
    used_by = [[word.strip() for word in row if word] for row in rows if row[1:2] == ["vnet0"]]
    assert [words[1] for words in used_by] == ["br-int's Geneve endpoint"]


def test_the_tunnels_of_several_bridges_are_named() -> None:
    assert (
        endpoint_of(("geneve", "ip6gre"), ("br-a", "br-b"))
        == "br-a, br-b's Geneve, ip6gre endpoint"
    )


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
    return hashed_by(port, bridge.placing.split) is not None


def not_done(here: World) -> list[str]:
    (one,) = json.loads(done(here.ask("show", "br0", "--json")))["bridges"]
    texts: list[str] = one["not_done"]
    return texts


OWN_MAC = "02:00:00:00:00:01"


def with_address(row: BridgeRow, name: str = "vnet0") -> BridgeRow:
    """The same bridge, of which a VM port has a MAC address."""

    def changed(one: InterfaceRow) -> InterfaceRow:
        return replace(one, mac=OWN_MAC) if one.name == name else one

    ports = (replace(p, interfaces=tuple(map(changed, p.interfaces))) for p in row.ports)
    return replace(row, ports=tuple(ports))


@pytest.mark.parametrize("in_userspace", [True, False])
@pytest.mark.parametrize(
    ("policy", "teaming"),
    [
        ("dynamic", "switch-independent"),
        ("address-hash", "switch-independent"),
        ("dynamic", "static"),
        ("source-mac", "switch-independent"),
    ],
)
def test_an_endpoint_is_spread_as_other_ports_are(
    policy: str, teaming: str, in_userspace: bool
) -> None:
    row = with_address(replace(host(policy, teaming=teaming), in_userspace=in_userspace))
    here = world(row).start().write(integration(local_ip="192.0.2.1")).say(OF_THE_HOST)
    assert spread(here) and spread(here, "vnet1") and not_done(here) == []


@pytest.mark.parametrize("in_userspace", [True, False])
def test_adaptive_may_split_an_endpoint(in_userspace: bool) -> None:
    row = with_address(replace(host("adaptive"), in_userspace=in_userspace))
    here = world(row).start().write(integration(local_ip="192.0.2.1")).say(OF_THE_HOST)
    config = here.engine.fleet.bridges["br0"].config
    may = {port.name: may_split(port, config.on_a_lag) for port in config.vm_ports}
    assert may["vnet0"] and may["vnet1"] and not_done(here) == []


@pytest.mark.parametrize(("in_userspace", "may"), [(True, False), (False, True)])
def test_adaptive_splits_none_of_several_endpoints_in_userspace(
    in_userspace: bool, may: bool
) -> None:
    row = with_address(with_address(host("adaptive")), "vnet1")
    here = world(replace(row, in_userspace=in_userspace)).start()
    here.write(integration(local_ip="192.0.2.1")).say(OF_THE_HOST)
    (first, *_) = here.engine.fleet.bridges["br0"].config.vm_ports
    assert may_split(first, on_a_lag=False)
    addresses = {**OF_THE_HOST.devices, "vnet1": ("192.0.2.2",)}
    here.say(AddressesRead(addresses))
    ovn = Ovn(("192.0.2.1", "192.0.2.2"))
    here.say(DatabaseRead(tuple(here.rows.values()), ovn=ovn))
    ports = {p.name: p for p in here.engine.fleet.bridges["br0"].config.vm_ports}
    for name in ("vnet0", "vnet1"):
        assert may_split(ports[name], on_a_lag=False) is may
    assert may_split(ports["vnet2"], on_a_lag=False)


@pytest.mark.parametrize(
    ("policy", "in_userspace", "whole"), [("dynamic", True, True), ("dynamic", False, False)]
)
def test_an_endpoint_without_off_home_addresses_is_whole_where_peers_may_answer_to_ours(
    policy: str, in_userspace: bool, whole: bool
) -> None:
    """Its own address, to which answers would have to be given, is not known."""
    row = replace(host(policy), in_userspace=in_userspace)
    here = world(row).start().write(integration(local_ip="192.0.2.1"))
    assert spread(here) and spread(here, "vnet1") and not_done(here) == []
    here.say(OF_THE_HOST)
    assert spread(here) is not whole
    assert spread(here, "vnet1")
    assert [text.split(",")[0] for text in not_done(here)] == whole * [
        f"{policy} does not spread vnet0"
    ]
    assert here.engine.fleet.bridges["br0"].placing.bound["vnet0"].uplink in ("eth1", "eth2")
    here.say(AddressesRead({}))
    assert spread(here) and not_done(here) == []


@pytest.mark.parametrize(
    ("asked", "in_userspace", "hw_offload", "used"),
    [
        (None, True, False, "dp_hash"),
        (None, True, True, "dp_hash"),
        (None, False, False, "multipath"),
        ("multipath", True, False, "multipath"),
    ],
)
def test_connections_in_tunnels_of_the_userspace_datapath_are_told_apart(
    asked: str | None, in_userspace: bool, hw_offload: bool, used: str
) -> None:
    row = host("dynamic") if asked is None else host("dynamic", connection_hash=asked)
    row = replace(row, in_userspace=in_userspace, hw_offload=hw_offload)
    here = world(with_address(row)).start().write(integration(local_ip="192.0.2.1"))
    here.run_for(5.0)
    (before,) = json.loads(done(here.ask("show", "br0", "--json")))["bridges"]
    assert before["connection_hash"]["used"] == "multipath"
    here.say(OF_THE_HOST).run_for(5.0)
    (one,) = json.loads(done(here.ask("show", "br0", "--json")))["bridges"]
    assert one["connection_hash"]["used"] == used
    if used == "dp_hash":
        assert one["connection_hash"]["why"] == (
            "multipath sees no source ports of the tunnels of vnet0"
        )
    assert ["by peers only" in text for text in one["not_done"]] == (asked is not None) * [True]


# ---- off-home addresses --------------------------------------------------------------------


def overlay_team(policy: str = "dynamic") -> World:
    """A host with an endpoint, vnet0, that has off-home addresses; a second after its start."""
    row = with_address(replace(host(policy, failback_delay_s="5"), in_userspace=True))
    here = world(row).start().write(integration(local_ip="192.0.2.1")).say(OF_THE_HOST)
    return here.run_for(1.0)


def off_home(here: World) -> dict[int, str]:
    (endpoint,) = buckets.endpoints(here.engine.fleet.bridges["br0"].config)
    return {int(uplink): mac for uplink, mac in endpoint.off_home_macs}


def announced(here: World, since_s: float) -> dict[str, list[float]]:
    """How long after a time each off-home address was announced, to 0.1 s, by the address.

    The bundle that changes uplinks may wait for some milliseconds, or take two steps.
    """
    found: dict[str, list[float]] = {}
    for at_s, command in here.log:
        if isinstance(command, SendFrame) and at_s >= since_s:
            source = command.frame[6:12].hex(":")
            if source in off_home(here).values():
                assert command.frame == rarp(source)
                assert command.ofport == 10
                found.setdefault(source, []).append(round(at_s - since_s, 1))
    return found


def test_off_home_addresses_are_its_own_and_the_same_after_a_restart() -> None:
    here = overlay_team()
    macs = off_home(here)
    bridge = here.engine.fleet.bridges["br0"]
    ours = buckets.off_home_macs(bridge.config, bridge.placing.split)
    assert len({OWN_MAC, *macs.values(), *ours.values()}) == 1 + 2 * len(macs)
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs.values()), "local, and not multicast"
    assert off_home(here.restart_service().say(OF_THE_HOST)) == macs
    here.write(integration())
    assert not list(buckets.endpoints(here.engine.fleet.bridges["br0"].config))


def test_off_home_addresses_are_announced_when_they_change_uplinks_and_at_intervals() -> None:
    here = overlay_team()
    macs = off_home(here)
    here.run_for(10.0)
    failed_s = here.now_s
    here.set_link(2, up=False).run_for(4.0)
    assert announced(here, failed_s) == {macs[2]: [0.0, 1.0, 3.0]}
    here.set_link(2, up=True)
    up_s = here.now_s
    here.run_for(9.0)
    assert announced(here, up_s) == {macs[2]: [5.0, 6.0, 8.0]}, "after its failback delay"
    later_s = here.now_s
    here.run_for(INTERVAL_S)
    assert {mac: len(times) for mac, times in announced(here, later_s).items()} == dict.fromkeys(
        macs.values(), 1
    )


def test_peers_are_told_the_own_address_of_an_endpoint_that_has_another_home() -> None:
    """They may have the off-home address of its home, from which nothing is sent."""
    here = overlay_team()
    own = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))
    here.run_for(10.0)
    assert own not in here.commands(SendFrame)
    for up in (False, True):
        here.set_link(1, up=up)
        changed_s = here.now_s + (0.0 if up is False else 5.0)
        here.run_for(25.0)
        told = [at_s - changed_s for at_s, command in here.log if command == own]
        assert [round(t, 1) for t in told if t >= 0.0] == [0.0, 1.0, 3.0, 15.0]


def test_the_last_announcement_follows_none_within_the_time_that_peers_cache_flows() -> None:
    here = overlay_team()
    own = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))
    # Its home changes, and again after the failback delay: before the first change's last announcement.
    here.set_link(1, up=False).run_for(2.0)
    here.set_link(1, up=True).run_for(40.0)
    told_s = [at_s for at_s, command in here.log if command == own]
    assert len(told_s) == 7
    assert told_s[-1] - told_s[-2] >= 12.0


def test_nobody_is_told_the_own_address_again_when_another_port_moves() -> None:
    here = overlay_team()
    own = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))
    here.run_for(10.0)
    home = here.engine.fleet.bridges["br0"].placing.bound["vnet0"].uplink
    here.set_link(2 if home == "eth1" else 1, up=False)
    here.run_for(25.0)
    assert own not in here.commands(SendFrame)


def test_off_home_addresses_that_nobody_uses_are_not_announced() -> None:
    here = overlay_team("load-based")
    here.run_for(2 * INTERVAL_S)
    assert announced(here, 0.0) == {}


@pytest.mark.parametrize("ends", ["policy", "detach"])
def test_peers_are_told_the_endpoints_own_address_when_it_is_spread_no_more(ends: str) -> None:
    here = overlay_team()
    here.run_for(5.0)
    own = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))
    assert own not in here.commands(SendFrame)
    if ends == "policy":
        row = here.rows["br0"]
        ids = {**row.external_ids, **ours(policy="load-based")}
        here.write(replace(row, external_ids=ids)).run_for(5.0)
        assert here.commands(SendFrame).count(own) == 3
        # A drain would not wait for the last one, which is for peers that have cached the others.
        assert here.engine.fleet.bridges["br0"].at_rest
        here.run_for(7.0)
        assert here.commands(SendFrame).count(own) == 3
        here.run_for(4.0)
        assert here.commands(SendFrame).count(own) == 4
        assert not here.commands(AnnounceEndpoints)
        # Peers may not have heard it.
        later_s = here.now_s
        here.run_for(INTERVAL_S)
        assert announced(here, later_s).keys() == set(off_home(here).values())
    else:
        done(here.ask("detach", "br0"))
        assert here.commands(SendFrame).count(own) == 1
        assert here.commands(AnnounceEndpoints) == [AnnounceEndpoints("br0")]


def test_peers_are_told_by_a_service_that_has_not_spread_anything_itself() -> None:
    """The one that did has died. A detach without it is made by another one."""
    here = overlay_team("load-based")
    own = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))
    done(here.ask("detach", "br0"))
    assert own in here.commands(SendFrame)
    assert here.commands(AnnounceEndpoints) == [AnnounceEndpoints("br0")]


def test_peers_are_told_when_a_lag_ends_the_off_home_addresses() -> None:
    """They may have heard one of these last."""
    here = overlay_team()
    here.run_for(10.0)
    own = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))
    assert own not in here.commands(SendFrame)
    row = here.rows["br0"]
    here.write(replace(row, external_ids={**row.external_ids, **ours(teaming="static")}))
    here.run_for(16.0)
    assert here.commands(SendFrame).count(own) == 4


def test_nobody_is_told_of_a_bridge_without_endpoints() -> None:
    here = world(host()).start()
    here.run_for(1.0)
    done(here.ask("detach", "br0"))
    assert not here.commands(AnnounceEndpoints)


PEERS = ("2001:db8::2", "2001:db8::3")


@pytest.mark.parametrize("ends", ["policy", "detach"])
def test_peers_of_ipv6_endpoints_are_told_each_for_itself(ends: str) -> None:
    """Open vSwitch passes over neighbour advertisements to all nodes."""
    row = with_address(replace(host("dynamic"), in_userspace=True))
    tunnels = [
        replace(integration(device="vnet0", remote_ip=peer).ports[0], name=f"g{peer[-1]}")
        for peer in PEERS
    ]
    here = world(row).start().write(replace(integration(), ports=tuple(tunnels)))
    here.say(AddressesRead({"vnet0": ("2001:db8::1",)})).run_for(5.0)
    ip = IPv6Address("2001:db8::1")
    told = [SendFrame("br0", 10, advertisement(OWN_MAC, ip, IPv6Address(p))) for p in PEERS]
    assert not any(one in here.commands(SendFrame) for one in told)
    if ends == "policy":
        row = here.rows["br0"]
        ids = {**row.external_ids, **ours(policy="load-based")}
        here.write(replace(row, external_ids=ids)).run_for(5.0)
    else:
        done(here.ask("detach", "br0"))
    times = 3 if ends == "policy" else 1
    assert [here.commands(SendFrame).count(one) for one in told] == [times, times]


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
    assert bridge.placing.team_view.port_load(port).tx_bps == expected_bps
    if PRESETS[policy].at_once:
        (unit,) = (unit for unit in bridge.placing.team_view.loaded(None) if unit.name == "vnet0")
        assert unit.load.tx_bps == expected_bps
