"""Traces a frame through a switch."""

from __future__ import annotations

import re

from topologies.network.private_ovs import PrivateOvs

_ACTIONS = re.compile(r"^Datapath actions: (?P<actions>.*)$", re.MULTILINE)


def datapath_actions(ovs: PrivateOvs, bridge: str, flow: str) -> str:
    """The datapath actions of a frame, from `ofproto/trace`.

    Raises:
        RuntimeError: the switch cannot parse the flow.
    """
    output = ovs.run("ovs-appctl", "ofproto/trace", bridge, flow)
    found = _ACTIONS.search(output)
    if not found:
        raise RuntimeError(f"ofproto/trace {bridge} {flow}: {output[-200:]!r} -> datapath actions")
    return found["actions"]
