"""What a VM port sends leaves by the uplink that it is bound to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane.pipeline import build
from controller.dataplane.tables import Register, Table
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort
from tests.unit.controller.dataplane.teams import UPLINKS
from tests.unit.forwarding import frame, through_table

ORDERS = st.permutations(UPLINKS).flatmap(
    lambda order: st.integers(0, len(order)).map(lambda count: tuple(order[:count]))
)


@given(ORDERS, st.sets(st.sampled_from(UPLINKS)))
def test_a_vm_ports_frames_leave_by_the_first_live_uplink_of_its_order(
    order: tuple[OfPort, ...], alive: set[OfPort]
) -> None:
    installed = build(Team(UPLINKS, (VmPort(OfPort(10), order),)))
    sent = frame(**{Register.VM_PORT: 10})
    left = through_table(installed, Table.UPLINK_OUT, sent, alive)
    assert [copy.port for copy in left] == [uplink for uplink in order if uplink in alive][:1]
