"""The types of panels that the dashboards use.

Each panel has a title, a description (its content, the good state, the action) and a unit, and
queries the data source that is selected at the top. Panels use only features of Grafana 9. Only
values that are known to be good are green; without data, a value is grey or has no colour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BarAlignment,
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TimelineValueAlignment,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from dashboards.colours import (
    BAD,
    GOOD,
    NEUTRAL,
    PORT_SERIES,
    REASONS,
    TEXT,
    UNKNOWN,
    UPLINK_NAMES,
    UPLINK_SERIES,
    WARNING,
)
from dashboards.queries import BUSY_RATIO, FULL_RATIO, short_host

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

BITS = units.BitsPerSecondSI
BYTES = units.BytesSI
COUNT = units.Short
FRAMES = units.PacketsPerSecond
RATIO = units.PercentUnit
SECONDS = units.Seconds
# Milliseconds since the epoch.
TIME = "dateTimeAsIso"
WORDS = units.String

Steps = tuple[tuple[float | None, str], ...]
# A value has the colour of the highest step that it reaches. The first step is for missing data.
PLAIN: Steps = ((None, TEXT),)
DONE: Steps = ((None, UNKNOWN), (0, NEUTRAL))
NONE_IS_GOOD: Steps = ((None, UNKNOWN), (0, GOOD), (1, BAD))
NONE_IS_BEST: Steps = ((None, UNKNOWN), (0, GOOD), (0.5, WARNING))
# Not green, because one is enough for this colour, and green would mean that all are good.
NONE_IS_BAD: Steps = ((None, UNKNOWN), (0, BAD), (1, NEUTRAL))
UTILIZATION: Steps = ((None, UNKNOWN), (0, GOOD), (BUSY_RATIO, WARNING), (FULL_RATIO, BAD))
# Decisions of at least this age are old.
OLD_S = 30
AGE: Steps = ((None, UNKNOWN), (0, GOOD), (OLD_S, WARNING), (120, BAD))

Words = dict[str, tuple[str, str]]
UP_OR_DOWN: Words = {"0": ("down", BAD), "1": ("up", GOOD)}
LINK: Words = {
    **UP_OR_DOWN,
    "2": ("no answer", BAD),
    "4": ("cut off", BAD),
    "5": ("lossy", WARNING),
    "6": ("no answer", BAD),
}
CONNECTED: Words = {"0": ("no answer", BAD), "1": ("connected", GOOD)}
SWITCH: Words = {"-1": ("service down", BAD), **CONNECTED}
GUESSED: Words = {"0": ("known", NEUTRAL), "1": ("guess", WARNING)}
RELIEVED: Words = {"0": ("fine", GOOD), "1": ("unrelieved", BAD)}
KEPT: Words = {"0": ("kept", GOOD), "1": ("broken", BAD)}
DECIDES: Words = {"0": ("standby", NEUTRAL), "1": ("leads", GOOD)}
LEADS: Words = {**DECIDES, "2": ("no leader", BAD), "3": ("down", BAD)}
STATES: Words = {"firing": ("firing", BAD), "pending": ("pending", WARNING)}
SEVERITY: Words = {
    "3": ("critical", BAD),
    "2": ("warning", WARNING),
    "1": ("info", NEUTRAL),
}
WHY: Words = {str(reason): (str(reason), colour) for reason, colour in REASONS.items()}

FOLLOW = "Show it"
NOT_KNOWN = "not known"
# Shown instead of an uplink for a VM port without an uplink.
NONE = "none"
DASHED = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]})
DOTTED = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [4, 6]})
UNFILLED = model.DynamicConfigValue("custom.fillOpacity", 0)
UNSTACKED = model.DynamicConfigValue("custom.stacking", {"mode": "none", "group": "limits"})
FAINT = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [1, 8]})
WITHOUT_LEGEND = model.DynamicConfigValue(
    "custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}
)
BELOW = model.DynamicConfigValue("custom.transform", "negative-Y")
NAME_PX = 11
# The number of bars in a graph of counts: more bars would be too thin to see.
BARS = 75
# The smallest maximum of an axis for counts: if all were 0, Grafana's axis would end at 100.
LEAST_COUNT = 2
# The minimum width in pixels of a column without a given width.
LEAST_WIDTH = 90


@dataclass(frozen=True, slots=True)
class Ask:
    """A query of a panel, and the legend of its series."""

    expr: str
    legend: str = ""


def of_host(expr: str, legend: str) -> Ask:
    """Return a query with the label `host` (the short name of the host) for use in its legend."""
    return Ask(short_host(expr), legend)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the values of a query (`expr`) or, without a query, of a label.

    `width` in pixels; columns without a width share the remaining space. `link`: the target of links
    from the column's values. `hidden`: the column is not shown, and links of other columns use it.
    """

    title: str
    label: str = ""
    expr: str = ""
    unit: str = WORDS
    decimals: int | None = None
    steps: Steps = ()
    words: Words | None = None
    is_uplink: bool = False
    width: int | None = None
    link: str = ""
    hidden: bool = False


