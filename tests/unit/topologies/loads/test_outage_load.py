"""The links that fail during a load."""

from __future__ import annotations

from topologies import layouts
from topologies.loads.outage_load import interfaces_of


def test_a_failing_uplink_takes_its_own_link_only() -> None:
    assert interfaces_of(layouts.live_migration(), "x-", "server1-uplink1") == ["x-sw-s1-up1"]


def test_a_failing_switch_takes_its_uplinks_and_its_link_to_the_core() -> None:
    found = interfaces_of(layouts.two_switches(), "x-", "tor1")
    assert sorted(found) == ["x-sw-up1", "x-tor1-core"]
