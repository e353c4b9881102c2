"""What Grafana makes of a panel's answers: texts and colours, without a Grafana.

As much of Grafana's rules as the dashboards use; whatever else a panel has is refused, so that
nothing is judged by rules that do not apply. Of Grafana 9 to 11: `getDisplayProcessor`, `toFixed`,
the formats of units, `mergeThresholdValues`, and the transformations of tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dashboards import colours
from tests.unit.dashboards.recorded import Found

PLAIN = ""
# What dashboards give a name of their own.
NAMES = {colours.UNKNOWN: "grey"}
# Without steps of its own, a field has these.
STEPS = [{"value": None, "color": "green"}, {"value": 80, "color": "red"}]
IN_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
SHORT = ("", " K", " Mil", " Bil", " Tri")
SI = ("", "k", "M", "G", "T", "P")
ENOUGH_FOR_MORE_DIGITS = 2.25
Json = Mapping[str, Any]
Value = float | str | None


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its colour; none where a text has no colour of its own."""

    text: str
    colour: str = PLAIN

    def __str__(self) -> str:
        colour = NAMES.get(self.colour, self.colour)
        return f"{self.text} ({colour})" if colour else self.text

    @property
    def is_green(self) -> bool:
        return "green" in self.colour


@dataclass(frozen=True, slots=True)
class State:
    """A bar of a timeline: from when on, and how it looks."""

    from_s: float
    cell: Cell


Answers = Mapping[str, Sequence[Found]]


# ---- values ----------------------------------------------------------------------------


def display(config: Json, value: Value) -> Cell:
    """A value as a field with this configuration shows it."""
    number = _number(config, value)
    mapped = (_mapped(mapping, value) for mapping in config.get("mappings", []))
    result = next((found for found in mapped if found is not None), {})
    text, colour = result.get("text"), result.get("color")
    if not math.isnan(number) and text is None:
        text = formatted(config.get("unit", "none"), number, config.get("decimals"))
    if text is None:
        text = "" if value is None else str(value)
        text = text or config.get("noValue", "")
    return Cell(text, colour or _scale(config, -math.inf if math.isnan(number) else number))


def _number(config: Json, value: Value) -> float:
    if config.get("unit") == "string" or value is None:
        return math.nan
    try:
        return float(value)
    except ValueError:
        return math.nan


def _mapped(mapping: Json, value: Value) -> Json | None:
    options = mapping["options"]
    match mapping["type"]:
        case "value":
            found = options.get(_plainly(value))
        case "special":
            is_null = value is None or (isinstance(value, float) and math.isnan(value))
            found = options["result"] if "null" in options["match"] and is_null else None
        case "range":
            low = -math.inf if options.get("from") is None else options["from"]
            high = math.inf if options.get("to") is None else options["to"]
            inside = isinstance(value, int | float) and low <= value <= high
            found = options["result"] if inside else None
        case "regex":
            pattern = options["pattern"].strip("/")
            found = options["result"] if re.search(pattern, _plainly(value)) else None
        case other:
            raise AssertionError(f"a mapping of a kind that is not known here: {other}")
    assert found is None or isinstance(found, Mapping)
    return found


def _plainly(value: Value) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _scale(config: Json, number: float) -> str:
    color = config.get("color", {"mode": "thresholds"})
    match color["mode"]:
        case "fixed":
            return str(color["fixedColor"])
        case "thresholds":
            steps = config.get("thresholds", {"mode": "absolute", "steps": STEPS})
            assert steps["mode"] == "absolute"
            first, *others = steps["steps"]
            reached = [step for step in others if number >= step["value"]]
            return str((reached or [first])[-1]["color"])
        case mode if mode.startswith("palette"):
            return PLAIN
        case mode:
            raise AssertionError(f"a color mode that is not known here: {mode}")


