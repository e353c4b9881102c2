"""The files of a run of chaos: written after each event, and read again."""

from __future__ import annotations

import json
from pathlib import Path

from tests.switch.chaos.losses import Counted, Flow, Lost
from tests.switch.chaos.model import Event
from tests.switch.chaos.run import Finding
from tests.switch.chaos.soak import Kept
from tests.switch.chaos.world import Extras

LOST = Lost(Flow("v0 to host", "v0", inbound=False), 50, 0, (3, 4), 0.0)
DOWN, MOVE = Event("cable-down", ("u0",)), Event("move", ("v0", "u1"))


def happened(kept: Kept, event: Event) -> None:
    report = kept.report
    report.events.append(event)
    report.counted.append(Counted(event, [LOST], settle_s=0.5))
    report.took_s.append(1.5)
    report.findings.append(Finding(len(report.events) - 1, str(event), str(LOST)))
    report.service = {"threads": 10}
    kept.event(report)


def begun(directory: Path, resume: bool = False) -> Kept:
    return Kept(directory, 7, Extras(adaptive=True), resume)


def test_each_event_is_in_the_summary_at_once(tmp_path: Path) -> None:
    kept = begun(tmp_path)
    for events, event in enumerate((DOWN, MOVE), 1):
        happened(kept, event)
        found = json.loads((tmp_path / "seed-7-adaptive.json").read_text())
        assert (found["events"], found["begun_again_behind"]) == (events, [])
    assert found["kinds"]["cable-down"]["flows_beyond_bound"] == 1


def test_a_run_goes_on_behind_what_was_kept(tmp_path: Path) -> None:
    happened(begun(tmp_path), DOWN)
    with (tmp_path / "seed-7-adaptive.events").open("a") as events:
        events.write('{"counted": {"event": "mo')  # ended in the middle of a line
    again = begun(tmp_path, resume=True)
    assert again.report.events == [DOWN]
    assert again.report.counted == [Counted(DOWN, [LOST], settle_s=0.5)]
    happened(again, MOVE)
    third = begun(tmp_path, resume=True)
    assert third.report.events == [DOWN, MOVE]
    assert [finding.number for finding in third.report.findings] == [0, 1]
    third.write()
    found = json.loads((tmp_path / "seed-7-adaptive.json").read_text())
    assert found["begun_again_behind"] == [1, 2]


def test_a_run_that_does_not_go_on_begins_anew(tmp_path: Path) -> None:
    happened(begun(tmp_path), DOWN)
    assert begun(tmp_path).report.events == []
    assert (tmp_path / "seed-7-adaptive.events").read_text() == ""
