"""The fail mode of attached bridges, and what makes Open vSwitch flush all flows.

In fail mode `standalone`, Open vSwitch adds NORMAL to a bridge without flows, and plain uplinks are a
loop then. So `attach` sets `secure` on them, and keeps the mode before it under the key `before`.
"""

from __future__ import annotations

from controller.config.rows import PREFIX, BridgeRow

SECURE = "secure"


def may_flush(before: BridgeRow, row: BridgeRow) -> bool:
    """Whether Open vSwitch flushes the flows of a bridge whose record has changed.

    It does so if the fail mode changes, and if the bridge gets its first controller or loses its last
    one.
    """
    had, has = bool(before.controllers), bool(row.controllers)
    return before.fail_mode != row.fail_mode or had != has


def was_loosened(row: BridgeRow, on_bond: bool) -> bool:
    """Whether somebody has changed the fail mode of plain uplinks since `attach` has set it."""
    is_loose = row.attached and not on_bond and row.fail_mode != SECURE
    return is_loose and PREFIX + "before" in row.external_ids


def not_done(row: BridgeRow, plain_uplinks: int) -> tuple[str, ...]:
    """That a restart of Open vSwitch makes a loop of an attached bridge, if it does.

    `plain_uplinks`: how many uplinks are named that are in no bond, whether they exist or not.
    """
    if plain_uplinks < 2 or not row.attached or row.fail_mode == SECURE:
        return ()
    found = f"Bridge {row.name} fail_mode: {row.fail_mode or 'standalone'}"
    return (f"{found}: the uplinks form a loop when ovs-vswitchd restarts, unless it is {SECURE}",)
