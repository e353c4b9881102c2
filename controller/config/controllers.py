"""What attached bridges say of their controllers: versions of OpenFlow, and the fail mode.

In fail mode `standalone`, Open vSwitch adds NORMAL to a bridge without flows, and plain uplinks are a
loop then. So `attach` sets `secure` on them, and keeps the mode before it under the key `before`.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.config.rows import PREFIX, BridgeRow
from controller.text.wording import quoted

# The version of OpenFlow that the service speaks.
SPOKEN = "OpenFlow13"
SECURE = "secure"


def is_allowed(row: BridgeRow) -> bool:
    """Whether the service can connect. A bridge without `protocols` allows all versions."""
    return not row.protocols or SPOKEN in row.protocols


def refusal(row: BridgeRow) -> str | None:
    """What the bridge allows instead, and what is expected; None if the service can connect."""
    if is_allowed(row):
        return None
    expected = f"{SPOKEN} among them: ovs-vsctl add bridge {quoted(row.name)} protocols {SPOKEN}"
    return f"bridge {row.name}: protocols {', '.join(row.protocols)} -> {expected}"


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


def not_done(row: BridgeRow, plain_uplinks: int) -> Iterator[str]:
    """What fails on an attached bridge: the connection, or a restart of Open vSwitch, which makes a loop.

    `plain_uplinks`: how many uplinks are named that are in no bond, whether they exist or not.
    """
    if not is_allowed(row):
        found = f"Bridge {row.name} protocols: {', '.join(row.protocols)}"
        yield f"{found}: the service cannot connect without {SPOKEN}"
    if plain_uplinks >= 2 and row.attached and row.fail_mode != SECURE:
        found = f"Bridge {row.name} fail_mode: {row.fail_mode or 'standalone'}"
        yield f"{found}: the uplinks form a loop when ovs-vswitchd restarts, unless it is {SECURE}"
