"""Formats the settings and the machine of a bench for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
