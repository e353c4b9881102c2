"""The report of a campaign, and the conditions that many load jumps must meet."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from topologies.compare.expectation import Expectation
from topologies.reports import markdown
from topologies.reports.report import rounded
from topologies.seeds.figures import FULL_RATIO, SPAN_S
from topologies.seeds.records import CONTROL, JUMP, RECORDED_FIGURES

OURS = "adaptive"
# Loss in excess of the perfect decider's, as a ratio of what was sent.
MOST_MEDIAN_EXCESS = 0.001
MOST_WORST_EXCESS = 0.003
MOST_CONTROL_LOSS = 0.0001
# A machine that is too busy sends less than planned, and the load is then another one.
LEAST_SENT_RATIO = 0.99
Record = Mapping[str, Any]


def expectations(records: Sequence[Record]) -> list[Expectation]:
    """The conditions on the policy, and on the testbed that measured it."""
    found = [*_policy(records), *_testbed(records)]
    for one in records:
        found += [
            Expectation("every run completes", f"{_name(one)}, {failure}", met=False)
            for failure in one["failures"]
        ]
    return found


def _policy(records: Sequence[Record]) -> list[Expectation]:
    runs = {_name(one): one[JUMP][OURS] for one in records if OURS in one[JUMP]}
    if not runs:
        return []
    excess = {name: run["excess_loss_ratio"] for name, run in runs.items()}
    median = statistics.median(excess.values())
    worst = max(excess, key=lambda name: excess[name])
    highest = {name: run["highest_ratio"] for name, run in runs.items()}
    fullest = max(highest, key=lambda name: highest[name])
    above = sum(ratio > FULL_RATIO for ratio in highest.values())
    return [
        Expectation(
            f"{OURS}: median loss above the perfect decider's at most"
            f" {MOST_MEDIAN_EXCESS * 100:g} points",
            f"{median * 100:.3f}",
            median <= MOST_MEDIAN_EXCESS,
        ),
        Expectation(
            f"{OURS}: worst loss above the perfect decider's at most"
            f" {MOST_WORST_EXCESS * 100:g} points",
            f"{excess[worst] * 100:.3f} ({worst});"
            f" {sum(one > MOST_WORST_EXCESS for one in excess.values())} of {len(excess)} above",
            excess[worst] <= MOST_WORST_EXCESS,
        ),
        Expectation(
            f"{OURS}: from 1 s after the last start, no uplink above {FULL_RATIO:.0%}"
            f" over any {SPAN_S:g} s",
            f"{highest[fullest]:.1%} ({fullest}); {above} of {len(runs)} above",
            above == 0,
        ),
    ]


def _testbed(records: Sequence[Record]) -> list[Expectation]:
    found = []
    controls = {_name(one): run["loss_ratio"] for one in records for run in one[CONTROL].values()}
    if controls:
        worst = max(controls, key=lambda name: controls[name])
        found.append(
            Expectation(
                f"testbed: without a jump, less than {MOST_CONTROL_LOSS:.2%} is lost",
                f"{controls[worst]:.4%} ({worst})",
                controls[worst] < MOST_CONTROL_LOSS,
            )
        )
    sent = {
        f"{_name(one)}, {kind}, {contender}": run["sent_ratio"]
        for one in records
        for kind in (JUMP, CONTROL)
        for contender, run in one[kind].items()
    }
    if sent:
        least = min(sent, key=lambda name: sent[name])
        found.append(
            Expectation(
                f"testbed: at least {LEAST_SENT_RATIO:.0%} of the planned load was sent",
                f"{sent[least]:.2%} ({least})",
                sent[least] >= LEAST_SENT_RATIO,
            )
        )
    strangers = [_name(one) for one in records if one[JUMP].get(OURS, {}).get("strangers")]
    if any(OURS in one[JUMP] for one in records):
        found.append(
            Expectation(
                f"testbed: under {OURS}, every VM is at home before the jump",
                ", ".join(strangers) or "all",
                not strangers,
            )
        )
    return found


def _name(record: Record) -> str:
    return str(record["instance"]["name"])


NAME = "shift_seeds"
# Time series and logs that help to find the cause of a loss; the report leaves them out.
_DETAILS = "details"

TEXT = """\
`ovs-lbt bench shift --seeds {count}` generates load jumps from seeds, each on a network of its own. Uplinks have mixed
speeds, and VMs send UDP. The loads of one uplink's VMs rise above its capacity, each at a random time within 200 ms. A
placement of whole VM ports exists that keeps every uplink below 85 %.

