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
from topologies.graph.layout import SWITCHES, Layout, Role
from topologies.graph.ports import LONGEST_INTERFACE_NAME, ports_of
from topologies.layouts import LAYOUTS
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
        endpoints = [tunnel.ofport for tunnel in topo.nodeInfo(switch).get("tunnels", ())]
        assert len(set(endpoints)) == len(endpoints), "a port number of endpoints is used twice"
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
            with pytest.raises(ValueError, match=f"{parameter} is {wrong}; .* {least} to {most}"):
                LAYOUTS[name](**{parameter: wrong})


def test_what_a_layout_cannot_be_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"parameter uplink .*; expected uplinks \| vms \| "):
        _topo("set_vs_lbfo", uplink=2)
    teams = r"team nic .*; expected bond \| balance-slb \| lacp \| plain \| split"
    with pytest.raises(ValueError, match=teams):
        _topo("vmware_lbt", team="nic")
    with pytest.raises(ValueError, match=r"a-long-prefix-server has 20 characters; .* 14"):
        _topo("vmware_lbt", prefix="a-long-prefix-")
    with pytest.raises(ValueError, match="odd_uplink is 3; expected one of 2 uplinks"):
        layouts.converged(odd_uplink=3, odd_mtu=1500)
    with pytest.raises(ValueError, match=r"lag_hash is port; expected mac \| flow"):
        layouts.set_vs_lbfo(lag_hash="port")
    with pytest.raises(ValueError, match=r"datapath is dpdk; expected auto \| userspace \| kernel"):
        _topo("set_vs_lbfo", datapath="dpdk")
    with pytest.raises(ValueError, match=r"LAG of server .* tor1, tor2; expected one switch"):
        _topo("two_switches", team="lacp")


@pytest.mark.parametrize("name", ["set_vs_lbfo", "quad_gbe_team"])
def test_lag_may_end_at_one_switch_or_at_another_server(name: str) -> None:
    assert _topo(name, team="lacp").links()


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


def test_path_checks_ask_beyond_the_uplinks_in_each_vlan_of_the_server() -> None:
    layout = layouts.converged(vm_vlan=30)
    assert layout.path_targets("server1") == ["10.1.0.2%10", "10.2.0.2%20", "10.3.2.1%30"]
    assert layout.path_targets("server2") == ["10.1.0.1%10", "10.2.0.1%20", "10.3.1.1%30"]
    assert layouts.converged(vm_vlan=0).path_targets("server1")[0] == "10.3.2.1"
    with_clients = LAYOUTS["mixed_speed"]()
    (server,) = with_clients.nodes(Role.SERVER_BRIDGE)
    client = with_clients.nodes(Role.CLIENT)[0]
    assert with_clients.path_targets(server) == [with_clients.address(client)]


@pytest.mark.parametrize("uplinks", [2, 3, 4])
@pytest.mark.parametrize("vnics", [1, 2, 5])
def test_all_loaded_vnics_hash_to_one_uplink(uplinks: int, vnics: int) -> None:
    layout = layouts.vmware_lbt(uplinks=uplinks, vnics_per_vm=vnics)
    ofports = [layout.attributes(vnic)["ofport"] for vnic in layout.loaded_vnics()]
    assert len({ofport % uplinks for ofport in ofports}) == 1
    assert {layout.neighbour(one, Role.VM) for one in layout.loaded_vnics()} == {
        *layout.nodes(Role.VM)
    }
    every = [layout.attributes(node)["ofport"] for node in layout.nodes(Role.VNIC)]
    every += [layout.attributes(node)["ofport"] for node in layout.nodes(Role.UPLINK)]
    assert len(set(every)) == len(every), "two ports have the same OpenFlow port number"


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (layouts.vmware_lbt(), ["uplink1", "uplink2"]),
        (layouts.set_vs_lbfo(vms=3), ["server1-uplink1", "server1-uplink2"]),
        # The VMs are behind virtual switches.
        (layouts.quad_gbe_team(virtual_switches=2, uplinks=1), ["server1-uplink1"]),
        (layouts.live_migration(), ["server1-uplink1", "server1-uplink2"]),
    ],
)
def test_sending_uplinks_belong_to_the_servers_of_the_senders(
    layout: Layout, expected: list[str]
) -> None:
    assert layout.sending_uplinks() == expected
