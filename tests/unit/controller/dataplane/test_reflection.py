"""Frames of ours that come back from the network."""

from __future__ import annotations

import pytest

from controller.dataplane.pipeline import build
from controller.dataplane.specs import FlowSpec, Pipeline, SetField, match
from controller.dataplane.tables import BROADCAST, Register, Table
from controller.dataplane.team import Team, VmPort
from policies.model import OfPort
from tests.unit.controller.dataplane.teams import UPLINKS
from tests.unit.forwarding import frame, through_table

LOCAL_MAC, OTHER_MAC = "52:54:00:00:00:01", "52:54:00:00:00:99"
RARP, OTHER = 0x8035, 0x88B5


def installed(locked: bool) -> Pipeline:
    """A pipeline of one VM port in which the switch has learned an address, and locked it."""
    built = build(Team(UPLINKS, (VmPort(OfPort(10), UPLINKS),)))
    of_local = match(eth_src=LOCAL_MAC)
    learned = [
        FlowSpec(Table.LOCAL_SOURCE, 10, of_local, (SetField(Register.LOCAL, 1),)),
        FlowSpec(Table.LOCK, 10, of_local, (SetField(Register.LOCKED, int(locked)),)),
    ]
    return Pipeline({**built.flows, **{flow.key: flow for flow in learned}}, built.groups)


@pytest.mark.parametrize(
    ("source", "eth_type", "locked", "delivered"),
    [
        (OTHER_MAC, OTHER, False, True),
        (LOCAL_MAC, OTHER, False, False),
        (LOCAL_MAC, OTHER, True, False),
        (LOCAL_MAC, RARP, True, False),
        # The address has moved away, and says so.
        (LOCAL_MAC, RARP, False, True),
    ],
)
def test_a_broadcast_of_ours_is_dropped_unless_it_announces_that_its_address_has_left(
    source: str, eth_type: int, locked: bool, delivered: bool
) -> None:
    came_in = {Register.UPLINK: int(UPLINKS[0])}
    sent = frame(eth_src=source, eth_dst=BROADCAST, eth_type=eth_type, **came_in)
    copies = through_table(installed(locked), Table.FROM_UPLINK, sent, set(UPLINKS))
    assert [copy.port for copy in copies] == [10] * delivered
