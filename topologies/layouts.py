"""Every layout by its name."""

from __future__ import annotations

from collections.abc import Callable

from topologies import (
    converged,
    live_migration,
    mixed_speed,
    quad_gbe_team,
    set_vs_lbfo,
    shift,
    two_switches,
    vmware_lbt,
)
from topologies.graph.layout import Layout

LAYOUTS: dict[str, Callable[..., Layout]] = {
    module.NAME: module.layout
    for module in (
        vmware_lbt,
        set_vs_lbfo,
        quad_gbe_team,
        live_migration,
        converged,
        two_switches,
        mixed_speed,
        shift,
    )
}
