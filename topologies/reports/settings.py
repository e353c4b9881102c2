"""Formats the settings and the machine of a bench for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The settings of a bench that make a report of its own, by their value: a suffix, and what to say.
VARIANTS = {
    "faithful": "with the documented window of 30 s, instead of everything ten times as fast",
    "receive": "with VMs that receive the load",
}
UNITS = {"s": "s", "ms": "ms", "bps": "bit/s", "mbps": "Mbit/s", "bytes": "bytes"}


def setting_name(name: str) -> str:
    """A setting's name without its unit suffix."""
    words = name.split("_")
    return " ".join(words[:-1] if len(words) > 1 and words[-1] in UNITS else words)


def setting(name: str, value: Any) -> str:
    """A setting's value with the unit of its name."""
    if isinstance(value, Mapping):
        return ", ".join(f"{setting_name(key)} {setting(key, one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(setting("", one) for one in value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    unit = UNITS.get(name.rpartition("_")[2]) if "_" in name else None
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{text} {unit}" if unit else text


def variants(report: Mapping[str, Any]) -> list[str]:
    """The settings other than the usual ones that a report was made with, from `VARIANTS`."""
    environment = report.get("environment", {})
    chosen = (environment.get("pace", {}).get("name"), environment.get("direction"))
    return [one for one in chosen if one in VARIANTS]


def report_name(report: Mapping[str, Any]) -> str:
    """The name of a report among the published ones: its layout, and settings other than the usual."""
    return "_".join([report["layout"], *variants(report)])
