"""Failover by the switch: groups that use the first uplink that is live.

Such a group is OpenFlow's fast failover group. Each of its buckets watches one uplink, so the
switch changes over by itself when a link goes down, and needs no controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.dataplane.specs import Action, Bucket, GroupSpec
from controller.dataplane.tables import openflow_port
from policies.model import OfPort


def first_live(group_id: int, ways: Iterable[tuple[OfPort, tuple[Action, ...]]]) -> GroupSpec:
    """A group that carries out the actions of the first live uplink, or drops if none is live."""
    buckets = tuple(Bucket(actions, watch_port=openflow_port(uplink)) for uplink, actions in ways)
    return GroupSpec(group_id, "ff", buckets)
