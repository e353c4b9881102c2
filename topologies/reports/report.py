"""Builds `report.json`."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from topologies.compare.figures import Phase, Result
from topologies.compare.plan import Expectation, Options
from topologies.reports.origin import open_vswitch

SIGNIFICANT_DIGITS = 6
WHOLE = ("moves", "downloads")


def machine() -> dict[str, Any]:
    """The properties of the machine that all figures depend on."""
    return {
        "open_vswitch": open_vswitch(),
        "datapath": "userspace",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "cpu": _cpu(),
    }


def _cpu() -> str:
    """The model of the first processor and its present clock, if the machine reports them."""
    told = dict(
        re.findall(r"^([\w ]+?)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    )
    parts = [
        told.get("model name", ""),
        f"{float(told['cpu MHz']) / 1e3:.1f} GHz" if "cpu MHz" in told else "",
    ]
    return ", ".join(part for part in parts if part)


def environment(options: Options) -> dict[str, Any]:
    """The machine and the settings that the figures of a bench depend on."""
    return {**machine(), "pace": asdict(options.pace), "direction": str(options.direction)}


def build(
    described: Mapping[str, Any],
    results: Sequence[Result],
    phases: Sequence[Phase],
    expectations: Sequence[Expectation],
) -> dict[str, Any]:
    """Build the report of a bench. A figure that was not measured is absent, never zero.

    `contenders` has those of the main scenario, which is the first.
    """
    main = results[0]
    layout = main.scenario.layout
    report: dict[str, Any] = {
        "layout": layout.name,
        "limit_bps": layout.limit_bps,
        "published": dict(layout.published),
        "environment": dict(described),
        "contenders": _contenders(main),
        "scenarios": [_scenario(result) for result in results],
    }
    if phases:
        report["phases"] = [rounded(asdict(phase)) for phase in phases]
    report["expectations"] = [asdict(expectation) for expectation in expectations]
    return report


def _scenario(result: Result) -> dict[str, Any]:
    scenario = result.scenario
    return {
        "name": scenario.name,
        "what": scenario.what,
        "limit_bps": scenario.layout.limit_bps,
        "uplinks": scenario.layout.capacities_bps,
        "published": {name: dict(figures) for name, figures in scenario.published.items()},
        "contenders": _contenders(result),
    }


def _contenders(result: Result) -> dict[str, Any]:
    medians = result.medians()
    return {
        name: {
            **rounded(medians[name]),
            "runs": [
                {**rounded(dict(one)), **({"origin": dict(seen.origin)} if seen.origin else {})}
                for one, seen in zip(repetitions, result.observed[name], strict=True)
            ],
        }
        for name, repetitions in result.figures.items()
    }


def rounded(value: Any, digits: int = SIGNIFICANT_DIGITS) -> Any:
    """Round all floats of a value to these significant digits. Whole counts become integers."""
    if isinstance(value, dict):
        return {
            name: int(one) if name in WHOLE and one == int(one) else rounded(one, digits)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [rounded(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
