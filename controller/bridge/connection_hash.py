"""Which hash picks the bucket of a connection: the switch's `multipath`, or the datapath's `dp_hash`.

With dp_hash, the switch needs a group that OpenFlow 1.3 cannot add. Our flows use it once the switch
has it. Until then, and where the switch refuses it, they use multipath, which every switch has.

OpenFlow 1.3 does not show how a group selects either. When Open vSwitch is upgraded, its scripts restore
the group without its selection method. So a group that was there before the connection is added again:
that gives it its method and leaves its buckets as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.api.events import AddSelectGroup, SelectGroupAdded
from controller.bridge.request import Request
from controller.config.values import BridgeConfig
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import GroupSpec, Pipeline
from controller.text.wording import hashed_by
from policies.presets import PRESETS

MULTIPATH, DP_HASH, AUTO = "multipath", "dp_hash", "auto"
OFFLOADED = "hw-offload is true, and network cards do not match dp_hash"
# How long VMs sent nothing by an uplink that failed with 10,000 connections cached by multipath: on the userspace
# datapath and on the kernel's, medians of docs/results/causes/failover_userspace.json and failover_kernel.json.
SILENT_IN_USERSPACE, SILENT_IN_KERNEL = "48 ms", "328 ms in emulation"


@dataclass(frozen=True, slots=True)
class HashInUse:
    """The hash in use (`MULTIPATH` or `DP_HASH`), and why, in words.

    `cost`: what it costs, in words; None if it costs nothing worth telling, or is about to change.
    """

    name: str
    why: str
    cost: str | None = None

    def __str__(self) -> str:
        return hashed_by(self.name, self.why, self.cost)


@dataclass(slots=True)
class ConnectionHash:
    """The hash of connections of one bridge."""

    # For the group, which the switch has since it has confirmed that.
    request: Request[GroupSpec] = field(default_factory=Request)

    @property
    def error(self) -> str | None:
        """Why the switch refused the group last; None: it did not."""
        return self.request.error

    @property
    def changing(self) -> bool:
        """Whether a request is outstanding."""
        return self.request.asked is not None

    def forget(self) -> None:
        """The connection ended, and with it any request under way. Another switch may answer."""
        self.request.forget_switch()
        self.request.forget_refusal()

    def by_dp_hash(self, config: BridgeConfig, installed: Pipeline | None) -> bool:
        """Whether our flows use the group."""
        return _wanted(config) and self.error is None and _has_group(installed)

    def follow(
        self, config: BridgeConfig, installed: Pipeline | None, now_s: float
    ) -> list[AddSelectGroup]:
        """The request, if any, after which the switch has the group that the bridge wants."""
        if not _wanted(config):
            self.request.forget_refusal()
            return []
        if not _has_group(installed):
            self.request.confirmed = None
        number = self.request.number_for(SELECT_GROUP, now_s)
        return [] if number is None else [AddSelectGroup(config.name, number)]

    def answer(self, event: SelectGroupAdded, now_s: float) -> bool:
        """Take the switch's answer; False if it is not the answer to the last request."""
        if not self.request.is_under_way(event.number):
            return False
        self.request.finish(event.error, now_s)
        return True

    def in_use(self, config: BridgeConfig, installed: Pipeline | None) -> HashInUse | None:
        """The hash in use; None if no policy of the bridge spreads connections."""
        if not _spreads_connections(config):
            return None
        wanted = f"connection-hash is {config.connection_hash}"
        if (no_card := config.offload.no_card) is not None and config.connection_hash == AUTO:
            wanted = f"{wanted}, and no card forwards although hw-offload is true: {no_card}"
        if config.hashed_for is not None:
            wanted = f"multipath sees no source ports of the tunnels of {config.hashed_for}"
        if config.connection_hash == MULTIPATH:
            return HashInUse(MULTIPATH, wanted, _cost(config))
        if not _wanted(config):
            return HashInUse(MULTIPATH, OFFLOADED, _cost(config))
        if self.by_dp_hash(config, installed):
            return HashInUse(DP_HASH, wanted)
        if self.error is not None:
            return HashInUse(MULTIPATH, self.error, _cost(config))
        return HashInUse(MULTIPATH, "the switch does not have the group yet")


def _spreads_connections(config: BridgeConfig) -> bool:
    policies = {port.policy for port in config.vm_ports}
    return any(PRESETS[policy].spreads_connections for policy in policies)


def _wanted(config: BridgeConfig) -> bool:
    if not _spreads_connections(config) or config.connection_hash == MULTIPATH:
        return False
    may_offload = config.hw_offload and config.offload.no_card is None
    return config.connection_hash == DP_HASH or not may_offload


def _cost(config: BridgeConfig) -> str:
    """What multipath costs, and how far one can go with it."""
    silent = SILENT_IN_USERSPACE if config.in_userspace else SILENT_IN_KERNEL
    return (
        "each connection takes one of the 200,000 flows that Open vSwitch caches at most, and with 10,000 of"
        f" them an uplink that fails silences VMs for {silent} (docs/guide/datapaths.md, Many connections)"
    )


def _has_group(installed: Pipeline | None) -> bool:
    return installed is not None and installed.groups.get(SELECT_GROUP.group_id) == SELECT_GROUP
