"""What happened to a VM that arrived, from what was seen."""

from __future__ import annotations

import pytest

from topologies.loads.handover import ETH_RARP, Handover
from topologies.measure.arrivals import timeline
from topologies.measure.captured import ETH_IPV4, Frame

MAC, OURS, ADDRESS = "52:54:00:00:00:01", "0a:00:00:00:00:02", "10.100.0.1"


def test_times_are_those_since_the_port_left() -> None:
    frames = [
        Frame(9.9, MAC, ETH_IPV4, ADDRESS),
        Frame(10.03, OURS, ETH_IPV4, ADDRESS),
        Frame(10.04, OURS, ETH_IPV4, "10.100.0.2"),
        Frame(10.07, MAC, ETH_RARP),
        Frame(10.08, MAC, ETH_IPV4, ADDRESS),
        Frame(10.2, MAC, ETH_RARP),
        Frame(99.0, MAC, ETH_RARP),
    ]
    added = [(9.0, 0), (10.025, 0), (10.026, 1), (10.031, 20)]
    found = timeline(Handover(10.0, 10.01), MAC, ADDRESS, frames, added)
    assert {name: [pytest.approx(at_s) for at_s in at] for name, at in found.items()} == {
        "installed": [0.025],
        "learned": [0.031],
        "announcement_out": [0.07, 0.2],
        "own_out": [0.08],
        "ours_out": [0.03],
    }