Panel = Builder[model.Panel]
AnyPanel = TypeVar(
    "AnyPanel",
    stat.Panel,
    bargauge.Panel,
    timeseries.Panel,
    statetimeline.Panel,
    heatmap.Panel,
    table.Panel,
)


def number(
    title: str,
    text: str,
    ask: Ask,
    *,
    unit: str = COUNT,
    steps: Steps = PLAIN,
    words: Words | None = None,
    shown: BigValueTextMode = BigValueTextMode.AUTO,
    decimals: int = 0,
    link: str = "",
    width: int = 4,
) -> stat.Panel:
    """Return a panel with the coloured current value, its legend, or both, as `shown` selects."""
    plain = steps == PLAIN and words is None
    panel = (
        stat.Panel()
        .decimals(decimals)
        .no_value(NOT_KNOWN)
        .color_mode(BigValueColorMode.NONE if plain else BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(shown)
        .reduce_options(_last())
    )
    if link:
        panel.data_links([build.DashboardLink(FOLLOW).url(link)])
    _coloured(panel, steps, words)
    return _panel(panel, title, text, [_instant(ask)], unit, width, height=3)


def ranking(
    title: str,
    text: str,
    ask: Ask,
    *,
    unit: str,
    steps: Steps = DONE,
    decimals: int | None = None,
    maximum: float | None = None,
    link: str = "",
    width: int = 12,
    height: int = 9,
) -> bargauge.Panel:
    """Return a panel with a bar for each series, whose length is the current value."""
    panel = (
        bargauge.Panel()
        .min(0)
        .display_mode(BarGaugeDisplayMode.BASIC)
        .orientation(VizOrientation.HORIZONTAL)
        .show_unfilled(True)
        .reduce_options(_last())
        .no_value(NOT_KNOWN)
        # Smaller than the font with which Grafana measures the longest name, to avoid truncation.
        .text(common.VizTextDisplayOptions().title_size(NAME_PX))
    )
    if decimals is not None:
        panel.decimals(decimals)
    if maximum is not None:
        panel.max(maximum)
    if link:
        panel.data_links([build.DashboardLink(FOLLOW).url(link)])
    _coloured(panel, steps, None)
    return _panel(panel, title, text, [_instant(ask)], unit, width, height)


def lines(
    title: str,
    text: str,
    asks: Sequence[Ask],
    *,
    unit: str,
    decimals: int | None = None,
    maximum: float | None = None,
    least_maximum: float | None = None,
    of_uplinks: bool = False,
    of_ports: bool = False,
    none_is_good: bool = False,
    points: VisibilityMode = VisibilityMode.NEVER,
    link: str = "",
    width: int = 12,
    height: int = 8,
) -> timeseries.Panel:
    """Return a graph with a line for each series. Lines of received traffic are dotted.

    Series with the legend threshold or capacity are drawn as limits. `of_uplinks`, `of_ports`: each
    line has the colour of the uplink or VM port whose name begins its legend. `none_is_good`: the
    lines count problems. `least_maximum`: the end of the axis if no value is higher.
    """
    panel = _graph(title, text, asks, unit, width, height).fill_opacity(0).min(0)
    panel.show_points(points)
    _whole(panel, unit, decimals)
    if maximum is not None:
        panel.max(maximum)
    if least_maximum is not None:
        panel.axis_soft_max(least_maximum)
    if link:
        panel.data_links([build.DashboardLink(FOLLOW).url(link)])
    if none_is_good:
        panel.axis_soft_max(LEAST_COUNT).color_scheme(_of_what_happened())
    named = {**(UPLINK_SERIES if of_uplinks else {}), **(PORT_SERIES if of_ports else {})}
    for pattern, colour in named.items():
        panel.override_by_regexp(pattern, [_fixed(colour)])
    panel.override_by_regexp("/ received$/", [DOTTED])
    panel.override_by_regexp("/^capacity/", [UNFILLED, _fixed(TEXT), DASHED])
    panel.override_by_regexp("/(^| )threshold/", [UNFILLED, _fixed(BAD), DOTTED])
    return panel.override_by_regexp("/^(capacity|threshold) of| threshold$/", [WITHOUT_LEGEND])


def events(
    title: str,
    text: str,
    asks: Sequence[Ask],
    *,
    by_reason: bool = False,
    width: int = 12,
    height: int = 8,
) -> timeseries.Panel:
    """Return a graph of counts as stacked bars. `by_reason`: bars have the colours of the reasons.

    A bar counts the events since the previous bar.
    """
    panel = _graph(title, text, asks, COUNT, width, height).min(0)
    panel.draw_style(GraphDrawStyle.BARS).bar_alignment(BarAlignment.BEFORE)
    panel.fill_opacity(80).max_data_points(BARS).axis_soft_max(LEAST_COUNT)
    _whole(panel, COUNT)
    panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if by_reason:
        for reason, colour in REASONS.items():
            panel.override_by_regexp(f"/(^| ){reason}$/", [_fixed(colour)])
    else:
        panel.color_scheme(_of_what_happened())
    return panel


def sent_and_received(
    title: str, text: str, sent: Ask, received: Ask, capacity: str
) -> timeseries.Panel:
    """Return a graph of sent traffic stacked above the axis, received traffic below, and capacities.

    Each line has the colour of the VM port whose name begins its legend. Because of the capacities,
    panels of equally fast uplinks have the same scale.
    """
    limits = [Ask(capacity, "capacity"), Ask(capacity, "capacity, received")]
    panel = _graph(title, text, [sent, received, *limits], BITS, 12, height=10)
    panel.fill_opacity(50)
    panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    # Grafana colours series by their order, and would give a port's two directions different colours.
    for pattern, colour in PORT_SERIES.items():
        panel.override_by_regexp(pattern, [_fixed(colour)])
    apart = model.DynamicConfigValue("custom.stacking", {"mode": "normal", "group": "B"})
    panel.override_by_query("B", [BELOW, apart, DOTTED, WITHOUT_LEGEND])
    limit = [UNFILLED, UNSTACKED, _fixed(TEXT), DASHED]
    panel.override_by_query("C", limit)
    return panel.override_by_query("D", [*limit, BELOW, WITHOUT_LEGEND])


def for_each(variable: str, panel: timeseries.Panel, most: int) -> Builder[model.Panel]:
    """Return a panel that is repeated for each value of a variable, at most `most` in a row."""
    return _ForEach(panel.repeat(variable).repeat_direction("h").span(24), most)


class _ForEach(Builder[model.Panel]):
    def __init__(self, panel: timeseries.Panel, most: int) -> None:
        self._panel, self._most = panel, most

    def build(self) -> model.Panel:
        made = _Repeated(self._most)
        vars(made).update(vars(self._panel.build()))
        return made


class _Repeated(model.Panel):
    """A panel with the setting maxPerRow, which the library does not support."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {"maxPerRow": self._most}


def states(
    title: str,
    text: str,
    ask: Ask,
    *,
    words: Words,
    width: int = 12,
    height: int = 8,
) -> statetimeline.Panel:
    """Return a timeline with a bar for each series, in the colours of its states (`words`)."""
    panel = _timeline().mappings([_mapping(words)])
    panel.transformations([_without_empty_answers()])
    return _panel(panel, title, text, [_range(ask)], WORDS, width, height)


def matrix(
    title: str, text: str, expr: str, *, row: str, value: str, width: int, height: int
) -> statetimeline.Panel:
    """Return a timeline with a bar for each `row`, in the colours of the uplinks in label `value`."""
    time = f"Time\\{row}"
    unknown = model.ValueMappingResult(color=UNKNOWN)
    pattern = model.DashboardRegexMapOptions(f"/^{NOT_KNOWN}$/", unknown)
    panel = _timeline().mappings([model.RegexMap(pattern), *_of_uplinks()])
    panel.transformations(
        [
            _without_empty_answers(),
            _transform(
                "groupingToMatrix",
                columnField=row,
                rowField="Time",
                valueField=value,
                emptyValue="null",
            ),
            _transform(
                "convertFieldType",
                fields={},
                conversions=[{"targetField": time, "destinationType": "time"}],
            ),
            _transform("sortBy", fields={}, sort=[{"field": time}]),
        ]
    )
    as_table = _range(Ask(expr)).format(PromQueryFormat.TABLE)
    return _panel(panel, title, text, [as_table], WORDS, width, height)


def distribution(title: str, text: str, expr: str, *, width: int = 12) -> heatmap.Panel:
    """Return a heatmap of a histogram's values over time. The query keeps the label `le`."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .fill("dark-orange")
            .exponent(0.5)
            .steps(64)
        )
        .y_axis(heatmap.YAxisConfig().unit(SECONDS))
        .cell_values(heatmap.CellValues().unit("ops"))
        .cell_gap(1)
        .show_legend()
        .show_tooltip()
    )
    asked = _range(Ask(expr, "{{le}}")).format(PromQueryFormat.HEATMAP)
    return _panel(panel, title, text, [asked], SECONDS, width, height=8)


