"""OpenFlow errors, for the log and for answers."""

from __future__ import annotations

from typing import Any

from controller.openflow.framework import ofproto as ofp


def error_text(message: Any) -> str:
    """Return an OpenFlow error in words. Open vSwitch reports bundle errors as experimenter's."""
    if message.type == ofp.OFPET_EXPERIMENTER:
        return f"experimenter {message.experimenter:#x}, error {message.exp_type}"
    kind = ofp.ofp_error_type_to_str(message.type)
    return f"{kind}, {ofp.ofp_error_code_to_str(message.type, message.code)}"
