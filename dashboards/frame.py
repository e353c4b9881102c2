"""Builds the parts of a Grafana dashboard around its panels: variables, links and annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import GraphDrawStyle

from dashboards import queries
from dashboards.colours import REASONS
from dashboards.panels import DATASOURCE
from dashboards.queries import Scope
from policies.model import Reason

TAGS = ["ovs-lbt", "openvswitch"]
# Links and bookmarks use these ids.
FLEET, BRIDGE = "ovs-lbt-fleet", "ovs-lbt-bridge"
DECISIONS, CONTROLLER = "ovs-lbt-decisions", "ovs-lbt-controller"
TITLES = {
    FLEET: "ovs-lbt: fleet",
    BRIDGE: "ovs-lbt: one bridge",
    DECISIONS: "ovs-lbt: decisions",
    CONTROLLER: "ovs-lbt: the service",
}
EVERYTHING = ".+"
GRID_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading. A section without a title is shown at the top."""

    title: str
    panels: Sequence[Builder[model.Panel]]
    is_collapsed: bool = False


def dashboard(
    uid: str,
    text: str,
    variables: Sequence[Builder[model.VariableModel]],
    annotations: Sequence[Builder[model.AnnotationQuery]],
    sections: Sequence[Section],
) -> model.Dashboard:
    """Build a dashboard. Panels are numbered from 1 in the given order."""
    made = (
        build.Dashboard(TITLES[uid])
        .uid(uid)
        .description(text)
        .tags(TAGS)
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("")
        .timepicker(build.TimePicker().refresh_intervals(["1s", "5s", "10s", "30s", "1m", "5m"]))
        .variables(list(variables))
        .annotations(list(annotations))
        .links([_link(uid, other) for other in TITLES if other != uid])
    )
    for section in sections:
        row = build.Row(section.title)
        if section.is_collapsed:
            for panel in section.panels:
                row.with_panel(panel)
            made.with_row(row)
            continue
        if section.title:
            made.with_row(row)
        for panel in section.panels:
            made.with_panel(panel)
    built = made.build()
    _place(built.panels or ())
    for number, numbered in enumerate(_all(built.panels or ()), start=1):
        numbered.id_val = number
    # A mark would hide the bar of its event, as in versions before Grafana 10.
    bars = [panel.id_val or 0 for panel in _all(built.panels or ()) if _has_bars(panel)]
    for mark in built.annotations.list_val or ():
        mark.filter_val = model.AnnotationPanelFilter(exclude=True, ids=bars)
    return built


def _place(panels: Iterable[model.Panel | model.RowPanel]) -> None:
    """Place each panel as high as possible below the panels before it, and then as far left as possible.

    Several panels can be stacked next to a tall panel. Panels of a collapsed row are placed as if the
    row were open.
    """
    ends = [0] * GRID_COLUMNS
    for panel in _all(panels):
        grid = panel.grid_pos or model.GridPos()
        if isinstance(panel, model.RowPanel):
            grid.w, grid.h = GRID_COLUMNS, 1
        tops = [max(ends[x : x + grid.w]) for x in range(GRID_COLUMNS - grid.w + 1)]
        grid.y = min(tops)
        grid.x = tops.index(grid.y)
        ends[grid.x : grid.x + grid.w] = [grid.y + grid.h] * grid.w
        panel.grid_pos = grid


def _has_bars(panel: model.Panel | model.RowPanel) -> bool:
    if isinstance(panel, model.RowPanel):
        return False
    custom = panel.field_config.defaults.custom
    return getattr(custom, "draw_style", None) is GraphDrawStyle.BARS


def _all(panels: Iterable[model.Panel | model.RowPanel]) -> Iterator[model.Panel | model.RowPanel]:
    """Yield the panels, each row before the panels in it."""
    for panel in panels:
        yield panel
        yield from getattr(panel, "panels", ())


def _link(here: str, there: str) -> build.DashboardLink:
    """Return a link to another dashboard that keeps the time, the hosts and the bridges.

    Links to the dashboard of one bridge, and from it to the fleet dashboard, keep only the time and
    the data source.
    """
    keeps = there != BRIDGE and (here, there) != (BRIDGE, FLEET)
    url = f"/d/{there}" + ("" if keeps else "?${datasource:queryparam}")
    link = build.DashboardLink(TITLES[there].removeprefix("ovs-lbt: ").capitalize())
    link.type(model.DashboardLinkType.LINK).icon("dashboard").url(url)
    return link.keep_time(True).include_vars(keeps)


def to_bridge(value: str) -> str:
    """Return the target of a link to a bridge's dashboard. `value`: the variable that has the bridge's labels."""
    return _to(BRIDGE, value, "job", "instance", "bridge")


def _to(uid: str, value: str, *labels: str) -> str:
    chosen = "&".join(f"var-{label}=${{{value}.{label}}}" for label in labels)
    return f"/d/{uid}?${{datasource:queryparam}}&{chosen}&${{__url_time_range}}"


# The value of a variable that stands for all of its values.
ALL = "All"
FROM_ROW = to_bridge("__data.fields")
FROM_SERIES = to_bridge("__field.labels")
TO_SERVICE = _to(CONTROLLER, "__data.fields", "job", "instance")
# This link keeps the selection.
TO_FLEET = (
    f"/d/{FLEET}?${{datasource:queryparam}}&${{job:queryparam}}&${{instance:queryparam}}"
    "&${bridge:queryparam}&${__url_time_range}"
)
# This link opens the dashboard whose ID is in the row's label `board`.
TO_BOARD = FROM_ROW.replace(f"/d/{BRIDGE}?", "/d/${__data.fields.board}?")