def rows(
    title: str,
    text: str,
    columns: Sequence[Column],
    *,
    labelled: Sequence[str] = (),
    sort: Sequence[str],
    ascending: Collection[str] = (),
    width: int = 24,
    height: int = 9,
) -> table.Panel:
    """Return a table of current values, with a row for each set of labels that the queries share.

    `labelled`: queries whose labels are shown, but not their values. `sort`: the columns that order the
    rows, the most important first; unless a column is `ascending`, the highest value comes first.
    """
    exprs = [*labelled, *(column.expr for column in columns if column.expr)]
    # With a single query, Grafana names the field of its values differently.
    fields = [f"Value #{ref}" for ref in ascii_uppercase[: len(exprs)]]
    fields = fields if len(exprs) > 1 else ["Value"]
    values = iter(fields[len(labelled) :])
    names = [next(values) if column.expr else column.label for column in columns]
    labels = [column.label for column in columns if not column.expr]
    # If several queries have no answers, Grafana shows the titles of the columns of values. Grouping by
    # missing labels removes the columns, and the table reports that it has no data.
    grouping = []
    if len(exprs) > 1:
        grouping = [_transform("groupBy", fields=_grouped(labels, fields[len(labelled) :]))]
        names = [name if name in labels else f"{name} (lastNotNull)" for name in names]
    panel = table.Panel().show_header(True)
    panel.color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    panel.thresholds(_thresholds(PLAIN))
    panel.sort_by(
        [
            common.TableSortByFieldState().display_name(title).desc(title not in ascending)
            for title in sort
        ]
    )
    panel.transformations(
        [
            _transform("merge"),
            *grouping,
            _transform(
                "organize",
                excludeByName={"Time": True},
                indexByName={name: index for index, name in enumerate(names)},
                renameByName={
                    name: column.title for name, column in zip(names, columns, strict=True)
                },
            ),
        ]
    )
    for column in columns:
        panel.override_by_name(column.title, _column_properties(column))
    asked = [_instant(Ask(expr)).format(PromQueryFormat.TABLE) for expr in exprs]
    return _panel(panel, title, text, asked, WORDS, width, height)


