"""The version of OpenFlow that the service speaks, and bridges that do not allow it."""

from __future__ import annotations

from controller.config.rows import BridgeRow
from controller.text.wording import quoted

SPOKEN = "OpenFlow13"


def is_allowed(row: BridgeRow) -> bool:
    """Whether the service can connect. A bridge without `protocols` allows all versions."""
    return not row.protocols or SPOKEN in row.protocols


def refusal(row: BridgeRow) -> str | None:
    """What the bridge allows instead, and what is expected; None if the service can connect."""
    if is_allowed(row):
        return None
    expected = f"{SPOKEN} among them: ovs-vsctl add bridge {quoted(row.name)} protocols {SPOKEN}"
    return f"bridge {row.name}: protocols {', '.join(row.protocols)} -> {expected}"


def not_done(row: BridgeRow) -> tuple[str, ...]:
    """That the service cannot connect to an attached bridge, if it cannot."""
    if is_allowed(row):
        return ()
    found = f"Bridge {row.name} protocols: {', '.join(row.protocols)}"
    return (f"{found}: the service cannot connect without {SPOKEN}",)
