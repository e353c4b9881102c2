"""What installed flows tell about the switch."""

from __future__ import annotations

from hypothesis import given

from controller.dataplane import readback
from controller.dataplane.pipeline import build
from controller.dataplane.team import Team
from tests.unit.controller.dataplane.teams import teams, vm_numbers


@given(teams())
def test_normal_gets_what_floods_only_while_it_floods_to_no_vm_port(team: Team) -> None:
    installed = build(team)
    floods = readback.no_flood(installed)
    if team.over_normal and team.uplinks and team.no_flood.issuperset(vm_numbers(team)):
        assert floods == frozenset(vm_numbers(team))
    else:
        assert floods is None
