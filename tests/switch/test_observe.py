"""A bridge that is only observed: what is planned is told, and the switch is left alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds
from tests.switch.judging import few_lost, judges_time
from tests.switch.service import Service
from tests.switch.traffic import Traffic
from tests.switch.waiting import wait_until

FLOW_PPS = 500
BEDS = [BedSpec(team, 2, (None, None), (None,)) for team in (BALANCE_SLB, ACTIVE_BACKUP, PLAIN)]
on_bonds = on_beds(*BEDS[:2])
on_every_bed = on_beds(*BEDS)


@pytest.fixture
def observed(bed: Bed, service: Service) -> Iterator[Bed]:
    """The bed, attached and observed."""
    with service.attached(bed, "--policy", "load-based", "--observe"):
        yield bed


@judges_time
@on_every_bed
def test_from_observe_to_enforce_and_back(observed: Bed, service: Service) -> None:
    bed = observed
    before = flows_and_groups(bed)
    lost: dict[str, int] = {}
    for mode in ("enforce", "observe"):
        with Traffic.of(bed) as traffic:
            traffic.go_on()
            service.do("set", "bridge", bed.bridge, f"mode={mode}")
            wait_until(
                lambda: (
                    flows_and_groups(bed) == before
                    if bed.spec.team == PLAIN or mode == "observe"  # noqa: B023
                    else len(flows_and_groups(bed)[1]) > 0
                ),
                f"the switch has what {mode} asks for",
            )
            traffic.go_on()
        lost |= {f"{mode}: {flow}": count for flow, count in traffic.lost().items()}
    few_lost(lost, 0, FLOW_PPS)


def flows_and_groups(bed: Bed) -> tuple[list[str], list[str]]:
    """All there is on the bridge, without statistics, and without what the switch learned."""
    flows = bed.ofctl("dump-flows", "--no-stats").splitlines()
    groups = bed.ofctl("dump-groups").splitlines()[1:]
    learned = "cookie=0x6c627403"
    return sorted(f.strip() for f in flows if learned not in f), sorted(g.strip() for g in groups)
