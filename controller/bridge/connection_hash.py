"""Which hash picks the bucket of a connection: the switch's `multipath`, or the datapath's `dp_hash`.

With dp_hash, the switch needs a group that OpenFlow 1.3 cannot add. Our flows use it once the switch
has it. Until then, and where the switch refuses it, they use multipath, which every switch has.

OpenFlow 1.3 does not show how a group selects either. When Open vSwitch is upgraded, its scripts restore
the group without its selection method. So a group that was there before the connection is added again:
that gives it its method and leaves its buckets as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from controller.api.events import AddSelectGroup, SelectGroupAdded
from controller.config.values import BridgeConfig
from controller.dataplane.hashing import SELECT_GROUP
from controller.dataplane.specs import Pipeline
from controller.text.wording import hashed_by
from policies.presets import PRESETS

RETRY_AFTER_S = 30.0
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


class _Group(Enum):
    """What we have done about the group since the switch connected."""

    NOT_ADDED = auto()
    REQUESTED = auto()
    ADDED = auto()


@dataclass(slots=True)
class ConnectionHash:
    """The hash of connections of one bridge."""

    # Why the switch refused the group last; None: it did not.
    error: str | None = None
    # The number of the last request.
    _number: int = 0
    _group: _Group = _Group.NOT_ADDED
    _not_before_s: float = 0.0

    @property
    def changing(self) -> bool:
        """Whether a request is outstanding."""
        return self._group is _Group.REQUESTED

    def forget(self) -> None:
        """The connection ended, and with it any request under way. Another switch may answer."""
        self._group, self.error, self._not_before_s = _Group.NOT_ADDED, None, 0.0

    def by_dp_hash(self, config: BridgeConfig, installed: Pipeline | None) -> bool:
        """Whether our flows use the group."""
        return _wanted(config) and self.error is None and _has_group(installed)

    def follow(
        self, config: BridgeConfig, installed: Pipeline | None, now_s: float
    ) -> list[AddSelectGroup]:
        """The request, if any, after which the switch has the group that the bridge wants."""
        if not _wanted(config):
            # When it is wanted again, the switch may have been told to accept it.
            self.error = None
            return []
        if self._group is _Group.ADDED and not _has_group(installed):
            self._group = _Group.NOT_ADDED
        if self._group is not _Group.NOT_ADDED:
            return []
        if self.error is not None and now_s < self._not_before_s:
            return []
        self._group = _Group.REQUESTED
        self._number += 1
        return [AddSelectGroup(config.name, self._number)]

    def answer(self, event: SelectGroupAdded, now_s: float) -> bool:
        """Take the switch's answer; False if it is not the answer to the last request."""
        if self._group is not _Group.REQUESTED or event.number != self._number:
            return False
        self._group = _Group.ADDED if event.error is None else _Group.NOT_ADDED
        self.error = event.error
        self._not_before_s = now_s + RETRY_AFTER_S
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
