"""The two published faults of the layout `converged` are found in time, and cost nothing from then on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch import path_figures
from tests.switch.bed import Bed, Upstream
from tests.switch.judging import OUTAGE_S, at_most, few_lost, judges_time, soon
from tests.switch.path_figures import CONTENDERS, FAULTS, FOUND_WITHIN_S, PPS
from tests.switch.service import Service

LOAD_BASED = CONTENDERS[0]
# From the finding until VM ports have left, the slowest of what both switches do for that.
LOST_AFTER_MAX = 10


@pytest.fixture(scope="module")
def team(tor: Upstream) -> Iterator[tuple[Bed, Service]]:
    with path_figures.forwarding(tor, LOAD_BASED) as (bed, service):
        assert service
        yield bed, service


@judges_time
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_converged_layout_is_found(team: tuple[Bed, Service], fault: str) -> None:
    bed, service = team
    found = path_figures.happen(bed, service, LOAD_BASED, fault)
    assert found.found_after_s is not None and found.moved_after_s is not None
    soon(f"another {fault} on one switch port is found", found.found_after_s, FOUND_WITHIN_S)
    assert found.lost_until_found, "the fault lost nothing, so nothing was tried"
    lost_after, outage = found.lost_after, OUTAGE_S * found.sent_per_s
    at_most("frames lost of all flows after the finding", lost_after, LOST_AFTER_MAX, outage)
    # Those of all flows that were sent at the same time are as many as of one flow, at least.
    few_lost([len(found.lost_after_at_s)], LOST_AFTER_MAX, PPS, "after the finding")
    assert not found.silent_at_end, "a flow is still lost, although VM ports have left"
