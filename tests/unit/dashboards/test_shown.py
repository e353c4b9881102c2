"""The rules by which Grafana makes texts and colours, as they were seen in a Grafana."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.dashboards import shown
from tests.unit.dashboards.recorded import Found
from tests.unit.dashboards.shown import Cell

STEPS = {
    "mode": "absolute",
    "steps": [{"value": None, "color": "green"}, {"value": 1, "color": "red"}],
}
UP_OR_DOWN = {
    "type": "value",
    "options": {"0": {"text": "down", "color": "red"}, "1": {"text": "up", "color": "green"}},
}


def found(value: float, **labels: str) -> Found:
    return Found(labels, ((0.0, value),))


def panel(config: dict[str, Any], *overrides: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {
        "title": "A panel",
        "targets": [{"refId": "A", "expr": "up", "legendFormat": "{{uplink}}", "format": "table"}],
        "fieldConfig": {"defaults": config, "overrides": list(overrides)},
        "options": {"colorMode": "background", "textMode": "auto", **options},
        "transformations": [],
    }


@pytest.mark.parametrize(
    ("unit", "number", "decimals", "text"),
    [
        ("short", 0, None, "0"),
        ("short", 3, 0, "3"),
        ("short", 1.75, None, "1.75"),
        ("short", 2.5, 0, "3"),
        ("short", 1234, None, "1.23 K"),
        ("percentunit", 0.9, None, "90%"),
        ("percentunit", 0.0000992, None, "0.00992%"),
        ("percentunit", 0.0000992, 0, "0%"),
        ("bps", 10e9, None, "10 Gb/s"),
        ("bps", 2.5e6, None, "2.50 Mb/s"),
        ("s", 150, 0, "3 mins"),
        ("s", 0.0004, None, "400 µs"),
        ("s", 0, None, "0 s"),
        ("dateTimeAsIso", 1767607200000, None, "2026-01-05 10:00:00"),
    ],
)
def test_numbers_read_as_their_unit(
    unit: str, number: float, decimals: int | None, text: str
) -> None:
    assert shown.formatted(unit, number, decimals) == text


def test_a_value_has_the_colour_of_the_highest_step_that_it_reaches() -> None:
    config = {"unit": "short", "thresholds": STEPS}
    assert shown.display(config, 0.5) == Cell("0.500", "green")
    assert shown.display(config, 1) == Cell("1", "red")


def test_no_value_has_the_colour_of_the_first_step() -> None:
    config = {"unit": "short", "noValue": "-", "thresholds": STEPS}
    assert shown.display(config, None) == Cell("-", "green")
    assert shown.tiles(panel(config), {"A": []}) == [Cell("-", "green")]
    assert shown.bars(panel(config), {"A": []}) == [("", Cell("-", "green"))]


def test_a_mapping_gives_text_and_colour_and_the_first_one_counts() -> None:
    blue = {"type": "regex", "options": {"pattern": "/^[01]$/", "result": {"color": "blue"}}}
    config = {"unit": "short", "thresholds": STEPS, "mappings": [UP_OR_DOWN, blue]}
    assert shown.display(config, 1) == Cell("up", "green")
    assert shown.display({**config, "mappings": [blue, UP_OR_DOWN]}, 1) == Cell("1", "blue")
    assert shown.display(config, 2) == Cell("2", "red")
    null = {"type": "special", "options": {"match": "null", "result": {"text": "not known"}}}
    assert shown.display({**config, "mappings": [null]}, None) == Cell("not known", "green")


def test_words_without_steps_have_grafanas_own_colours() -> None:
    assert shown.display({"unit": "string"}, "pending") == Cell("pending", "green")


@pytest.mark.parametrize(
    ("mode", "texts"),
    [("auto", ["eth1 0", "eth2 1"]), ("name", ["eth1", "eth2"]), ("value", ["0", "1"])],
)
def test_tiles_of_several_series_have_names(mode: str, texts: list[str]) -> None:
    made = panel({"unit": "short", "thresholds": STEPS}, textMode=mode)
    tiles = shown.tiles(made, {"A": [found(0, uplink="eth1"), found(1, uplink="eth2")]})
    assert tiles == [Cell(texts[0], "green"), Cell(texts[1], "red")]


def test_a_tile_without_colour_is_plain() -> None:
    made = panel({"unit": "short", "thresholds": STEPS}, colorMode="none")
    assert shown.tiles(made, {"A": [found(1)]}) == [Cell("1")]


def test_timelines_that_merge_by_thresholds_lose_their_words() -> None:
    """As seen: a bar said "-Infinity+" with its link down."""
    steps = {"mode": "absolute", "steps": [{"value": None, "color": "text"}]}
    config = {
        "unit": "string",
        "thresholds": steps,
        "mappings": [UP_OR_DOWN],
        "color": {"mode": "thresholds"},
    }
    series = Found({"uplink": "eth1"}, ((0.0, 1.0), (5.0, 1.0), (10.0, 0.0)))
    rows = shown.timeline(panel(config, mergeValues=True), {"A": [series]})
    assert [state.cell for state in rows["eth1"]] == [Cell("-Infinity+", "text")]
    config["color"] = {"mode": "fixed", "fixedColor": "text"}
    rows = shown.timeline(panel(config, mergeValues=True), {"A": [series]})
    assert [(s.from_s, s.cell) for s in rows["eth1"]] == [
        (0.0, Cell("up", "green")),
        (10.0, Cell("down", "red")),
    ]


def test_tables_merge_what_agrees_and_keep_what_does_not() -> None:
    made = panel({"unit": "string", "noValue": "-"})
    made["targets"] = [{"refId": ref, "format": "table"} for ref in "ABC"]
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True, "Value #A": True},
                "indexByName": {"uplink": 0, "role": 1, "Value #B": 2, "Value #C": 3},
                "renameByName": {"uplink": "Uplink", "Value #B": "Link", "Value #C": "Changes"},
            },
        },
    ]
    made["options"]["sortBy"] = [{"displayName": "Link", "desc": True}]
    link = [
        {"id": "unit", "value": "short"},
        {"id": "mappings", "value": [UP_OR_DOWN]},
        {"id": "custom.displayMode", "value": "color-text"},
    ]
    made["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": "Link"}, "properties": link},
        {
            "matcher": {"id": "byName", "options": "Changes"},
            "properties": [{"id": "unit", "value": "short"}],
        },
    ]
    rows = shown.table(
        made,
        {
            "A": [found(1, uplink="eth1", role="active"), found(1, uplink="eth2", role="active")],
            "B": [found(0, uplink="eth1"), found(1, uplink="eth2")],
            # Of an uplink that there is no more.
            "C": [found(7, uplink="eth1"), found(9, uplink="eth9")],
        },
    )
    assert [{title: str(cell) for title, cell in row.items()} for row in rows] == [
        {"Uplink": "eth2", "role": "active", "Link": "up (green)", "Changes": "-"},
        {"Uplink": "eth1", "role": "active", "Link": "down (red)", "Changes": "7"},
        {"Uplink": "eth9", "role": "-", "Link": "- (green)", "Changes": "9"},
    ]


def test_what_is_not_known_here_is_refused() -> None:
    with pytest.raises(AssertionError, match="a unit that is not known here: celsius"):
        shown.formatted("celsius", 20)
    with pytest.raises(AssertionError, match="a color mode"):
        shown.display({"unit": "short", "color": {"mode": "continuous-GrYlRd"}}, 1)
    odd = {"matcher": {"id": "byType", "options": "number"}, "properties": []}
    with pytest.raises(AssertionError, match="a matcher"):
        shown.configured(panel({}, odd), "name")