def _grouped(labels: Sequence[str], values: Sequence[str]) -> dict[str, object]:
    """Return the settings that group rows by labels and keep values. Other fields are removed."""
    return {
        **{label: {"operation": "groupby", "aggregations": []} for label in labels},
        **{v: {"operation": "aggregate", "aggregations": ["lastNotNull"]} for v in values},
    }


def severity(alerts: str, labels: str, of: Callable[[str], str] = str) -> Column:
    """Return a column with the severity of alerts. Sorting by it puts critical alerts first.

    `of` adds further labels to the query.
    """
    ranks = " or ".join(
        f'{alerts.removesuffix("}")}, severity="{name}"}} * {rank}'
        for rank, (name, _) in SEVERITY.items()
    )
    expr = of(f"max by ({labels}) ({ranks})")
    return Column("Severity", expr=expr, unit=COUNT, words=SEVERITY, width=90)


def _column_properties(column: Column) -> list[model.DynamicConfigValue]:
    # An empty cell of a label must not become a link.
    properties: dict[str, object] = {"unit": column.unit, "noValue": "" if column.label else "-"}
    if column.unit == COUNT or column.decimals is not None:
        properties["decimals"] = column.decimals or 0
    if column.words:
        properties["mappings"] = [_mapping(column.words)]
    if column.is_uplink:
        properties["mappings"] = list(_of_uplinks())
    # Without a value, a word has the colour of the first step.
    steps = column.steps or (((None, UNKNOWN),) if column.words and column.expr else ())
    if steps:
        properties["thresholds"] = _thresholds(steps).build()
    if column.steps or column.words or column.is_uplink:
        # Newer Grafana versions convert this to cell options, because the schema version is older
        # than cell options.
        properties["custom.displayMode"] = "color-text"
    if column.hidden:
        properties["custom.hidden"] = True
    elif column.width:
        properties["custom.width"] = column.width
    else:
        properties["custom.minWidth"] = LEAST_WIDTH
    if column.link:
        properties["links"] = [build.DashboardLink(FOLLOW).url(column.link).build()]
    return [model.DynamicConfigValue(name, value) for name, value in properties.items()]


