"""The dashboards as files: in step with their source, loadable from Grafana 9 on, and sound."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards import generate
from tests.unit.dashboards.dashboards import (
    ALL,
    DIRECTORY,
    FILES,
    FOREIGN,
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

UIDS = {
    "fleet": "ovs-lbt-fleet",
    "bridge": "ovs-lbt-bridge",
    "decisions": "ovs-lbt-decisions",
    "controller": "ovs-lbt-controller",
}
# What Grafana 9.0 has; schema version 37 came with 9.1.
PANELS_OF_9 = {"row", "stat", "bargauge", "timeseries", "state-timeline", "table", "heatmap"}
TRANSFORMATIONS_OF_9 = {
    *("merge", "groupBy", "organize"),
    *("filterFieldsByName", "groupingToMatrix", "convertFieldType", "sortBy"),
}
COLOURS_OF_9 = {"fixed", "thresholds", "palette-classic", "continuous-BlPu"}
NEWEST_SCHEMA = 37
# Grafana's own variables.
BUILT_IN = {
    *("__rate_interval", "__interval", "__range", "__from"),
    *("__data", "__field", "__url_time_range", "__all"),
}

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
    # With another mode, Grafana 9 shows an empty panel.
    colours = [settings["color"] for settings in _settings(dashboard) if "color" in settings]
    assert {colour["mode"] for colour in colours} <= COLOURS_OF_9
    # Newer names of table cells' options; the old one is understood by all.
    assert "custom.cellOptions" not in strings(dashboard.json)


def _settings(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    for config in (panel["fieldConfig"] for panel in dashboard.asking):
        yield config["defaults"]
        for override in config["overrides"]:
            yield {p["id"]: p["value"] for p in override["properties"]}


@each_dashboard
def test_panels_say_what_they_show_what_is_good_and_in_which_unit(dashboard: Dashboard) -> None:
    for panel in dashboard.asking:
        title = panel["title"]
        assert panel["description"].endswith("."), title
        assert len(panel["description"].split()) > 8, f"{title}: says too little"
        assert panel["fieldConfig"]["defaults"]["unit"], title
        names = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]]
        assert len(names) == len(set(names)), f"{title}: {names}"
    for of in ("title", "id"):
        found = [panel[of] for panel in dashboard.asking]
        assert len(found) == len(set(found)), f"two panels of the same {of}"


@each_dashboard
def test_has_its_variables_each_once(dashboard: Dashboard) -> None:
    names = [variable["name"] for variable in dashboard.json["templating"]["list"]]
    assert names[:4] == ["datasource", "job", "instance", "bridge"]
    # Grafana 9 and 10 tell variables apart by their id.
    assert [v["id"] for v in dashboard.json["templating"]["list"]] == names
    used = {name for text in strings(dashboard.json) for name in VARIABLE.findall(text)}
    repeated = {panel["repeat"] for panel in dashboard.panels if "repeat" in panel}
    assert used - BUILT_IN | repeated == set(names)
    # All of them, and not those that had data when the dashboard was opened; of the time shown.
    one = dashboard.name == "bridge"
    for variable in (dashboard.variables[name] for name in names[1:4]):
        found = (variable["multi"], variable["includeAll"], variable.get("allValue"))
        assert found == ((False, False, None) if one else (True, True, ".+")), variable["name"]
        assert variable["refresh"] == 2, variable["name"]


@each_dashboard
def test_asks_the_chosen_data_source(dashboard: Dashboard) -> None:
    text = json.dumps(dashboard.json)
    chosen = json.dumps({"type": "prometheus", "uid": "${datasource}"})
    assert text.count(f'"datasource": {chosen}') == text.count('"datasource": {') > 0


@each_dashboard
def test_links_lead_to_a_dashboard_and_fill_in_its_variables(dashboard: Dashboard) -> None:
    found = re.findall(r"^/d/([^?\n]+)(.*)$", "\n".join(strings(dashboard.json)), re.MULTILINE)
    there = {uid for uid, _ in found}
    # Alerts name their dashboard: not each of them is about a bridge.
    assert there <= {*UIDS.values(), "${__data.fields.board}"}
    assert there >= {*UIDS.values()} - {UIDS[dashboard.name]}
    assert all(link["keepTime"] for link in dashboard.json["links"])
    for uid, rest in found:
        given = re.findall(r"var-(\w+)=\$\{__(?:data\.fields|field\.labels)\.(\w+)\}", rest)
        assert all(variable == label for variable, label in given), rest
        assert uid != UIDS["bridge"] or len(given) == (3 if "time_range" in rest else 0), rest


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


@pytest.mark.parametrize("query", [*QUERIES, *VALUE_QUERIES], ids=str)
def test_asks_for_what_is_exported(query: Query) -> None:
    assert not unknown(query, EXPORTED)


def test_all_that_is_exported_is_on_a_dashboard() -> None:
    assert not unused(EXPORTED)
