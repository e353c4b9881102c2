"""Builds small reports of a bench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CAPACITY_BPS = 100_000_000
UPLINKS = {"uplink1": CAPACITY_BPS, "uplink2": CAPACITY_BPS}
LIMIT_BPS = 2 * CAPACITY_BPS


def figures(share: float, spread_cv: float = 0.01, cpu_ratio: float = 1.0) -> dict[str, float]:
    """The figures of a run with this share of the limit."""
    return {
        "throughput_bps": share * LIMIT_BPS,
        "share_of_limit": share,
        "spread_cv": spread_cv,
        "moves": 2,
        "loss_ratio": 0.0004,
        "cpu_s": 12.5,
        "cpu_s_per_gbit": 7.5,
        "cpu_s_ovs-vswitchd": 11.25,
        "cpu_ratio": cpu_ratio,
    }


def contender(*runs: Mapping[str, float]) -> dict[str, Any]:
    """A contender's repetitions; the second of three is their median."""
    return {**runs[len(runs) // 2], "runs": [dict(run) for run in runs]}


def scenario(
    contenders: Mapping[str, Any],
    name: str = "team to team",
    published: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One scenario of the two uplinks."""
    return {
        "name": name,
        "what": "Streams from one VM to the other.",
        "limit_bps": LIMIT_BPS,
        "uplinks": UPLINKS,
        "published": published or {},
        "contenders": dict(contenders),
    }


def report(*scenarios: Mapping[str, Any], layout: str = "set_vs_lbfo") -> dict[str, Any]:
    """A report with these scenarios; by default with two, three contenders and repetitions."""
    chosen = scenarios or (
        scenario(
            {
                "manual": contender(figures(0.61), figures(0.62), figures(0.63)),
                "balance-tcp": contender(*(figures(0.91, 0.02, 1.25),) * 3),
                "dynamic": contender(
                    *(
                        {**figures(share, 0.012, 1.375), "stream_cv": 0.0226}
                        for share in (0.92, 0.935, 0.951)
                    )
                ),
            },
            published={"dynamic": {"share_of_limit": 0.938}, "SET": {"share_of_limit": 0.915}},
        ),
        scenario(
            {
                "manual": contender({**figures(0.5), "blackout_ms": 812.25}),
                "dynamic/lacp": contender(figures(0.3)),
            },
            name="fault",
        ),
    )
    return {
        "layout": layout,
        "limit_bps": LIMIT_BPS,
        "published": {"source": "Hyper-V 2016 and the Small Business, Altaro"},
        "environment": {
            "kernel": "6.1",
            "cpus": 2,
            "pace": {"name": "quick", "window_s": 1.0, "poll_interval_ms": 200},
        },
        "contenders": chosen[0]["contenders"],
        "scenarios": list(chosen),
        "expectations": [
            {"condition": "total within 5%", "found": "93.5 %", "met": True},
            {"condition": "no duplicates", "found": "3", "met": False},
        ],
    }
