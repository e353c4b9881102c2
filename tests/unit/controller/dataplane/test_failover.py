"""A group that uses the first live uplink."""

from __future__ import annotations

from controller.dataplane.failover import first_live
from controller.dataplane.specs import Output, Pipeline
from policies.model import OfPort
from tests.unit.forwarding import frame, through_group


def test_the_first_live_uplink_carries_the_frame_and_none_if_none_is_live() -> None:
    group = first_live(1, [(OfPort(n), (Output(n),)) for n in (3, 1, 2)])
    installed = Pipeline({}, {1: group})
    for alive, expected in (({1, 2, 3}, [3]), ({1, 2}, [1]), ({2}, [2]), (set(), [])):
        assert [copy.port for copy in through_group(installed, 1, frame(), alive)] == expected


def test_an_uplink_without_actions_drops_for_those_behind_it() -> None:
    group = first_live(1, [(OfPort(1), ()), (OfPort(2), (Output(9),))])
    installed = Pipeline({}, {1: group})
    assert through_group(installed, 1, frame(), {1, 2}) == []
    assert [copy.port for copy in through_group(installed, 1, frame(), {2})] == [9]
