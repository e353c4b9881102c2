"""The conditions on many jumps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from topologies.compare.expectation import Expectation
from topologies.seeds.figures import FULL_RATIO, SPAN_S
from topologies.seeds.outcome import CONTROL, JUMP

OURS = "adaptive"
# More than the perfect decider's: in points of what was sent.
MOST_MEDIAN_EXCESS = 0.001
MOST_WORST_EXCESS = 0.003
MOST_CONTROL_LOSS = 0.0001
# Of what was planned: what the machine had no time to send was no load.
LEAST_SENT_RATIO = 0.99
Record = Mapping[str, Any]


def expectations(records: Sequence[Record]) -> list[Expectation]:
    """What holds of the policy, and of the bed that it was measured on."""
    found = [*_policy(records), *_bed(records)]
    for one in records:
        found += [
            Expectation("every run comes to its end", f"{_name(one)}, {failure}", met=False)
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
            f"{OURS}: from 1 s after the last start no uplink above {FULL_RATIO:.0%}"
            f" over any {SPAN_S:g} s",
            f"{highest[fullest]:.1%} ({fullest}); {above} of {len(runs)} above",
            above == 0,
        ),
    ]


def _bed(records: Sequence[Record]) -> list[Expectation]:
    found = []
    controls = {_name(one): run["loss_ratio"] for one in records for run in one[CONTROL].values()}
    if controls:
        worst = max(controls, key=lambda name: controls[name])
        found.append(
            Expectation(
                f"bed: without a jump less than {MOST_CONTROL_LOSS:.2%} is lost",
                f"{controls[worst]:.4%} ({worst})",
                controls[worst] < MOST_CONTROL_LOSS,
            )
        )
    sent = {
        f"{_name(one)}, {kind}, {who}": run["sent_ratio"]
        for one in records
        for kind in (JUMP, CONTROL)
        for who, run in one[kind].items()
    }
    if sent:
        least = min(sent, key=lambda name: sent[name])
        found.append(
            Expectation(
                f"bed: at least {LEAST_SENT_RATIO:.0%} of what was planned was sent",
                f"{sent[least]:.2%} ({least})",
                sent[least] >= LEAST_SENT_RATIO,
            )
        )
    strangers = [_name(one) for one in records if one[JUMP].get(OURS, {}).get("strangers")]
    if any(OURS in one[JUMP] for one in records):
        found.append(
            Expectation(
                f"bed: under {OURS} every VM is at home before the jump",
                ", ".join(strangers) or "all",
                not strangers,
            )
        )
    return found


def _name(record: Record) -> str:
    return str(record["instance"]["name"])
