"""Asking a switch which way a frame would go."""

from __future__ import annotations

import re

from topologies.network.private_ovs import PrivateOvs

_ACTIONS = re.compile(r"^Datapath actions: (?P<actions>.*)$", re.MULTILINE)


def datapath_actions(ovs: PrivateOvs, bridge: str, flow: str) -> str:
    """What the switch would do with a frame, in the datapath's words.

    Raises:
        RuntimeError: the switch does not understand the flow.
    """
    said = ovs.run("ovs-appctl", "ofproto/trace", bridge, flow)
    found = _ACTIONS.search(said)
    if not found:
        raise RuntimeError(f"ofproto/trace {bridge} {flow}: {said[-200:]!r} -> datapath actions")
    return found["actions"]
