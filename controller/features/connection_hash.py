"""Chooses the hash that selects a connection's bucket: multipath (switch) or dp_hash (datapath).

For dp_hash, the switch needs a select group that OpenFlow 1.3 cannot add. Our flows use this group when it
is installed. Before that, or if the switch refuses the group, they use multipath, which every switch has.

OpenFlow 1.3 does not show the selection method of a group either. When Open vSwitch is upgraded,
its scripts restore the group without the method. So a group that the service finds when it connects
is added again. This restores the group's method, and does not change its buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from controller.api.engine_commands import AddSelectGroup, Command
from controller.api.events import SelectGroupAdded
from controller.config.values import BridgeConfig
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import GroupSpec, Pipeline
from controller.features.feature import Feature, Request
from controller.text.wording import hashed_by
from policies.presets import PRESETS

MULTIPATH, DP_HASH, AUTO = "multipath", "dp_hash", "auto"
OFFLOADED = "hw-offload is true, and network cards cannot offload dp_hash"
# How long VMs could not send after an uplink failure with multipath and 10,000 cached connections, on the
# userspace and kernel datapaths (medians of docs/results/causes/failover_{userspace,kernel}.json).
SILENT_IN_USERSPACE, SILENT_IN_KERNEL = "48 ms", "328 ms in emulation"


class HashInUse(NamedTuple):
    """The hash in use (`MULTIPATH` or `DP_HASH`), and the reason, in words.

    `cost`: the cost of the hash, in words; None if it is negligible, or if the hash is about to change.
    """

    name: str
    why: str
    cost: str | None = None

    def __str__(self) -> str:
        return hashed_by(self.name, self.why, self.cost)


@dataclass(eq=False)
class ConnectionHash(Feature[SelectGroupAdded]):
    """Chooses the connection hash of one bridge, and adds the select group for dp_hash."""

    # The requests that add the group. A confirmed request means that the group is on the switch.
    request: Request[GroupSpec] = field(default_factory=Request)

    @property
    def changing(self) -> bool:
        """Whether a request to add the select group is pending."""
        return self.request.asked is not None

    def forget_switch(self) -> None:
        """Forget requests and refusals, because the connection ended and the switch may have been replaced."""
        self.request.forget_switch()
        self.request.forget_refusal()

    @property
    def by_dp_hash(self) -> bool:
        """Whether our flows use the select group for dp_hash."""
        has_group = self.request.error is None and _has_group(self.bridge.installed)
        return has_group and _wanted(self.config)

    def want(self, now_s: float) -> list[Command]:
        """Request the select group for dp_hash, if it is wanted and our flows are installed.

        Without our flows, a group in our range would be treated as another program's group.
        """
        bridge = self.bridge
        if not bridge.serves or not bridge.installed_anything:
            return []
        if not _wanted(bridge.config):
            self.request.forget_refusal()
            return []
        if not _has_group(bridge.installed):
            self.request.confirmed = None
        number = self.request.number_for(SELECT_GROUP, now_s)
        return [] if number is None else [AddSelectGroup(bridge.config.name, number)]

    def heard(self, event: SelectGroupAdded, now_s: float) -> list[Command]:
        """Handle the result of adding the group: the switch has the group, or has refused it."""
        if not self.request.is_under_way(event.number):
            return []
        what = f"{self.config.name}: connections are hashed by multipath"
        warnings = self.request.finish(event.error, what, now_s)
        if event.error is None:
            self.bridge.installation.add_group(SELECT_GROUP)
        return [*warnings, *self.bridge.reconcile(now_s)]

    @property
    def in_use(self) -> HashInUse | None:
        """The hash in use; None if no policy of the bridge spreads connections."""
        config = self.config.asked
        if not _spreads_connections(config):
            return None
        wanted = f"connection-hash is {config.connection_hash}"
        if (no_card := config.offload.no_card) is not None and config.connection_hash == AUTO:
            wanted = f"{wanted}, and no network card offloads flows although hw-offload is true: {no_card}"
        if config.hashed_for is not None:
            wanted = f"multipath cannot use the source ports of the tunnels of {config.hashed_for}"
        if config.connection_hash == MULTIPATH:
            return HashInUse(MULTIPATH, wanted, _cost(config))
        if not _wanted(config):
            return HashInUse(MULTIPATH, OFFLOADED, _cost(config))
        if self.request.error is not None:
            return HashInUse(MULTIPATH, self.request.error, _cost(config))
        if not _has_group(self.bridge.installed):
            return HashInUse(MULTIPATH, "the switch does not have the select group for dp_hash yet")
        return HashInUse(DP_HASH, wanted)


def _spreads_connections(config: BridgeConfig) -> bool:
    return any(PRESETS[policy].spreads_connections for policy in config.policies)


def _wanted(config: BridgeConfig) -> bool:
    if not _spreads_connections(config) or config.connection_hash == MULTIPATH:
        return False
    may_offload = config.hw_offload and config.offload.no_card is None
    return config.connection_hash == DP_HASH or not may_offload


def _cost(config: BridgeConfig) -> str:
    """Describe the cost and the limit of multipath."""
    silent = SILENT_IN_USERSPACE if config.in_userspace else SILENT_IN_KERNEL
    return (
        "each connection uses one of at most 200,000 flows in Open vSwitch's cache, and with 10,000 connections,"
        f" an uplink failure interrupts traffic for {silent} (docs/guide/datapaths.md, Many connections)"
    )


def _has_group(installed: Pipeline | None) -> bool:
    return installed is not None and installed.groups.get(SELECT_GROUP.group_id) == SELECT_GROUP
