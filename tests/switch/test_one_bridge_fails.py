"""One of two bridges cannot be changed because of an error of ours: the other one fails over, and detach works."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.text.wording import OUR_LOG
from tests.said import says
from tests.switch.adopting import state
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Upstream
from tests.switch.service import Service
from tests.switch.waiting import wait_until

FAULTY = [sys.executable, str(Path(__file__).with_name("faulty.py")), "encoder"]
INJECTED = "AttributeError: injected"


@pytest.fixture(scope="module")
def well(own: Service, tor: Upstream) -> Iterator[Bed]:
    with Bed(own.ovs, tor, BedSpec(BALANCE_SLB, 2)) as made:
        yield made


def variables(broken: Bed) -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[2]), "BROKEN": broken.bridge}


def all_on(own: Service, bed: Bed, number: int) -> None:
    expected = {bed.uplinks[number].name}
    wait_until(lambda: set(own.bindings(bed).values()) == expected, f"all on {expected}")


def copies(bed: Bed) -> list[Counter[tuple[str, int]]]:
    """Where broadcasts of the VMs and of the host upstream arrive; the bond decides by which member."""
    return bed.came_out([bed.frame_of(station) for station in (*bed.vms, *bed.hosts)])


@pytest.mark.parametrize("team", [BALANCE_SLB, PLAIN])
def test_the_other_bridge_fails_over_and_the_broken_one_can_be_detached(
    own: Service, tor: Upstream, well: Bed, team: str
) -> None:
    with Bed(own.ovs, tor, BedSpec(team, 2)) as broken:
        own.start()
        before, arrived = state(broken), copies(broken) if team == BALANCE_SLB else []
        for bed in (broken, well):
            own.attach(bed, "--policy", "explicit")
            all_on(own, bed, 0)
        own.kill()
        own.log.unlink()
        own.launcher, own.variables = FAULTY, variables(broken)
        try:
            own.start()
            for bed in (broken, well):
                own.wait_ready(bed)
                bed.pull_cable(bed.uplinks[0])
            second = {str(s): [well.uplinks[1].name] for s in well.stations}
            wait_until(lambda: well.homes() == second, "the other bridge fails over")
            all_on(own, well, 1)
            wait_until(lambda: "failure" in own.show_json(broken.bridge), "it is shown")
            assert "failure" not in own.show_json(well.bridge)
            assert says(own.do("show", broken.bridge), INJECTED)
            assert says(own.command("check").stdout, broken.bridge, INJECTED, OUR_LOG)
            assert own.metric("ovslbt_faults_total", part="bridge") >= 1
            log = own.log.read_text()
            assert log.count(f"bridge {broken.bridge}: {INJECTED}") == 1, "logged once"
            # The switch itself fails over by its last pipeline.
            moved = {str(s): [broken.uplinks[1].name] for s in broken.stations}
            wait_until(lambda: broken.homes() == moved, "its flows still forward")
            own.do("detach", broken.bridge)
            assert own.alive
        finally:
            for bed in (broken, well):
                bed.plug_cable(bed.uplinks[0])
            own.command("detach", well.bridge)
            own.kill()
            own.launcher, own.variables = [], {}
        assert (state(broken), broken.not_flooded()) == (before, set())
        assert team == PLAIN or copies(broken) == arrived
