"""No fault is found where there is none: short forms of what `make bench-quiet-paths` runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch.bed import Upstream
from tests.switch.path_quiet_figures import (
    HOSTS,
    LOAD,
    LOOP,
    STORM,
    Host,
    bed_of,
    many_hosts,
    one_fault,
    segment,
)

STORM_S, LOAD_S, TALK_S = 5.0, 8.0, 4.0
FEW_HOSTS, FEW_SERVICES = 4, 2
PPS = 20.0


@pytest.mark.parametrize(("case", "seconds"), [(STORM, STORM_S), (LOOP, STORM_S), (LOAD, LOAD_S)])
def test_nothing_is_found_where_nothing_is_wrong(tor: Upstream, case: str, seconds: float) -> None:
    with bed_of(case, tor) as during:
        quiet = during(seconds)
    assert quiet["findings"] == []
    assert quiet["rounds"]["judged"], "path checks did not come to look"


@pytest.fixture(scope="module")
def hosts(tor: Upstream) -> Iterator[list[Host]]:
    with segment(tor, FEW_HOSTS, FEW_SERVICES) as made:
        yield made


def test_hosts_on_one_segment_do_not_disturb_each_other(hosts: list[Host]) -> None:
    quiet = many_hosts(hosts, TALK_S, PPS)
    assert (quiet["case"], quiet["hosts"], quiet["findings"]) == (HOSTS, FEW_HOSTS, [])
    assert quiet["rounds"]["judged"] >= FEW_HOSTS * TALK_S
    assert quiet["more"]["silent"] == []


@pytest.mark.parametrize("number", [FEW_HOSTS - 2, FEW_HOSTS - 1])
def test_a_fault_of_one_host_is_found_by_that_host_alone(hosts: list[Host], number: int) -> None:
    """One of them has two uplinks, and the other one three."""
    assert one_fault(hosts, number)["found_elsewhere"] == []
