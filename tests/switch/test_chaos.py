"""Whatever happens, one after another: nothing is lost, doubled or left behind.

`make soak` is the same for hours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.switch.bed import Upstream
from tests.switch.chaos import audit, model, run
from tests.switch.chaos.model import Event
from tests.switch.chaos.run import Report
from tests.switch.chaos.world import SABOTAGED_FRAMES, Extras, built
from tests.switch.judging import OUTAGE_S, at_most, few_twice, judges_time
from tests.switch.waiting import wait_until

EVENTS_MAX = 100
FOR_S = 20.0
# One on plain uplinks, one on a bond.
SEEDS = (5, 6)
WITH_A_STANDBY = ("hot v0", "leader-killed", "leader-paused 2")


@judges_time
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_in_chaos(seed: int, tor: Upstream, tmp_path: Path) -> None:
    events = run.events_of(seed, EVENTS_MAX)
    report = run.carry_out(seed, events, tor, for_s=FOR_S, go_on=True)
    judge(report, tmp_path)


@judges_time
def test_nothing_is_lost_by_a_split_a_merge_or_another_leader(
    tor: Upstream, tmp_path: Path
) -> None:
    events = [Event.parse(line) for line in WITH_A_STANDBY]
    extras = Extras(adaptive=True, standby=True)
    report = run.carry_out(SEEDS[0], events, tor, extras=extras, go_on=True)
    judge(report, tmp_path)
    load = [one for one in report.counted[0].flows if "connection" in one.flow.name]
    assert load, "what a split VM sends is counted, too"
    assert min(one.sent for one in load) > 0


def test_frames_that_are_lost_fail_chaos_within_the_event(tor: Upstream) -> None:
    """Each event counts them, so that must be able to fail."""
    events = [Event("set-bridge", ("threshold", "60")), Event("set-bridge", ("threshold", "75"))]
    extras = Extras(sabotage="set-bridge")
    report = run.carry_out(SEEDS[0], events, tor, extras=extras)
    assert report.events == events[:1], "it ends with that event"
    assert "lost" in " ".join(report.violations)
    worst = report.counted[0].worst
    assert worst
    assert len(worst.numbers) >= SABOTAGED_FRAMES - 1
    assert not worst.flow.inbound


def judge(report: Report, directory: Path) -> None:
    """Anywhere, nothing but frames may go wrong, and no flow may have an outage."""
    for counted in report.counted:
        if worst := counted.nearest:
            bound_s = worst.bound_ms / 1000
            what = f"lost of {worst.flow.name} at {counted.event}, s"
            at_most(what, worst.lost_ms / 1000, bound_s, bound_s + OUTAGE_S)
        if not any(not one.promised for one in counted.flows):
            few_twice({str(counted.event): counted.flow_twice}, counted.twice_bound)
    if report.violations:
        replay = directory / f"seed-{report.seed}.replay"
        replay.write_text(model.as_text(report.events))
        pytest.fail("\n".join([*run.lines(report), str(replay)]))


def test_the_audit_tells_what_is_not_as_it_should_be(tor: Upstream) -> None:
    """Each event ends with it, so it must be able to fail."""
    with built(SEEDS[0], tor) as world:
        bed = world.bed

        def found() -> list[str]:
            return audit.differences(bed, world.homes)

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
