"""Every layout: its limit, its names and numbers, its published shares, what it refuses."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies import layouts
from topologies.graph import parts
from topologies.graph.layout import SWITCHES, Role
from topologies.graph.ports import LONGEST_INTERFACE_NAME, ports_of
from topologies.layouts import LAYOUTS
from topologies.network import switches
from topologies.network.integration_bridge import Overlay, overlay_of
from topologies.network.mininet_topo import LayoutTopo

# Where pip or the distribution has installed it.
MN = (Path(sys.executable).with_name("mn"), Path("/usr/bin/mn"))
MODULES: dict[str, ModuleType] = {
    name: importlib.import_module(f"topologies.{name}") for name in LAYOUTS
}
every_layout = pytest.mark.parametrize("name", LAYOUTS)


def _parameters(name: str) -> dict[str, Any]:
    """A layout's parameters, with their defaults."""
    declared = inspect.signature(LAYOUTS[name]).parameters
    return {parameter: one.default for parameter, one in declared.items()}


def _topo(name: str, **parameters: Any) -> LayoutTopo:
    return MODULES[name].topos[name](**parameters)


def _limit_mbps(name: str, chosen: Mapping[str, int]) -> int:
    """A layout's limit, calculated by hand."""
    if name == "mixed_speed":
        fast_mbps = chosen["fast_uplinks"] * chosen["uplink_mbps"]
        return fast_mbps + chosen["slow_uplinks"] * chosen["slow_mbps"]
    uplinks, mbps = chosen["uplinks"], chosen["uplink_mbps"]
    if "trunk_mbps" not in chosen:
        return uplinks * mbps
    # Uplinks take turns on the switches, each of which has one trunk.
    shares = (len(range(one, uplinks, chosen["switches"])) for one in range(chosen["switches"]))
    return sum(min(count * mbps, chosen["trunk_mbps"]) for count in shares)


@every_layout
@given(data=st.data())
@settings(max_examples=20)
def test_limit_matches_the_calculation_by_hand(name: str, data: st.DataObject) -> None:
    chosen = {
        parameter: data.draw(st.integers(parts.RANGES[parameter][0], most), label=parameter)
        for parameter in _parameters(name)
        if parameter in parts.RANGES
        for most in [
            min(parts.RANGES[parameter][1], 12 if parameter in ("vms", "clients") else 10**4)
        ]
    }
    if "odd_uplink" in chosen:
        chosen["odd_uplink"] = min(chosen["odd_uplink"], chosen["uplinks"])
    assert LAYOUTS[name](**chosen).limit_bps == _limit_mbps(name, chosen) * 10**6
    assert LAYOUTS[name]().limit_bps == _limit_mbps(name, _parameters(name)) * 10**6


@every_layout
def test_names_and_numbers_are_valid_and_unique(name: str) -> None:
    most = {p: parts.RANGES[p][1] for p in _parameters(name) if p in parts.RANGES}
    most |= {p: 1 for p in most if p in ("odd_uplink", "odd_mtu", "odd_vlan")}
    topo = _topo(name, team="bond", **most)
    links = [info for _, _, info in topo.links(withInfo=True)]
    named = [info[key] for info in links for key in ("intfName1", "intfName2") if key in info]
    bridges = [f"{switch}8" for switch in topo.switches()]  # as a server that is split has them
    assert all(len(one) <= LONGEST_INTERFACE_NAME for one in (*named, *bridges))
    assert len(set(named)) == len(named)
    ports = [(info[f"node{end}"], info[f"port{end}"]) for info in links for end in (1, 2)]
    assert len(set(ports)) == len(ports), "an OpenFlow port number is used twice"
    hosts = [topo.nodeInfo(host) for host in topo.hosts()]
    addresses = [address for host in hosts for address in host["addresses"].values()]
    assert len(set(addresses)) == len(addresses)
    dpids = [topo.nodeInfo(switch)["dpid"] for switch in topo.switches()]
    assert len(set(dpids)) == len(dpids)
    for switch in topo.switches():
        ends = {
            one[f"intfName{end}"] for one in links for end in (1, 2) if one[f"node{end}"] == switch
        }
        assert ends == set(topo.nodeInfo(switch)["layout_ports"]), "not every link is a port"


