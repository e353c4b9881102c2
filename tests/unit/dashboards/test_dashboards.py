"""The dashboards as files: in step with their source, loadable from Grafana 9 on, and sound."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dashboards import generate
from tests.unit.dashboards.dashboards import (
    ALL,
    BY_NAME,
    DIRECTORY,
    FILES,
    FOREIGN,
    GROUPING,
    LABEL_VALUES,
    QUERIES,
    SELECTOR,
    VALUE_QUERIES,
    VARIABLE,
    Dashboard,
    Query,
    unknown,
    unused,
)
from tests.unit.dashboards.exported import EXPORTED

GRID_COLUMNS = 24
UIDS = {
    "fleet": "ovs-lbt-fleet",
    "bridge": "ovs-lbt-bridge",
    "decisions": "ovs-lbt-decisions",
    "controller": "ovs-lbt-controller",
}
CHOSEN = {"type": "prometheus", "uid": "${datasource}"}
# What Grafana 9.0 has; schema version 37 came with 9.1.
PANELS_OF_9 = {"row", "stat", "bargauge", "timeseries", "state-timeline", "table", "heatmap"}
TRANSFORMATIONS_OF_9 = {
    *("merge", "groupBy", "organize"),
    *("filterFieldsByName", "groupingToMatrix", "convertFieldType", "sortBy"),
}
NEWEST_SCHEMA = 37
# Grafana's own variables.
BUILT_IN = {
    "__rate_interval",
    "__interval",
    "__range",
    "__from",
    "__data",
    "__field",
    "__url_time_range",
}
LONGEST_TITLE = 40

each_dashboard = pytest.mark.parametrize("dashboard", ALL, ids=str)
each_query = pytest.mark.parametrize("query", QUERIES, ids=str)


def strings(value: Any) -> list[str]:
    """Every string in a JSON value."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_files_are_what_their_source_makes() -> None:
    made = generate.texts()
    assert {path.name for path in FILES} == set(made)
    for name, text in made.items():
        found = (DIRECTORY / name).read_text()
        assert found == text, f"{name} is not what its source makes: run `make dashboards`"


def test_uids_stay_what_bookmarks_and_alerts_go_by() -> None:
    assert {dashboard.name: dashboard.json["uid"] for dashboard in ALL} == UIDS
    titles = [dashboard.json["title"] for dashboard in ALL]
    assert len(set(titles)) == len(titles)


@each_dashboard
def test_uses_what_grafana_9_has(dashboard: Dashboard) -> None:
    assert dashboard.json["schemaVersion"] <= NEWEST_SCHEMA
    assert {panel["type"] for panel in dashboard.panels} <= PANELS_OF_9
    used = {t["id"] for panel in dashboard.asking for t in panel["transformations"]}
    assert used <= TRANSFORMATIONS_OF_9
    # Newer names of table cells' options; the old one is understood by all.
    assert "custom.cellOptions" not in strings(dashboard.json)


@each_dashboard
def test_panels_lie_side_by_side(dashboard: Dashboard) -> None:
    ids = [panel["id"] for panel in dashboard.panels]
    assert len(ids) == len(set(ids)), f"panel ids twice: {ids}"
    _lie_side_by_side(dashboard.json["panels"])
    # Those of a collapsed row are seen only when it is opened, which moves what is below it.
    for row in dashboard.json["panels"]:
        if row.get("panels"):
            assert row["collapsed"], row["title"]
            _lie_side_by_side([row, *row["panels"]])


def _lie_side_by_side(panels: list[dict[str, Any]]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        grid, name = panel["gridPos"], f"{panel['id']} {panel['title']}"
        assert grid["x"] >= 0, name
        assert grid["x"] + grid["w"] <= GRID_COLUMNS, name
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                other = taken.setdefault((x, y), name)
                assert other == name, f"{other} and {name} overlap"
    rows = {y for _, y in taken}
    gaps = [(x, y) for y in rows for x in range(GRID_COLUMNS) if (x, y) not in taken]
    assert not gaps, f"nothing at {gaps[:5]}"


@each_dashboard
def test_panels_say_what_they_show_what_is_good_and_in_which_unit(dashboard: Dashboard) -> None:
    for panel in dashboard.asking:
        title = panel["title"]
        assert 0 < len(title) <= LONGEST_TITLE
        assert panel["description"].endswith("."), title
        assert len(panel["description"].split()) > 8, f"{title}: says too little"
        assert panel["fieldConfig"]["defaults"]["unit"], title
        names = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]]
        assert len(names) == len(set(names)), f"{title}: {names}"
    titles = [panel["title"] for panel in dashboard.asking]
    assert len(titles) == len(set(titles)), "two panels of the same title"


