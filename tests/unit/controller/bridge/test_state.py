"""Whoever asks a bridge something changes nothing of it."""

from __future__ import annotations

import copy

import pytest

from controller.bridge.bridge import Bridge
from controller.config.rows import BridgeRow
from controller.operations import planning
from tests.unit.fake_switch import world
from tests.unit.rows import backed_up, host

OF_UNITS = ("bound", "split")
QUESTIONS = (
    "at_rest",
    "awaited",
    "known",
    "settled",
    "announces_at_s",
)


@pytest.mark.parametrize(
    "row", [host(), host(mode="observe"), backed_up()], ids=["bond", "observed", "active-backup"]
)
def test_a_question_changes_nothing(row: BridgeRow) -> None:
    here = world(row).start().run_until(20)
    here.switch.holds_answers = True
    here.set_link(1, up=False)
    before = copy.deepcopy(here.bridge)
    for question in QUESTIONS:
        getattr(here.bridge, question)
    assert here.bridge.installation.has_all in (True, False)
    for question in OF_UNITS:
        getattr(here.bridge.placing, question)
    here.bridge.installation.desired()
    here.bridge.installation.foreseen(here.now_s)
    here.bridge.deadline_s()
    planning.propose(here.bridge, here.now_s)
    here.bridge.placing.rules()
    here.bridge.scheduler.cooldowns(here.bridge.placing.team_view(), here.now_s)
    here.bridge.placing.team_view().loaded()
    here.bridge.placing.uplinks()
    here.bridge.placing.units()
    list(here.bridge.shaping.impossible())
    assert own(here.bridge) == own(before)


def own(bridge: Bridge) -> list[dict[str, object]]:
    """The state of the bridge and of each part, without what only saves time."""
    parts = (*bridge.features, bridge.placing)
    left_out = ("bridge", "reused", "features")
    kept = [vars(bridge), *map(vars, parts)]
    return [
        {name: value for name, value in one.items() if name not in left_out and value not in parts}
        for one in kept
    ]
