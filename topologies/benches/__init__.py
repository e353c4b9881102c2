"""All benches by layout name, in the order in which `--all` runs them."""

from __future__ import annotations

from topologies.benches import failures, steering, streams
from topologies.compare.plan import Plan

PLANS: dict[str, Plan] = {
    "vmware_lbt": steering.VMWARE_LBT,
    "set_vs_lbfo": streams.SET_VS_LBFO,
    "quad_gbe_team": streams.QUAD_GBE_TEAM,
    "live_migration": failures.LIVE_MIGRATION,
    "converged": streams.CONVERGED_PLAN,
    "two_switches": failures.TWO_SWITCHES,
    "spine_leaf": failures.SPINE_LEAF,
    "mixed_speed": steering.MIXED_SPEED,
    "shift": steering.SHIFT,
    "flows": steering.FLOWS,
    "overlay": streams.OVERLAY,
}