def formatted(unit: str, number: float, decimals: int | None = None) -> str:
    match unit:
        case "percentunit":
            return f"{fixed(100 * number, decimals)}%"
        case "short" | "none":
            return _scaled(number, decimals, 1000, SHORT if unit == "short" else ("",), "")
        case "bps":
            return _scaled(number, decimals, 1000, SI, "b/s", " ")
        case "pps":
            return _scaled(number, decimals, 1000, SI, "p/s", " ")
        case "s":
            return _seconds(number, decimals)
        case "dateTimeAsIso":
            return datetime.fromtimestamp(number / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        case other:
            raise AssertionError(f"a unit that is not known here: {other}")


def fixed(number: float, decimals: int | None = None) -> str:
    """`toFixed`: as many decimals, or as few as tell enough."""
    if decimals is None:
        decimals = _decimals(number)
    factor = 10.0**decimals
    rounded = math.floor(number * factor + 0.5) / factor
    return f"{rounded:.{decimals}f}"


def _decimals(number: float) -> int:
    if number == 0 or number == int(number):
        return 0
    exponent = math.floor(math.log10(abs(number)))
    decimals = 1 - exponent
    if number / 10.0**-decimals > ENOUGH_FOR_MORE_DIGITS:
        decimals += 1
    return max(0, decimals)


def _scaled(
    number: float, decimals: int | None, by: int, names: Sequence[str], unit: str, gap: str = ""
) -> str:
    step, value = 0, number
    while abs(value) >= by and step < len(names) - 1:
        step, value = step + 1, value / by
    suffix = f"{gap}{names[step]}{unit}"
    return f"{fixed(value, decimals)}{suffix if suffix.strip() else ''}"


def _seconds(number: float, decimals: int | None) -> str:
    size = abs(number)
    for below, of_one, name in (
        (1e-6, 1e-9, "ns"),
        (1e-3, 1e-6, "µs"),
        (1, 1e-3, "ms"),
        (60, 1, "s"),
        (3600, 60, "mins"),
        (86400, 3600, "hours"),
        (604800, 86400, "days"),
    ):
        if size < below and size > 0:
            return f"{fixed(number / of_one, decimals)} {name}"
    return (
        f"{fixed(number, decimals)} s" if size == 0 else f"{fixed(number / 604800, decimals)} weeks"
    )


def legend(target: Json, found: Found) -> str:
    """The name of a series."""
    form = target.get("legendFormat", "")
    if form and form != "__auto":
        return IN_LEGEND.sub(lambda label: found.labels.get(label[1], ""), form)
    labels = ", ".join(f'{k}="{v}"' for k, v in sorted(found.labels.items()) if k != "__name__")
    return f"{found.labels.get('__name__', '')}{{{labels}}}"


def configured(panel: Json, name: str, ref: str = "") -> dict[str, Any]:
    """The configuration of a field of this name: the panel's defaults and what overrides them."""
    config = dict(panel["fieldConfig"]["defaults"])
    for override in panel["fieldConfig"]["overrides"]:
        matcher, wanted = override["matcher"]["id"], override["matcher"]["options"]
        match matcher:
            case "byName":
                applies = name == wanted
            case "byRegexp":
                applies = re.search(wanted.strip("/"), name) is not None
            case "byFrameRefID":
                applies = ref == wanted
            case other:
                raise AssertionError(f"a matcher that is not known here: {other}")
        if applies:
            config |= {p["id"]: p.get("value") for p in override["properties"]}
    return config


# ---- panels ----------------------------------------------------------------------------


def tiles(panel: Json, answers: Answers) -> list[Cell]:
    """The numbers of a stat panel, one for each series; of none, what it says then."""
    options = panel["options"]
    named = [
        (name, display(configured(panel, name, target["refId"]), found.value))
        for target in panel["targets"]
        for found in answers[target["refId"]]
        for name in [legend(target, found)]
    ]
    mode = options["textMode"]
    if mode == "auto":
        mode = "value_and_name" if len(named) > 1 else "value"
    made = []
    for name, cell in named:
        texts = {"name": name, "value": cell.text, "value_and_name": f"{name} {cell.text}"}
        made.append(Cell(texts[mode], cell.colour))
    made = made or [_of_nothing(panel)]
    return [Cell(cell.text) for cell in made] if options["colorMode"] == "none" else made


def _of_nothing(panel: Json) -> Cell:
    cell = display(panel["fieldConfig"]["defaults"], None)
    # What stands in place of a value is no name.
    if panel["options"].get("textMode") == "name":
        return Cell("", cell.colour)
    return Cell(cell.text or "No data", cell.colour)


def bars(panel: Json, answers: Answers) -> list[tuple[str, Cell]]:
    """The bars of a bar gauge, in the order of the answer; of none, what it says then."""
    made = [
        (name, display(configured(panel, name, target["refId"]), found.value))
        for target in panel["targets"]
        for found in answers[target["refId"]]
        for name in [legend(target, found)]
    ]
    return made or [("", _of_nothing(panel))]


def timeline(panel: Json, answers: Answers) -> dict[str, list[State]]:
    """The bars of each row of a state timeline; equal neighbours are one where it merges them."""
    made: dict[str, list[State]] = {}
    merges = panel["options"].get("mergeValues", True)
    for target in panel["targets"]:
        for found in answers[target["refId"]]:
            name = legend(target, found)
            config = configured(panel, name, target["refId"])
            by_steps = merges and config.get("color", {}).get("mode") == "thresholds"
            row = made.setdefault(name, [])
            for at_s, value in found.points:
                cell = _threshold(config, value) if by_steps else display(config, value)
                if not (merges and row and row[-1].cell == cell):
                    row.append(State(at_s, cell))
    return made


def _threshold(config: Json, value: float) -> Cell:
    """Where Grafana merges by thresholds, it shows these in place of values and mappings."""
    steps = config["thresholds"]["steps"]
    reached = max(i for i, step in enumerate(steps) if i == 0 or value >= step["value"])
    low = "-Infinity" if reached == 0 else _plainly(float(steps[reached]["value"]))
    last = reached == len(steps) - 1
    text = f"{low}+" if last else f"< {_plainly(float(steps[reached + 1]['value']))}"
    return Cell(text, steps[reached]["color"])


def table(panel: Json, answers: Answers) -> list[dict[str, Cell]]:
    """The rows of a table, each by the titles of its columns."""
    several = len(panel["targets"]) > 1
    frames: list[list[dict[str, Value]]] = []
    for target in panel["targets"]:
        assert target["format"] == "table", panel["title"]
        ref = target["refId"]
        value = f"Value #{ref}" if several else "Value"
        frames.append([{"Time": 0.0, **found.labels, value: found.value} for found in answers[ref]])
    rows = frames[0]
    hidden: set[str] = set()
    titles: dict[str, str] = {}
    order: dict[str, int] = {}
    for transformation in panel["transformations"]:
        options = transformation["options"]
        match transformation["id"]:
            case "merge":
                rows = _merged(frames)
            case "groupBy":
                rows = _grouped(rows, options["fields"])
            case "organize":
                hidden = {name for name, gone in options["excludeByName"].items() if gone}
                titles, order = options["renameByName"], options["indexByName"]
            case "sortBy":
                for sort in reversed(options["sort"]):
                    rows = _sorted(rows, sort["field"], bool(sort.get("desc")))
            case "limit":
                rows = rows[: int(options["limitField"])]
            case other:
                raise AssertionError(f"a transformation that is not known here: {other}")
    present = {name for row in rows for name in row} - hidden
    names = sorted(present, key=lambda name: order.get(name, len(order)))
    for sort in reversed(panel["options"].get("sortBy", [])):
        back = {title: name for name, title in titles.items()}
        name = back.get(sort["displayName"], sort["displayName"])
        rows = _sorted(rows, name, bool(sort.get("desc")))
    shown = [
        (name, title)
        for name in names
        for title in [titles.get(name, name)]
        if not configured(panel, title).get("custom.hidden")
    ]
    return [{title: _cell(panel, title, row.get(name)) for name, title in shown} for row in rows]


def _grouped(rows: list[dict[str, Value]], fields: Json) -> list[dict[str, Value]]:
    """A row for each group; none without a field to group by, and no field that has no operation."""
    keys = [name for name, of in fields.items() if of["operation"] == "groupby"]
    keys = [key for key in keys if any(key in row for row in rows)]
    if not keys:
        return []
    made: dict[tuple[Value, ...], dict[str, Value]] = {}
    for row in rows:
        own = made.setdefault(tuple(row.get(key) for key in keys), {})
        own |= {key: row[key] for key in keys if key in row}
        for name, of in fields.items():
            for reducer in of["aggregations"] if name in row else ():
                assert reducer == "lastNotNull"
                if row[name] is not None:
                    own[f"{name} ({reducer})"] = row[name]
    return list(made.values())


def _sorted(rows: list[dict[str, Value]], name: str, descending: bool) -> list[dict[str, Value]]:
    there = [row for row in rows if row.get(name) is not None]
    gone = [row for row in rows if row.get(name) is None]
    return sorted(there, key=lambda row: row[name], reverse=descending) + gone  # type: ignore[arg-type,return-value]


def _cell(panel: Json, title: str, value: Value) -> Cell:
    config = configured(panel, title)
    cell = display(config, value)
    mode = str(config.get("custom.displayMode", "auto"))
    options = config.get("custom.cellOptions", {})
    coloured = mode.startswith("color") or str(options.get("type", "")).startswith("color")
    return cell if coloured else Cell(cell.text)


def _merged(frames: Iterable[Sequence[Mapping[str, Value]]]) -> list[dict[str, Value]]:
    """Rows that agree in all fields that all frames have are one, as far as they do not differ."""
    there = [frame for frame in frames if frame]
    if not there:
        return []
    common = set.intersection(*({name for row in frame for name in row} for frame in there))
    made: dict[tuple[Value, ...], list[dict[str, Value]]] = {}
    for frame in there:
        for row in frame:
            own = made.setdefault(tuple(row.get(name) for name in sorted(common)), [])
            fitting = [one for one in own if all(one.get(k, v) == v for k, v in row.items())]
            for one in fitting:
                one.update(row)
            if not fitting:
                own.append(dict(row))
    return [row for own in made.values() for row in own]
