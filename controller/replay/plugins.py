"""Policies of other packages, for `ovs-lbt replay` only. The service loads none.

A package offers a `Preset` in the entry-point group `ovs_lbt.policies`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from controller.replay.host import Refused
from policies.presets import PRESETS, Preset

GROUP = "ovs_lbt.policies"


def names() -> list[str]:
    """The names of installed policies. None is loaded, and none replaces a policy of ovs-lbt."""
    return sorted({entry.name for entry in entry_points(group=GROUP)} - PRESETS.keys())


def load(name: str) -> None:
    """Add an installed policy to the presets of this process.

    Raises:
        Refused: it cannot be loaded, or replay cannot run it.
    """
    if name in PRESETS:
        return
    entry, *_ = entry_points(group=GROUP, name=name)
    try:
        preset = entry.load()
    except Exception as error:
        raise Refused(f"policy {name}: {entry.value} cannot be loaded: {error!r}") from error
    if not isinstance(preset, Preset):
        raise Refused(f"policy {name}: {entry.value} must be a policies.presets.Preset")
    if preset.spreads_by.hashed:
        # Register HASHED has a number for each hashed policy, and these are fixed.
        raise Refused(f"policy {name}: only policies that place whole VM ports can be added")
    PRESETS[name] = preset
