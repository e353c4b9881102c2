"""Layouts as graphs: the roles, the limit, and the initial collision of the benchmark."""

from __future__ import annotations

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