@each_dashboard
def test_asks_the_chosen_data_source(dashboard: Dashboard) -> None:
    for panel in dashboard.asking:
        assert panel["datasource"] == CHOSEN, panel["title"]
        assert panel["targets"], f"{panel['title']} asks for nothing"
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), f"{panel['title']}: {refs}"
        assert all(target["datasource"] == CHOSEN for target in panel["targets"]), panel["title"]
    for item in (*dashboard.annotations, *dashboard.variables.values()):
        assert item.get("type") == "datasource" or item["datasource"] == CHOSEN, item["name"]


@each_dashboard
def test_begins_with_the_default_data_source(dashboard: Dashboard) -> None:
    """Grafana begins with the first by its name, if nothing says so."""
    source = dashboard.json["templating"]["list"][0]
    assert source["current"] == {"text": "default", "value": "default"}


@each_dashboard
def test_has_its_variables_each_once(dashboard: Dashboard) -> None:
    names = [variable["name"] for variable in dashboard.json["templating"]["list"]]
    assert names[:4] == ["datasource", "job", "instance", "bridge"]
    # Grafana 9 and 10 tell variables apart by their id.
    assert [v["id"] for v in dashboard.json["templating"]["list"]] == names
    used = {name for text in strings(dashboard.json) for name in VARIABLE.findall(text)}
    repeated = {panel["repeat"] for panel in dashboard.panels if "repeat" in panel}
    assert used - BUILT_IN - {"__all"} | repeated == set(names)


@each_dashboard
def test_bridges_are_one_or_as_many_as_chosen(dashboard: Dashboard) -> None:
    one = dashboard.name == "bridge"
    for name in ("job", "instance", "bridge"):
        variable = dashboard.variables[name]
        assert variable["multi"] == variable["includeAll"] == (not one), name
        # All of them, and not those that had data when the dashboard was opened.
        assert variable.get("allValue") == (None if one else ".+"), name


@each_dashboard
def test_leads_to_all_others_and_keeps_the_time(dashboard: Dashboard) -> None:
    links = dashboard.json["links"]
    there = {re.match(r"/d/([\w-]+)", link["url"])[1] for link in links}  # type: ignore[index]
    assert there == set(UIDS.values()) - {dashboard.json["uid"]}
    assert all(link["keepTime"] for link in links)
    for link in links:
        assert link["includeVars"] or "${datasource:queryparam}" in link["url"]


@pytest.mark.parametrize("name", ["fleet", "decisions"])
def test_rows_lead_to_their_bridge(name: str) -> None:
    to_bridge = [text for text in strings(BY_NAME[name].json) if text.startswith("/d/")]
    to_bridge = [text for text in to_bridge if "${__url_time_range}" in text]
    to_bridge = [text for text in to_bridge if "var-bridge" in text]
    assert to_bridge
    for url in to_bridge:
        # Alerts name their dashboard: not each of them is about a bridge.
        assert url.partition("?")[0] in {f"/d/{UIDS['bridge']}", "/d/${__data.fields.board}"}
        given = re.findall(r"var-(\w+)=\$\{__(?:data\.fields|field\.labels)\.(\w+)\}", url)
        assert given == [("job", "job"), ("instance", "instance"), ("bridge", "bridge")]
        assert {name for name, _ in given} <= set(BY_NAME["bridge"].variables)


