"""Which frames are taken, and in which VLAN they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.vlans import PortVlans
from controller.dataplane.pipeline import build
from controller.dataplane.tables import BROADCAST, VLAN_PRESENT, Table
from controller.dataplane.team import Team
from tests.unit.controller.dataplane.teams import VLANS, WAYS, own_mac, teams
from tests.unit.controller.dataplane.walking import taken, vlan_meant, walk


@pytest.mark.parametrize("vlans", WAYS, ids=str)
def test_what_a_vm_port_sends_in_a_vlan_is_what_it_gets_back(vlans: PortVlans) -> None:
    """So a frame of ours takes the form that the VM's own have."""
    for vlan in VLANS:
        tag = vlans.tag_in(vlan)
        if vlan in vlans.carried:
            assert vlan_meant(vlans, tag and VLAN_PRESENT | tag) == vlan


@given(teams(), st.sampled_from(VLANS))
def test_what_is_said_between_switches_is_no_vms_to_say(team: Team, vlan: int) -> None:
    hashed = bool(team.hashes) or any(port.hashed is not None for port in team.vm_ports)
    said: list[dict[str, str | int]] = [
        {"eth_dst": "01:00:0c:cc:cc:cd"},
        {"eth_type": 0x8808},
        {"eth_src": "00:00:00:00:00:00"},
    ]
    said += [{"eth_src": mac} for mac in team.off_home_macs.values() if hashed]
    flows = walk(build(team)).tables[Table.LEARN]
    for port in team.vm_ports:
        own: dict[str, str | int] = {"eth_src": own_mac(port.ofport), "eth_dst": BROADCAST}
        for other in said:
            assert not taken(flows, port, vlan, **{**own, **other})
