"""Whatever happens, one after another: nothing is lost, doubled or left behind.

`make soak` is the same for hours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.switch.bed import Upstream
from tests.switch.chaos import audit, model, run
from tests.switch.chaos.world import built
from tests.switch.waiting import wait_until

EVENTS_MAX = 100
FOR_S = 20.0
# One on plain uplinks, one on a bond.
SEEDS = (5, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_in_chaos(seed: int, tor: Upstream, tmp_path: Path) -> None:
    events = run.events_of(seed, EVENTS_MAX)
    report = run.carry_out(seed, events, tor, for_s=FOR_S)
    if report.violations:
        replay = tmp_path / f"seed-{seed}.replay"
        replay.write_text(model.as_text(report.events))
        pytest.fail("\n".join([*run.lines(report), str(replay)]))


def test_the_audit_tells_what_is_not_as_it_should_be(tor: Upstream) -> None:
    """Each event ends with it, so it must be able to fail."""
    with built(SEEDS[0], tor) as world:
        bed = world.bed

        def found() -> list[str]:
            return audit.differences(bed, world.in_force, world.homes)

        wait_until(lambda: not found(), "all is as it should be")
        world.service.kill()
        assert found() == []
        bed.ofctl("mod-group", "group_id=0x6c00fffe,type=ff,bucket=watch_port:1,actions=1")
        assert "other than it should be" in " ".join(found())
        bed.ofctl("del-flows", "table=9")
        assert "missing" in " ".join(found())
        bed.ofctl("del-flows")
        world.service.start()
        wait_until(lambda: not found(), "and mended")
