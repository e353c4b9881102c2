"""What the first screen of a dashboard says at once: the four things that somebody comes to know."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dashboards.colours import UNKNOWN
from tests.unit.dashboards import shown
from tests.unit.dashboards.dashboards import ALL
from tests.unit.dashboards.shown import Cell
from tests.unit.dashboards.viewing import Look, Panel

TITLES = {board.json["uid"]: board.json["title"].partition(": ")[2] for board in ALL}
WRONG = {"red", "orange"}
NOTHING, UNKNOWN_YET = "nothing", "not known"
ROW_LABEL = re.compile(r"\$\{__data\.fields\.(\w+)\}")


@dataclass(frozen=True, slots=True)
class AtOnce:
    """`wrong`: what is red or orange, by tile and table. `fullest`: the busiest uplink, and its load.

    `moved`: the VM ports that were moved last, to where and why. `next`: what leads further, and where.
    """

    wrong: str
    fullest: str
    moved: str
    next: str


def at_once(seen: Look) -> AtOnce:
    return AtOnce(_wrong(seen), _fullest(seen), _moved(seen), _next(seen))


def _wrong(seen: Look) -> str:
    """Not of what has happened, such as failovers, which may be over."""
    tiles = [(panel["title"], seen.tiles(panel)[0]) for panel in _of_now(seen, "stat")]
    found = [f"{title}: {cell.text}" for title, cell in tiles if cell.colour in WRONG]
    for panel in (p for p in _first(seen, "table") if p["title"] == "Alerts"):
        if count := len(seen.table(panel)):
            found.append(f"Alerts: {count}")
    if found:
        return "; ".join(found)
    return UNKNOWN_YET if any(cell.colour == UNKNOWN for _, cell in tiles) else NOTHING


def _fullest(seen: Look) -> str:
    for panel in _first(seen, "bargauge"):
        name, cell = seen.bars(panel)[0]
        return f"{name} {cell}".strip()
    (panel,) = (p for p in _first(seen, "stat") if p["title"] == "Busiest uplink")
    return str(seen.tiles(panel)[0])


def _moved(seen: Look) -> str:
    (panel,) = (p for p in _first(seen, "table") if p["title"] == "Last ten moves")
    rows = seen.table(panel)
    last = [row for row in rows if row["When"] == rows[0]["When"]]
    # Of one moment, they are in no order.
    named = sorted(f"{row['VM port'].text} to {row['To'].text}" for row in last)
    reasons = sorted({row["Reason"].text for row in last})
    return f"{', '.join(named)}: {', '.join(reasons)}" if last else NOTHING


def _next(seen: Look) -> str:
    """What to click: an alert, what is wrong, the fullest uplink, whichever of these comes first."""
    for panel in (p for p in _first(seen, "table") if p["title"] == "Alerts"):
        for row in seen.table(panel)[:1]:
            if link := _link(panel, "Bridge"):
                (asked,) = seen.answers(panel).values()
                boards = {s.labels.get("board", "") for s in asked if _is_of(row, s.labels)}
                return f"Alerts, {row['Bridge'].text}: {_there(link, boards)}"
    for panel in _of_now(seen, "stat"):
        if seen.tiles(panel)[0].colour in WRONG and (link := _link(panel)):
            return f"{panel['title']}: {_there(link)}"
    for panel in _first(seen, "bargauge"):
        if (link := _link(panel)) and seen.bars(panel)[0][0]:
            return f"{panel['title']}, {seen.bars(panel)[0][0]}: {_there(link)}"
    above = [link["title"] for link in seen.dashboard.json["links"]]
    return f"above: {', '.join(above)}"


def _is_of(row: dict[str, Cell], labels: object) -> bool:
    assert isinstance(labels, dict)
    return bool(row["Alert"].text == labels["alertname"] and row["Bridge"].text == labels["bridge"])


def _first(seen: Look, kind: str) -> list[Panel]:
    return [panel for panel in seen.first_screen() if panel["type"] == kind]


def _of_now(seen: Look, kind: str) -> list[Panel]:
    """Panels whose queries do not look back."""
    return [
        panel
        for panel in _first(seen, kind)
        if not any("$__range" in target["expr"] for target in panel["targets"])
    ]


def _link(panel: Panel, column: str = "") -> str:
    links = shown.configured(panel, column).get("links") or []
    return str(links[0]["url"]) if links else ""


def _there(url: str, boards: set[str] | None = None) -> str:
    uid = url.removeprefix("/d/").partition("?")[0]
    if ROW_LABEL.fullmatch(uid):
        (uid,) = boards or {""}
    return TITLES[uid]
