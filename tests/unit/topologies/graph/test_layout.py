"""Layouts as graphs: the roles, the limit, and the initial collision of the benchmark."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest

from topologies import layouts
from topologies.graph.layout import Layout, Role


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


def test_loaded_vnics_receive_load() -> None:
    assert layouts.vmware_lbt().addresses_of("vm3") == ["10.1.0.3"], "the second vNIC has no load"
    assert layouts.live_migration().addresses_of("host2") == ["10.1.0.2", "10.2.0.2"]
    assert layouts.live_migration().addresses_of("vm1") == [], "VMs that migrate receive no load"


def test_a_neighbour_must_be_unique() -> None:
    layout = Layout("two", nx.Graph())
    layout.graph.add_node("bridge", role=Role.SERVER_BRIDGE)
    for uplink in ("one", "other"):
        layout.graph.add_node(uplink, role=Role.UPLINK)
        layout.graph.add_edge("bridge", uplink)
    with pytest.raises(ValueError, match="2 neighbours"):
        layout.neighbour("bridge", Role.UPLINK)


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


def test_a_load_in_both_directions_sends_on_all_uplinks() -> None:
    one_way = layouts.set_vs_lbfo()
    both_ways = replace(one_way, senders=(*one_way.senders, *one_way.receivers))
    assert both_ways.sending_uplinks() == one_way.nodes(Role.UPLINK)


def test_the_far_end_of_an_uplink_is_a_switch_or_an_uplink() -> None:
    assert layouts.two_switches(uplinks=3).far_end("uplink2") == "tor2"
    assert layouts.two_switches(uplinks=3).far_end("uplink3") == "tor1"
    assert layouts.quad_gbe_team().far_end("server1-uplink3") == "server2-uplink3"
    assert layouts.quad_gbe_team().far_end("server2-uplink3") == "server1-uplink3"