@each_query
def test_asks_about_the_chosen_hosts_and_bridges(query: Query) -> None:
    many = "=" if query.dashboard == "bridge" else "=~"
    selectors = SELECTOR.findall(query.text)
    assert selectors, f"{query} selects nothing"
    for metric, matchers in selectors:
        if metric == "ALERTS":
            # An alert about a service has no bridge, and one about all services has no host.
            one = query.dashboard == "bridge"
            assert not one or 'instance=~"$instance|", bridge=~"$bridge|"' in matchers, query
            continue
        assert metric in FOREIGN or metric.startswith("ovslbt_"), metric
        wanted = ["job", "instance"]
        wanted += ["bridge"] if "bridge" in EXPORTED.get(metric, ()) else []
        if metric in FOREIGN and query.dashboard != "bridge":
            assert 'job=~"ovs-lbt.*"' in matchers, f"{query}: {metric} of other programs, too"
        for label in wanted:
            assert f'{label}{many}"${label}"' in matchers, f"{query}: {metric} of any {label}"
    assert len(selectors) == len(re.findall(r"\{", query.text)), f"{query}: a bare selector"


@each_query
def test_ranges_are_grafanas(query: Query) -> None:
    ranges = re.findall(r"\[([^\]]*)\]( offset \S+| @ end\(\))?", query.bare)
    for window, moved in ranges:
        if "offset" in moved:
            # Where a count goes on from.
            before = "$__range" if query.instant else "$__interval"
            assert (window, moved.rstrip(")")) == ("15m", f" offset {before}"), query
        elif moved:
            assert (window, query.instant) == ("$__range", False), query
        else:
            assert window in {"$__rate_interval", "$__range", "$__interval"}, query
            assert query.instant or window != "$__range", f"{query}: longer than what is shown"


@each_query
def test_joins_are_of_the_same_bridge_on_the_same_host(query: Query) -> None:
    for on, right in re.findall(r"\b(?:on|ignoring)\s*\(([^)]*)\)( \w+)", query.text):
        # A join with nothing in common asks whether there is anything at all.
        of_service = {"job, instance", "job, instance, part", ""}
        assert on.startswith("job, instance, bridge") or on in of_service, f"{query}: {on}{right}"
    assert len(GROUPING.findall(query.text)) == len(
        re.findall(r"\b(?:by|on|group_left) ?\(", query.bare)
    )


@each_query
def test_asks_for_what_is_exported(query: Query) -> None:
    assert not unknown(query, EXPORTED)


def test_all_that_is_exported_is_on_a_dashboard() -> None:
    assert not unused(EXPORTED)


@pytest.mark.parametrize("query", VALUE_QUERIES, ids=str)
def test_variables_ask_for_labels_of_a_metric_of_ours(query: Query) -> None:
    asked = LABEL_VALUES.fullmatch(query.text)
    assert asked, f"not a query for the values of a label: {query.text}"
    (metric,) = query.selected
    assert asked[2] in EXPORTED[metric]
    assert not unknown(query, EXPORTED)


def test_a_label_or_metric_that_no_longer_exists_is_found() -> None:
    """What the tests above rely on."""
    text = 'max by (uplink) (ovslbt_uplink_up{bridge="$bridge"})'
    query = Query("bridge", "Links", text, shown=frozenset({"port"}))
    assert unknown(query, EXPORTED) == ["bridge: Links: nothing has a label port"]
    narrower = EXPORTED | {"ovslbt_uplink_up": frozenset({"uplink", "port"})}
    assert unknown(query, narrower) == ["bridge: Links: ovslbt_uplink_up has no label bridge"]
    fewer = {name: labels for name, labels in EXPORTED.items() if name != "ovslbt_uplink_up"}
    assert unknown(query, fewer) == ["bridge: Links: no metric ovslbt_uplink_up"]
    more = EXPORTED | {"ovslbt_new": frozenset({"job"})}
    assert unused(more) == ["on no dashboard: ovslbt_new"]
    wider = EXPORTED | {"ovslbt_leader": EXPORTED["ovslbt_build_info"]}
    assert unused(wider) == ["on no dashboard: ovslbt_leader's version"]


def test_faults_that_readme_lists_are_held_by_tests_that_there_are() -> None:
    _, _, after = (DIRECTORY / "README.md").read_text().partition("\n## Faults that tests hold\n")
    section, _, _ = after.partition("\n## ")
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    held = [re.findall(r"`(test_\w+)`", row) for row in rows]
    assert held
    assert all(held), rows[held.index([])]
    sources = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    there = {name for text in sources for name in re.findall(r"^def (test_\w+)\(", text, re.M)}
    assert {name for names in held for name in names} <= there
