"""Every flow that drops frames of one port is named, and no other flow."""

from __future__ import annotations

from hypothesis import given

from controller.dataplane import classify, learning
from controller.dataplane.drops import TABLES, Drop, dropped_by
from controller.dataplane.tables import Register
from controller.dataplane.team import Team
from tests.unit.controller.dataplane.teams import teams


@given(teams())
def test_what_drops_frames_of_a_port_is_named(team: Team) -> None:
    flows = [flow for part in (classify, learning) for flow in part.flows(team)]
    own = {mac for port in team.vm_ports for mac in port.attached_macs}

    def of_one_port(fields: dict[str, object]) -> bool:
        return "in_port" in fields or Register.VM_PORT in fields or fields.get("eth_src") in own

    drops = [f for f in flows if f.table in TABLES and not f.actions and f.goto is None]
    assert {f.key for f in flows if dropped_by(f)} == {
        flow.key for flow in drops if of_one_port(dict(flow.match))
    }
    named = {what for flow in flows if (what := dropped_by(flow))}
    for port in team.vm_ports:
        always = (Drop.VLAN, Drop.SECOND_TAG, Drop.SOURCE)
        assert {(int(port.ofport), reason) for reason in always} <= named
        assert ((int(port.ofport), Drop.ADDRESS) in named) is not port.forges
        assert {(mac, Drop.CLAIMED) for mac in port.attached_macs if port.vlans.carried} <= named
