"""Failover by the switch: groups that use the first uplink that is live.

Such a group is OpenFlow's fast failover group. Each of its buckets watches one uplink, so the
switch changes over by itself when a link goes down, and needs no controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.dataplane.specs import Action, Bucket, GroupSpec
from controller.dataplane.tables import ALWAYS_GROUP_ID, openflow_port
from policies.model import OfPort

# Is always live: the switch takes no bucket that watches nothing.
ALWAYS = GroupSpec(ALWAYS_GROUP_ID, "all", (Bucket(()),))


def first_live(
    group_id: int,
    ways: Iterable[tuple[OfPort, tuple[Action, ...]]],
    otherwise: tuple[Action, ...] = (),
) -> GroupSpec:
    """A group that carries out the actions of the first live uplink.

    `otherwise`: what it does if none is live, which needs the group `ALWAYS`. Without it, it drops.
    """
    buckets = [Bucket(actions, watch_port=openflow_port(uplink)) for uplink, actions in ways]
    if otherwise:
        buckets.append(Bucket(otherwise, watch_group=ALWAYS_GROUP_ID))
    return GroupSpec(group_id, "ff", tuple(buckets))
