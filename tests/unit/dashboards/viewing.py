"""Somebody looks at a dashboard at a moment: what Grafana asks, and what the panels then show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.unit.dashboards import shown
from tests.unit.dashboards.dashboards import LABEL_VALUES, Dashboard
from tests.unit.dashboards.recorded import Found, Prometheus
from tests.unit.dashboards.shown import Answers, Cell, State
from tests.unit.dashboards.story import SCRAPE_S

# A screen of 1600 by 1000: of its rows of the grid, those that are whole below Grafana's own bars,
# also on dashboards with switches for marks.
SCREEN_PX, COLUMNS, ROWS_ON_SCREEN = 1560, 24, 20
# `$1` is what label_replace() has found.
NAMED = re.compile(r"\$\{([a-z_]\w*)(?::\w+)?\}|\$([a-z_]\w*)")
# Where Grafana rounds an interval to, by the first of these that is above it, in seconds.
ROUNDED_S = (
    *((0.75, 0.5), (1.5, 1), (3.5, 2), (7.5, 5), (12.5, 10), (17.5, 15), (25, 20), (45, 30)),
    *((90, 60), (210, 120), (450, 300), (750, 600), (1050, 900), (1500, 1200), (2700, 1800)),
    *((5400, 3600), (9000, 7200), (16200, 10800), (32400, 21600), (86400, 43200)),
)
DURATION = re.compile(r"(\d+)(ms|s|m|h)")
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
SPECIAL = re.compile(r"[$^*{}\[\]'+?.()|]")

Panel = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a dashboard. `chosen`: what a link there has chosen, by variable."""

    prometheus: Prometheus
    dashboard: Dashboard
    at_s: float
    range_s: float
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def from_s(self) -> float:
        return self.at_s - self.range_s

    def variables(self) -> dict[str, str]:
        """Each variable as it is put into queries."""
        values = {"datasource": "prometheus"}
        for name, variable in self.dashboard.variables.items():
            if variable["type"] == "query":
                values[name] = self._of_query(name, variable, values)
            elif variable["type"] != "datasource":
                values[name] = str(variable["current"]["value"])
        return values

    def _of_query(self, name: str, variable: Mapping[str, Any], before: Mapping[str, str]) -> str:
        if name in self.chosen:
            return self.chosen[name]
        if variable.get("includeAll") and variable.get("allValue"):
            return str(variable["allValue"])
        options = [SPECIAL.sub(r"\\\\\g<0>", option) for option in self.options(name, before)]
        if not variable.get("includeAll"):
            return options[0] if options else ""
        return options[0] if len(options) == 1 else f"({'|'.join(options)})"

    def options(self, name: str, before: Mapping[str, str] | None = None) -> list[str]:
        """What there is to choose."""
        query = self.dashboard.value_queries[name].text
        asked = LABEL_VALUES.fullmatch(
            _filled(query, self.variables() if before is None else before)
        )
        assert asked, f"not a query for the values of a label: {query}"
        return self.prometheus.values(asked[1], asked[2], self.from_s, self.at_s)

    # ---- what is asked -----------------------------------------------------------------

    def interval_s(self, panel: Panel) -> float:
        least_s = _seconds(panel.get("interval") or f"{SCRAPE_S:g}s")
        points = panel.get("maxDataPoints") or SCREEN_PX * panel["gridPos"]["w"] / COLUMNS
        exact_s = self.range_s / points
        rounded_s = next(to_s for below_s, to_s in ROUNDED_S if exact_s < below_s)
        return max(rounded_s, least_s, math.ceil(self.range_s / 11000))

    def filled(self, panel: Panel, text: str, **more: str) -> str:
        interval_s = self.interval_s(panel)
        own = {
            "__interval": f"{interval_s:g}s",
            "__interval_ms": f"{interval_s * 1000:g}",
            "__rate_interval": f"{max(interval_s + SCRAPE_S, 4 * SCRAPE_S):g}s",
            "__range": f"{self.range_s:g}s",
            "__range_s": f"{self.range_s:g}",
            "__from": f"{self.from_s * 1000:.0f}",
            "__to": f"{self.at_s * 1000:.0f}",
        }
        return _filled(text, {**self.variables(), **own, **more})

    def ask(self, panel: Panel, target: Mapping[str, Any], **more: str) -> list[Found]:
        text = self.filled(panel, target["expr"], **more)
        if target.get("instant") and not target.get("range"):
            return self.prometheus.at(text, self.at_s)
        step_s = max(self.interval_s(panel), _seconds(target.get("interval") or "0s"))
        begin_s, end_s = (step_s * math.floor(at_s / step_s) for at_s in (self.from_s, self.at_s))
        return self.prometheus.over(text, begin_s, end_s, step_s)

    def answers(self, panel: Panel, **more: str) -> Answers:
        return {
            target["refId"]: self.ask(panel, target, **more)
            for target in panel["targets"]
            if not target.get("hide")
        }

    def repeats(self, panel: Panel) -> list[dict[str, str]]:
        """What each panel has in place of the variable that it is repeated for."""
        name = panel.get("repeat")
        return [{name: value} for value in self.options(name)] if name else [{}]

    # ---- what is shown -----------------------------------------------------------------

    def panel(self, title: str) -> dict[str, Any]:
        (found,) = [panel for panel in self.dashboard.asking if panel["title"] == title]
        return found

    def first_screen(self) -> list[dict[str, Any]]:
        """The panels that somebody sees who does not scroll and opens no row."""
        return [
            panel
            for panel in self.dashboard.json["panels"]
            if panel["type"] != "row" and panel["gridPos"]["y"] < ROWS_ON_SCREEN
        ]

    def tiles(self, panel: Panel) -> list[Cell]:
        return shown.tiles(panel, self.answers(panel))

    def bars(self, panel: Panel) -> list[tuple[str, Cell]]:
        return shown.bars(panel, self.answers(panel))

    def table(self, panel: Panel) -> list[dict[str, Cell]]:
        return shown.table(panel, self.answers(panel))

    def timeline(self, panel: Panel) -> dict[str, list[State]]:
        return shown.timeline(panel, self.answers(panel))

    def cells(self, panel: Panel) -> list[Cell]:
        """Everything that has a text and a colour of its own, whatever kind of panel it is."""
        match panel["type"]:
            case "stat":
                return self.tiles(panel)
            case "bargauge":
                return [cell for _, cell in self.bars(panel)]
            case "table":
                return [cell for row in self.table(panel) for cell in row.values()]
            case "state-timeline" if not _is_matrix(panel):
                return [state.cell for row in self.timeline(panel).values() for state in row]
        return []


def _is_matrix(panel: Panel) -> bool:
    """Whether the rows of a timeline are not its series."""
    return any(t["id"] == "groupingToMatrix" for t in panel.get("transformations", []))


def _filled(text: str, values: Mapping[str, str]) -> str:
    return NAMED.sub(lambda found: values[found[1] or found[2]], text)


def _seconds(duration: str) -> float:
    found = DURATION.fullmatch(duration)
    assert found, duration
    return int(found[1]) * UNITS_S[found[2]]


def numbers(found: Sequence[Found]) -> list[float]:
    return [value for series in found for value in series.numbers]
