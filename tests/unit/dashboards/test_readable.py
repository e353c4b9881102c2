"""What a viewer sees: nothing is green by mistake, cut, off the screen, or called by two colours.

Each test is of a fault that was seen in a Grafana.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards import panels
from dashboards.colours import PORT_SERIES, REASONS, UNKNOWN, UPLINK_NAMES, UPLINK_SERIES
from dashboards.queries import MOST
from policies.model import Reason
from policies.presets import PRESETS
from tests.unit.dashboards.dashboards import ALL, BY_NAME, IN_LEGEND, QUERIES, Dashboard, Query
from tests.unit.dashboards.exported import EXPORTED
from tests.unit.dashboards.test_rules import NAMES as ALERT_NAMES

# What Grafana 11.6 has above the panels, on a screen 1600 x 1000: switches of marks take a line more.
SCREEN_PX, ABOVE_PX, WITH_MARKS_PX = 1000, 184, 224
# A column of the grid on a screen 1280 wide, beside Grafana's menu, in pixels.
COLUMN_PX = 50
BETWEEN_PX, PADDING_PX = 8, 16
# The info mark and the menu of a panel, beside its title.
BESIDE_TITLE_PX = 58
# Around a cell's text, and what a column has that says no width.
CELL_PADDING_PX, LEAST_PX = 14, 150
# The arrow of a column that is sorted by.
ARROW_PX = 18
FONT_PX = 14
# A row of the grid, and what of a panel's height is not its graph: the title, and what is around.
ROW_PX, AROUND_GRAPH_PX = 30, 52
# A row of a table, and what of the panel's height is not for rows, as measured in Grafana 11.6.
TABLE_ROW_PX, AROUND_ROWS_PX = 36, 86
# A legend below a graph: its share of the height, what is around it, its font, its lines, and what is
# beside a text, as measured in Grafana 11.6.
LEGEND_SHARE, AROUND_LEGEND_PX = 0.35, 8
LEGEND_FONT_PX, LEGEND_LINE_PX, BESIDE_LEGEND_PX = 12, 23.5, 36
# Names as long as they often are.
LONG = {
    "bridge": "br-ex",
    "host": "compute-07",
    "instance": "compute-07:9476",
    "part": "listener",
    "reason": max(Reason, key=len),
    "uplink": "enp1s0f0",
}
# Widths of Inter's characters, as shares of the font's size.
NARROW, WIDE, CAPITAL, OTHER = 0.3, 0.85, 0.72, 0.58
# What OpenStack and libvirt call a VM that nobody has given a name.
UUID = "3f0a51d2-9c1e-4d5b-8a57-0c2b1f6f7c11"

# The backgrounds of Grafana's panels, and how much a line has to differ from them.
DARK, LIGHT, LEAST_CONTRAST = "#181b1f", "#ffffff", 1.5

NEUTRAL = {"text", "blue"}
# How bars and lines of what happened are coloured: from blue to purple.
BY_COUNT = "continuous-BlPu"
MANY = [dashboard for dashboard in ALL if dashboard.name != "bridge"]
TILES = {"stat", "bargauge"}
# Tables of what has been, not of what is.
OF_THE_PAST = {"Last ten moves", "Refusals"}
COUNTERS = "|".join(name for name in EXPORTED if name.endswith("_total"))

each_dashboard = pytest.mark.parametrize("dashboard", ALL, ids=str)
each_query = pytest.mark.parametrize("query", QUERIES, ids=str)


def of_type(dashboard: Dashboard, *types: str) -> list[dict[str, Any]]:
    return [panel for panel in dashboard.asking if panel["type"] in types]


def exprs(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def settings(panel: dict[str, Any], name: str) -> Iterator[Any]:
    """A setting of a panel's fields: the default, and what overrides it."""
    defaults = panel["fieldConfig"]["defaults"]
    if name in defaults:
        yield defaults[name]
    for override in panel["fieldConfig"]["overrides"]:
        yield from (p["value"] for p in override["properties"] if p["id"] == name)


