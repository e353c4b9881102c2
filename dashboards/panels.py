"""The kinds of panels that the dashboards are made of.

Each has a title, a description (what it shows, what is good, what to do) and a unit, and
asks the data source that is chosen at the top. Only what Grafana 9 knows is used.
"""

from __future__ import annotations

from collections.abc import Sequence
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

from dashboards.queries import BUSY_RATIO, FULL_RATIO

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

BITS = units.BitsPerSecondSI
BYTES = units.BytesSI
COUNT = units.Short
FRAMES = units.PacketsPerSecond
RATIO = units.PercentUnit
SECONDS = units.Seconds
# Milliseconds since the epoch.
TIME = "dateTimeAsIso"
TEXT = units.String

Steps = tuple[tuple[float | None, str], ...]
# What is below a step's value has the colour of the step before; the first has none.
PLAIN: Steps = ((None, "text"),)
DONE: Steps = ((None, "blue"),)
NONE_IS_GOOD: Steps = ((None, "green"), (1, "red"))
NONE_IS_BEST: Steps = ((None, "green"), (0.5, "orange"))
ONE_IS_GOOD: Steps = ((None, "red"), (1, "green"))
UTILIZATION: Steps = ((None, "green"), (BUSY_RATIO, "orange"), (FULL_RATIO, "red"))
IMBALANCE: Steps = ((None, "green"), (0.25, "orange"), (0.5, "red"))
# Worst utilization over the least that any placement could reach.
OPTIMALITY: Steps = ((None, "green"), (1.25, "orange"), (1.75, "red"))
AGE: Steps = ((None, "green"), (30, "orange"), (120, "red"))

Words = dict[str, tuple[str, str]]
UP_OR_DOWN: Words = {"0": ("down", "red"), "1": ("up", "green")}
ANSWERS: Words = {"0": ("fine", "green"), "1": ("no answer", "red")}
CONNECTED: Words = {"0": ("not connected", "red"), "1": ("connected", "green")}
RELIEVED: Words = {"0": ("fine", "green"), "1": ("nothing helps", "red")}
KEPT: Words = {"0": ("kept", "green"), "1": ("broken", "red")}
DECIDES: Words = {"0": ("stands by", "blue"), "1": ("decides", "green")}

SHOW_BRIDGE = "Show this bridge"
DASHED = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 10]})
DOTTED = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [4, 6]})
UNFILLED = model.DynamicConfigValue("custom.fillOpacity", 0)


