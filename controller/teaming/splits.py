"""Which VM ports are split now: what they send is spread over the buckets of their policy.

That is state of the bridge, and as the switch has it; configurations are marked with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane.specs import Pipeline, SetField
from controller.dataplane.tables import Register, binding_group_id
from controller.teaming.buckets import hashed_by, number_of
from controller.teaming.shaping import is_asked_for
from policies.presets import PRESETS

# A split VM port becomes whole when it has been cool for so long, twice that for each time that
# it was split before within an hour: each costs its connections some reordering.
COOLING_S = 60.0
REMEMBERED_S = 3600.0


@dataclass(slots=True)
class Splits:
    """The VM ports of one bridge that are split, by name, and since when.

    `cool_s`: since when they would do no harm as a whole.
    """

    since_s: dict[str, float] = field(default_factory=dict)
    cool_s: dict[str, float] = field(default_factory=dict)
    _before_s: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.since_s)

    def split(self, name: str, now_s: float) -> None:
        self.since_s[name] = now_s
        self._before_s[name] = (*self._lately(name, now_s), now_s)

    def merge(self, name: str) -> None:
        self.since_s.pop(name, None)
        self.cool_s.pop(name, None)

    def hold(self, names: Iterable[str], now_s: float) -> None:
        """These are split, and no others."""
        self.since_s = {name: self.since_s.get(name, now_s) for name in names}
        self.cool_s = {n: at_s for n, at_s in self.cool_s.items() if n in self.since_s}

    def keep(self, config: BridgeConfig) -> list[str]:
        """Forget those that are not to be split any more; the names of those still there."""
        ports = {port.name: port for port in config.vm_ports}
        for name in self._before_s.keys() - ports.keys():
            del self._before_s[name]
        ended = [n for n in self.since_s if n not in ports or not may_split(ports[n], config)]
        for name in ended:
            self.merge(name)
        return sorted(name for name in ended if name in ports)

    def judge(self, asked: Iterable[str], cool: Iterable[str], now_s: float) -> None:
        """Of these, a policy has said which are cool."""
        cool = set(cool)
        for name in asked:
            if name not in cool:
                self.cool_s.pop(name, None)
            elif name in self.since_s:
                self.cool_s.setdefault(name, now_s)

    def ripe(self, now_s: float) -> frozenset[str]:
        """Those that have been cool for long enough."""
        return frozenset(name for name in self.cool_s if now_s >= self.ripe_s(name, now_s))

    def ripe_s(self, name: str, now_s: float) -> float:
        """When one becomes whole, if it stays cool."""
        times = max(1, len(self._lately(name, now_s)))
        return self.cool_s.get(name, math.inf) + COOLING_S * 2.0 ** (times - 1)

    def deadline_s(self, now_s: float) -> float:
        """When the next one becomes whole, if it stays cool; infinity if none is."""
        return min((self.ripe_s(name, now_s) for name in self.cool_s), default=math.inf)

    def _lately(self, name: str, now_s: float) -> tuple[float, ...]:
        return tuple(at for at in self._before_s.get(name, ()) if now_s - at < REMEMBERED_S)


def may_split(port: VmPortConfig, config: BridgeConfig) -> bool:
    """Whether what a VM port sends may leave by any uplink, under its policy.

    Queues know it by an address that other uplinks than its home do not see.
    """
    if PRESETS[port.policy].splits_by is None or port.excluded or port.rules.whole or port.parted:
        return False
    return port.allowed is None and (config.on_a_lag or not is_asked_for(port))


def marked(config: BridgeConfig, names: Iterable[str]) -> BridgeConfig:
    """The configuration with those VM ports split that are."""
    split = set(names)
    ports = tuple(
        replace(port, split=wanted)
        if port.split is not (wanted := port.name in split and may_split(port, config))
        else port
        for port in config.vm_ports
    )
    return config if ports == config.vm_ports else replace(config, vm_ports=ports)


def installed(pipeline: Pipeline, config: BridgeConfig) -> list[str]:
    """The VM ports that a switch spreads, of those whose policy may split them."""
    return [
        port.name
        for port in config.vm_ports
        if may_split(port, config) and _number(pipeline, port) == number_of(port.policy)
    ]


def in_force(config: BridgeConfig) -> list[str]:
    """The VM ports of a marked configuration that are split."""
    return [port.name for port in config.vm_ports if port.split and hashed_by(port)]


def _number(pipeline: Pipeline, port: VmPortConfig) -> int | None:
    """The hash that a VM port's binding group names."""
    group = pipeline.groups.get(binding_group_id(port.ofport))
    for action in group.buckets[0].actions if group and group.buckets else ():
        if isinstance(action, SetField) and action.field == Register.HASHED.field:
            return int(action.value) if isinstance(action.value, int) else None
    return None
