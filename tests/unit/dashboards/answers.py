"""What Prometheus answers each query of the dashboards, for recorded hosts with known events.

`python -m tests.unit.dashboards.answers` writes answers.json again after a change of a query, of a
metric or of the events. Read the difference before you commit it.

The file has, by view and dashboard, each query that has an answer: the title of its panel, its letter,
and the labels by which the panel shows its series. Of each series it has the values: each is valid from
a moment, or from a time in minutes and seconds, until the next one. `-` means that the answer does
not have the series any more.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.unit.dashboards import recorded, simulated, synthetic
from tests.unit.dashboards.dashboards import BY_NAME, LABEL_VALUES, VARIABLE, Dashboard, Query
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.simulated import BEGIN_S, HOUR_S, HV1, HV2, HV3, JOB, PAIR, SCRAPE_S

FILE = Path(__file__).with_name("answers.json")
COMMAND = "python -m tests.unit.dashboards.answers"
# The interval of graphs and bars, and that of marks.
STEP_S, MARK_STEP_S = 30.0, 5.0
# A greater value is a time in milliseconds.
LEAST_TIME_MS = 1e12
# Of more series with the same values, only the first and the last are named.
MOST_NAMED = 20
MANY = ("fleet", "decisions", "controller")
# The moments of bridges other than br0 of hv1.
OF_OTHERS = ("quiet", "no answer", "service dead", "bridge gone", "all dead", "no leader")
UNBOUND = {
    *("VM ports now", "Uplink of each VM port", "Rules of VM ports"),
    *("Tunnel endpoints", "Tunnel endpoints: sent"),
}
PATHS = {"Uplinks now", "Links", "Lost between uplinks", "Probes", "Dropped frames"}

# By the name of a moment: the end of the time shown, and its length.
Moments = Mapping[str, tuple[float, float]]
# The labels of a series, and its values by moment or time.
Row = tuple[dict[str, str], dict[str, float]]
# By dashboard and query: the values of each series.
Answers = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class View:
    """Dashboards as they are opened: for which hosts and bridges, from when on, and at which moments.

    `only`: the titles of the panels, if not all; `without`: titles of panels that are left out.
    """

    begin_s: float
    moments: Moments
    dashboards: Sequence[str] = ("bridge",)
    chosen: Mapping[str, str] = field(default_factory=dict)
    only: set[str] = field(default_factory=set)
    without: set[str] = field(default_factory=set)

    @property
    def end_s(self) -> float:
        return list(self.moments.values())[-1][0]

    @property
    def range_s(self) -> float:
        return list(self.moments.values())[-1][1]

    def queries(self, dashboard: Dashboard) -> Iterator[Query]:
        for query in dashboard.queries:
            title = query.place.rpartition(" ")[0]
            if title not in self.without and (not self.only or title in self.only):
                yield query

    def filled(self, text: str, at_s: float, range_s: float, **more: str) -> str:
        """A query as Grafana sends it."""
        values = {
            **{name: self.chosen.get(name, ".+") for name in ("job", "instance", "bridge")},
            "__interval": f"{STEP_S:g}s",
            "__rate_interval": f"{STEP_S + SCRAPE_S:g}s",
            "__range": f"{range_s:g}s",
            "__from": f"{(at_s - range_s) * 1000:.0f}",
            **more,
        }
        return VARIABLE.sub(lambda found: values[found[1]], text)


def _one(job: str, instance: str, bridge: str = "br0") -> dict[str, str]:
    return {"job": job, "instance": instance, "bridge": bridge}


def views() -> dict[str, View]:
    moments = {n: (m.at_s, m.range_s) for n, m in simulated.two_hosts().moments.items()}
    some = {name: moments[name] for name in OF_OTHERS}
    unbound_s, nothing_s = simulated.UNBOUND_BEGIN_S, BEGIN_S - 24 * HOUR_S
    synthetic_s = synthetic.SYNTHETIC_BEGIN_S
    now = {"now": (synthetic.NOW_S, synthetic.SHOWN_S)}
    downs = {"Uplinks down", "Wrong now", "Bridges"}
    return {
        "two hosts": View(BEGIN_S, moments, MANY),
        "hv1 br0": View(BEGIN_S, moments, chosen=_one(JOB, HV1)),
        "hv1 br1": View(BEGIN_S, some, chosen=_one(JOB, HV1, "br1")),
        "hv2 br0": View(BEGIN_S, some, chosen=_one(PAIR, HV2)),
        # The ten with the most errors are chance: most hosts have none.
        "forty hosts": View(
            synthetic_s,
            now,
            MANY,
            {"instance": "node.+"},
            without={"Configuration errors by bridge"},
        ),
        "VM port without an uplink": View(
            unbound_s,
            {name: (unbound_s + t_s, t_s) for name, t_s in simulated.UNBOUND_S.items()},
            chosen=_one(JOB, HV3),
            only=UNBOUND,
        ),
        **{
            f"uplink that is {role}": View(
                synthetic_s, now, (*MANY, "bridge"), _one(JOB, instance), downs
            )
            for instance, role in synthetic.ROLES.items()
        },
        "path checks": View(synthetic_s, now, chosen=_one(JOB, synthetic.PATHS), only=PATHS),
        "ages of decisions": View(
            synthetic_s, now, MANY, only={"Services", "Alerts", "Age of the last decision"}
        ),
        "slow bridges": View(synthetic_s, now, MANY, only={"Slowest polls", "Convergence time"}),
        "counts": View(
            synthetic_s,
            now,
            MANY,
            {"instance": "count-.+"},
            {"Moves by bridge", "Bridges", "Applied", "Applied by reason"},
        ),
        "nothing recorded": View(
            nothing_s, {"now": (nothing_s + HOUR_S, HOUR_S)}, (*MANY, "bridge")
        ),
    }


@contextlib.contextmanager
def answering() -> Iterator[Prometheus]:
    """A Prometheus with all recordings."""
    series = simulated.two_hosts().series | simulated.unbound()
    with tempfile.TemporaryDirectory() as directory:
        recorded.store(series | simulated.alerts() | synthetic.series(), Path(directory))
        with recorded.answering(Path(directory)) as prometheus:
            yield prometheus


# ---- queries ---------------------------------------------------------------------------


def made(prometheus: Prometheus) -> dict[str, Answers]:
    return {
        name: {board: _of(prometheus, view, BY_NAME[board]) for board in view.dashboards}
        for name, view in views().items()
    }


def _of(prometheus: Prometheus, view: View, dashboard: Dashboard) -> dict[str, Any]:
    told: dict[str, Any] = {}
    options: dict[str, list[str]] = {}
    for name, query in dashboard.value_queries.items() if not view.only else ():
        asked = LABEL_VALUES.fullmatch(view.filled(query.text, view.end_s, view.range_s))
        assert asked, f"not a query for the values of a label: {query.text}"
        options[name] = prometheus.values(asked[1], asked[2], view.begin_s, view.end_s)
        told[query.place] = _names(options[name])
    for query in view.queries(dashboard):
        # A panel is repeated for each value of a variable.
        repeats = [{query.repeat: v} for v in options[query.repeat]] if query.repeat else [{}]
        rows = [
            (labels | more, values)
            for more in repeats
            for labels, values in ask(prometheus, view, query, **more)
        ]
        place, series = _told(view, query, rows)
        told[place] = series
    return {place: series for place, series in told.items() if series}


def ask(prometheus: Prometheus, view: View, query: Query, **more: str) -> list[Row]:
    """All series of a query, each with its values."""
    if not query.instant:
        step_s = MARK_STEP_S if query.is_mark else STEP_S
        text = view.filled(query.text, view.end_s, view.range_s, **more)
        found = prometheus.over(text, view.begin_s, view.end_s, step_s)
        return [
            (labels, {_clock(at_s - view.begin_s): value for at_s, value in points.items()})
            for labels, points in found
        ]
    rows: dict[str, Row] = {}
    for name, (at_s, range_s) in view.moments.items():
        text = view.filled(query.text, at_s, range_s, **more)
        for labels, points in prometheus.at(text, at_s):
            _, values = rows.setdefault(json.dumps(labels, sort_keys=True), (labels, {}))
            (values[name],) = points.values()
    return list(rows.values())


# ---- text ------------------------------------------------------------------------------


def _told(view: View, query: Query, rows: Sequence[Row]) -> tuple[str, dict[str, str]]:
    """The place of a query with the labels of its series, and the values of each series."""
    every = {label for own, _ in rows for label in own}
    # With other labels, the rows of several queries would not be the same ones.
    assert not query.columns or every <= query.columns, f"{query} has {every - query.columns}, too"
    labels = sorted(every & (query.shown | query.columns | {query.repeat}))
    steps = round((view.end_s - view.begin_s) / STEP_S)
    times = view.moments if query.instant else [_clock(n * STEP_S) for n in range(steps + 1)]
    told: dict[str, str] = {}
    for own, values in rows:
        name = " ".join(own.get(label) or "-" for label in labels)
        assert name not in told, f"{query}: two series of the name {name}"
        texts = {time: _text(view, value) for time, value in values.items()}
        told[name] = ", ".join(
            dict.fromkeys(texts.values()) if query.is_mark else _runs(times, texts)
        )
    alike: dict[str, list[str]] = {}
    for name, text in sorted(told.items()):
        alike.setdefault(text, []).append(name)
    place = f"{query.place} ({', '.join(labels)})" if labels else query.place
    return place, {_names(names): text for text, names in alike.items()}


def _runs(times: Iterable[str], texts: Mapping[str, str]) -> Iterator[str]:
    """The values that differ from the one before, with their times."""
    last = "-"
    for time in times:
        text = texts.get(time, "-")
        if text != last:
            yield f"{time} {text}"
        last = text


def _names(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{len(names)} from {names[0]} to {names[-1]}"
    return "; ".join(names)


def _text(view: View, value: float) -> str:
    if value > LEAST_TIME_MS:
        return f"at {_clock(value / 1000 - view.begin_s)}"
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes:02}:{seconds:02}"


def written(answers: Mapping[str, Answers]) -> str:
    """The text of the file: the moments with what had happened before, and the answers."""
    recording = simulated.two_hosts()
    moments = {n: f"{_clock(m.at_s - BEGIN_S)} {m.text}" for n, m in recording.moments.items()}
    told = {"moments": moments, "answers": answers}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    with answering() as started:
        FILE.write_text(written(made(started)))
