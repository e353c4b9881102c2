"""Learned addresses that the switch has lost."""

from __future__ import annotations

from controller.dataplane.specs import EMPTY, FlowSpec
from tests.unit.fake_switch import world
from tests.unit.rows import host


def looked_at(_number: int) -> FlowSpec:
    raise AssertionError("a flow is looked at")


def test_no_flow_is_looked_at_while_no_address_is_known() -> None:
    """With thousands of VM ports there are tens of thousands, and other bridges wait meanwhile."""
    addresses = world(host()).start().bridge.addresses
    addresses.by_port = {}
    assert addresses.seeds(map(looked_at, range(1)), EMPTY) == ()
