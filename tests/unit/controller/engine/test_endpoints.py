"""Ports of a bridge that tunnels of Open vSwitch are sent by: what operators are told of them."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from controller.api.engine_commands import AnnounceEndpoints, SendFrame
from controller.api.events import AddressesRead, DatabaseRead
from controller.config.rows import BridgeRow, Ovn, PortRow, Tunnel
from controller.config.values import VmPortConfig
from controller.dataplane.frames import advertisement, garp, rarp
from controller.features.off_home import INTERVAL_S
from controller.load.loads import Loads
from controller.teaming import buckets
from controller.teaming.buckets import hashed_by
from controller.teaming.splits import may_split
from controller.text.wording import endpoint_of
from policies.model import Load
from policies.presets import PRESETS
from tests.unit.controller.engine.told import shown, steady
from tests.unit.fake_switch import World, world
from tests.unit.rows import bridge, host, interface

# VM port vnet0 stands for an internal port of the host.
OF_THE_HOST = AddressesRead({"vnet0": ("192.0.2.1",)})


def integration(**tunnel: str) -> BridgeRow:
    """A bridge that is not attached, with a tunnel."""
    made = replace(interface("g1", 1), kind="geneve", tunnel=Tunnel(**tunnel))
    return replace(bridge(PortRow("g1", (made,)), ids={}), name="br-int")


def overlay(row: BridgeRow | None = None, **tunnel: str) -> World:
    """A host with an attached bridge, whose integration bridge has a tunnel, by default from 192.0.2.1."""
    tunnel = tunnel or {"local_ip": "192.0.2.1"}
    return world(row or host()).start().write(integration(**tunnel))


def test_the_tunnels_of_several_bridges_are_named() -> None:
    found = endpoint_of(("geneve", "ip6gre"), ("br-a", "br-b"))
    assert found == "br-a, br-b's Geneve, ip6gre endpoint"


# ---- what a policy may do with them --------------------------------------------------------


def vm_port(here: World, name: str = "vnet0") -> VmPortConfig:
    return next(p for p in here.bridge.config.vm_ports if p.name == name)


def spread(here: World, name: str = "vnet0") -> bool:
    """Whether the switch spreads what a port sends over buckets."""
    return hashed_by(vm_port(here, name), here.bridge.placing.split) is not None


def not_done(here: World) -> list[str]:
    return shown(here)["not_done"]


OWN_MAC = "02:00:00:00:00:01"
# What peers are told of the own address of vnet0.
OWN = SendFrame("br0", 10, garp(OWN_MAC, IPv4Address("192.0.2.1")))


def with_address(row: BridgeRow, name: str = "vnet0") -> BridgeRow:
    """The same bridge, of which a VM port has a MAC address."""
    return row.with_interfaces(lambda i: replace(i, mac=OWN_MAC) if i.name == name else i)


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
    here = overlay(row).say(OF_THE_HOST)
    assert spread(here) and spread(here, "vnet1") and not_done(here) == []


@pytest.mark.parametrize(("in_userspace", "may"), [(True, False), (False, True)])
def test_adaptive_splits_none_of_several_endpoints_in_userspace(
    in_userspace: bool, may: bool
) -> None:
    row = with_address(with_address(host("adaptive")), "vnet1")
    here = overlay(replace(row, in_userspace=in_userspace)).say(OF_THE_HOST)
    assert all(may_split(port, on_a_lag=False) for port in here.bridge.config.vm_ports)
    assert not_done(here) == []
    here.say(AddressesRead({**OF_THE_HOST.devices, "vnet1": ("192.0.2.2",)}))
    ovn = Ovn(("192.0.2.1", "192.0.2.2"))
    here.say(DatabaseRead(tuple(here.rows.values()), ovn=ovn))
    found = {p.name: may_split(p, on_a_lag=False) for p in here.bridge.config.vm_ports}
    assert found == {"vnet0": may, "vnet1": may, "vnet2": True, "vnet3": True}


@pytest.mark.parametrize("in_userspace", [True, False])
def test_an_endpoint_without_off_home_addresses_is_whole_where_peers_may_answer_to_ours(
    in_userspace: bool,
) -> None:
    """Its own address, to which answers would have to be given, is not known."""
    row = replace(host("dynamic"), in_userspace=in_userspace)
    here = overlay(row)
    assert spread(here) and spread(here, "vnet1") and not_done(here) == []
    here.say(OF_THE_HOST)
    assert spread(here) is not in_userspace
    assert spread(here, "vnet1")
    whole = ["dynamic does not spread vnet0"] if in_userspace else []
    assert [text.split(",")[0] for text in not_done(here)] == whole
    assert here.bridge.placing.bound["vnet0"].uplink in ("eth1", "eth2")
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
    here = overlay(with_address(row))
    here.run_for(5.0)
    assert shown(here)["connection_hash"]["used"] == "multipath"
    here.say(OF_THE_HOST).run_for(5.0)
    one = shown(here)
    assert one["connection_hash"]["used"] == used
    assert used != "dp_hash" or "tunnels of vnet0" in one["connection_hash"]["why"]
    assert ["only by peer," in text for text in one["not_done"]] == (asked is not None) * [True]


# ---- off-home addresses --------------------------------------------------------------------


def overlay_team(policy: str = "dynamic") -> World:
    """A host with an endpoint, vnet0, that has off-home addresses; a second after its start."""
    row = with_address(replace(host(policy, failback_delay_s="5"), in_userspace=True))
    here = overlay(row).say(OF_THE_HOST)
    return here.run_for(1.0)


def off_home(here: World) -> dict[int, str]:
    (endpoint,) = buckets.endpoints(here.bridge.config)
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
    ours = buckets.off_home_macs(here.bridge.config, here.bridge.placing.split)
    assert len({OWN_MAC, *macs.values(), *ours.values()}) == 1 + 2 * len(macs)
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs.values()), "local, and not multicast"
    assert off_home(here.restart_service().say(OF_THE_HOST)) == macs
    here.write(integration())
    assert not list(buckets.endpoints(here.bridge.config))


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
    assert here.bindings()["vnet0"] == "eth1"
    for up in (False, True):
        here.set_link(2, up=up).run_for(25.0)
        assert OWN not in here.commands(SendFrame), "only other ports move"
    for up in (False, True):
        here.set_link(1, up=up)
        changed_s = here.now_s + (0.0 if up is False else 5.0)
        here.run_for(25.0)
        told = [at_s - changed_s for at_s, command in here.log if command == OWN]
        assert [round(t, 1) for t in told if t >= 0.0] == [0.0, 1.0, 3.0, 15.0]


def test_the_last_announcement_follows_none_within_the_time_that_peers_cache_flows() -> None:
    here = overlay_team()
    # Its home changes, and again after the failback delay: before the first change's last announcement.
    here.set_link(1, up=False).run_for(2.0)
    here.set_link(1, up=True).run_for(40.0)
    told_s = [at_s for at_s, command in here.log if command == OWN]
    assert len(told_s) == 7
    assert told_s[-1] - told_s[-2] >= 12.0


@pytest.mark.parametrize("ends", [{"policy": "load-based"}, {"teaming": "static"}])
def test_peers_are_told_the_endpoints_own_address_when_it_is_spread_no_more(
    ends: dict[str, str],
) -> None:
    """Or when a LAG ends the off-home addresses, of which they may have heard one last."""
    here = overlay_team().run_for(5.0)
    assert OWN not in here.commands(SendFrame)
    here.write_keys(**ends).run_for(5.0)
    assert here.commands(SendFrame).count(OWN) == 3
    # A drain would not wait for the last one, which is for peers that have cached the others.
    assert here.bridge.at_rest
    here.run_for(7.0)
    assert here.commands(SendFrame).count(OWN) == 3
    here.run_for(4.0)
    assert here.commands(SendFrame).count(OWN) == 4
    assert not here.commands(AnnounceEndpoints)
    if "policy" in ends:
        # Peers may not have heard it.
        later_s = here.now_s
        here.run_for(INTERVAL_S)
        assert announced(here, later_s).keys() == set(off_home(here).values())


@pytest.mark.parametrize("policy", ["dynamic", "load-based"])
def test_peers_are_told_at_a_detach_also_by_a_service_that_has_not_spread_anything_itself(
    policy: str,
) -> None:
    """The one that did has died. A detach without it is made by another one."""
    here = overlay_team(policy)
    if policy == "load-based":
        assert announced(here.run_for(2 * INTERVAL_S), 0.0) == {}, "nobody uses them"
    here.do("detach br0")
    assert here.commands(SendFrame).count(OWN) == 1
    assert here.commands(AnnounceEndpoints) == [AnnounceEndpoints("br0")]


def test_nobody_is_told_of_a_bridge_without_endpoints() -> None:
    here = world(host()).start().run_for(1.0)
    here.do("detach br0")
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
        here.write_keys(policy="load-based").run_for(5.0)
    else:
        here.do("detach br0")
    times = 3 if ends == "policy" else 1
    assert [here.commands(SendFrame).count(one) for one in told] == [times, times]


@pytest.mark.parametrize("policy", ["load-based", "adaptive"])
@pytest.mark.parametrize("in_userspace", [True, False])
def test_the_load_of_an_endpoint_is_what_flows_count_where_its_port_counts_no_tunnels(
    monkeypatch: pytest.MonkeyPatch, policy: str, in_userspace: bool
) -> None:
    row = replace(host(policy, poll_interval_ms="500"), in_userspace=in_userspace)
    here = overlay(row).say(OF_THE_HOST)
    here.switch.offered_bps[10] = steady(40e6)
    here.run_for(8.0)
    # The counters of the userspace datapath's ports leave tunnels out.
    port_load = Loads.port
    monkeypatch.setattr(
        Loads,
        "port",
        lambda self, ofport, *over: Load() if ofport == 10 else port_load(self, ofport, *over),
    )
    monkeypatch.setattr(Loads, "live_unit", lambda *_: Load())
    expected_bps = pytest.approx(40e6 if in_userspace else 0.0, rel=0.1)
    assert here.port_status().load.tx_bps == expected_bps
    if PRESETS[policy].at_once:
        (unit,) = (
            unit for unit in here.bridge.placing.team_view().loaded(None) if unit.name == "vnet0"
        )
        assert unit.load.tx_bps == expected_bps
