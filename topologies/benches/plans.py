"""Every bench by its layout's name, in the order in which `--all` runs them."""

from __future__ import annotations

from topologies.benches import (
    converged,
    live_migration,
    mixed_speed,
    quad_gbe_team,
    set_vs_lbfo,
    shift,
    two_switches,
    vmware_lbt,
)
from topologies.compare.plan import Plan

PLANS: dict[str, Plan] = {
    "vmware_lbt": vmware_lbt.PLAN,
    "set_vs_lbfo": set_vs_lbfo.PLAN,
    "quad_gbe_team": quad_gbe_team.PLAN,
    "live_migration": live_migration.PLAN,
    "converged": converged.PLAN,
    "two_switches": two_switches.PLAN,
    "mixed_speed": mixed_speed.PLAN,
    "shift": shift.PLAN,
}