@dataclass(frozen=True, slots=True)
class Ask:
    """A query, and what its series are called in the legend."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a label's value where `expr` is empty, else a query's."""

    title: str
    label: str = ""
    expr: str = ""
    unit: str = TEXT
    steps: Steps = ()
    words: Words | None = None


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
    decimals: int = 0,
    width: int = 4,
) -> stat.Panel:
    """What is so now, in one coloured number; where the query has a legend, in its words."""
    said = BigValueTextMode.NAME if ask.legend else BigValueTextMode.AUTO
    panel = (
        stat.Panel()
        .decimals(decimals)
        .no_value("-")
        .color_mode(BigValueColorMode.NONE if steps == PLAIN else BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(said)
        .reduce_options(_last())
    )
    _coloured(panel, steps, words)
    return _panel(panel, title, text, [_instant(ask)], unit, width, height=4)


def ranking(
    title: str,
    text: str,
    ask: Ask,
    *,
    unit: str,
    steps: Steps = DONE,
    maximum: float | None = None,
    link: str = "",
    width: int = 12,
    height: int = 9,
) -> bargauge.Panel:
    """A bar for each series, as they are now."""
    panel = (
        bargauge.Panel()
        .min(0)
        .display_mode(BarGaugeDisplayMode.BASIC)
        .orientation(VizOrientation.HORIZONTAL)
        .show_unfilled(True)
        .reduce_options(_last())
        .no_value("none")
    )
    if maximum is not None:
        panel.max(maximum)
    if link:
        panel.data_links([build.DashboardLink(SHOW_BRIDGE).url(link)])
    _coloured(panel, steps, None)
    return _panel(panel, title, text, [_instant(ask)], unit, width, height)


def lines(
    title: str,
    text: str,
    asks: Sequence[Ask],
    *,
    unit: str,
    maximum: float | None = None,
    link: str = "",
    width: int = 12,
    height: int = 8,
) -> timeseries.Panel:
    """A line for each series. Those called a threshold or a capacity are drawn as limits."""
    panel = _graph(title, text, asks, unit, width, height).fill_opacity(0).min(0)
    if maximum is not None:
        panel.max(maximum)
    if link:
        panel.data_links([build.DashboardLink(SHOW_BRIDGE).url(link)])
    limit = [UNFILLED, _fixed("red"), DOTTED]
    panel.override_by_regexp("/^capacity/", [UNFILLED, _fixed("text"), DASHED])
    return panel.override_by_regexp("/(^| )threshold/", limit)


def events(title: str, text: str, asks: Sequence[Ask], *, width: int = 12) -> timeseries.Panel:
    """Stacked bars: how many of what, and when."""
    panel = _graph(title, text, asks, COUNT, width, height=8).min(0)
    panel.draw_style(GraphDrawStyle.BARS).fill_opacity(80)
    panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    return panel.override_by_regexp("/refused/", [_fixed("red")])


def sent_and_received(title: str, text: str, sent: Ask, received: Ask) -> timeseries.Panel:
    """What is sent stacked above the axis, what is received below it."""
    panel = _graph(title, text, [sent, received], BITS, 12, height=10)
    panel.fill_opacity(50)
    panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    below = model.DynamicConfigValue("custom.transform", "negative-Y")
    apart = model.DynamicConfigValue("custom.stacking", {"mode": "normal", "group": "B"})
    return panel.override_by_query("B", [below, apart])


def states(
    title: str,
    text: str,
    ask: Ask,
    *,
    words: Words,
    width: int = 12,
    height: int = 8,
) -> statetimeline.Panel:
    """A bar for each series, in the colour of what it was at that time."""
    panel = _timeline()
    _coloured(panel, PLAIN, words)
    panel.legend(common.VizLegendOptions().show_legend(False))
    return _panel(panel, title, text, [_range(ask)], TEXT, width, height)


def matrix(
    title: str, text: str, expr: str, *, row: str, value: str, width: int, height: int
) -> statetimeline.Panel:
    """A bar for each value of the label `row`, in the colour of the label `value` by time."""
    time = f"Time\\{row}"
    panel = _timeline().color_scheme(
        build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC)
    )
    panel.legend(_legend(LegendDisplayMode.LIST, LegendPlacement.BOTTOM))
    panel.transformations(
        [
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
    return _panel(panel, title, text, [as_table], TEXT, width, height)


def distribution(title: str, text: str, expr: str, *, width: int = 12) -> heatmap.Panel:
    """How often a histogram's values were how great; the query keeps its label `le`."""
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
    sort: str,
    descending: bool = True,
    link: str = "",
    width: int = 24,
    height: int = 9,
) -> table.Panel:
    """A table of what is so now: a row for each set of labels that its queries share.

    `labelled`: queries of which only the labels are shown. `link`: where labels lead to.
    """
    exprs = [*labelled, *(column.expr for column in columns if column.expr)]
    # With a single query Grafana calls the field of its values just that.
    fields = [f"Value #{ref}" for ref in ascii_uppercase[: len(exprs)]]
    fields = fields if len(exprs) > 1 else ["Value"]
    values = iter(fields[len(labelled) :])
    names = [next(values) if column.expr else column.label for column in columns]
    panel = table.Panel().show_header(True).no_value("-")
    panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(descending)])
    panel.transformations(
        [
            _transform("merge"),
            _transform(
                "organize",
                excludeByName=dict.fromkeys(("Time", *fields[: len(labelled)]), True),
                indexByName={name: index for index, name in enumerate(names)},
                renameByName={
                    name: column.title for name, column in zip(names, columns, strict=True)
                },
            ),
        ]
    )
    for column in columns:
        panel.override_by_name(column.title, _column_properties(column, link))
    asked = [_instant(Ask(expr)).format(PromQueryFormat.TABLE) for expr in exprs]
    return _panel(panel, title, text, asked, TEXT, width, height)


def _column_properties(column: Column, link: str) -> list[model.DynamicConfigValue]:
    properties = [model.DynamicConfigValue("unit", column.unit)]
    if column.words:
        properties.append(model.DynamicConfigValue("mappings", [_mapping(column.words)]))
    if column.steps:
        steps = _thresholds(column.steps).build()
        properties.append(model.DynamicConfigValue("thresholds", steps))
    if column.steps or column.words:
        # Newer ones rewrite it as cell options, as the schema's version is one that had none.
        properties.append(model.DynamicConfigValue("custom.displayMode", "color-text"))
    if link and column.label:
        links = [build.DashboardLink(SHOW_BRIDGE).url(link).build()]
        properties.append(model.DynamicConfigValue("links", links))
    return properties


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
    return (
        statetimeline.Panel()
        .merge_values(True)
        .show_value(VisibilityMode.AUTO)
        .row_height(0.8)
        .align_value(TimelineValueAlignment.LEFT)
        .fill_opacity(70)
        .line_width(0)
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.SINGLE))
    )


def _coloured(
    panel: stat.Panel | bargauge.Panel | statetimeline.Panel, steps: Steps, words: Words | None
) -> None:
    panel.thresholds(_thresholds(steps))
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


def _fixed(colour: str) -> model.DynamicConfigValue:
    return model.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})


def _legend(mode: LegendDisplayMode, place: LegendPlacement) -> common.VizLegendOptions:
    return common.VizLegendOptions().show_legend(True).display_mode(mode).placement(place)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _transform(name: str, **options: object) -> model.DataTransformerConfig:
    return model.DataTransformerConfig(id_val=name, options=options)
