"""What a plan means in frames and connections."""

from __future__ import annotations

import pytest

from topologies.connections.load import lost_after
from topologies.loads.probing import FlowResult


def test_only_what_is_lost_by_the_failure_counts() -> None:
    arrivals = [(number, 10 + number / 1000) for number in range(100) if number not in (3, 52, 53)]
    heard = FlowResult(102, 10.0, 10.1, arrivals[2:])
    assert lost_after(heard, 10.05) == 4, "two after the failure, and two at the end"
    assert heard.lost == 7


def test_a_late_datagram_does_not_hide_a_loss() -> None:
    heard = FlowResult(6, 0.0, 0.006, [(0, 0.001), (2, 0.002), (1, 0.0021), (5, 0.02)])
    assert lost_after(heard, 0.0025) == 2


def test_a_probe_that_nobody_has_heard_tells_nothing() -> None:
    with pytest.raises(RuntimeError, match=r"no datagram .* arrived before"):
        lost_after(FlowResult(5, 0.0, 0.005, [(4, 0.004)]), 0.003)