@every_layout
def test_parameter_out_of_range_is_rejected(name: str) -> None:
    for parameter in _parameters(name):
        if parameter not in parts.RANGES:
            continue
        least, most = parts.RANGES[parameter]
        for wrong in (least - 1, most + 1, 1.5, "many"):
            with pytest.raises(ValueError, match=f"{parameter}: {wrong} -> .* {least} to {most}"):
                LAYOUTS[name](**{parameter: wrong})


def test_what_a_layout_cannot_be_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"parameter: uplink -> uplinks \| vms \| "):
        _topo("set_vs_lbfo", uplink=2)
    with pytest.raises(
        ValueError, match=r"team: nic -> bond \| balance-slb \| lacp \| plain \| split"
    ):
        _topo("vmware_lbt", team="nic")
    with pytest.raises(ValueError, match="a-long-prefix-server: 20 characters -> 14"):
        _topo("vmware_lbt", prefix="a-long-prefix-")
    with pytest.raises(ValueError, match="odd_uplink: 3 -> one of 2 uplinks"):
        layouts.converged(odd_uplink=3, odd_mtu=1500)
    with pytest.raises(ValueError, match=r"lag_hash: port -> mac \| flow"):
        layouts.set_vs_lbfo(lag_hash="port")
    with pytest.raises(ValueError, match=r"datapath: dpdk -> auto \| userspace \| kernel"):
        _topo("set_vs_lbfo", datapath="dpdk")
    with pytest.raises(ValueError, match="server: a LAG to tor1, tor2 -> to one switch"):
        _topo("two_switches", team="lacp")


@pytest.mark.parametrize("name", ["set_vs_lbfo", "quad_gbe_team"])
def test_lag_may_end_at_one_switch_or_at_another_server(name: str) -> None:
    assert _topo(name, team="lacp").links()


def test_kernel_datapath_is_used_if_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(switches, "KERNEL_MODULE", tmp_path)
    assert switches.usable_datapath() == "kernel"
    assert switches.usable_datapath("userspace") == "userspace"
    monkeypatch.setattr(switches, "KERNEL_MODULE", tmp_path / "missing")
    assert switches.usable_datapath() == "userspace"
    assert switches.usable_datapath("kernel") == "kernel"


@every_layout
def test_layout_module_does_not_shadow_globals_of_mn(name: str) -> None:
    """`mn` copies every global of a custom file over its own."""
    body = ast.parse(next(mn for mn in MN if mn.exists()).read_text())
    taken = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
    taken |= {
        a.asname or a.name
        for n in ast.walk(body)
        if isinstance(n, ast.ImportFrom | ast.Import)
        for a in n.names
    }
    own = {one for one in vars(MODULES[name]) if not one.startswith("__")}
    assert own & taken <= {"os", "sys"}


@every_layout
def test_mtu_and_vlans_reach_every_port(name: str) -> None:
    chosen = {"vlan": 7} if "vlan" in _parameters(name) else {}
    layout = LAYOUTS[name](mtu=9000, **chosen)
    for role in SWITCHES:
        for switch in layout.nodes(role):
            for interface, port in ports_of(layout, "", switch, lags=False).items():
                in_tunnel = parts.ENCAPSULATION_BYTES if (name, port.team) == ("overlay", "") else 0
                to_uplink = interface.startswith("sw-")
                assert port.mtu == 9000 - (0 if to_uplink else in_tunnel), interface
                of_vms = bool(chosen) and interface.startswith(("vm", "sw-client"))
                assert (port.vlan == 7) == of_vms, interface


def test_vnics_of_converged_hosts_are_in_their_vlans() -> None:
    layout = layouts.converged(management_vlan=11, migration_vlan=12, vm_vlan=0)
    ports = ports_of(layout, "c-", "server1", lags=False)
    vlans = {interface: port.vlan for interface, port in ports.items() if not port.team}
    assert vlans == {"c-host1-1": 11, "c-host1-2": 12, "c-vm1-1": None}


