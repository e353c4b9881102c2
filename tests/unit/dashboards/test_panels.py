"""The settings of the panels: units, colours of what is known and unknown, order, room for names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.colours import REASONS, UNKNOWN
from policies.model import Reason
from tests.unit.dashboards.dashboards import ALL, BY_NAME, Dashboard

# Characters that fit into the title of a panel: so many for each column of the grid, less the marks
# beside the title.
TITLE_PER_COLUMN, BESIDE_TITLE = 7, 12
# The room that a column without a width has at least, and that of a character, in pixels.
LEAST_PX, CHARACTER_PX, AROUND_CELL_PX = 90, 7, 14
# Words that say that something is well.
WELL = {"up", "connected", "fine", "kept", "leads"}

Panel = dict[str, Any]
each_dashboard = pytest.mark.parametrize("dashboard", ALL, ids=str)


def of_type(dashboard: Dashboard, *types: str) -> list[Panel]:
    return [panel for panel in dashboard.asking if panel["type"] in types]


def exprs(panel: Panel) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def overrides(panel: Panel) -> dict[str, dict[str, Any]]:
    return {
        override["matcher"]["options"]: {p["id"]: p["value"] for p in override["properties"]}
        for override in panel["fieldConfig"]["overrides"]
    }


def fields(panel: Panel) -> Iterator[tuple[str, dict[str, Any]]]:
    """The settings of a panel, and those of each column or series that differ from them."""
    yield panel["title"], panel["fieldConfig"]["defaults"]
    for name, properties in overrides(panel).items():
        yield f"{panel['title']}/{name}", properties


def columns(panel: Panel) -> dict[str, dict[str, Any]]:
    """The properties of the columns that a table shows, in their order, by the column's title."""
    (organize,) = (t["options"] for t in panel["transformations"] if t["id"] == "organize")
    titles = organize["renameByName"]
    found = overrides(panel)
    assert set(found) == set(titles.values()), panel["title"]
    return {
        titles[name]: {"label": "" if name.startswith("Value") else name, **found[titles[name]]}
        for name in sorted(titles, key=organize["indexByName"].__getitem__)
        if not found[titles[name]].get("custom.hidden")
    }


# Nothing is green that is not known to be well.


@each_dashboard
def test_only_what_is_known_to_be_well_is_green(dashboard: Dashboard) -> None:
    for panel in dashboard.asking:
        for name, settings in fields(panel):
            steps = settings.get("thresholds", {"steps": []})["steps"]
            # A text that has no colour says nothing.
            if steps and [s["color"] for s in steps] != ["text"]:
                assert (steps[0]["value"], steps[0]["color"]) == (None, UNKNOWN), name
            for mapping in settings.get("mappings", []):
                options = mapping["options"]
                if mapping["type"] == "value" and set(options) != set(REASONS):
                    assert all(
                        (o["color"] == "green") == (o["text"] in WELL) for o in options.values()
                    )


@each_dashboard
def test_timelines_have_the_colours_of_their_states(dashboard: Dashboard) -> None:
    """With colours by thresholds, Grafana merges values, and ignores the mappings."""
    for panel in of_type(dashboard, "state-timeline"):
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["mappings"], panel["title"]
        assert defaults["color"]["mode"] == "fixed", panel["title"]
        # Without it, an answer without series is said to lack a time.
        first, *_ = panel["transformations"]
        assert first["options"] == {"include": {"pattern": ".*"}}, panel["title"]


# Reasons have one colour each.


def test_each_reason_has_one_colour() -> None:
    assert set(REASONS) == set(Reason)
    assert len(set(REASONS.values())) == len(Reason)
    assert (REASONS[Reason.FAILOVER], REASONS[Reason.FAILBACK]) == ("red", "green")


@each_dashboard
def test_each_reason_is_marked_once(dashboard: Dashboard) -> None:
    marked: list[str] = []
    tables = {panel["title"] for panel in of_type(dashboard, "table")}
    for mark in dashboard.annotations:
        (found,) = re.findall(r'reason=~"([^"]*)"', mark["expr"])
        reasons = found.split("|")
        marked += reasons
        is_of_links = bool({*reasons} & {Reason.FAILOVER, Reason.FAILBACK})
        assert not is_of_links or mark["iconColor"] == REASONS[Reason(found)], mark["name"]
        (listed,) = re.findall(r'"([^"]+)" lists each move', mark["textFormat"])
        assert listed in tables
    assert sorted(marked) == (sorted(Reason) if dashboard.annotations else [])


# What is drawn is what is said of it.


@each_dashboard
def test_bytes_are_shown_as_bits(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries", "bargauge"):
        in_bits = panel["fieldConfig"]["defaults"]["unit"] == "bps"
        for expr in exprs(panel):
            assert in_bits == ("_bytes" in expr), panel["title"]
            assert in_bits == (" * 8" in expr), panel["title"]


@each_dashboard
def test_counts_have_no_decimals(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "stat", "timeseries", "table"):
        for name, settings in fields(panel):
            assert settings.get("unit") != "short" or "decimals" in settings, name


@each_dashboard
def test_quantiles_are_those_that_are_said(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        shares = {s for e in exprs(panel) for s in re.findall(r"histogram_quantile\(([\d.]+),", e)}
        if shares:
            is_99 = "99th percentile" in panel["description"]
            assert is_99 or re.search("90th percentile", panel["description"])
            assert shares == {"0.99" if is_99 else "0.9"}, panel["title"]


# The first rows have what matters most, and names have room.


@each_dashboard
def test_tables_are_ordered_by_columns_that_they_have(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        by = {one["displayName"] for one in panel["options"]["sortBy"]}
        assert by and by <= set(columns(panel)), panel["title"]


@each_dashboard
def test_titles_fit(dashboard: Dashboard) -> None:
    for panel in dashboard.asking:
        fitting = TITLE_PER_COLUMN * panel["gridPos"]["w"] - BESIDE_TITLE
        assert len(panel["title"]) <= fitting, panel["title"]


@each_dashboard
def test_columns_fit_their_names(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        for title, properties in columns(panel).items():
            needed_px = len(title) * CHARACTER_PX + AROUND_CELL_PX
            assert needed_px <= properties.get("custom.width", LEAST_PX), panel["title"]


# Where links lead.


@each_dashboard
def test_only_names_of_hosts_and_bridges_lead_somewhere(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        (organize,) = (t["options"] for t in panel["transformations"] if t["id"] == "organize")
        for title, properties in columns(panel).items():
            # An empty cell is shown as empty, and not as a link.
            assert not properties["label"] or properties["noValue"] == "", title
            for link in properties.get("links", []):
                assert properties["label"] in {"instance", "host", "bridge"}, title
                used = set(re.findall(r"\$\{__data\.fields\.(\w+)\}", link["url"]))
                assert used <= set(organize["renameByName"])


def test_alerts_lead_to_a_bridge_only_if_they_are_about_one() -> None:
    (panel,) = (p for p in BY_NAME["fleet"].asking if p["title"] == "Alerts")
    urls = {t: p["links"][0]["url"] for t, p in columns(panel).items() if "links" in p}
    assert urls["Bridge"].startswith("/d/${__data.fields.board}?")
    assert urls["Host"].startswith("/d/ovs-lbt-controller?")
    assert "var-bridge" not in urls["Host"]
