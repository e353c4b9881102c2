"""The tables of many connections."""

from __future__ import annotations

from typing import Any

from topologies.connections.load import Plan, described
from topologies.connections.section import cpu_percent, medians, section

PLAN = Plan((1000, 10000), (500,))


def _row(contender: str, flows: int, lost: dict[str, list[int]]) -> dict[str, Any]:
    costs = {
        "span_s": 4.0,
        "flows": flows,
        "upcalls": 8,
        "upcalls_lost": 0,
        "cpu_s": {"ovs-vswitchd": 1.0},
        "switch_rss_bytes": 20_000_000,
        "lost_ratio": 0.0123,
    }
    failovers = [
        {"service": service, "probe_lost": one} for service, some in lost.items() for one in some
    ]
    size = {"connections": 1000, "settled_s": 2.0, "failovers": failovers, **costs}
    rate = {"asked_per_s": 500, "reached_per_s": 480.0, **costs}
    return {"contender": contender, "sizes": [size], "rates": [rate]}


def _report(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"environment": {"cpus": 2}, "plan": described(PLAN), "rows": rows, **more}


def _line(text: str, begin: str) -> list[str]:
    (found,) = (line for line in text.splitlines() if line.startswith(begin))
    return [cell.strip() for cell in found[1:-1].split("|")]


def test_runs_of_a_contender_are_one_line_of_medians() -> None:
    made = section(
        _report(
            _row("dynamic", 1000, {"alive": [4, 6], "dead": [9]}),
            _row("dynamic", 1200, {"alive": [20], "dead": [1]}),
            _row("dynamic", 1100, {"alive": [8], "dead": [7]}),
        )
    )
    cells = _line(made, "|1,000|`dynamic`|")
    assert cells == ["1,000", "`dynamic`", "1100 (1000 to 1200)", "20", "7 (4 to 20)", "7 (1 to 9)"]


def test_a_bond_has_rates_but_no_service() -> None:
    made = section(_report(_row("balance-tcp", 300, {"none": [3]})))
    assert _line(made, "|1,000|") == ["1,000", "`balance-tcp`", "300", "20", "3", ""]
    assert _line(made, "|500|") == ["500", "`balance-tcp`", "480", "2", "1.23"]
    assert "10,000|" not in made, "that size was not measured"


def test_failures_and_notes_are_told() -> None:
    made = section(_report(_row("a", 1, {}), failed=["b: it ended"]), "Because.")
    assert "Not completed: b: it ended" in made
    assert "Because." in made


def test_lines_of_pictures_are_medians_by_size() -> None:
    rows = [_row("a", flows, {}) for flows in (1, 5, 3)] + [_row("b", 7, {})]
    assert medians(rows, "a", lambda one: float(one["flows"])) == [(1000, 3.0)]
    assert medians(rows, "b", cpu_percent) == [(1000, 25.0)]
