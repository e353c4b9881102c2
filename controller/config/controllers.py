"""Settings of attached bridges for their controllers: OpenFlow versions, and the fail mode.

In fail mode `standalone`, Open vSwitch adds NORMAL to a bridge without flows, and plain uplinks are a
loop then. So `attach` sets `secure` on them, and keeps the previous mode under the key `before`.
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
    """Why the service cannot connect, and what to do; None if it can."""
    if is_allowed(row):
        return None
    remedy = f"allow {SPOKEN} as well: ovs-vsctl add bridge {quoted(row.name)} protocols {SPOKEN}"
    return f"bridge {row.name} allows only {', '.join(row.protocols)}; {remedy}"


def may_flush(before: BridgeRow, row: BridgeRow) -> bool:
    """Whether Open vSwitch flushes the flows of a bridge whose record has changed.

    It does so if the fail mode changes, and if the bridge gets its first controller or loses its last
    one.
    """
    had, has = bool(before.controllers), bool(row.controllers)
    return before.fail_mode != row.fail_mode or had != has


def was_loosened(row: BridgeRow, on_bond: bool) -> bool:
    """Whether the fail mode of plain uplinks has been changed since `attach` set it."""
    is_loose = row.attached and not on_bond and row.fail_mode != SECURE
    return is_loose and PREFIX + "before" in row.external_ids


def not_done(row: BridgeRow, plain_uplinks: int) -> Iterator[str]:
    """Why the service cannot connect, and why a restart of Open vSwitch would form a loop.

    `plain_uplinks`: the number of named uplinks that are in no bond, whether they exist or not.
    """
    if not is_allowed(row):
        found = f"Bridge {row.name} protocols: {', '.join(row.protocols)}"
        yield f"{found}; the service cannot connect without {SPOKEN}"
    if plain_uplinks >= 2 and row.attached and row.fail_mode != SECURE:
        found = f"Bridge {row.name} fail_mode: {row.fail_mode or 'standalone'}"
        yield f"{found}; set {SECURE}, or the uplinks form a loop when ovs-vswitchd restarts"
