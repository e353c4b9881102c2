"""The table of quiet path checks in docs/reliability/path-checks.md against the published runs."""

from __future__ import annotations

import json

from tests.switch.path_quiet_figures import HOSTS, LOAD, PAGE, PUBLISHED, SECONDS, with_table


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
