"""What a plan means in frames and connections."""

from __future__ import annotations

import pytest

from topologies.connections import load, sender
from topologies.connections.load import Plan, lost_after
from topologies.loads.probing import FlowResult


def test_every_connection_is_refreshed_before_the_switch_forgets_it() -> None:
    plan = Plan((1_000, 100_000), ())
    assert 100_000 / plan.frames_per_s == load.REFRESH_S < 10
    assert Plan((1_000,), ()).frames_per_s == Plan((), (10,)).frames_per_s == 2000, (
        "enough to count"
    )


def test_new_connections_have_ports_of_their_own() -> None:
    plan = Plan((1_000, 100_000), (1_000, 10_000))
    assert plan.first_new >= 100_000
    assert sender.ports(plan.first_new)[1] > sender.ports(99_999)[1]
    assert plan.connections == plan.first_new + 3 * 11_000


def test_the_few_that_are_always_kept_are_not_opened_again() -> None:
    assert Plan((10,), ()).first_new >= load.FEW


def test_only_what_is_lost_by_the_failure_counts() -> None:
    arrivals = [(number, 10 + number / 1000) for number in range(100) if number not in (3, 52, 53)]
    heard = FlowResult(102, 10.0, 10.1, arrivals[2:])
    assert lost_after(heard, 10.05) == 4, "two after the failure, and two at the end"
    assert heard.lost == 7


def test_a_late_datagram_does_not_hide_a_loss() -> None:
    heard = FlowResult(6, 0.0, 0.006, [(0, 0.001), (2, 0.002), (1, 0.0021), (5, 0.02)])
    assert lost_after(heard, 0.0025) == 2


def test_a_probe_that_nobody_has_heard_tells_nothing() -> None:
    with pytest.raises(RuntimeError, match="nothing arrived before"):
        lost_after(FlowResult(5, 0.0, 0.005, [(4, 0.004)]), 0.003)
