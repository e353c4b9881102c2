"""Why a VM port is where it is, and what would have to change: what an operator reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from controller.config.rows import BridgeRow
from tests.said import says
from tests.unit.controller.engine.told import explained
from tests.unit.controller.operations.test_planning import (
    CROWDED_BPS,
    KNOWN_AT_S,
    crowded,
    loaded,
    plan,
)
from tests.unit.fake_switch import World, done, refusal, world
from tests.unit.rows import host


def said(here: World, name: str = "vnet0") -> Any:
    return explained(here, name)["said"]


def explained_after(row: BridgeRow, bps: Sequence[float], name: str = "vnet0") -> dict[str, Any]:
    return explained(loaded(row, bps).run_until(40), name)


def test_a_reason_without_a_sentence_of_its_own_is_explained_by_the_decision_log() -> None:
    here = crowded().run_until(60)
    bridge = here.engine.fleet.bridges["br0"]
    bridge.placing.planned.bound["vnet0"] = replace(
        bridge.placing.planned.bound["vnet0"], reason="split"
    )
    assert says(said(here)["why there"], "split", "eth1", "85%", "eth1 85% -> 55%, eth2 0% -> 30%")
    bridge.decision_log.entries.clear()
    assert said(here)["why there"].startswith("split: ")


def test_what_a_verdict_says_is_what_the_plan_does() -> None:
    """Both are of the same policy and the same loads."""
    for bps in (CROWDED_BPS, (6e9, 3e9, 0.0, 0.0), (1e9, 1e9, 1e9, 1e9), (9e9, 0.0, 0.0, 0.0)):
        here = loaded(host(binding="eth1"), bps).run_until(KNOWN_AT_S)
        first = [(m["port"], m["target"]) for m in plan(here)["moves"]][:1]
        said_to_move = [
            (name, found["target"])
            for name in ("vnet0", "vnet1", "vnet2", "vnet3")
            if (found := explained(here, name))["against"] == "moves"
        ]
        assert said_to_move == first


def test_every_explanation_fits_eighty_columns() -> None:
    here = crowded()
    for until_s in (KNOWN_AT_S, 30, 60):
        here.run_until(until_s)
        for name in ("vnet0", "vnet1"):
            text = done(here.ask("explain", name))
            assert max(map(len, text.splitlines())) <= 80, text


def test_a_refusal_is_one_line_whatever_was_asked() -> None:
    here = world(host()).start()
    text = refusal(here.ask("explain", "a\nb\x1b[2J\ud800"))
    assert text.startswith(r"no interface of an attached bridge is named a\nb\x1b[2J\ud800; ")
