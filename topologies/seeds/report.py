"""`shift_seeds/report.json`, and the same as text, as a page and as a section of the document."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from topologies.compare.expectation import Expectation
from topologies.reports.markup import Markup, tag
from topologies.reports.style import CSS
from topologies.seeds.figures import SPAN_S
from topologies.seeds.judging import OURS
from topologies.seeds.outcome import CONTROL, JUMP, TOLD

NAME = "shift_seeds"
Record = Mapping[str, Any]
# Everything that only those want who look for a cause.
_DETAILS = "details"
SIGNIFICANT_DIGITS = 6

TEXT = """\
`ovs-lbt bench shift --seeds {count}`: loads that jump, drawn by number. 2 to 4 uplinks of mixed speeds, 4 to 24 VMs with UDP,
at most 250 Mbit/s in all; the VMs of one uplink together go to 105 to 130 % of what it carries, each at a moment of its own within
200 ms, and there is a placement of whole VM ports that keeps every uplink below 85 %. Queues of 300 kB. *Lost*: of what was sent in
the {watched_s:g} s from the first start on. *Perfect*: what a decider loses that sees at polls of 100 ms what every VM sends just then,
and moves at once; simulated as a fluid, the mean over {phases} phases of its polls. *Highest*: the most that an uplink was used over
any {span_s:g} s from 1 s after the last start. *Control*: `adaptive`, the same total, every uplink used alike from the beginning,
without a jump."""


def build(
    environment: Mapping[str, Any],
    watched_s: float,
    records: Sequence[Record],
    expectations: Sequence[Expectation],
) -> dict[str, Any]:
    """The report of all records; a figure that was not measured is absent, never zero."""
    return {
        "layout": NAME,
        "environment": dict(environment),
        "watched_s": watched_s,
        "contenders": _contenders(records, JUMP),
        "control": _contenders(records, CONTROL),
        "perfect": _over(one["perfect"] for one in records),
        "nobody": _over(one["nobody"] for one in records),
        "seeds": [
            {
                key: _bare(value) if key in (JUMP, CONTROL) else _rounded(value)
                for key, value in one.items()
                if key not in ("settings", "watched_s")
            }
            for one in records
        ],
        "expectations": [asdict(one) for one in expectations],
    }


def _contenders(records: Sequence[Record], kind: str) -> dict[str, Any]:
    names = dict.fromkeys(name for one in records for name in one[kind])
    return {name: _over(one[kind][name] for one in records if name in one[kind]) for name in names}


def _over(runs: Iterable[Mapping[str, float]]) -> dict[str, Any]:
    """Medians, and the worst of what is the better the less."""
    listed = list(runs)
    names = [name for name in (*TOLD, "worst_loss_ratio") if any(name in one for one in listed)]
    found: dict[str, Any] = {}
    for name in names:
        values = [one[name] for one in listed if name in one]
        found[name] = statistics.median(values)
        if name in ("loss_ratio", "excess_loss_ratio", "highest_ratio", "relieved_s", "moves"):
            found[f"most_{name}"] = max(values)
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def _bare(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        name: _rounded({key: value for key, value in run.items() if key != _DETAILS})
        for name, run in runs.items()
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value


def table(report: Mapping[str, Any]) -> list[list[str]]:
    """A row for each jump, below a head; then medians and worst."""
    names = list(report["contenders"])
    controlled = bool(report["control"])
    head = ["jump", "uplinks, Mbit/s", "VMs", "offered, Mbit/s", "to", "best", "perfect lost"]
    for name in names:
        head += [f"{name} lost", "highest", "moves"]
    rows = [head + (["control lost"] if controlled else [])]
    for one in report["seeds"]:
        row = [
            one["instance"]["name"],
            "/".join(str(mbps) for mbps in one["instance"]["uplinks_mbps"]),
            str(len(one["instance"]["vms"])),
            f"{one['offered_bps'] / 1e6:.0f}",
            f"{one['jump_ratio']:.0%}",
            f"{one['best_ratio']:.0%}",
            f"{one['perfect']['loss_ratio']:.3%}",
        ]
        for name in names:
            row += _cells(one[JUMP].get(name))
        if controlled:
            losses = [run["loss_ratio"] for run in one[CONTROL].values()]
            row.append(f"{max(losses):.4%}" if losses else "")
        rows.append(row)
    for word, of in (("median", ""), ("worst", "most_")):
        label = f"{word}, n = {len(report['seeds'])}"
        row = [label, *[""] * 5, f"{report['perfect'][f'{of}loss_ratio']:.3%}"]
        for name in names:
            found = report["contenders"][name]
            keys = [f"{of}{key}" for key in ("loss_ratio", "highest_ratio", "moves")]
            row += _cells(dict(zip(_CELLS, (found[key] for key in keys), strict=True)))
        if controlled:
            losses = [found[f"{of}loss_ratio"] for found in report["control"].values()]
            row.append(f"{max(losses):.4%}")
        rows.append(row)
    return rows


_CELLS = ("loss_ratio", "highest_ratio", "moves")


def _cells(run: Mapping[str, float] | None) -> list[str]:
    if run is None:
        return [""] * len(_CELLS)
    return [f"{run['loss_ratio']:.3%}", f"{run['highest_ratio']:.0%}", f"{run['moves']:g}"]


def line(record: Record) -> str:
    """One jump in one line, for the terminal."""
    instance = record["instance"]
    speeds = "/".join(str(mbps) for mbps in instance["uplinks_mbps"])
    parts = [
        f"{instance['name']}: {speeds}, {len(instance['vms'])} VMs,"
        f" to {record['jump_ratio']:.0%} (best {record['best_ratio']:.0%});"
        f" perfect {record['perfect']['loss_ratio']:.3%}"
    ]
    for name, run in record[JUMP].items():
        parts.append(
            f"{name} {run['loss_ratio']:.3%}, highest {run['highest_ratio']:.0%},"
            f" {run['moves']:g} moves"
        )
    parts += [f"control {run['loss_ratio']:.4%}" for run in record[CONTROL].values()]
    return "; ".join(parts)


def page(report: Mapping[str, Any]) -> str:
    """The report as one HTML file that needs nothing else."""
    head, *rows = table(report)
    verdicts = [
        tag("li", _verdict(one["met"]), tag("span", one["condition"], ": ", one["found"]))
        for one in sorted(report["expectations"], key=lambda one: bool(one["met"]))
    ]
    body = tag(
        "body",
        tag("header", tag("p", "ovs-lbt bench", class_="above"), tag("h1", NAME)),
        tag("ul", *verdicts, class_="verdicts"),
        tag("p", _plain(_text(report))),
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head))),
                tag("tbody", *(_row(row) for row in rows)),
            ),
            class_="wide",
        ),
        tag("p", _environment(report["environment"]), class_="soft"),
    )
    title = tag("title", f"{NAME} – ovs-lbt bench")
    html = tag(
        "html",
        tag("head", tag("meta", charset="utf-8"), title, tag("style", Markup(CSS))),
        body,
        lang="en",
    )
    return f"<!DOCTYPE html>\n{html}\n"


def section(report: Mapping[str, Any], note: str = "") -> str:
    """The report in Markdown, for docs/benchmarks.md; the note is prose on it."""
    head, *rows = table(report)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    drawn = "\n".join(f"| {' | '.join(one)} |" for one in lines)
    verdicts = "\n".join(
        f"- {'PASS' if one['met'] else '**FAIL**'} {one['condition']}: {one['found']}"
        for one in report["expectations"]
    )
    parts = [f"## {NAME}", _text(report), verdicts, drawn, note]
    parts.append(f"Environment: {_environment(report['environment'])}.")
    return "\n\n".join(part for part in parts if part)


def _text(report: Mapping[str, Any]) -> str:
    from topologies.seeds.fluid import PHASES

    return TEXT.format(
        count=len(report["seeds"]), watched_s=report["watched_s"], phases=PHASES, span_s=SPAN_S
    )


def _plain(text: str) -> str:
    return text.replace("`", "").replace("*", "")


def _row(row: Sequence[str]) -> Markup:
    first, *others = row
    return tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in others))


def _verdict(holds: bool) -> Markup:
    word = "PASS" if holds else "FAIL"
    return tag("span", word, class_=f"verdict {word.lower()}")


def _environment(environment: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in environment.items())


__all__ = ["NAME", "OURS", "build", "line", "page", "section", "table"]
