"""The conditions that the results of many load jumps must meet."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from topologies.compare.expectation import Expectation
from topologies.seeds.figures import FULL_RATIO, SPAN_S
from topologies.seeds.records import CONTROL, JUMP

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