def _panel(
    panel: AnyPanel,
    title: str,
    text: str,
    asked: Sequence[prometheus.Dataquery],
    unit: str,
    width: int,
    height: int,
) -> AnyPanel:
    targets: list[Builder[Dataquery]] = [
        query.ref_id(ref) for query, ref in zip(asked, ascii_uppercase, strict=False)
    ]
    panel.title(title).description(text).datasource(DATASOURCE).targets(targets)
    return panel.unit(unit).span(width).height(height)


def _instant(ask: Ask) -> prometheus.Dataquery:
    return _query(ask).instant()


def _range(ask: Ask) -> prometheus.Dataquery:
    return _query(ask).range()


def _query(ask: Ask) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(ask.expr).legend_format(ask.legend)
    return query.datasource(DATASOURCE).editor_mode(QueryEditorMode.CODE)


def _graph(
    title: str, text: str, asks: Sequence[Ask], unit: str, width: int, height: int
) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .draw_style(GraphDrawStyle.LINE)
        .line_width(1)
        .show_points(VisibilityMode.NEVER)
        .span_nulls(False)
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
        .legend(_legend(LegendDisplayMode.LIST, LegendPlacement.BOTTOM))
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
    )
    return _panel(panel, title, text, [_range(ask) for ask in asks], unit, width, height)


def _timeline() -> statetimeline.Panel:
    # If its colours are thresholds, a timeline that merges values ignores their mappings.
    return (
        statetimeline.Panel()
        .merge_values(True)
        .show_value(VisibilityMode.AUTO)
        .row_height(0.8)
        .align_value(TimelineValueAlignment.LEFT)
        .fill_opacity(70)
        .line_width(0)
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.FIXED).fixed_color(TEXT))
        .legend(common.VizLegendOptions().show_legend(False))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.SINGLE))
    )


def _without_empty_answers() -> model.DataTransformerConfig:
    """Return a transformation that removes answers without series, because these have no fields.

    For such an answer, a timeline would report a missing time, as if the query were wrong. Without
    an answer, the timeline reports that there is no data.
    """
    return _transform("filterFieldsByName", include={"pattern": ".*"})


def _whole(panel: timeseries.Panel, unit: str, decimals: int | None = None) -> None:
    """Set the number of decimals to `decimals` or, for counts, to 0."""
    if unit == COUNT or decimals is not None:
        panel.decimals(decimals or 0)


def _of_what_happened() -> build.FieldColor:
    """Return colours from blue to purple by highest value; the default palette begins with green.

    Green means good. Grafana 9 does not support shades of one colour, and would show no graph.
    """
    mode = model.FieldColorModeId.CONTINUOUS_BL_PU
    return build.FieldColor().mode(mode).series_by(model.FieldColorSeriesByMode.MAX)


def _coloured(panel: stat.Panel | bargauge.Panel, steps: Steps, words: Words | None) -> None:
    # Without a value, a word has the colour of the first step.
    panel.thresholds(_thresholds(((None, UNKNOWN),) if words else steps))
    panel.color_scheme(build.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    if words:
        panel.mappings([_mapping(words)])


def _thresholds(steps: Steps) -> build.ThresholdsConfig:
    made = [model.Threshold(value, colour) for value, colour in steps]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _mapping(words: Words) -> model.ValueMap:
    results = {
        value: model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(words.items())
    }
    return model.ValueMap(options=results)


def _of_uplinks() -> Iterator[model.RegexMap]:
    """Yield mappings that colour the names of uplinks and the word `none`, and keep their text."""
    for index, (pattern, colour) in enumerate({f"/^{NONE}$/": BAD, **UPLINK_NAMES}.items()):
        result = model.ValueMappingResult(color=colour, index=index)
        yield model.RegexMap(model.DashboardRegexMapOptions(pattern, result))


def _fixed(colour: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def _legend(mode: LegendDisplayMode, place: LegendPlacement) -> common.VizLegendOptions:
    return common.VizLegendOptions().show_legend(True).display_mode(mode).placement(place)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _transform(name: str, **options: object) -> model.DataTransformerConfig:
    return model.DataTransformerConfig(id_val=name, options=options)