def with_board(alerts: str) -> str:
    """Add a label `board` to alerts: the dashboard to which each alert links.

    Some alerts are not about one bridge, because a service that is down reports no bridges. Grafana
    turns even empty cells into links, so such an alert is shown for all bridges of its service.
    """
    alerts = f'label_replace({alerts}, "board", "{CONTROLLER}", "", "")'
    alerts = f'label_replace({alerts}, "board", "{BRIDGE}", "bridge", ".+")'
    # An alert about a job without a leader has no host either.
    for label in ("host", "instance", "bridge"):
        alerts = f'label_replace({alerts}, "{label}", "{ALL}", "{label}", "")'
    return alerts


def one_bridge() -> list[Builder[model.VariableModel]]:
    """Return the variables of a dashboard that shows one bridge."""
    here = queries.ONE_BRIDGE
    return [
        _data_source(),
        _values("job", "Job", here, 0, many=False),
        _values("instance", "Host", here, 1, many=False),
        _values("bridge", "Bridge", here, 2, many=False),
        _values("uplink", "Uplinks", here, 3, many=True, metric="uplink_up"),
    ]


def many_bridges() -> list[Builder[model.VariableModel]]:
    """Return the variables of a dashboard that shows all selected hosts and bridges."""
    here = queries.BRIDGES
    return [
        _data_source(),
        # Only jobs of the service are offered. While no job has data, all jobs are still selected.
        _values("job", "Job", here, 0, many=True, every=EVERYTHING, metric="build_info"),
        _values("instance", "Hosts", here, 1, many=True, every=EVERYTHING, metric="build_info"),
        _values("bridge", "Bridges", here, 2, many=True, every=EVERYTHING),
    ]


def _data_source() -> build.DatasourceVariable:
    """Return a variable for the data source: Grafana's default if it is Prometheus, else the first."""
    return (
        build.DatasourceVariable("datasource")
        .id("datasource")
        .label("Prometheus")
        .type("prometheus")
        .current(model.VariableOption(text="default", value="default"))
    )


def _values(
    name: str,
    label: str,
    scope: Scope,
    depends: int,
    *,
    many: bool,
    every: str = "",
    metric: str = "bridge_connected",
) -> build.QueryVariable:
    """Return a variable with the values of a label, filtered by the first `depends` variables.

    `every`: the pattern that stands for all values, if it is not the list of existing values.
    """
    chosen = Scope(scope.matchers[:depends])
    query = f"label_values({chosen(metric)}, {name})".replace("{}", "")
    variable = (
        build.QueryVariable(name)
        # Grafana 9 and 10 identify variables by this ID: without IDs, all would be the same variable.
        .id(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": f"variable-{name}"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(many)
        .include_all(many)
    )
    if many:
        variable.current(model.VariableOption(True, ["All"], ["$__all"]))
    if every:
        variable.all_value(every)
    return variable


class _Marks(model.AnnotationQuery):
    """An annotation of the Prometheus data source, with the settings that only this source has."""

    def __init__(self, name: str, colour: str, expr: str, title: str, text: str) -> None:
        super().__init__(name=name, datasource=DATASOURCE, icon_color=colour, expr=expr)
        # Three switches leave no space for the links next to them. A hidden switch is on.
        self.hide = name == "Failbacks"
        self._settings = {
            # Place marks at the time in the sample's value, not at the time of the sample.
            "useValueForTime": True,
            # The query step. Marks within one step are drawn as one.
            "step": "1s",
            "titleFormat": title,
            "textFormat": text,
            "tagKeys": "reason",
        }

    def to_json(self) -> dict[str, object]:
        return super().to_json() | self._settings


class _Built(Builder[model.AnnotationQuery]):
    def __init__(self, built: model.AnnotationQuery) -> None:
        self._built = built

    def build(self) -> model.AnnotationQuery:
        return self._built


def marks(scope: Scope, listed: str, among: str = "") -> list[Builder[model.AnnotationQuery]]:
    """Return annotations that mark the time of each move of a VM port, with its reason.

    `listed`: the panel that lists moves. Grafana draws simultaneous marks on top of each other, and
    shows only the text of the uppermost mark. PromQL can neither join names into one text nor count
    simultaneous moves: when a port moves again, its earlier move is lost. `among`: a query; moves
    are marked only while this query has a result.
    """
    named = (
        ("Moves", "purple", queries.CHOICE_REASONS, "moved"),
        ("Failovers", REASONS[Reason.FAILOVER], Reason.FAILOVER, "failed over"),
        ("Failbacks", REASONS[Reason.FAILBACK], Reason.FAILBACK, "failed back"),
    )
    return [
        _Built(
            _Marks(
                name,
                colour,
                queries.bound_at_ms(scope, reasons) + (among and f" and on () {among}"),
                f"{{{{port}}}} {done} to {{{{uplink}}}}",
                f'{{{{instance}}}} {{{{bridge}}}}: {{{{reason}}}}. "{listed}" lists each move, including '
                "simultaneous ones.",
            )
        )
        for name, colour, reasons, done in named
    ]
