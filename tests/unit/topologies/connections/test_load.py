"""What a plan means in frames and connections."""

from __future__ import annotations

from topologies.connections import load, sender
from topologies.connections.load import Plan


def test_every_connection_is_refreshed_before_the_switch_forgets_it() -> None:
    plan = Plan((1_000, 100_000), ())
    assert 100_000 / plan.frames_per_s == load.REFRESH_S < 10


def test_few_connections_have_frames_enough_to_be_measured() -> None:
    assert Plan((1_000,), ()).frames_per_s == Plan((), (10,)).frames_per_s == 2000


def test_new_connections_have_ports_of_their_own() -> None:
    plan = Plan((1_000, 100_000), (1_000, 10_000))
    assert plan.first_new >= 100_000
    assert sender.ports(plan.first_new)[1] > sender.ports(99_999)[1]
    assert plan.connections == plan.first_new + 3 * 11_000


def test_the_few_that_are_always_kept_are_not_opened_again() -> None:
    assert Plan((10,), ()).first_new >= load.FEW
