"""Whoever asks a bridge something changes nothing of it."""

from __future__ import annotations

import copy

import pytest

from controller.bridge.bridge import Bridge
from controller.config.rows import BridgeRow
from tests.unit.fake_switch import world
from tests.unit.rows import backed_up, host

OF_UNITS = ("bound", "split", "team_view")
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
    here.switches["br0"].holds_answers = True
    here.set_link(1, up=False)
    bridge = here.engine.fleet.bridges["br0"]
    before = copy.deepcopy(bridge)
    for question in QUESTIONS:
        getattr(bridge, question)
    assert bridge.installation.has_all in (True, False)
    for question in OF_UNITS:
        getattr(bridge.placing, question)
    bridge.installation.desired()
    bridge.installation.foreseen(here.now_s)
    bridge.deadline_s()
    bridge.placing.proposal(here.now_s)
    bridge.placing.rules()
    bridge.scheduler.cooldowns(bridge.placing.team_view, here.now_s)
    bridge.placing.uplinks()
    bridge.placing.units()
    list(bridge.shaping.impossible())
    assert own(bridge) == own(before)


def own(bridge: Bridge) -> list[dict[str, object]]:
    """The state of the bridge and of each part, without what only saves time."""
    parts = (*bridge.features, bridge.placing)
    left_out = ("bridge", "reused", "features")
    kept = [vars(bridge), *map(vars, parts)]
    return [
        {name: value for name, value in one.items() if name not in left_out and value not in parts}
        for one in kept
    ]
