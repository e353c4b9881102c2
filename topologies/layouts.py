"""All layouts by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from topologies import LAYOUT_NAMES
from topologies.graph.layout import Layout

LAYOUTS: dict[str, Callable[..., Layout]] = {
    name: import_module(f"topologies.{name}").layout for name in LAYOUT_NAMES
}
