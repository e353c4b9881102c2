"""The report of a campaign: as JSON, as a terminal table, and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from topologies.compare.expectation import Expectation
from topologies.seeds.conditions import OURS
from topologies.seeds.figures import SPAN_S
from topologies.seeds.records import CONTROL, JUMP, RECORDED_FIGURES

NAME = "shift_seeds"
Record = Mapping[str, Any]
# Time series and logs that help to find the cause of a loss; the report leaves them out.
_DETAILS = "details"
SIGNIFICANT_DIGITS = 6

TEXT = """\
`ovs-lbt bench shift --seeds {count}`: load jumps that are generated from seeds. A jump has 2 to 4 uplinks of mixed speeds with queues
of 300 kB, and 4 to 24 VMs that send UDP, at most 250 Mbit/s in total. The loads of one uplink's VMs rise to 105 to 130 % of its
capacity, each at a random time within 200 ms. A placement of whole VM ports exists that keeps every uplink below 85 %. *Lost*: the share
of what was sent in the {watched_s:g} s since the first start. *Perfect*: the loss of a perfect decider, which polls every 100 ms, sees
what every VM sends at that moment, and moves VMs at once; a fluid model computes it as a mean over {phases} phases of the polls.
*Highest*: the highest utilization of an uplink over any {span_s:g} s, beginning 1 s after the last start. *Control*: `adaptive` under
the same total load, which uses all uplinks evenly and does not jump."""


def build(
    environment: Mapping[str, Any],
    watched_s: float,
    records: Sequence[Record],
    expectations: Sequence[Expectation],
) -> dict[str, Any]:
    """Build the report of all records. A figure that was not measured is absent, never zero."""
    return {
        "layout": NAME,
        "environment": dict(environment),
        "watched_s": watched_s,
        "contenders": _contenders(records, JUMP),
        "control": _contenders(records, CONTROL),
        "perfect": _summary(one["perfect"] for one in records),
        "nobody": _summary(one["nobody"] for one in records),
        "seeds": [
            {
                key: _without_details(value) if key in (JUMP, CONTROL) else _rounded(value)
                for key, value in one.items()
                if key not in ("settings", "watched_s")
            }
            for one in records
        ],
        "expectations": [asdict(one) for one in expectations],
    }


def _contenders(records: Sequence[Record], kind: str) -> dict[str, Any]:
    names = dict.fromkeys(name for one in records for name in one[kind])
    return {
        name: _summary(one[kind][name] for one in records if name in one[kind]) for name in names
    }


def _summary(runs: Iterable[Mapping[str, float]]) -> dict[str, Any]:
    """Medians, and the worst value of figures where less is better."""
    listed = list(runs)
    names = [
        name
        for name in (*RECORDED_FIGURES, "worst_loss_ratio")
        if any(name in one for one in listed)
    ]
    found: dict[str, Any] = {}
    for name in names:
        values = [one[name] for one in listed if name in one]
        found[name] = statistics.median(values)
        if name in ("loss_ratio", "excess_loss_ratio", "highest_ratio", "relieved_s", "moves"):
            found[f"most_{name}"] = max(values)
    rounded: dict[str, Any] = _rounded(found)
    return rounded


def _without_details(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
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
    """A header row, a row for each jump, and rows with the medians and the worst values."""
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
    """A one-line summary of a jump for the terminal."""
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


def section(report: Mapping[str, Any], note: str = "") -> str:
    """The section of docs/benchmarks.md, and `report.md`; `note` is prose that follows the table."""
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


def _environment(environment: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in environment.items())


__all__ = ["NAME", "OURS", "build", "line", "section", "table"]