def columns(panel: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of a table's columns, in their order, by the column's title."""
    (organize,) = (t["options"] for t in panel["transformations"] if t["id"] == "organize")
    names = sorted(organize["renameByName"], key=organize["indexByName"].__getitem__)
    overrides = {
        override["matcher"]["options"]: {p["id"]: p["value"] for p in override["properties"]}
        for override in panel["fieldConfig"]["overrides"]
    }
    assert set(overrides) == set(organize["renameByName"].values()), panel["title"]
    return {
        organize["renameByName"][name]: {
            **overrides[organize["renameByName"][name]],
            "label": "" if name.startswith("Value") else name,
        }
        for name in names
    }


def text_px(text: str) -> float:
    def share(character: str) -> float:
        if character in "fijlrt ,.:'()":
            return NARROW
        if character in "mwMW":
            return WIDE
        return CAPITAL if character.isupper() else OTHER

    return FONT_PX * sum(map(share, text))


def panel_px(panel: dict[str, Any]) -> int:
    return int(panel["gridPos"]["w"] * COLUMN_PX - BETWEEN_PX - PADDING_PX)


def height_px(grid_rows: int) -> int:
    """The height of a panel of so many rows of the grid."""
    return grid_rows * (ROW_PX + BETWEEN_PX) - BETWEEN_PX


# Nothing is green that is not known to be well.


@each_dashboard
def test_no_data_has_no_colour(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, *TILES, "table"):
        found = list(settings(panel, "thresholds"))
        assert found, panel["title"]
        for thresholds in found:
            first, *rest = thresholds["steps"]
            assert first["value"] is None, panel["title"]
            assert first["color"] in {"text", UNKNOWN}, panel["title"]
            assert all(step["value"] is not None for step in rest), panel["title"]


@each_query
def test_zero_is_not_what_is_said_without_data(query: Query) -> None:
    assert "vector(" not in query.text, query
    # Without series, a count has no answer; nor does it if none of them is counted.
    assert not re.search(r"\bcount\([^()]*==", query.text), query


@pytest.mark.parametrize("dashboard", MANY, ids=str)
def test_zero_is_not_said_of_services_that_do_not_answer(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "stat"):
        (steps,) = (t["steps"] for t in settings(panel, "thresholds"))
        (expr,) = exprs(panel)
        zero_is_good = {"value": 0, "color": "green"} in steps or "Good: 0" in panel["description"]
        # A count of what is wrong is not zero if services that do not answer are in it.
        counts_them = re.match(
            r"(sum\(up\{[^}]*\} == bool 0|count\(count by \(job, instance\) \(up\{[^}]*\} == 0 or)",
            expr,
        )
        assert counts_them or not zero_is_good or "unless on () up{" in expr, panel["title"]


@each_dashboard
def test_one_that_is_well_does_not_make_all_green(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "stat"):
        for thresholds in settings(panel, "thresholds"):
            green = [s["value"] for s in thresholds["steps"] if s["color"] == "green"]
            assert green in ([], [0]), panel["title"]


@each_dashboard
def test_timelines_have_the_colours_of_their_states(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "state-timeline"):
        (mappings,) = settings(panel, "mappings")
        assert mappings, panel["title"]
        # By thresholds, Grafana merges values and throws the mappings away.
        assert [c["mode"] for c in settings(panel, "color")] == ["fixed"], panel["title"]
        assert not panel["options"]["legend"]["showLegend"], panel["title"]


@each_dashboard
def test_timelines_without_data_say_so(dashboard: Dashboard) -> None:
    """Of an answer without any field, Grafana says that it does not have a time field."""
    for panel in of_type(dashboard, "state-timeline"):
        first, *_ = panel["transformations"]
        assert first["id"] == "filterFieldsByName", panel["title"]
        # An answer of which no field is kept is left out, and all fields there are, are kept.
        (pattern,) = first["options"]["include"].values()
        for name in ("Time", "Value", "port", "uplink", "hv1 br0", "vnet0"):
            assert re.fullmatch(pattern, name), panel["title"]


@each_dashboard
def test_words_of_states_have_a_colour_each(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table", "state-timeline", "stat"):
        for mappings in settings(panel, "mappings"):
            for mapping in mappings:
                options = mapping["options"]
                results = [options["result"]] if mapping["type"] == "regex" else options.values()
                assert all(result["color"] for result in results), panel["title"]
    pending = [
        mapping["options"]["pending"]["color"]
        for panel in of_type(dashboard, "table")
        for mappings in settings(panel, "mappings")
        for mapping in mappings
        if "pending" in mapping["options"]
    ]
    assert "green" not in pending


def test_a_service_that_is_down_is_seen_on_its_bridge() -> None:
    (panel,) = (p for p in BY_NAME["bridge"].asking if p["title"] == "Switch")
    (expr,) = exprs(panel)
    assert re.search(r" or max\(\(up\{[^}]*\} == 0\) - 1\)", expr)
    (mappings,) = settings(panel, "mappings")
    assert mappings[0]["options"]["-1"]["color"] == "red"
    assert mappings[0]["options"]["0"]["text"] == "no answer"


@each_dashboard
def test_only_what_is_wrong_by_an_alert_is_red(dashboard: Dashboard) -> None:
    """Optimality and imbalance are high on a bridge without load, where nothing is wrong."""
    for panel in of_type(dashboard, *TILES):
        for expr in exprs(panel):
            assert "optimality" not in expr, panel["title"]
            assert "imbalance" not in expr, panel["title"]
    for panel in of_type(dashboard, "table"):
        for title in {"Optimality", "Imbalance"} & set(columns(panel)):
            assert "thresholds" not in columns(panel)[title], panel["title"]
    for panel in of_type(dashboard, "timeseries"):
        if any("optimality" in expr or "imbalance" in expr for expr in exprs(panel)):
            # A threshold's colours could be those of the lines, or of areas behind them.
            assert "thresholds" not in {c["mode"] for c in settings(panel, "color")}, panel["title"]
            assert not list(settings(panel, "thresholds")), panel["title"]


# Counts.


@each_query
def test_counts_over_time_are_counted_and_not_estimated(query: Query) -> None:
    """`increase` over a rate interval shows an event in several bars, each of them extrapolated."""
    if not query.instant:
        estimated = re.findall(r"increase\(\w+\{[^}]*\}\[[^\]]*\]( @ end\(\))?", query.text)
        assert all(estimated), query
    elif "increase(" in query.text:
        assert re.search(r"offset \$__range\) >= 0 unless resets\(", query.text), query


@each_dashboard
def test_marks_do_not_hide_the_bars_of_what_they_mark(dashboard: Dashboard) -> None:
    bars = [
        panel["id"]
        for panel in of_type(dashboard, "timeseries")
        if panel["fieldConfig"]["defaults"]["custom"]["drawStyle"] == "bars"
    ]
    for mark in dashboard.annotations:
        assert mark["filter"] == {"exclude": True, "ids": bars}


@each_dashboard
def test_axes_have_numbers(dashboard: Dashboard) -> None:
    """What is said without data is also said beside ticks between two whole numbers."""
    for panel in of_type(dashboard, "timeseries"):
        assert not list(settings(panel, "noValue")), panel["title"]


@each_dashboard
def test_bars_are_of_counts_in_their_step(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        custom = panel["fieldConfig"]["defaults"]["custom"]
        if custom["drawStyle"] != "bars":
            continue
        assert custom["barAlignment"] == -1, panel["title"]
        assert panel["maxDataPoints"] <= 200, f"{panel['title']}: bars too thin to be seen"
        assert all("offset $__interval" in expr for expr in exprs(panel)), panel["title"]


@each_dashboard
def test_counts_have_no_decimals(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "stat", "timeseries"):
        if panel["fieldConfig"]["defaults"]["unit"] == "short":
            assert "decimals" in panel["fieldConfig"]["defaults"], panel["title"]
    for panel in of_type(dashboard, "table"):
        for title, properties in columns(panel).items():
            assert properties["unit"] != "short" or "decimals" in properties, title


@each_dashboard
def test_what_happens_now_and_then_is_drawn_as_points(dashboard: Dashboard) -> None:
    """Between two values that are far apart, there is no line, and one value is none at all."""
    for panel in of_type(dashboard, "timeseries"):
        custom = panel["fieldConfig"]["defaults"]["custom"]
        rare = any(
            "histogram_quantile(0.9," in expr or expr.endswith(") > 0") for expr in exprs(panel)
        )
        assert custom["drawStyle"] == "bars" or not rare or custom["showPoints"] != "never", panel[
            "title"
        ]


# Colours.


def test_each_reason_has_one_colour() -> None:
    assert set(REASONS) == set(Reason)
    assert len(set(REASONS.values())) == len(Reason)
    assert (REASONS[Reason.FAILOVER], REASONS[Reason.FAILBACK]) == ("red", "green")


@each_dashboard
def test_reasons_have_their_colour_everywhere(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        if any(target["legendFormat"] == "{{reason}}" for target in panel["targets"]):
            given = {
                override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
                for override in panel["fieldConfig"]["overrides"]
            }
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
    for mark in dashboard.annotations:
        (found,) = re.findall(r'reason=~"([^"]*)"', mark["expr"])
        reasons = found.split("|")
        marked += reasons
        if set(reasons) & {Reason.FAILOVER, Reason.FAILBACK}:
            # Ports that came back have not failed over.
            assert [mark["iconColor"]] == [REASONS[Reason(r)] for r in reasons], mark["name"]
        else:
            assert mark["iconColor"] not in {"red", "green"}, mark["name"]
        failed_over = reasons == [Reason.FAILOVER]
        assert ("failed over" in mark["titleFormat"]) == failed_over, mark["name"]
    assert sorted(marked) == (sorted(Reason) if dashboard.annotations else [])


@each_dashboard
def test_marks_name_the_table_that_lists_what_they_hide(dashboard: Dashboard) -> None:
    for mark in dashboard.annotations:
        (listed,) = re.findall(r'"([^"]+)" lists each move', mark["textFormat"])
        assert listed in {panel["title"] for panel in of_type(dashboard, "table")}


@pytest.mark.parametrize("dashboard", MANY, ids=str)
def test_marks_of_many_bridges_do_not_hide_the_graphs(dashboard: Dashboard) -> None:
    for mark in dashboard.annotations:
        assert re.search(r" and on \(\) count\(ovslbt_bridge_info\{.*\}\) <= \d$", mark["expr"])


@pytest.mark.parametrize(
    "team",
    [
        ["eth0", "eth1", "eth2", "eth3"],
        ["up0", "up1"],
        ["enp1s0", "enp2s0"],
        ["enp129s0", "enp130s0"],
        ["enp0s3", "enp0s8", "enp0s9", "enp0s10"],
        ["enp1s0f0", "enp1s0f1", "enp2s0f0", "enp2s0f1"],
        ["enp1s0f0", "enp1s0f1", "enp1s0f2", "enp1s0f3"],
        ["ens1f0np0", "ens1f1np1", "ens2f0np0", "ens2f1np1"],
        ["enp65s0f0np0", "enp65s0f1np1"],
        ["eno1", "eno2"],
        ["eno1np0", "eno2np1"],
        ["p1p1", "p1p2"],
        ["dpdk0", "dpdk1"],
        ["bond0-1", "bond0-2"],
        ["s0", "s1"],
    ],
    ids=" ".join,
)
def test_uplinks_of_a_team_have_a_colour_each(team: list[str]) -> None:
    def colours(text: str, patterns: dict[str, str]) -> list[str]:
        return [colour for pattern, colour in patterns.items() if re.search(pattern[1:-1], text)]

    found = [colours(name, UPLINK_NAMES) for name in team]
    assert all(len(colour) == 1 for colour in found), found
    assert len({colour for (colour,) in found}) == len(team), found
    for name, colour in zip(team, found, strict=True):
        assert colours(f"{name} receive, last moves", UPLINK_SERIES) == colour
        assert colours(f"capacity of {name}", UPLINK_SERIES) == []
    # The colours of what is wrong or well are not those of an uplink.
    assert not {"red", "green", "orange"} & set(UPLINK_NAMES.values())


def test_uplinks_have_their_colour_in_all_panels_of_a_bridge() -> None:
    dashboard = BY_NAME["bridge"]
    seen = set()
    for panel in of_type(dashboard, "timeseries"):
        if any(target["legendFormat"].startswith("{{uplink}}") for target in panel["targets"]):
            given = {
                override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
                for override in panel["fieldConfig"]["overrides"]
                if override["matcher"]["options"] in UPLINK_SERIES
            }
            assert given == UPLINK_SERIES, panel["title"]
            seen.add(panel["title"])
    named = {"Uplinks: sent", "Uplinks: received", "Utilization", "Addresses by uplink"}
    assert seen == named
    for panel in of_type(dashboard, "timeseries"):
        legends = [target["legendFormat"] for target in panel["targets"]]
        limits = re.compile("(capacity|threshold) of ")
        about = [text for text in legends if "{{uplink}}" in text and not limits.match(text)]
        by_count = panel["fieldConfig"]["defaults"]["color"]["mode"] == BY_COUNT
        assert not about or by_count or panel["title"] in named, panel["title"]
    for panel in of_type(dashboard, "table"):
        for properties in columns(panel).values():
            if properties["label"] == "uplink":
                told = {
                    m["options"]["pattern"]: m["options"]["result"]["color"]
                    for m in properties["mappings"]
                }
                assert told == UPLINK_NAMES | {"/^none$/": "red"}, panel["title"]
    (bound,) = (p for p in dashboard.asking if p["title"] == "Uplink of each VM port")
    (mappings,) = settings(bound, "mappings")
    found = {m["options"]["pattern"]: m["options"]["result"]["color"] for m in mappings}
    assert found == UPLINK_NAMES | {"/^none$/": "red", "/^not known$/": UNKNOWN}


PORTS = {
    "libvirt": [f"vnet{number}" for number in range(7, 27)],
    "OpenStack": [f"tap3f0a51d2-9{last}" for last in "0123456789abcdef"],
    "Xen": ["vif1.0", "vif2.0", "vif11.0"],
    "by hand": ["web-a", "web-b", "db", "mail"],
    "numbers": ["0", "1", "11"],
}


def port_colours(legend: str) -> list[str]:
    return [colour for pattern, colour in PORT_SERIES.items() if re.search(pattern[1:-1], legend)]


@pytest.mark.parametrize("ports", PORTS.values(), ids=PORTS)
def test_a_vm_port_has_one_colour_for_what_it_sends_and_receives(ports: list[str]) -> None:
    sent = [port_colours(f"{name} sent") for name in ports]
    assert all(len(colours) == 1 for colours in sent), sent
    assert sent == [port_colours(f"{name} received") for name in ports]
    assert not {"red", "green", "orange"} & set(PORT_SERIES.values())


@pytest.mark.parametrize("kind", ["libvirt", "OpenStack"])
def test_neighbouring_vm_ports_have_different_colours(kind: str) -> None:
    assert len({port_colours(name)[0] for name in PORTS[kind]}) == len(PORTS[kind])


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`, as the W3C's rules for contrast define it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", sorted({*PORT_SERIES.values(), *UPLINK_SERIES.values()}))
def test_lines_are_seen_in_the_dark_and_in_the_light(colour: str) -> None:
    for background in (DARK, LIGHT):
        darker, lighter = sorted((luminance(colour), luminance(background)))
        assert (lighter + 0.05) / (darker + 0.05) >= LEAST_CONTRAST, background


def test_the_vm_ports_of_an_uplink_have_their_colours_in_both_directions() -> None:
    (panel,) = (panel for panel in BY_NAME["bridge"].asking if "repeat" in panel)
    legends = [t["legendFormat"] for t in panel["targets"] if "{{port}}" in t["legendFormat"]]
    assert legends == ["{{port}} sent", "{{port}} received"]
    given = {
        override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] in PORT_SERIES
    }
    assert given == PORT_SERIES
    # What overrides later counts: a capacity is no port.
    matched = [override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]]
    assert max(map(matched.index, PORT_SERIES)) < min(map(matched.index, "BCD"))
    (of_received,) = (
        override["properties"]
        for override in panel["fieldConfig"]["overrides"]
        if override["matcher"]["options"] == "B"
    )
    assert {"fill": "dash", "dash": [4, 6]} in [p["value"] for p in of_received]


def test_vm_ports_have_their_colour_in_all_graphs_of_a_bridge() -> None:
    """Also as tunnel endpoints. By their order, Grafana begins with green, and has red for the fifth."""
    seen = set()
    for panel in of_type(BY_NAME["bridge"], "timeseries"):
        if any(target["legendFormat"].startswith("{{port}}") for target in panel["targets"]):
            given = {
                override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
                for override in panel["fieldConfig"]["overrides"]
                if override["matcher"]["options"] in PORT_SERIES
            }
            assert given == PORT_SERIES, panel["title"]
            seen.add(panel["title"])
    assert seen == {
        "VM ports on $uplink",
        "Addresses behind VM ports",
        "Tunnel endpoints: sent",
        "Tunnel endpoints: received",
    }


@each_dashboard
def test_what_is_received_is_dotted(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        dotted = {
            override["matcher"]["options"]
            for override in panel["fieldConfig"]["overrides"]
            if any(p["id"] == "custom.lineStyle" for p in override["properties"])
        }
        for target in panel["targets"]:
            if panel.get("repeat"):
                continue
            if target["legendFormat"].endswith(" received"):
                assert "/ received$/" in dotted, panel["title"]
            elif 'direction="receive"' in target["expr"]:
                assert target["refId"] in dotted, panel["title"]


@pytest.mark.parametrize("dashboard", MANY, ids=str)
def test_a_graph_has_one_line_of_each_host_or_bridge(dashboard: Dashboard) -> None:
    """By their order, Grafana would give the others further colours: limits have one of their own."""
    for panel in of_type(dashboard, "timeseries"):
        legends = [t["legendFormat"] for t in panel["targets"]]
        assert len([text for text in legends if not text.endswith(" threshold")]) == 1, panel[
            "title"
        ]


# What is drawn is what is said of it.


@each_dashboard
def test_sent_is_what_is_transmitted(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        for target in panel["targets"]:
            said = target["legendFormat"].rpartition(" ")[2]
            if said in {"sent", "received"} and "capacity" not in target["legendFormat"]:
                shown = set(re.findall(r"_(transmit|receive)_bytes", target["expr"]))
                # The hosts of a graph are chosen by what they send.
                chosen, _, _ = target["expr"].partition(" and on ")
                shown = set(re.findall(r"_(transmit|receive)_bytes", chosen)) or shown
                assert shown == {{"sent": "transmit", "received": "receive"}[said]}, panel["title"]


@each_dashboard
def test_bytes_are_shown_as_bits(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries", "bargauge"):
        in_bits = panel["fieldConfig"]["defaults"]["unit"] == "bps"
        for expr in exprs(panel):
            assert in_bits == ("_bytes" in expr), panel["title"]
            assert in_bits == (" * 8" in expr), panel["title"]


@each_dashboard
def test_times_are_in_milliseconds(dashboard: Dashboard) -> None:
    """Grafana reads a time as milliseconds since 1970, and Prometheus has seconds."""
    for panel in of_type(dashboard, "table"):
        names: dict[str, str] = {}
        for change in panel.get("transformations", []):
            names |= change["options"].get("renameByName", {})
        of_columns = {
            names.get(
                "Value" if len(panel["targets"]) == 1 else f"Value #{target['refId']} (lastNotNull)"
            ): target
            for target in panel["targets"]
        }
        for override in panel["fieldConfig"]["overrides"]:
            if {"id": "unit", "value": panels.TIME} in override["properties"]:
                column = override["matcher"]["options"]
                assert "* 1000" in of_columns[column]["expr"], f"{panel['title']}: {column}"


@each_dashboard
def test_quantiles_are_those_that_are_said(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        shares = {s for e in exprs(panel) for s in re.findall(r"histogram_quantile\(([\d.]+),", e)}
        if shares:
            is_99 = "99th percentile" in panel["description"]
            assert is_99 or re.search(r"nine (moves|cases) in ten", panel["description"])
            assert shares == {"0.99" if is_99 else "0.9"}, panel["title"]


# Nothing is cut or off the screen.


@each_dashboard
def test_titles_are_not_cut(dashboard: Dashboard) -> None:
    for panel in dashboard.asking:
        needed = text_px(panel["title"])
        assert needed <= panel_px(panel) - BESIDE_TITLE_PX, panel["title"]


@each_dashboard
def test_columns_fit_into_their_table(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        shown = {t: p for t, p in columns(panel).items() if not p.get("custom.hidden")}
        widths = {
            title: p.get("custom.width", p.get("custom.minWidth", LEAST_PX))
            for title, p in shown.items()
        }
        sorting = {sort["displayName"] for sort in panel["options"]["sortBy"]}
        assert sum(widths.values()) <= panel_px(panel), f"{panel['title']}: {widths}"
        assert any("custom.width" not in p for p in shown.values()), "nothing takes what is left"
        for title, width in widths.items():
            needed = text_px(title) + CELL_PADDING_PX
            needed += ARROW_PX * (title in sorting)
            assert needed <= width, f"{panel['title']}: {title} needs {needed:.0f}"
            if shown[title]["unit"].startswith("dateTime"):
                assert width >= text_px("2026-12-31 23:59:59"), f"{panel['title']}: {title}"
            for mapping in shown[title].get("mappings", []):
                if mapping["type"] == "value":
                    texts = [result["text"] for result in mapping["options"].values()]
                    needed = max(map(text_px, texts)) + CELL_PADDING_PX
                    assert needed <= width, f"{panel['title']}: {texts} need {needed:.0f}"


@each_dashboard
def test_names_of_policies_are_not_cut(dashboard: Dashboard) -> None:
    """A port that nothing has moved is where its policy has placed it: the reason is its name."""
    for panel in of_type(dashboard, "table"):
        for title, properties in columns(panel).items():
            placed = properties["label"] == "reason" and panel["title"] not in OF_THE_PAST
            if placed or properties["label"] == "policy":
                needed = max(map(text_px, PRESETS)) + CELL_PADDING_PX
                assert needed <= properties["custom.width"], f"{panel['title']}: {title}"


@each_dashboard
def test_names_of_alerts_are_not_cut(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        shown = {t: p for t, p in columns(panel).items() if not p.get("custom.hidden")}
        least: dict[str, int] = {
            t: p.get("custom.width", p.get("custom.minWidth", LEAST_PX)) for t, p in shown.items()
        }
        for title, properties in shown.items():
            if properties["label"] != "alertname":
                continue
            sharing = [t for t, p in shown.items() if "custom.width" not in p]
            left_px = panel_px(panel) - sum(least.values())
            width = least[title] + (left_px / len(sharing) if title in sharing else 0)
            needed = max(map(text_px, ALERT_NAMES)) + CELL_PADDING_PX
            assert needed <= width, f"{panel['title']}: {title} needs {needed:.0f}"


@each_dashboard
def test_tables_are_sorted_by_columns_of_theirs(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        by = [sort["displayName"] for sort in panel["options"]["sortBy"]]
        assert by, panel["title"]
        assert set(by) <= set(columns(panel)), panel["title"]


@each_dashboard
def test_alerts_begin_with_how_bad_they_are(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        if "ALERTS" not in exprs(panel)[0]:
            continue
        first = next(iter(columns(panel)))
        assert first == "Severity" == panel["options"]["sortBy"][0]["displayName"]
        assert panel["options"]["sortBy"][0]["desc"], "the worst come last"
        assert columns(panel)["Severity"]["mappings"], "without colour"


@pytest.mark.parametrize(
    ("name", "wanted"),
    {
        "fleet": {
            "Services down",
            "Uplinks down",
            "Worst uplinks",
            "Alerts",
            "Last ten moves",
            "Bridges",
        },
        "bridge": {
            "Switch",
            "Uplinks down",
            "Busiest uplink",
            "Uplinks now",
            "Alerts",
            "Last ten moves",
            "Uplinks: sent",
            "Uplinks: received",
        },
        "decisions": {
            "Wrong now",
            "Applied",
            "Refused",
            "Last ten moves",
            "Applied by reason",
            "Worst uplinks",
            "Refusals",
        },
        "controller": {
            "Wrong now",
            "Services down",
            "Deciding",
            "Services",
            "Worst uplinks",
            "Last ten moves",
        },
    }.items(),
)
def test_the_first_screen_says_it_all(name: str, wanted: set[str]) -> None:
    grids = {panel["title"]: panel["gridPos"] for panel in BY_NAME[name].asking}
    above_px = WITH_MARKS_PX if BY_NAME[name].annotations else ABOVE_PX
    ends_px = {t: above_px + height_px(grid["y"] + grid["h"]) for t, grid in grids.items()}
    assert {title for title in wanted if ends_px[title] > SCREEN_PX} == set()
    tiles = of_type(BY_NAME[name], "stat")
    assert len(tiles) <= 6
    assert {tile["gridPos"]["y"] for tile in tiles} == {0}
    assert {tile["gridPos"]["h"] for tile in tiles} == {3}


@pytest.mark.parametrize(
    ("dashboard", "title", "needed"),
    [
        ("bridge", "Last ten moves", 10),
        ("bridge", "Tunnel endpoints", 8),
        ("decisions", "Last ten moves", 10),
    ],
)
def test_tables_are_as_high_as_what_is_often_in_them(
    dashboard: str, title: str, needed: int
) -> None:
    (panel,) = (p for p in BY_NAME[dashboard].asking if p["title"] == title)
    rows_px = height_px(panel["gridPos"]["h"]) - AROUND_ROWS_PX
    assert rows_px // TABLE_ROW_PX >= needed


def test_what_is_seldom_needed_is_collapsed() -> None:
    rows = BY_NAME["bridge"].json["panels"]
    assert {row["title"] for row in rows if row.get("collapsed")} == {
        "Rules",
        "Addresses",
        "Tunnel endpoints",
        "Path checks",
    }


@each_dashboard
def test_limits_do_not_fill_the_legend(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        limits = [
            t
            for t in panel["targets"]
            if re.search("^(capacity|threshold) of| threshold$", t["legendFormat"])
        ]
        hidden = {
            override["matcher"]["options"]
            for override in panel["fieldConfig"]["overrides"]
            if any(
                p["id"] == "custom.hideFrom" and p["value"]["legend"]
                for p in override["properties"]
            )
        }
        assert not limits or "/^(capacity|threshold) of| threshold$/" in hidden, panel["title"]
        if "Dropped" in panel["title"]:
            assert all(expr.endswith(" > 0") for expr in exprs(panel)), "zeros fill the legend"


@each_dashboard
def test_legends_name_what_several_lines_are_of_once(dashboard: Dashboard) -> None:
    """What an uplink sends and receives has one colour, and so one entry."""
    for panel in of_type(dashboard, "timeseries"):
        hiding = [
            override["matcher"]["options"]
            for override in panel["fieldConfig"]["overrides"]
            if any(
                p["id"] == "custom.hideFrom" and p["value"]["legend"]
                for p in override["properties"]
            )
        ]
        named = [
            target["legendFormat"].partition("}}")[0]
            for target in panel["targets"]
            if target["legendFormat"].startswith("{{")
            and target["refId"] not in hiding
            and not any(re.search(by[1:-1], target["legendFormat"]) for by in hiding if len(by) > 1)
        ]
        assert len(named) == len(set(named)), f"{panel['title']}: {named}"


def test_ports_of_uplinks_are_drawn_to_the_same_scale() -> None:
    (panel,) = (panel for panel in BY_NAME["bridge"].asking if "repeat" in panel)
    assert panel["maxPerRow"] == 2
    legends = {target["refId"]: target["legendFormat"] for target in panel["targets"]}
    below = {
        override["matcher"]["options"]
        for override in panel["fieldConfig"]["overrides"]
        if any(p["value"] == "negative-Y" for p in override["properties"])
    }
    capacities = {ref for ref, legend in legends.items() if legend.startswith("capacity")}
    assert len(capacities) == 2
    assert len(capacities & below) == 1
    unnamed = {
        override["matcher"]["options"]
        for override in panel["fieldConfig"]["overrides"]
        if any(
            p["id"] == "custom.hideFrom" and p["value"]["legend"] for p in override["properties"]
        )
    }
    assert capacities & unnamed == capacities & below, "the capacity is named once"
    for target in panel["targets"]:
        of_capacity = "ovslbt_uplink_capacity_bytes_per_second{" in target["expr"]
        assert of_capacity == (target["refId"] in capacities), target["refId"]
    # Colours of Grafana 9 are by order: not all that is newer is there.
    assert panel["fieldConfig"]["defaults"]["color"]["mode"] == "palette-classic"


# Many hosts.


@pytest.mark.parametrize("dashboard", MANY, ids=str)
def test_graphs_of_many_bridges_show_some(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "timeseries"):
        for target in panel["targets"]:
            about = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            # Two services on one host differ only by their port.
            assert not {"instance", "bridge"} <= about, "the whole name of a host"
            if about & {"host", "instance"}:
                assert "topk(10, " in target["expr"], panel["title"]
    for panel in of_type(dashboard, "state-timeline"):
        for expr in exprs(panel):
            bare = re.sub(r"(label_replace\()+", "", expr)
            # Without any row, Grafana would complain of data without a time.
            shown, summed_up, _ = re.split(r" or ((?:2 - )?(?:min|max)\(.*)", bare, maxsplit=1)
            ever = r"_over_time\(\w+\{[^}]*\}\[\$__range\] @ end\(\)\) (> 0|== 0)\)?$"
            assert re.search(ever, shown), panel["title"]
            # What is known to be wrong is so, whatever else is not known; all are well only if all
            # are known to be.
            all_known = r" (> [01]|== 0) or (2 - )?(min|max)\(.* unless on \(\) up\{"
            assert re.search(all_known, summed_up), panel["title"]


@each_dashboard
def test_legends_are_not_cut(dashboard: Dashboard) -> None:
    """Grafana gives a legend a third of the graph, and the worst of ten may be in its last line."""
    seen = 0
    for panel in of_type(dashboard, "timeseries"):
        entries = [
            text_px(IN_LEGEND.sub(lambda label: LONG[label[1]], target["legendFormat"]))
            for target in panel["targets"]
            if not re.search("^(capacity|threshold)| threshold$", target["legendFormat"])
            for _ in range(MOST if "topk(10, " in target["expr"] else len(Reason))
            if re.search(r"\btopk\(10, |by \(reason\)", target["expr"])
        ]
        if entries:
            seen += 1
            entry_px = max(entries) * LEGEND_FONT_PX / FONT_PX + BESIDE_LEGEND_PX
            in_line = panel_px(panel) // entry_px
            graph_px = height_px(panel["gridPos"]["h"]) - AROUND_GRAPH_PX
            lines = (LEGEND_SHARE * graph_px - AROUND_LEGEND_PX) // LEGEND_LINE_PX
            assert in_line * lines >= len(entries), f"{panel['title']}: {entry_px:.0f} px each"
    assert seen


@each_query
def test_what_is_highest_is_chosen_once_for_all_the_time_shown(query: Query) -> None:
    """A choice in each step would show more lines than it says, and each of them with gaps."""
    for start in [found.end() for found in re.finditer(r"\btopk\(\d+, ", query.bare)]:
        if not query.instant:
            depths = itertools.accumulate(
                {"(": 1, ")": -1}.get(character, 0) for character in query.bare[start:]
            )
            length = next(n for n, depth in enumerate(depths) if depth < 0)
            ranked = query.bare[start : start + length]
            selectors = len(re.findall(r"\}", ranked))
            assert len(re.findall(r"\}\[\$__range\] @ end\(\)", ranked)) == selectors > 0, query


@each_dashboard
def test_colours_are_made_in_ways_that_grafana_9_knows(dashboard: Dashboard) -> None:
    """A panel with another one is empty there."""
    for panel in dashboard.asking:
        for color in settings(panel, "color"):
            assert color["mode"] in {"fixed", "thresholds", "palette-classic", BY_COUNT}, panel[
                "title"
            ]


@each_dashboard
def test_what_happened_is_not_drawn_green(dashboard: Dashboard) -> None:
    """The palette of series begins with green."""
    for panel in of_type(dashboard, "timeseries"):
        defaults = panel["fieldConfig"]["defaults"]
        if defaults["custom"].get("drawStyle") == "bars":
            of_reasons = [o for o in panel["fieldConfig"]["overrides"] if "failover" in str(o)]
            assert defaults.get("color", {}).get("mode") == BY_COUNT or of_reasons, panel["title"]


@each_dashboard
def test_lines_of_what_is_wrong_are_neither_green_nor_on_an_axis_to_a_hundred(
    dashboard: Dashboard,
) -> None:
    """So Grafana draws zeros, if nothing says how far the axis goes."""
    for panel in of_type(dashboard, "timeseries"):
        defaults = panel["fieldConfig"]["defaults"]
        wrong = re.search(r"Good: (0|none)\.", panel["description"])
        if wrong and defaults["custom"].get("drawStyle") != "bars":
            assert defaults["custom"]["axisSoftMax"] <= 5, panel["title"]
            assert defaults["color"]["mode"] == BY_COUNT, panel["title"]
        if panel["title"].startswith("Age of "):
            assert defaults["custom"]["axisSoftMax"] <= panels.OLD_S, panel["title"]


@each_dashboard
def test_words_without_a_value_are_grey(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "stat"):
        defaults = panel["fieldConfig"]["defaults"]
        if defaults.get("mappings"):
            assert defaults["thresholds"]["steps"][0]["color"] == UNKNOWN, panel["title"]
    for panel in of_type(dashboard, "table"):
        for title, properties in columns(panel).items():
            if properties.get("mappings") and not properties["label"]:
                assert properties["thresholds"]["steps"][0]["color"] == UNKNOWN, title


@each_dashboard
def test_rows_are_of_what_there_is(dashboard: Dashboard) -> None:
    """A count of the time shown also knows bridges that are gone, which have no other column."""
    for panel in of_type(dashboard, "table"):
        for expr in exprs(panel):
            if panel["title"] not in OF_THE_PAST and "$__range" in expr:
                assert re.search(r" and on \([^)]*\) ovslbt_\w+_info\{", expr), panel["title"]


@each_dashboard
def test_tables_without_rows_have_no_header(dashboard: Dashboard) -> None:
    """Of queries without answers, Grafana shows the columns of values: half of the header."""
    for panel in of_type(dashboard, "table"):
        if len(panel["targets"]) > 1:
            merge, group, organize = panel["transformations"]
            assert (merge["id"], group["id"]) == ("merge", "groupBy"), panel["title"]
            fields = group["options"]["fields"]
            labels = {p["label"] for p in columns(panel).values()} - {""}
            by = {name for name, of in fields.items() if of["operation"] == "groupby"}
            assert by == labels, panel["title"]
            kept = {f"{name} ({how})" for name, of in fields.items() for how in of["aggregations"]}
            assert kept | by == set(organize["options"]["renameByName"]), panel["title"]


@each_dashboard
def test_long_names_do_not_push_others_out(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "bargauge"):
        (target,) = panel["targets"]
        assert "instance" not in target["legendFormat"], "the whole name of a host"
        first = re.match(r"\{\{(\w+)\}\}", target["legendFormat"])
        assert first, panel["title"]
        assert first[1] in {"uplink", "port"}, f"{panel['title']}: cut at the end"
        assert "decimals" in panel["fieldConfig"]["defaults"] or first[1] == "port"
        assert panel["options"]["text"]["titleSize"] <= 11, (
            "names of one length, but not of one width"
        )
        if "{{vm}}" in target["legendFormat"]:
            (without,) = re.findall(r'"vm", "", "vm", "([^"]*)"', target["expr"])
            assert re.fullmatch(without, UUID), "a UUID as a name"
            assert not re.fullmatch(without, "instance-0000a1b2"), "no name at all"


def replaced(expr: str, instance: str) -> str:
    """The label `host` that a query makes of an instance, as `label_replace` does."""
    found = instance
    replacing = re.findall(r'"host", "([^"]*)", "instance", "([^"]*)"', expr)
    assert len(replacing) == 2
    for form, pattern in replacing:
        if match := re.fullmatch(pattern, instance):
            found = re.sub(r"\$(\d)", lambda group, match=match: match[int(group[1])] or "", form)  # type: ignore[misc]
    return found


@pytest.mark.parametrize(
    ("instance", "service"),
    {
        "kvm-07.example.org:9476": "kvm-07:9476",
        "kvm-07.example.org:9477": "kvm-07:9477",
        "kvm-07:9476": "kvm-07:9476",
        "kvm-07.example.org": "kvm-07",
        "10.0.0.7:9476": "10.0.0.7:9476",
        "[fe80::1]:9476": "[fe80::1]:9476",
    }.items(),
)
def test_alerts_tell_a_service_from_its_standby(instance: str, service: str) -> None:
    (expr,) = (q.text for q in QUERIES if str(q) == "fleet: Alerts A")
    assert replaced(expr, instance) == service


@pytest.mark.parametrize(
    ("instance", "host"),
    {
        "kvm-07.example.org:9476": "kvm-07",
        "kvm-07:9476": "kvm-07",
        "kvm-07": "kvm-07",
        "10.0.0.7:9476": "10.0.0.7",
        "10.0.0.7": "10.0.0.7",
        "[fe80::1]:9476": "[fe80::1]",
        "7up.example.org:9476": "7up",
    }.items(),
)
def test_hosts_have_short_names(instance: str, host: str) -> None:
    (expr,) = (q.text for q in QUERIES if str(q) == "fleet: Worst uplinks A")
    assert replaced(expr, instance) == host


# Where to go next.


@each_dashboard
def test_only_names_of_hosts_and_bridges_lead_somewhere(dashboard: Dashboard) -> None:
    for panel in of_type(dashboard, "table"):
        by_title = columns(panel)
        labels = {properties["label"] for properties in by_title.values()}
        for title, properties in by_title.items():
            # Nothing is shown, and nothing to click, where a row has no such label.
            assert not properties["label"] or properties["noValue"] == "", title
            for link in properties.get("links", []):
                assert properties["label"] in {"instance", "host", "bridge"}, title
                assert set(re.findall(r"\$\{__data\.fields\.(\w+)\}", link["url"])) <= labels


def test_alerts_lead_to_a_bridge_only_if_they_are_about_one() -> None:
    (panel,) = (p for p in BY_NAME["fleet"].asking if p["title"] == "Alerts")
    there = {
        title: (properties.get("links") or [{"url": ""}])[0]["url"].partition("?")[0]
        for title, properties in columns(panel).items()
    }
    assert there["Bridge"] == "/d/${__data.fields.board}"
    assert there["Host"] == "/d/ovs-lbt-controller"
    (link,) = columns(panel)["Host"]["links"]
    assert "var-bridge" not in link["url"]


@each_dashboard
def test_variables_keep_their_values_while_a_target_is_gone(dashboard: Dashboard) -> None:
    for name, variable in dashboard.variables.items():
        if name == "datasource":
            continue
        # Values of the time shown, not of now.
        assert variable["refresh"] == 2, name
        assert variable["query"]["query"].startswith("label_values("), name