def test_path_checks_ask_beyond_the_uplinks_in_each_vlan_of_the_server() -> None:
    layout = layouts.converged(vm_vlan=30)
    assert layout.path_targets("server1") == ["10.1.0.2%10", "10.2.0.2%20", "10.3.2.1%30"]
    assert layout.path_targets("server2") == ["10.1.0.1%10", "10.2.0.1%20", "10.3.1.1%30"]
    assert layouts.converged(vm_vlan=0).path_targets("server1")[0] == "10.3.2.1"
    with_clients = LAYOUTS["mixed_speed"]()
    (server,) = with_clients.nodes(Role.SERVER_BRIDGE)
    client = with_clients.nodes(Role.CLIENT)[0]
    assert with_clients.path_targets(server) == [with_clients.address(client)]


def test_one_member_can_have_a_fault() -> None:
    layout = layouts.converged(mtu=9000, odd_uplink=2, odd_mtu=1500, odd_vlan=99)
    ports = ports_of(layout, "", "upstream", lags=True)
    odd = ports.pop("sw-s2-up2")
    assert (odd.mtu, odd.vlan, odd.team) == (1500, 99, ""), "still in the LAG with another VLAN"
    assert {port.mtu for port in ports.values()} == {9000}
    assert {port.vlan for port in ports.values()} == {None}
    assert [port.team for port in ports.values()] == ["server1", "server1", "server2"]
    assert {port.mtu for port in ports_of(layout, "", "server2", lags=True).values()} == {9000}


@pytest.mark.parametrize(
    ("sides", "senders_switch", "receivers_switch"),
    [(0, "server1", "server2"), (1, "vswitch1", "server2"), (2, "vswitch1", "vswitch2")],
)
def test_virtual_switch_is_on_no_one_or_both_sides(
    sides: int, senders_switch: str, receivers_switch: str
) -> None:
    layout = layouts.quad_gbe_team(virtual_switches=sides)
    (sender,), (receiver,) = layout.senders, layout.receivers
    assert layout.switch_of(layout.vnics_of(sender)[0]) == senders_switch
    assert layout.switch_of(layout.vnics_of(receiver)[0]) == receivers_switch
    assert layout.server_of(layout.vnics_of(sender)[0]) == "server1"
    assert overlay_of(layout, "", senders_switch, switches.BondedServer) is None, "no tunnels"


def test_overlay_has_a_virtual_network_for_each_endpoint() -> None:
    layout = layouts.overlay(vms=4, endpoints=2)
    for number, server in enumerate(("server1", "server2"), start=1):
        (switch,) = (one for one in layout.nodes(Role.VIRTUAL_SWITCH) if one.endswith(str(number)))
        ports = ports_of(layout, "", switch, lags=False)
        assert [port.vlan for port in ports.values()] == [1, 2, 1, 2]
        assert not any(one.startswith("vm") for one in ports_of(layout, "", server, lags=False))
    for sender, receiver in zip(layout.senders, layout.receivers, strict=True):
        (address,) = layout.addresses_of(receiver)
        assert layout.shares_network(sender, address)
        others = [one for one in layout.senders if not layout.shares_network(one, address)]
        assert len(others) == 2, "a virtual network of two hosts would be a loop of two tunnels"


def _overlay(team: str, **parameters: Any) -> list[Overlay]:
    """The tunnels of both hosts, with a team's bridges."""
    layout = layouts.overlay(**parameters)
    found = [
        overlay_of(layout, "o-", switch, switches.TEAMS[team])
        for switch in layout.nodes(Role.VIRTUAL_SWITCH)
    ]
    return [one for one in found if one]


def test_tunnels_of_both_hosts_end_at_each_other() -> None:
    first, second = _overlay("plain", endpoints=2)
    for one, other in ((first, second), (second, first)):
        for here, there in zip(one.tunnels, other.tunnels, strict=True):
            assert here.address(here.far_host) == there.address(there.host)
            assert here.mac(here.far_host) == there.mac(there.host)
            assert here.subnet == there.subnet, "neighbours of each other"
    names = [one.endpoint(tunnel) for one in (first, second) for tunnel in one.tunnels]
    assert names == ["o-s1-ep1", "o-s1-ep2", "o-s2-ep1", "o-s2-ep2"]
    addresses = {t.address(t.host) for one in (first, second) for t in one.tunnels}
    assert len(addresses) == 4


