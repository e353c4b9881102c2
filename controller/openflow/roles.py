"""OpenFlow roles: this service becomes a bridge's master, or learns that another controller has."""

from __future__ import annotations

import struct
from typing import Any

from controller.openflow.framework import ofproto as ofp
from controller.openflow.framework import parser

ROLE = struct.Struct("!I")
# A switch reports this generation until a controller has claimed the master role.
NO_GENERATION = 0xFFFFFFFFFFFFFFFF
# OFPRAW_ONFT13_ROLE_STATUS: the role status of OpenFlow 1.4, as an extension of 1.3.
ONF_EXPERIMENTER, ROLE_STATUS = 0x4F4E4600, 1911


def ask_role(datapath: Any) -> list[Any]:
    """Request our role and the generation of the last master, without changing either."""
    return [parser.OFPRoleRequest(datapath, ofp.OFPCR_ROLE_NOCHANGE, 0)]


def claim(datapath: Any, generation: int) -> list[Any]:
    """Request the master role. From then on the switch accepts changes from this service only."""
    return [parser.OFPRoleRequest(datapath, ofp.OFPCR_ROLE_MASTER, generation)]


def next_generation(generation: int) -> int:
    """Return the next generation. It wraps: the switch compares generations by signed distance."""
    return (generation + 1) & NO_GENERATION


def is_master(message: Any) -> bool:
    """Whether a role reply says that this service is the master."""
    return bool(message.role == ofp.OFPCR_ROLE_MASTER)


def is_deposed(message: Any) -> bool:
    """Whether a message says that another controller has become the bridge's master."""
    if message.msg_type == ofp.OFPT_ERROR:
        slave = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
        return (message.type, getattr(message, "code", None)) == slave
    about_role = (message.experimenter, message.exp_type) == (ONF_EXPERIMENTER, ROLE_STATUS)
    # The message begins with the role, 4 bytes.
    (role,) = ROLE.unpack_from(message.data) if about_role else (None,)
    return bool(role == ofp.OFPCR_ROLE_SLAVE)


def is_stale(message: Any) -> bool:
    """Whether an error says that another controller claimed the role since we asked."""
    stale = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)
    return (message.type, getattr(message, "code", None)) == stale
