"""The tables and the picture of many connections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from topologies.connections.load import Plan, described
from topologies.connections.picture import draw
from topologies.connections.section import cpu_percent, medians, section

PLAN = Plan((1000, 10000), (500,))


def _row(contender: str, flows: int, lost: dict[str, list[int]], **cpu_s: float) -> dict[str, Any]:
    costs = {
        "span_s": 4.0,
        "flows": flows,
        "upcalls": 8,
        "upcalls_lost": 0,
        "cpu_s": {"ovs-vswitchd": 1.0, **cpu_s},
        "switch_rss_bytes": 20_000_000,
        "lost_ratio": 0.0123,
    }
    failovers = [
        {"service": service, "probe_lost": one, "frames_lost": 10 * one}
        for service, some in lost.items()
        for one in some
    ]
    size = {"connections": 1000, "settled_s": 2.0, "failovers": failovers, **costs}
    rate = {"asked_per_s": 500, "reached_per_s": 480.0, **costs}
    return {"contender": contender, "sizes": [size], "rates": [rate]}


def _report(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"environment": {"cpus": 2}, "plan": described(PLAN), "rows": rows, **more}


def _line(text: str, begin: str) -> list[str]:
    (found,) = (line for line in text.splitlines() if line.startswith(begin))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_runs_of_a_contender_are_one_line_of_medians() -> None:
    made = section(
        _report(
            _row("dynamic", 1000, {"alive": [4, 6], "dead": [9]}, **{"ovs-lbt": 0.2}),
            _row("dynamic", 1200, {"alive": [20], "dead": [1]}, **{"ovs-lbt": 0.4}),
            _row("dynamic", 1100, {"alive": [8], "dead": [7]}, **{"ovs-lbt": 0.3}),
        )
    )
    cells = _line(made, "| 1,000 | `dynamic`")
    assert cells[:6] == ["1,000", "`dynamic`", "3", "1100", "2.0", "2"]
    assert cells[6:] == ["1.23", "25", "7.5", "20", "7", "7", "70", "70"]


def test_a_bond_has_rates_but_no_service() -> None:
    made = section(_report(_row("balance-tcp", 300, {"none": [3]})))
    cells = _line(made, "| 1,000 |")
    assert (cells[8], cells[10:]) == ("", ["3", "", "30", ""])
    assert "10,000 |" not in made, "that size was not measured"
    cells = _line(made, "| 500 |")
    assert cells == ["500", "`balance-tcp`", "1", "480", "2", "1.23", "25", "300"]


def test_failures_and_notes_are_told() -> None:
    made = section(_report(_row("a", 1, {}), failed=["b: it ended"]), "Because.")
    assert "Not completed: b: it ended" in made
    assert "Because." in made
    assert "Environment: cpus 2." in made


def test_lines_of_pictures_are_medians_by_size() -> None:
    rows = [_row("a", flows, {}) for flows in (1, 5, 3)] + [_row("b", 7, {})]
    assert medians(rows, "a", lambda one: float(one["flows"])) == [(1000, 3.0)]
    assert medians(rows, "b", cpu_percent) == [(1000, 25.0)]


@pytest.mark.slow
def test_every_contender_has_a_line(tmp_path: Path) -> None:
    rows = [_row(name, 5, {}) for name in ("balance-tcp", "adaptive, split")]
    paths = draw({"rows": rows}, tmp_path)
    assert [path.name for path in paths] == ["connections.png", "connections.svg"]
    text = paths[1].read_text()
    assert text.count("adaptive, split") >= 1 and text.count("balance-tcp") >= 1
