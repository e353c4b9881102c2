"""What surrounds the panels of a dashboard: variables, links to the others, annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from dashboards import queries
from dashboards.panels import DATASOURCE
from dashboards.queries import Scope

TAGS = ["ovs-lbt", "openvswitch"]
# Links and bookmarks go by these.
FLEET, BRIDGE = "ovs-lbt-fleet", "ovs-lbt-bridge"
DECISIONS, CONTROLLER = "ovs-lbt-decisions", "ovs-lbt-controller"
TITLES = {
    FLEET: "ovs-lbt: fleet",
    BRIDGE: "ovs-lbt: one bridge",
    DECISIONS: "ovs-lbt: decisions",
    CONTROLLER: "ovs-lbt: the service",
}
EVERYTHING = ".+"


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading; without a title, those at the top."""

    title: str
    panels: Sequence[Builder[model.Panel]]


def dashboard(
    uid: str,
    text: str,
    variables: Sequence[Builder[model.VariableModel]],
    annotations: Sequence[Builder[model.AnnotationQuery]],
    sections: Sequence[Section],
) -> model.Dashboard:
    """A dashboard, its panels numbered from 1 in the order in which they are given."""
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
        if section.title:
            made.with_row(build.Row(section.title))
        for panel in section.panels:
            made.with_panel(panel)
    built = made.build()
    for number, numbered in enumerate(built.panels or (), start=1):
        numbered.id_val = number
    return built


def _link(here: str, there: str) -> build.DashboardLink:
    """To another dashboard, with the time shown and the same hosts and bridges chosen.

    Only the data source goes along between the dashboard that shows one bridge and the one
    that shows all, and to where one must be chosen out of many.
    """
    keeps = there != BRIDGE and (here, there) != (BRIDGE, FLEET)
    url = f"/d/{there}" + ("" if keeps else "?${datasource:queryparam}")
    link = build.DashboardLink(TITLES[there].removeprefix("ovs-lbt: ").capitalize())
    link.type(model.DashboardLinkType.LINK).icon("dashboard").url(url)
    return link.keep_time(True).include_vars(keeps)


def to_bridge(value: str) -> str:
    """Where a data link leads: `value` is how it names a label of its row or series."""
    chosen = "&".join(
        f"var-{label}=${{{value}.{label}}}" for label in ("job", "instance", "bridge")
    )
    return f"/d/{BRIDGE}?${{datasource:queryparam}}&{chosen}&${{__url_time_range}}"


FROM_ROW = to_bridge("__data.fields")
FROM_SERIES = to_bridge("__field.labels")


def one_bridge() -> list[Builder[model.VariableModel]]:
    """The variables where one bridge is shown."""
    here = queries.ONE_BRIDGE
    return [
        _data_source(),
        _values("job", "Job", here, 0, many=False),
        _values("instance", "Host", here, 1, many=False),
        _values("bridge", "Bridge", here, 2, many=False),
        _values("uplink", "Uplinks", here, 3, many=True, metric="uplink_up"),
    ]


def many_bridges() -> list[Builder[model.VariableModel]]:
    """The variables where as many hosts and bridges are shown as are chosen."""
    here = queries.BRIDGES
    return [
        _data_source(),
        # Every job of the service; other programs' jobs are none of ours.
        _values("job", "Job", here, 0, many=True),
        _values("instance", "Hosts", here, 1, many=True, every=EVERYTHING, metric="build_info"),
        _values("bridge", "Bridges", here, 2, many=True, every=EVERYTHING),
    ]


def _data_source() -> build.DatasourceVariable:
    return (
        build.DatasourceVariable("datasource")
        .id("datasource")
        .label("Prometheus")
        .type("prometheus")
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
    """The values of a label, of what the first `depends` variables choose.

    `every`: what matches all of them, where that is not the list of what is there.
    """
    chosen = Scope(scope.matchers[:depends])
    query = f"label_values({chosen(metric)}, {name})".replace("{}", "")
    variable = (
        build.QueryVariable(name)
        # Grafana 9 and 10 keep variables by this, and would take all for one and the same.
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
    """An annotation of the Prometheus data source, which has settings of its own."""

    def __init__(self, name: str, colour: str, expr: str, title: str) -> None:
        super().__init__(name=name, datasource=DATASOURCE, icon_color=colour, expr=expr)
        self._settings = {
            # At the time that the value says, rather than at that of the sample.
            "useValueForTime": True,
            # The least time between two looks: marks closer than that are drawn as one.
            "step": "1s",
            "titleFormat": title,
            "textFormat": "{{instance}} {{bridge}}: {{reason}}",
            "tagKeys": "reason",
        }

    def to_json(self) -> dict[str, object]:
        return super().to_json() | self._settings


class _Built(Builder[model.AnnotationQuery]):
    def __init__(self, built: model.AnnotationQuery) -> None:
        self._built = built

    def build(self) -> model.AnnotationQuery:
        return self._built


def marks(scope: Scope) -> list[Builder[model.AnnotationQuery]]:
    """Every move of a VM port, at the moment it was made and with its reason."""
    chosen = queries.bound_at_ms(scope, queries.CHOICE_REASONS)
    failed = queries.bound_at_ms(scope, queries.LINK_REASONS)
    return [
        _Built(_Marks("Moves", "purple", chosen, "{{port}} moved to {{uplink}}")),
        _Built(_Marks("Failovers", "red", failed, "{{port}} failed over to {{uplink}}")),
    ]
