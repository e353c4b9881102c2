"""The VM ports that are split now: the traffic that they send is spread over buckets.

Splits are state of the bridge, not configuration. A service that starts reads them from the switch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane.specs import Pipeline
from controller.teaming.bindings import Bound
from controller.teaming.buckets import number_in, number_of
from policies.model import Move, Reason
from policies.presets import PRESETS

# A split VM port is merged when it has been mergeable this long. The time doubles with each earlier
# split within the last hour, because each split reorders some frames of connections.
MERGE_AFTER_S = 60.0
REMEMBERED_S = 3600.0


@dataclass(slots=True)
class Splits:
    """The VM ports of one bridge that are split, by name, and the times of the splits.

    `mergeable_s`: the time since which a policy has found at each poll that a merge does no harm.
    """

    since_s: dict[str, float] = field(default_factory=dict)
    mergeable_s: dict[str, float] = field(default_factory=dict)
    # Splits and merges to send with the next bundle.
    _unsent: list[Move] = field(default_factory=list)
    # The times of each VM port's recent splits, including the current one.
    _before_s: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.since_s)

    def split(self, name: str, now_s: float) -> None:
        self.since_s[name] = now_s
        self._before_s[name] = (*self._lately(name, now_s), now_s)

    def merge(self, name: str) -> None:
        self.since_s.pop(name, None)
        self.mergeable_s.pop(name, None)

    def make(self, moves: Iterable[Move], now_s: float) -> None:
        """Record a policy's splits and merges. The next bundle makes them on the switch."""
        for move in moves:
            assert move.is_resplit, "other moves change bindings"
            if move.reason is Reason.MERGE:
                self.merge(move.unit)
            else:
                self.split(move.unit, now_s)
            self._unsent.append(move)

    def take_back(self, moves: Iterable[Move], now_s: float) -> None:
        """Undo the splits and merges among these moves, which the switch refused."""
        for move in moves:
            if move.reason is Reason.SPLIT:
                self.merge(move.unit)
            elif move.reason is Reason.MERGE:
                self.split(move.unit, now_s)

    def take_unsent(self) -> list[Move]:
        """Return the unsent splits and merges, which the caller sends with the next bundle."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def end_disallowed(self, config: BridgeConfig, bound: Mapping[str, Bound]) -> None:
        """Merge the VM ports that can no longer be split, and forget those that were removed."""
        for name in self._before_s.keys() - config.port_named.keys():
            del self._before_s[name]
        for name in sorted(self.since_s):
            port = config.port_named.get(name)
            if port is not None and may_split(port, config.on_a_lag):
                continue
            self.merge(name)
            if port is not None and name in bound:
                at = bound[name].uplink
                self._unsent.append(Move(name, at, at, Reason.MERGE))

    def hold_splits(self, names: Iterable[str], now_s: float) -> None:
        """Split the VM ports `names`, and no other VM ports."""
        self.since_s = {name: self.since_s.get(name, now_s) for name in names}
        self.mergeable_s = {n: at_s for n, at_s in self.mergeable_s.items() if n in self.since_s}

    def judge(self, asked: Iterable[str], mergeable: Iterable[str], now_s: float) -> None:
        """Record that a policy evaluated the VM ports `asked`, and could merge those in `mergeable`."""
        assert self.mergeable_s.keys() <= self.since_s.keys(), "only split VM ports can be merged"
        mergeable = set(mergeable)
        if not mergeable and not self.mergeable_s:
            return
        for name in asked:
            if name not in mergeable:
                self.mergeable_s.pop(name, None)
            elif name in self.since_s:
                self.mergeable_s.setdefault(name, now_s)

    def due(self, now_s: float) -> frozenset[str]:
        """Return the VM ports that have been mergeable for long enough to be merged."""
        return frozenset(
            name for name in self.mergeable_s if now_s >= self.merge_due_s(name, now_s)
        )

    def merge_due_s(self, name: str, now_s: float) -> float:
        """Return when a mergeable VM port can be merged, if it stays mergeable."""
        times = max(1, len(self._lately(name, now_s)))
        return self.mergeable_s[name] + MERGE_AFTER_S * 2.0 ** (times - 1)

    def next_split_s(self, now_s: float) -> float:
        """Return when the result of `due` can next change; infinity if it does not depend on time.

        The result also changes when a past split is forgotten, because a VM port can then be merged sooner.
        """
        mergeable = self.mergeable_s
        due_s = (self.merge_due_s(name, now_s) for name in mergeable)
        forgotten_s = (
            at + REMEMBERED_S for name in mergeable for at in self._before_s.get(name, ())
        )
        return min((at_s for at_s in (*due_s, *forgotten_s) if at_s > now_s), default=math.inf)

    def _lately(self, name: str, now_s: float) -> tuple[float, ...]:
        return tuple(at for at in self._before_s.get(name, ()) if now_s - at < REMEMBERED_S)


def may_split(port: VmPortConfig, on_a_lag: bool) -> bool:
    """Whether a VM port can be split, so that its frames leave on any uplink.

    Without a LAG, a VM port with queues cannot be split: queues match its source address, and
    frames that do not leave on the home uplink have another source address.
    """
    stays_whole = port.excluded or port.unsplittable or port.one_of_several or port.per_address
    if stays_whole or PRESETS[port.policy].splits_by is None:
        return False
    return port.allowed is None and (on_a_lag or not port.is_queued)


def allowed(config: BridgeConfig, names: Collection[str]) -> frozenset[str]:
    """Return the VM ports among `names` that can be split."""
    if not names:
        return frozenset()
    ports = (port for port in config.vm_ports if port.name in names)
    return frozenset(port.name for port in ports if may_split(port, config.on_a_lag))


def installed(pipeline: Pipeline, config: BridgeConfig) -> list[str]:
    """Return the VM ports that can be split and that the installed pipeline spreads."""
    return [
        port.name
        for port in config.vm_ports
        if may_split(port, config.on_a_lag)
        and number_in(pipeline, port.ofport) == number_of(port.policy)
    ]
