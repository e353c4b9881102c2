"""What replies and errors belong to: transaction ids; and errors in words.

A reply has the id of its request, and an error that of the failed message.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from controller.openflow.framework import ofproto as ofp


class Asked(IntEnum):
    """The transaction ids of statistics requests, one for each kind."""

    FLOWS = 0x6C000001
    GROUPS = 0x6C000002
    PORTS = 0x6C000003
    TO_VM = 0x6C000004
    FROM_VM = 0x6C000005
    LEARNED = 0x6C000006
    BUCKETS = 0x6C000007
    TO_ADDRESS = 0x6C000008
    FROM_ADDRESS = 0x6C000009
    INBOUND = 0x6C00000A


# All messages of a bundle have the same transaction id: this one plus the bundle's number. So every
# error names its bundle.
BUNDLE_XID = 0x6D000000
BUNDLE_NUMBER_MASK = 0xFFFFFF


def with_xid(message: Any, xid: int) -> Any:
    """Set the transaction id of a message, and return the message."""
    message.set_xid(int(xid))
    return message


def bundle_number(message: Any) -> int | None:
    """Return the number of the bundle that a message belongs to. None: it belongs to no bundle."""
    if message.xid & ~BUNDLE_NUMBER_MASK != BUNDLE_XID:
        return None
    return int(message.xid & BUNDLE_NUMBER_MASK)


def error_text(message: Any) -> str:
    """Return an OpenFlow error in words. Open vSwitch reports bundle errors as experimenter's."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"experimenter {message.experimenter:#x}, error {message.exp_type}"
    kind = ofp.ofp_error_type_to_str(message.type)
    return f"{kind}, {ofp.ofp_error_code_to_str(message.type, message.code)}"
