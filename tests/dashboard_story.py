"""What the dashboards say in each step of a known story, as a document for people.

`python -m tests.dashboard_story` writes docs/dashboards-story.md anew.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import documents
from tests.unit.dashboards import recorded, story
from tests.unit.dashboards.at_once import at_once
from tests.unit.dashboards.dashboards import BY_NAME
from tests.unit.dashboards.recorded import Prometheus
from tests.unit.dashboards.shown import Cell
from tests.unit.dashboards.story import HV1, JOB, Moment
from tests.unit.dashboards.viewing import Look, Panel

COMMAND = "python -m tests.dashboard_story"
DOCUMENT = documents.ROOT / "docs" / "dashboards-story.md"
# The bridge that its dashboard shows.
CHOSEN = {"job": JOB, "instance": HV1, "bridge": "br0"}
ORDER = ("fleet", "bridge", "decisions", "controller")
# Tables of what has been: of these, only what is new is told.
OF_THE_PAST = {"Last ten moves"}
# A colour that says how well something is, other than one by which names are known again.
JUDGING = {"green", "orange", "red"}
FEW = 4

INTRODUCTION = f"""\
# What the dashboards say

Each step below is something that happened on two hosts with three bridges, and what each dashboard's first screen then
said of it, with its colour. The hosts are simulated, the service's decisions and metrics are its own, a Prometheus
evaluated the queries, and the rules by which Grafana makes texts and colours were applied to the answers. So this is
what to expect on the screen when the same happens to you.

An hour is shown, unless a step says otherwise. Of tables and bars, a step has what is new or has changed since the step
before it. `{COMMAND}` makes this document. `tests/unit/dashboards/test_story.py` compares it with
what is shown, and what is shown with what happened.
"""

AT_ONCE = """\
## What is seen at once

Whoever opens a dashboard wants to know four things within five seconds, without scrolling: whether anything is wrong,
which uplink is full, what was moved last and why, and where to click next. Here is what each first screen answers. What
is wrong is what is red or orange now, and what has an alert. If nothing is, but not everything is known, it says so.
"""


@contextlib.contextmanager
def told(directory: Path) -> Iterator[Prometheus]:
    """A Prometheus that has seen the story, with its alerts, and forty hosts a day later."""
    played, fleet = story.played(), story.fleet()
    recorded.store({**played.series, **fleet.series}, directory)
    spans = (
        (story.BEGIN_S + story.SCRAPE_S, played.moments[-1].at_s),
        (story.FLEET_BEGIN_S + story.SCRAPE_S, story.FLEET_BEGIN_S + story.FLEET_S),
    )
    with recorded.answering(directory) as prometheus:
        found = [recorded.alerts(prometheus, *span) for span in spans]
    # Some alerts are of both times.
    for alerts in found:
        recorded.store(alerts, directory)
    with recorded.answering(directory) as prometheus:
        yield prometheus


def made(prometheus: Prometheus) -> str:
    """The document, as a Prometheus that has seen the story tells it."""
    return "\n".join(
        [
            INTRODUCTION,
            *_steps(),
            AT_ONCE,
            *(line for d in ORDER for line in _at_once(d, prometheus)),
            *(line for d in ORDER for line in _of(d, prometheus)),
        ]
    )


def _steps() -> Iterator[str]:
    yield "## What happened"
    yield ""
    yield "| time | step | what had happened |"
    yield "|---|---|---|"
    for moment in story.played().moments:
        yield _row(_minutes(moment), moment.name, moment.text)
    yield ""


def _at_once(name: str, prometheus: Prometheus) -> Iterator[str]:
    yield f"### {_title(name)}, at once"
    yield ""
    yield "| step | wrong | fullest uplink | moved last, and why | click |"
    yield "|---|---|---|---|---|"
    for moment in story.played().moments:
        seen = at_once(_look(name, moment, prometheus))
        yield _row(moment.name, seen.wrong, seen.fullest, seen.moved, seen.next)
    yield ""


def _title(name: str) -> str:
    return str(BY_NAME[name].json["title"].partition(": ")[2].capitalize())


def _look(name: str, moment: Moment, prometheus: Prometheus) -> Look:
    return Look(prometheus, BY_NAME[name], moment.at_s, moment.range_s, _chosen(name))


def _minutes(moment: Moment) -> str:
    minutes, seconds = divmod(int(moment.at_s - story.BEGIN_S), 60)
    return f"10:{minutes:02}:{seconds:02}"


def _of(name: str, prometheus: Prometheus) -> Iterator[str]:
    looks = [(moment, _look(name, moment, prometheus)) for moment in story.played().moments]
    panels = looks[0][1].first_screen()
    yield f"## {_title(name)}"
    yield ""
    if name == "bridge":
        yield f"Of bridge {CHOSEN['bridge']} of {CHOSEN['instance']}."
        yield ""
    tiles = [panel for panel in panels if panel["type"] == "stat"]
    yield _row("step", *(tile["title"] for tile in tiles))
    yield "|---" * (len(tiles) + 1) + "|"
    for moment, seen in looks:
        yield _row(moment.name, *(", ".join(map(str, seen.tiles(tile))) for tile in tiles))
    yield ""
    for panel in panels:
        if panel["type"] in ("table", "bargauge"):
            yield f"### {panel['title']}" + (" (what is new)" if _is_past(panel) else "")
            yield ""
            yield from _over_time(panel, looks)
            yield ""


def _chosen(name: str) -> dict[str, str]:
    return CHOSEN if name == "bridge" else {}


def _is_past(panel: Panel) -> bool:
    return panel["title"] in OF_THE_PAST


def _over_time(panel: Panel, looks: list[tuple[Moment, Look]]) -> Iterator[str]:
    """Per step: the rows that are new or have changed, and how many there are if that has."""
    before: list[str] | None = None
    known: set[str] = set()
    for moment, seen in looks:
        rows = _bars(panel, seen) if panel["type"] == "bargauge" else _rows(panel, seen)
        told = sorted(set(rows) - known)
        if before is not None and len(rows) != len(before) and not _is_past(panel):
            told.append(f"{len(rows)} {'row' if len(rows) == 1 else 'rows'} in all")
        elif not rows and before is None:
            told = ["nothing"]
        # What has been does not change: a row that comes back is not new.
        known = known | set(rows) if _is_past(panel) else set(rows)
        before = rows
        if len(told) == 1:
            yield f"- **{moment.name}**: {told[0]}"
        elif told:
            yield f"- **{moment.name}**:"
            yield from (f"  - {row}" for row in told)


def _bars(panel: Panel, seen: Look) -> list[str]:
    """The longest. Bars of the same length are in no order."""
    runs = itertools.groupby(seen.bars(panel), key=lambda bar: bar[1])
    bars = [f"{name} {cell}".strip() for cell, run in runs for name, _ in sorted(run, key=_name)]
    more = [f"{len(bars) - FEW} more"] if len(bars) > FEW else []
    return ["; ".join([*bars[:FEW], *more])]


def _name(bar: tuple[str, Cell]) -> str:
    return bar[0]


def _rows(panel: Panel, seen: Look) -> list[str]:
    return [
        ", ".join(f"{t} {_judged(c)}" for t, c in row.items() if c.text not in ("", "-"))
        for row in seen.table(panel)
    ]


def _judged(cell: Cell) -> str:
    return str(cell) if cell.colour in JUDGING else cell.text


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory, told(Path(directory)) as answering:
        DOCUMENT.write_text(made(answering))
