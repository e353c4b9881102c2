"""What the figures of `make bench-paths` make of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from tests.switch import path_figures
from tests.switch.bed import Uplink
from tests.switch.path_figures import CONTENDERS, FOUND_WITHIN_S, MTU, PPS, Found, judged
from tests.switch.wire import Point

BEGAN_AT, ENDED_AT = 1000.0, 1006.0
CHECKED, BOND = str(CONTENDERS[0]), str(CONTENDERS[-1])
UPLINK = Uplink("u0", Point("its end", "t0"))


def entry(event: str, after_s: float, why: str = "", **more: Any) -> dict[str, Any]:
    return {"at": BEGAN_AT + after_s, "event": event, "why": why, **more}


def found(lost_for_s: float, *entries: dict[str, Any], before: int = 0) -> Found:
    """What came of a fault by which one flow lost everything for a time."""
    lost_at = [BEGAN_AT - 0.5] * before
    lost_at += [BEGAN_AT + n / PPS for n in range(round(lost_for_s * PPS))]
    silent = int(lost_at[-1] >= ENDED_AT - 0.1)
    return judged(lost_at, silent, entries, BEGAN_AT, sent_per_s=PPS, sender_late_s=0.0)


def test_losses_are_parted_by_the_finding() -> None:
    seen = found(2.6, entry("path-fault", 2.499, "why"), entry("moved", 2.5), before=1)
    assert (seen.found_after_s, seen.moved_after_s, seen.lossless_after_s) == (2.499, 2.5, 2.59)
    assert (seen.lost_before, seen.lost_until_found, seen.lost_after) == (1, 250, 10)
    assert seen.lost_after_at_s[:2] == (2.5, 2.51) and seen.told == ("why",)


def test_what_is_lost_at_the_end_is_lost_until_it_is_mended() -> None:
    seen = found(ENDED_AT - BEGAN_AT)
    assert seen.found_after_s is seen.moved_after_s is seen.lossless_after_s is None
    assert (seen.lost_until_found, seen.lost_after) == (600, 0)


@pytest.mark.parametrize(
    ("why", "uplink", "counts"),
    [
        ("frames are lost between it and the others", "u0", True),
        ("frames of VLAN 30 that fill an MTU of 9000 are lost", "u0", True),
        ("frames of VLAN 10 that fill an MTU of 9000 are lost", "u0", False),
        ("frames are lost between it and the others", "u1", False),
        ("which of them is at fault is not known", None, False),
    ],
)
def test_a_fault_counts_if_it_is_that_of_the_uplink_and_of_the_vms(
    why: str, uplink: str | None, counts: bool
) -> None:
    assert path_figures.is_fault(entry("path-fault", 2, why, uplink=uplink), UPLINK) is counts


def test_what_leaves_the_uplink_counts_as_moved() -> None:
    for source, counts in ((UPLINK.name, True), ("u1", False)):
        moves = [{"port": "v0", "source": source, "target": "u2", "reason": "rule"}]
        assert path_figures.has_left(entry("moved", 2, moves=moves), UPLINK) is counts


@pytest.mark.parametrize(
    ("contender", "after_s", "late"),
    [
        (CHECKED, FOUND_WITHIN_S, False),
        (CHECKED, FOUND_WITHIN_S + 0.1, True),
        (CHECKED, None, True),
        (BOND, None, False),
    ],
)
def test_only_path_checks_can_be_late(contender: str, after_s: float | None, late: bool) -> None:
    assert path_figures.is_late({"contender": contender, "found_after_s": after_s}) is late


def test_the_table_says_who_loses_frames_until_somebody_mends_the_fault() -> None:
    checked = found(2.6, entry("path-fault", 2.499), entry("moved", 2.5))
    # Six frames of 100 were lost before the fault.
    does_not_count = {"fault": MTU, "contender": CHECKED, **asdict(found(5, before=6))}
    assert not path_figures.counts(does_not_count)
    runs: Sequence[dict[str, Any]] = [
        does_not_count,
        {"fault": MTU, "contender": CHECKED, **asdict(checked)},
        {"fault": MTU, "contender": CHECKED, **asdict(found(2, entry("path-fault", 1.9)))},
        {"fault": MTU, "contender": BOND, **asdict(found(ENDED_AT - BEGAN_AT))},
    ]
    _, _, ours, bond = path_figures.table(runs).splitlines()
    assert ours.startswith(f"| MTU, {CHECKED} | 2 | 2.20 (1.90 to 2.50) |")
    assert bond == f"| MTU, {BOND} | 1 | – | – | 600 | – | {path_figures.MENDED} |"
