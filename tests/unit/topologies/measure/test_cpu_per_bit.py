"""Figures of CPU time per bit, from what was counted."""

from __future__ import annotations

from typing import Any

import pytest

from topologies.measure.cpu_per_bit import BASE, paired_ratios, switch_cpu_s, table


def run(name: str, repetition: int, main_s: float) -> dict[str, Any]:
    return {
        "contender": name,
        "repetition": repetition,
        "loads": {
            "udp": {
                "span_s": 20.0,
                "delivered_bits": 2e9,
                "cpu_s": {"ovs-lbt": 1.0},
                "switch": {
                    "cpu_s": {"main": main_s, "handler": 1.0},
                    "sleeps": 100,
                    "packets": {"packets received": 4000.0, "miss with success upcall": 2.0},
                },
                "cached_flows": 8,
            }
        },
    }


RUNS = [run(BASE, 1, 9.0), run("ours", 1, 10.0), run(BASE, 2, 19.0), run("ours", 2, 21.0)]


def test_ratios_are_of_the_same_repetition() -> None:
    ratios = paired_ratios(RUNS, "udp", switch_cpu_s)
    assert ratios == {BASE: [1.0, 1.0], "ours": [pytest.approx(1.1), pytest.approx(1.1)]}


def test_the_table_has_medians_and_ranges() -> None:
    shown = table(RUNS)
    assert "ours (n = 2): Mbit/s 100 (100 to 100); switch, s/Gbit 8.25 (5.5 to 11)" in shown
    assert "packets/s 200 (200 to 200)" in shown