- *To*: the utilization of that uplink if no VM port moves.
- *Lost*: the share of the datagrams of the first {watched_s:g} s.
- *Perfect*: the loss of a perfect decider, which polls every 100 ms, knows the present rates, and moves VMs immediately.
  A fluid model computes it, as a mean over {phases} phases of the polls."""


def build(
    environment: Mapping[str, Any],
    watched_s: float,
    records: Sequence[Record],
    expectations: Sequence[Expectation],
) -> dict[str, Any]:
    """Build the report of all records. A figure that was not measured is absent, never zero."""
    report = {
        "layout": NAME,
        "environment": dict(environment),
        "watched_s": watched_s,
        "contenders": _contenders(records, JUMP),
        "control": _contenders(records, CONTROL),
        "perfect": _summary(one["perfect"] for one in records),
        "nobody": _summary(one["nobody"] for one in records),
        "seeds": [
            {
                key: _without_details(value) if key in (JUMP, CONTROL) else value
                for key, value in one.items()
                if key not in ("settings", "watched_s")
            }
            for one in records
        ],
        "expectations": [asdict(one) for one in expectations],
    }
    return dict(rounded(report))


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
    return found


def _without_details(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        name: {key: value for key, value in run.items() if key != _DETAILS}
        for name, run in runs.items()
    }


def table(report: Mapping[str, Any]) -> list[list[str]]:
    """A header row, a row for each jump, and rows with the medians and the worst values."""
    names = list(report["contenders"])
    rows = [["jump", "uplinks, Mbit/s", "VMs", "to", "perfect lost"]]
    rows[0] += [f"{name} lost" for name in names]
    for one in report["seeds"]:
        losses = [one["perfect"], *(one[JUMP].get(name, {}) for name in names)]
        rows.append(
            [
                one["instance"]["name"],
                "/".join(str(mbps) for mbps in one["instance"]["uplinks_mbps"]),
                str(len(one["instance"]["vms"])),
                f"{one['jump_ratio']:.0%}",
                *(f"{run['loss_ratio']:.3%}" if run else "" for run in losses),
            ]
        )
    summaries = [report["perfect"], *(report["contenders"][name] for name in names)]
    for word, key in (("median", "loss_ratio"), ("worst", "most_loss_ratio")):
        label = f"{word}, n = {len(report['seeds'])}"
        rows.append([label, "", "", "", *(f"{found[key]:.3%}" for found in summaries)])
    return rows


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
    """The page of docs/benchmarks, and `report.md`; `note` is prose that follows the table."""
    from topologies.seeds.fluid import PHASES

    head, *rows = table(report)
    text = TEXT.format(count=len(report["seeds"]), watched_s=report["watched_s"], phases=PHASES)
    verdicts = [
        f"{'PASS' if one['met'] else '**FAIL**'} {one['condition']}: {one['found']}"
        for one in report["expectations"]
    ]
    drawn = markdown.table([head, ["---", *["---:"] * (len(head) - 1)], *rows])
    parts = [f"# {NAME}", text, drawn, f"## Expectations\n\n{markdown.bullets(verdicts)}"]
    parts += [note and f"## Notes\n\n{note}"]
    return "\n\n".join(part for part in parts if part)


__all__ = ["NAME", "OURS", "build", "line", "section", "table"]
