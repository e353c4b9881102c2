"""All benches by layout name, in the order in which `--all` runs them."""

from __future__ import annotations

from importlib import import_module

from topologies import LAYOUT_NAMES
from topologies.compare.plan import Plan

PLANS: dict[str, Plan] = {
    name: import_module(f"topologies.benches.{name}").PLAN for name in LAYOUT_NAMES
}
