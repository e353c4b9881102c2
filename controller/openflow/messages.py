"""Interprets messages from switches: transaction IDs of requests and bundles, errors, roles and ports.

A reply has the transaction ID of the request. An error has the transaction ID of the failed message.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any

from controller.api.events import PortState
from controller.dataplane.tables import OFPP_LOCAL
from controller.openflow.framework import ofproto as ofp
from policies.model import OFPORT_LOCAL

ROLE = struct.Struct("!I")
# A switch reports this generation ID until a controller has claimed the master role.
NO_GENERATION = 0xFFFFFFFFFFFFFFFF
# OFPRAW_ONFT13_ROLE_STATUS: the role status of OpenFlow 1.4, as an extension of 1.3.
ONF_EXPERIMENTER, ROLE_STATUS = 0x4F4E4600, 1911


FLAGS = {
    ofp.OFPPC_PORT_DOWN: "down",
    ofp.OFPPC_NO_RECV: "no-receive",
    ofp.OFPPC_NO_FWD: "no-forward",
}


class Asked(IntEnum):
    """The base transaction ID of each kind of statistics request. `numbered` returns the offset."""

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


NUMBER_SHIFT, NUMBERS = 8, 0x10000


def numbered(number: int) -> int:
    """Return the offset of request `number` from its base transaction ID (`Asked`)."""
    return number % NUMBERS << NUMBER_SHIFT


def asked_of(xid: int) -> tuple[int, int]:
    """Return a request's kind (an `Asked` value if the request is ours) and number, from its ID."""
    number = xid >> NUMBER_SHIFT & NUMBERS - 1
    return xid - numbered(number), number


# All messages of a bundle have the same transaction ID: this value plus the bundle's number. So an error
# can be attributed to a bundle.
BUNDLE_XID = 0x6D000000
BUNDLE_NUMBER_MASK = 0xFFFFFF


def with_xid(message: Any, xid: int) -> Any:
    """Set the transaction ID of a message, and return the message."""
    message.set_xid(int(xid))
    return message


def bundle_number(message: Any) -> int | None:
    """Return the number of a message's bundle; None if the message does not belong to a bundle."""
    if message.xid & ~BUNDLE_NUMBER_MASK != BUNDLE_XID:
        return None
    return int(message.xid & BUNDLE_NUMBER_MASK)


def bundle_outcome(message: Any) -> int | None:
    """Return the number of the bundle whose commit a message confirms.

    Return None if the message confirms no commit.
    """
    return bundle_number(message) if message.type == ofp.ONF_BCT_COMMIT_REPLY else None


def error_text(message: Any) -> str:
    """Describe an OpenFlow error. Open vSwitch reports bundle errors as experimenter errors."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"experimenter {message.experimenter:#x}, error {message.exp_type}"
    kind = ofp.ofp_error_type_to_str(message.type)
    return f"{kind}, {ofp.ofp_error_code_to_str(message.type, message.code)}"


def is_deposed(message: Any) -> bool:
    """Whether a message means that another controller has become the bridge's master."""
    if message.msg_type == ofp.OFPT_ERROR:
        slave = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
        return (message.type, getattr(message, "code", None)) == slave
    about_role = (message.experimenter, message.exp_type) == (ONF_EXPERIMENTER, ROLE_STATUS)
    # The first 4 bytes of the message are the role.
    (role,) = ROLE.unpack_from(message.data) if about_role else (None,)
    return bool(role == ofp.OFPCR_ROLE_SLAVE)


def port_states(datapath: Any) -> tuple[PortState, ...]:
    """Return the switch's current ports, which the framework keeps up to date."""
    return tuple(map(port_state, tuple(datapath.ports.values())))


def port_state(port: Any) -> PortState:
    """Return the state of a port.

    The port is up if a fast failover group would use the port: the link, LACP, BFD and CFM are up.
    """
    down = bool(port.state & ofp.OFPPS_LINK_DOWN or port.config & ofp.OFPPC_PORT_DOWN)
    live = bool(port.state & ofp.OFPPS_LIVE)
    return PortState(
        ofport=ofport_of(port.port_no),
        name=port.name.decode(errors="replace"),
        up=live and not down,
        speed_bps=port.curr_speed * 1e3,
        silent=not (live or down),
        flags=tuple(name for bit, name in FLAGS.items() if port.config & bit),
    )


def ofport_of(port_no: int) -> int:
    """Convert an OpenFlow 1.3 port number to an ofport, the inverse of `tables.openflow_port`."""
    return OFPORT_LOCAL if port_no == OFPP_LOCAL else int(port_no)
