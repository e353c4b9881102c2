"""A frame leaves by a port in the VLANs that the port carries, tagged as the port wants it."""

from __future__ import annotations

import pytest

from controller.config.vlans import TRUNK, PortVlans
from controller.dataplane.pipeline import build
from controller.dataplane.tables import VLAN_PRESENT, Register, Table
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort
from tests.unit.controller.dataplane.teams import UPLINKS, VLANS, WAYS
from tests.unit.forwarding import frame, through_table

# Nothing is sent here to an uplink that carries every VLAN: see `leave_by`.
PORTS = [(10, vlans) for vlans in WAYS] + [(UPLINKS[0], vlans) for vlans in WAYS if vlans != TRUNK]


@pytest.mark.parametrize(("ofport", "vlans"), PORTS, ids=str)
def test_a_port_gets_frames_of_its_vlans_with_the_tag_that_it_wants(
    ofport: int, vlans: PortVlans
) -> None:
    ports = (VmPort(OfPort(10), UPLINKS, vlans),)
    installed = build(Team(UPLINKS, ports, uplink_vlans={UPLINKS[0]: vlans}))
    for vlan in VLANS:
        tag = vlan and VLAN_PRESENT | vlan
        registers = {Register.TARGET: ofport, Register.VLAN: vlan}
        out = through_table(installed, Table.PORT_OUT, frame(vlan_vid=tag, **registers), set())
        expected = [(ofport, vlans.tag_out(vlan))] if vlan in vlans.carried else []
        assert [(c.port, c.frame["vlan_vid"] & ~VLAN_PRESENT) for c in out] == expected
