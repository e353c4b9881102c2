"""The settings of the panels: units, colours of what is known and unknown, order, room for names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards import panels
from dashboards.colours import PORT_SERIES, REASONS, UPLINK_NAMES, UPLINK_SERIES
from policies.model import Reason
from policies.presets import PRESETS
from tests.unit.dashboards.dashboards import ALL, BY_NAME, Dashboard
from tests.unit.dashboards.expected import SORTED, STEPS, WORDS
from tests.unit.dashboards.test_rules import NAMES as ALERT_NAMES

TILES = ("stat", "bargauge")
# Characters that fit into the title of a panel: so many for each column of the grid, less the marks
# beside the title.
TITLE_PER_COLUMN, BESIDE_TITLE = 7, 12
# The room of a table, of a cell, and of a character, in pixels of a screen 1280 wide.
COLUMN_PX, AROUND_TABLE_PX, AROUND_CELL_PX, CHARACTER_PX = 50, 24, 14, 7
# What a column without a width has at least.
LEAST_PX = 90
TIME = "2026-12-31 23:59:59"

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


def test_values_have_the_colours_of_how_well_they_are() -> None:
    found: dict[str, set[str]] = {}
    for dashboard in ALL:
        for panel in dashboard.asking:
            for name, settings in fields(panel):
                steps = settings.get("thresholds", {"steps": []})["steps"]
                told = [f"{s['value'] or 0} {s['color']}" for s in steps[1:]]
                # A text that has no colour says nothing.
                if steps and [s["color"] for s in steps] != ["text"]:
                    assert steps[0]["value"] is None, name
                    found.setdefault(", ".join([steps[0]["color"], *told]), set()).add(name)
    assert found == STEPS


def test_values_have_the_words_and_colours_of_what_they_mean() -> None:
    found = {
        name: ", ".join(sorted(f"{v} {r['text']} {r['color']}" for v, r in options.items()))
        for dashboard in ALL
        for panel in dashboard.asking
        for name, settings in fields(panel)
        for mapping in settings.get("mappings", [])
        for options in [mapping["options"]]
        if mapping["type"] == "value" and set(options) != set(REASONS)
    }
    assert found == {name: ", ".join(sorted(words.split(", "))) for name, words in WORDS.items()}


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


# Reasons, uplinks and VM ports have one colour each.


def test_each_reason_has_one_colour() -> None:
    assert set(REASONS) == set(Reason)
    assert len(set(REASONS.values())) == len(Reason)
    assert (REASONS[Reason.FAILOVER], REASONS[Reason.FAILBACK]) == ("red", "green")


@each_dashboard
def test_reasons_have_their_colour_everywhere(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        if any(target["legendFormat"] == "{{reason}}" for target in panel["targets"]):
            given = {name: own["color"]["fixedColor"] for name, own in overrides(panel).items()}
            assert given == {f"/(^| ){r}$/": colour for r, colour in REASONS.items()}
    for panel in of_type(dashboard, "table"):
        for properties in columns(panel).values():
            if properties["label"] == "reason":
                (mapping,) = properties["mappings"]
                told = {word: result["color"] for word, result in mapping["options"].items()}
                assert told == REASONS, panel["title"]


@each_dashboard
def test_marks_have_the_words_and_colours_of_their_reasons(dashboard: Dashboard) -> None:
    marked: list[str] = []
    tables = {panel["title"] for panel in of_type(dashboard, "table")}
    bars = [
        panel["id"]
        for panel in of_type(dashboard, "timeseries")
        if panel["fieldConfig"]["defaults"]["custom"]["drawStyle"] == "bars"
    ]
    for mark in dashboard.annotations:
        (found,) = re.findall(r'reason=~"([^"]*)"', mark["expr"])
        reasons = found.split("|")
        marked += reasons
        if set(reasons) & {Reason.FAILOVER, Reason.FAILBACK}:
            assert [mark["iconColor"]] == [REASONS[Reason(r)] for r in reasons], mark["name"]
        else:
            assert mark["iconColor"] not in {"red", "green"}, mark["name"]
        failed_over = reasons == [Reason.FAILOVER]
        assert ("failed over" in mark["titleFormat"]) == failed_over, mark["name"]
        (listed,) = re.findall(r'"([^"]+)" lists each move', mark["textFormat"])
        assert listed in tables
        # A mark would hide the bar of what it marks.
        assert mark["filter"] == {"exclude": True, "ids": bars}
    assert sorted(marked) == (sorted(Reason) if dashboard.annotations else [])


UPLINKS = (
    *("eth0 eth1 eth2 eth3", "enp129s0 enp130s0", "enp0s3 enp0s8 enp0s9 enp0s10"),
    *("enp1s0f0 enp1s0f1 enp2s0f0 enp2s0f1", "ens1f0np0 ens1f1np1 ens2f0np0 ens2f1np1"),
    *("enp65s0f0np0 enp65s0f1np1", "eno1np0 eno2np1", "p1p1 p1p2", "bond0-1 bond0-2", "s0 s1"),
)
PORTS = (
    " ".join(f"vnet{n}" for n in range(7, 27)),
    " ".join(f"tap3f0a51d2-9{n:x}" for n in range(16)),
)


@pytest.mark.parametrize(
    ("names", "series", "legends"),
    [
        *((names, UPLINK_SERIES, ("", " receive, last moves")) for names in UPLINKS),
        *((names, PORT_SERIES, (" sent", " received")) for names in PORTS),
    ],
)
def test_neighbours_have_a_colour_each(
    names: str, series: dict[str, str], legends: tuple[str, str]
) -> None:
    first, second = (
        [colours(name + legend, series) for name in names.split()] for legend in legends
    )
    assert first == second
    assert all(len(found) == 1 for found in first), first
    assert len({colour for (colour,) in first}) == len(first)
    # These say how well something is.
    assert not {"red", "green", "orange"} & set(series.values())
    assert colours(f"capacity of {names.split()[0]}", UPLINK_SERIES) == []


def colours(text: str, patterns: dict[str, str]) -> list[str]:
    return [colour for pattern, colour in patterns.items() if re.search(pattern[1:-1], text)]


def test_uplinks_and_vm_ports_have_their_colours_in_all_panels_of_a_bridge() -> None:
    dashboard = BY_NAME["bridge"]
    for panel in of_type(dashboard, "timeseries"):
        own = overrides(panel)
        legends = {target["legendFormat"].partition("}}")[0] for target in panel["targets"]}
        for label, series in (("uplink", UPLINK_SERIES), ("port", PORT_SERIES)):
            if f"{{{{{label}" in legends:
                given = {p: own[p]["color"]["fixedColor"] for p in series}
                assert given == series, panel["title"]
    shown = [
        panel["fieldConfig"]["defaults"]
        for panel in dashboard.asking
        if panel["title"] == "Uplink of each VM port"
    ]
    shown += [
        properties
        for panel in of_type(dashboard, "table")
        for properties in columns(panel).values()
        if properties["label"] == "uplink"
    ]
    for properties in shown:
        options = [mapping["options"] for mapping in properties["mappings"]]
        told = {one["pattern"]: one["result"]["color"] for one in options}
        told.pop("/^not known$/", None)
        assert told == UPLINK_NAMES | {"/^none$/": "red"}


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
            assert is_99 or re.search(r"nine (moves|cases) in ten", panel["description"])
            assert shares == {"0.99" if is_99 else "0.9"}, panel["title"]


# The first rows have what matters most, and names have room.


@each_dashboard
def test_tables_begin_with_what_needs_attention(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        by = panel["options"]["sortBy"]
        told = ", ".join(f"{'' if one['desc'] else '+'}{one['displayName']}" for one in by)
        assert told == SORTED[panel["title"]]
        assert {one["displayName"] for one in by} <= set(columns(panel))


@each_dashboard
def test_titles_fit(dashboard: Dashboard) -> None:
    for panel in dashboard.asking:
        fitting = TITLE_PER_COLUMN * panel["gridPos"]["w"] - BESIDE_TITLE
        assert len(panel["title"]) <= fitting, panel["title"]


@each_dashboard
def test_columns_fit_their_names_and_the_table(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        shown = columns(panel)
        widths = {t: p.get("custom.width", LEAST_PX) for t, p in shown.items()}
        room_px = COLUMN_PX * panel["gridPos"]["w"] - AROUND_TABLE_PX
        flexible = [t for t, p in shown.items() if "custom.width" not in p]
        assert flexible, f"{panel['title']}: no column takes the rest"
        assert sum(widths.values()) <= room_px, f"{panel['title']}: {widths}"
        more_px = (room_px - sum(widths.values())) / len(flexible)
        for title, properties in shown.items():
            width_px = widths[title] + (more_px if title in flexible else 0)
            longest = max(len(text) for text in _texts(panel, title, properties))
            needed_px = longest * CHARACTER_PX + AROUND_CELL_PX
            assert needed_px <= width_px, f"{panel['title']}: {title} needs {needed_px}"


def _texts(panel: Panel, title: str, properties: dict[str, Any]) -> Iterator[str]:
    """The name of a column, and the texts in it that are known."""
    yield title
    if properties["unit"] == panels.TIME:
        yield TIME
    for mapping in properties.get("mappings", []):
        if mapping["type"] == "value":
            yield from (result["text"] for result in mapping["options"].values())
    # A VM port that nothing has moved has the name of its policy for a reason.
    is_placed = properties["label"] == "reason" and panel["title"].endswith(("now", "endpoints"))
    if properties["label"] == "policy" or is_placed:
        yield from PRESETS
    if properties["label"] == "alertname":
        yield from ALERT_NAMES


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
