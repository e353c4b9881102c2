"""Why a VM port is where it is, and what would have to change: what an operator reads."""

from __future__ import annotations

from dataclasses import replace

from tests.said import says
from tests.unit.controller.engine.told import explained
from tests.unit.controller.operations.test_planning import CROWDED
from tests.unit.controller.story import tell
from tests.unit.fake_switch import done, refusal, world
from tests.unit.rows import host


def test_a_reason_without_a_sentence_of_its_own_is_explained_by_the_decision_log() -> None:
    here = tell(f"{CROWDED} | run 48")
    bound = here.bridge.placing.planned.bound
    bound["vnet0"] = replace(bound["vnet0"], reason="split")
    because = explained(here)["said"]["why there"]
    assert says(because, "split", "eth1", "85%", "eth1 85% -> 55%, eth2 0% -> 30%")
    here.bridge.decision_log.entries.clear()
    assert explained(here)["said"]["why there"].startswith("split: ")


def test_every_explanation_fits_eighty_columns() -> None:
    here = tell(CROWDED)
    for until_s in (12, 30, 60):
        here.run_until(until_s)
        for name in ("vnet0", "vnet1"):
            text = done(here.ask("explain", name))
            assert max(map(len, text.splitlines())) <= 80, text


def test_a_refusal_is_one_line_whatever_was_asked() -> None:
    here = world(host()).start()
    text = refusal(here.ask("explain", "a\nb\x1b[2J\ud800"))
    assert text.startswith(r"no interface of an attached bridge is named a\nb\x1b[2J\ud800; ")