def test_endpoints_take_turns_on_the_bridges_of_a_split_server() -> None:
    (first, _) = _overlay("split", endpoints=3)
    assert [first.bridge_of(one) for one in first.tunnels] == [
        "o-server11",
        "o-server12",
        "o-server11",
    ]
    (first, _) = _overlay("lacp")
    assert {first.bridge_of(one) for one in first.tunnels} == {"o-server1"}


def test_tunnels_are_of_the_chosen_type_and_routed_by_host() -> None:
    for encapsulation in parts.ENCAPSULATIONS:
        for number, one in enumerate(_overlay("bond", encapsulation=encapsulation), start=1):
            words = one.transaction("bridge")
            assert words.count(f"type={encapsulation}") == words.count("type=internal") == 2
            assert words.count(f"options:egress_pkt_mark={number}") == 2
            routes = [words for words in one.settings() if "ovs/route/add" in words]
            assert [words[-1] for words in routes] == [f"pkt_mark={number}"] * 2
    with pytest.raises(ValueError, match=r"encapsulation: gre -> geneve \| vxlan"):
        layouts.overlay(encapsulation="gre")
    with pytest.raises(ValueError, match="datapath: kernel -> userspace"):
        _topo("overlay", datapath="kernel")


def test_separate_nics_have_a_vnic_each() -> None:
    layout = layouts.live_migration()
    ports = ports_of(layout, "", "server2", lags=False)
    homes = {interface: port.home for interface, port in ports.items() if port.home}
    assert homes == {"host2-1": "s2-up1", "host2-2": "s2-up2"}
    networks = [layout.address(vnic).rsplit(".", 2)[0] for vnic in layout.vnics_of("host2")]
    assert len(set(networks)) == 2, "connections could not be told to use both"
    assert {layout.switch_of(v) for vm in layout.nodes(Role.VM) for v in layout.vnics_of(vm)} == {
        "server1"
    }


def test_manual_placement_keeps_homes_and_distributes_the_rest() -> None:
    split = object.__new__(switches.SplitServer)
    split.layout_ports = ports_of(layouts.live_migration(vms=3), "", "server1", lags=False)
    assert split.placement() == {
        "host1-1": "s1-up1",
        "host1-2": "s1-up2",
        "vm1-1": "s1-up1",
        "vm2-1": "s1-up1",
        "vm3-1": "s1-up2",
    }


def test_published_shares_are_those_of_the_documents() -> None:
    """As printed, in MB of 2^20 bytes or Gbit/s. Other shares of migrations are tested with their bench."""
    mb_share = 8 * 2**20 / 1e9
    modes = {mode["name"]: mode for mode in layouts.set_vs_lbfo().published["modes"]}
    for name, mb_per_s, cpu_percent in (
        ("LACP", 108.919, 5.986),
        ("switch independent", 111.809, 5.257),
        ("SET", 109.098, 6.140),
    ):
        assert modes[name]["total_share"] == pytest.approx(mb_per_s * mb_share, abs=0.0005)
        assert modes[name]["cpu_ratio"] == pytest.approx(cpu_percent / 100)
    quad = layouts.quad_gbe_team().published
    assert quad["one_stream_share"] == pytest.approx(113 * mb_share, abs=0.001)
    assert quad["ten_streams_share"] == pytest.approx(410 / (4 * 113), abs=0.0005)
    moved = {one["name"]: one["total_share"] for one in layouts.live_migration().published["modes"]}
    assert moved["LACP, SMB, one large VM"] == 19 / 20
    assert moved["no team, SMB Direct"] == 20 / 20
    both = layouts.converged().published
    assert (both["standard_share"], both["jumbo_share"]) == (4.8 / 10, 9 / 10)
    assert both["jumbo_ratio"] == pytest.approx(9 / 4.8, abs=0.03)
