"""Identifies the flows that drop a VM port's frames on purpose, so that the service can report these frames.

Frames that NORMAL drops as well are included, except those of protocols between switches.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from controller.dataplane.specs import FlowSpec
from controller.dataplane.tables import OFPP_LOCAL, Register, Table
from policies.model import OFPORT_LOCAL


class Drop(StrEnum):
    """A reason for dropping frames, as in metrics and JSON; `wording.DROPPED` explains it."""

    ADDRESS = "address"
    CLAIMED = "claimed-address"
    VLAN = "vlan"
    SECOND_TAG = "second-tag"
    SOURCE = "multicast-source"


# The port and the reason. The port is an ofport or, for CLAIMED, an address in the port's `attached-mac`.
Dropped = tuple[int | str, Drop]
# The table and priority of these flows, and the match field that contains the port.
_REASONS: Mapping[tuple[int, int], tuple[str, Drop]] = {
    (Table.CLASSIFY, 90): ("in_port", Drop.VLAN),
    (Table.CLASSIFY, 115): ("in_port", Drop.SECOND_TAG),
    (Table.CLASSIFY, 120): ("in_port", Drop.SOURCE),
    (Table.LEARN, 10): (Register.VM_PORT, Drop.ADDRESS),
    (Table.LEARN, 18): ("eth_src", Drop.CLAIMED),
    (Table.LEARN, 30): ("eth_src", Drop.CLAIMED),
}
TABLES = frozenset(table for table, _ in _REASONS)


def dropped_by(flow: FlowSpec) -> Dropped | None:
    """Return the port whose frames a flow drops, and the reason; None for any other flow."""
    field, reason = _REASONS.get((flow.table, flow.priority), (None, None))
    if field is None or reason is None or flow.actions or flow.goto is not None:
        return None
    port = dict(flow.match).get(field)
    if not isinstance(port, int | str):
        return None
    return OFPORT_LOCAL if port == OFPP_LOCAL else port, reason
