"""Read-back: what installed flows show about the switch, after the service was not running."""

from __future__ import annotations

from controller.dataplane.output import TO_NORMAL
from controller.dataplane.specs import Pipeline
from controller.dataplane.tables import Kind, Register, Table, cookie_kind, cookie_ofport


def no_flood(installed: Pipeline) -> frozenset[int] | None:
    """The ports that have the flag `no-flood` where this is installed; None: not known.

    The switch loses flows and flags together, so that flows tell which flags are set.
    """
    flows = installed.flows.values()
    flooded = [f for f in flows if (Register.NORMAL.field, 1) not in f.match]
    if not any(f.table == Table.DELIVERY and TO_NORMAL in f.actions for f in flooded):
        return None
    return frozenset(
        cookie_ofport(f.cookie)
        for f in flows
        if f.table == Table.UPLINK_OUT and cookie_kind(f.cookie) is Kind.FROM_VM
    )


def cut_off(installed: Pipeline) -> frozenset[int]:
    """The uplinks that a rescue keeps NORMAL from flooding to, by the same flag."""
    rescue = [f for f in installed.flows.values() if cookie_kind(f.cookie) is Kind.RESCUE]
    return frozenset(v for f in rescue for k, v in f.match if k == "in_port" and isinstance(v, int))
