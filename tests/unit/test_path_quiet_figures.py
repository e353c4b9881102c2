"""What the figures of `make bench-quiet-paths` make of runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from tests.switch.path_quiet_figures import (
    HOSTS,
    LOAD,
    PAGE,
    PUBLISHED,
    SECONDS,
    Quiet,
    found_alone,
    table,
    with_table,
)

RUN = Quiet(
    case=LOAD,
    hosts=1,
    uplinks=3,
    seconds=304.0,
    rounds={"judged": 600, "void": 1},
    frames={"arrived": 3000, "lost": 20, "full": 500},
    findings=[],
    load_average=2.04,
    more={},
)


def test_runs_of_a_case_are_added_up() -> None:
    found = replace(RUN, findings=["why"], load_average=3.3)
    *_, row = table([asdict(RUN), asdict(found)]).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:] == ["1", "3", "10", "1200", "2", "7040", "40", "1000", "1", "2.0 to 3.3"]


def test_a_case_without_runs_has_no_row() -> None:
    assert len(table([asdict(RUN)]).splitlines()) == 3


def test_what_other_hosts_find_and_vms_that_are_not_reached_count() -> None:
    fault = {"uplinks": 2, "found_after_s": 2.5, "found_elsewhere": list[str]()}
    many = replace(RUN, case=HOSTS, more={"silent": [], "faults": [fault]})
    assert found_alone(RUN) and found_alone(many)
    elsewhere = {**fault, "found_elsewhere": ["br1"]}
    assert not found_alone(replace(many, more={"silent": [], "faults": [fault, elsewhere]}))
    assert not found_alone(replace(many, more={"silent": ["a to b"], "faults": [fault]}))


def test_the_page_has_the_table_of_the_published_runs() -> None:
    runs = json.loads(PUBLISHED.read_text())["runs"]
    text = PAGE.read_text()
    assert with_table(text, runs) == text, (
        "again: python -m tests.switch.path_quiet_figures --publish docs/results/paths/quiet.json"
    )
    assert not any(run["findings"] for run in runs)
    full = [run for run in runs if run["case"] == LOAD]
    assert sum(run["seconds"] for run in full) >= SECONDS[LOAD], "an hour"
    many = [run for run in runs if run["case"] == HOSTS]
    assert many and not any(run["more"]["silent"] for run in many)
    assert not any(fault["found_elsewhere"] for run in many for fault in run["more"]["faults"])
