"""Uses queues (`tc`) on uplinks to apply the shares, reservations and limits of VM ports.

A VM port's class has the same number on every uplink, so a move does not change classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.api.engine_commands import Command, Report, Shape
from controller.api.events import Device, Shaped
from controller.config.values import VmPortConfig
from controller.dataplane import htb
from controller.dataplane.htb import Leaf, Shaper
from controller.features.feature import Feature, Timer
from policies.classifiers import Classifier
from policies.model import can_promise, room_bps
from policies.presets import PRESETS

DEFAULT_SHARES = 50
# How often to read devices, to count drops and to restore queues that another program removed.
AUDIT_INTERVAL_S = 10.0


@dataclass(eq=False)
class Shaping(Feature[Shaped]):
    """Sets the queues on the devices of one bridge's uplinks, and stores the results."""

    # The last result for each device, by name.
    devices: Mapping[str, Device] = field(default_factory=dict)
    # The queues last requested for each device (None: no queues); None before the first request.
    _asked: Mapping[str, Shaper | None] | None = None
    # The devices on which another program's qdisc may be replaced.
    _replaces: frozenset[str] = frozenset()
    # Whether a request is pending.
    _under_way: bool = False
    # When to read devices next, in seconds of engine time.
    _due_s: float = 0.0

    def shape(self, now_s: float) -> list[Command]:
        """Create uplink queues according to the VM ports' shares. In observe mode, remove the queues.

        Wait until learned addresses are known, so that a service that starts does not remove the
        existing classes of VM ports.
        """
        if self.bridge.phase.changes_nothing:
            return []
        if not self._wanted_now:
            return self._ask({}, now_s)
        if not (self.bridge.connected and self.bridge.addresses.known):
            return []
        return self._ask(self._shapers(), now_s)

    @property
    def _wanted_now(self) -> bool:
        """Whether uplinks should have queues."""
        serves = self.bridge.serves and not self.bridge.observing
        return serves and bool(self.config.queued)

    def _ask(self, wanted: Mapping[str, Shaper], now_s: float) -> list[Command]:
        """Request the queues `wanted`, by device, if they have changed or an audit is due.

        The first request also removes queues that an earlier service has left on an uplink.
        """
        config = self.config
        ours = (name for name, device in self.devices.items() if device.found.is_ours)
        names = sorted({*(uplink.name for uplink in config.uplinks), *ours})
        goals = {name: wanted.get(name) for name in names}
        replaces = frozenset(u.name for u in config.uplinks if u.replaces_qdisc)
        new = (goals, replaces) != (self._asked, self._replaces)
        if self._under_way or not (new or now_s >= self._deadline_s):
            return []
        self._asked, self._replaces, self._under_way = goals, replaces, True
        return [Shape(config.name, tuple(goals.items()), replaces)]

    def _shapers(self) -> dict[str, Shaper]:
        """Return the shaper of each uplink whose speed is known."""
        capacities_bps, sources, queues = self._capacities_bps(), self._sources(), self._queues()
        return {
            uplink.name: Shaper(
                capacity_bps=round(capacities_bps[uplink.name]),
                on_wire=uplink.capacity_bps is None,
                leaves=tuple(self._leaves(uplink.name, capacities_bps[uplink.name])),
                sources=sources,
                queues=queues,
            )
            for uplink in self.config.uplinks
            if uplink.name in capacities_bps
        }

    def _capacities_bps(self) -> dict[str, float]:
        """Return the capacity of each uplink whose speed is known."""
        team_view, uplinks = self.bridge.placing.team_view(), self.config.uplinks
        known = {uplink.name: team_view.known_capacity_bps(uplink) for uplink in uplinks}
        return {name: bps for name, bps in known.items() if bps}

    def _leaves(self, uplink: str, capacity_bps: float) -> Iterator[Leaf]:
        bound, most_bps = self.bridge.placing.on_switch.bound, room_bps(capacity_bps)
        kept_ratio = min(1.0, most_bps / max(self._reserved_bps(uplink), 1.0))
        for port in self.config.vm_ports:
            reserve_bps = min(port.rules.reserve_bps, most_bps)
            limit_bps = min(port.limit_bps or capacity_bps, capacity_bps)
            if port.name in bound and bound[port.name].uplink == uplink:
                reserve_bps = port.rules.reserve_bps * kept_ratio
            yield Leaf(
                minor=htb.class_minor(port.ofport),
                shares=port.shares or DEFAULT_SHARES,
                rate_bps=max(round(reserve_bps), min(htb.LEAST_RATE_BPS, round(limit_bps))),
                ceil_bps=round(limit_bps),
            )
        rate_bps, ceil_bps = htb.LEAST_RATE_BPS, round(capacity_bps)
        yield Leaf(htb.DEFAULT_CLASS, DEFAULT_SHARES, min(rate_bps, ceil_bps), ceil_bps)

    def _reserved_bps(self, uplink: str) -> float:
        """Return the sum of the reservations of the VM ports bound to an uplink."""
        bound = self.bridge.placing.on_switch.bound
        ports = (p for p in self.config.vm_ports if p.name in bound)
        return sum(p.rules.reserve_bps for p in ports if bound[p.name].uplink == uplink)

    def _sources(self) -> tuple[tuple[str, int], ...]:
        """Return the class of each address. VM ports with shares, reservation or limit come first.

        If two such VM ports have the same address, the address belongs to the first one by name.
        """
        found, learned = dict[str, int](), self.bridge.addresses.by_port
        ports = sorted(self.config.vm_ports, key=lambda p: (not p.is_queued, p.name))
        for port in ports:
            macs = (mac for mac, _ in learned.get(port.name, ()))
            for mac in sorted({*port.attached_macs, *macs}):
                if len(found) < htb.MAX_ADDRESSES:
                    found.setdefault(mac, htb.class_minor(port.ofport))
        return tuple(sorted(found.items()))

    def _queues(self) -> int | None:
        """Return how many queues can be full at the same time if they share a buffer; else None."""
        config = self.config
        if not config.in_userspace:
            return None
        uplinks = len(config.uplinks)
        ways = (uplinks if _uses_several(port) else 1 for port in config.vm_ports)
        return sum(ways) + uplinks

    def heard(self, event: Shaped, now_s: float) -> list[Command]:
        """Handle the result of setting queues on uplink devices. Report changes."""
        before = set(self.not_done())
        self._under_way, self._due_s = False, now_s + AUDIT_INTERVAL_S
        self.devices = {device.name: device for device in event.devices}
        replaced = [
            f"qdisc of {device.name}: replaced; it was {device.replaced}"
            for device in event.devices
            if device.replaced
        ]
        new = [text for text in self.not_done() if text not in before]
        texts = [*replaced, *(f"not done: {text}" for text in new)]
        warnings = [Report("warning", f"{self.config.name}: {text}") for text in texts]
        return [*warnings, *self.shape(now_s)]

    def read_anew(self) -> None:
        """Read devices again soon, because ovs-vswitchd removes the queues of an uplink that it adds."""
        self._due_s = 0.0

    def timers(self) -> Iterable[Timer]:
        if not self._asked:
            return ()
        bridge = self.bridge
        known = bridge.addresses.known or not self._wanted_now
        may_act = bridge.connected and known and not bridge.phase.changes_nothing
        return ((self._deadline_s, self.shape),) if may_act else ()

    @property
    def _deadline_s(self) -> float:
        """When to read devices again; infinity if no queues are requested, or a request is pending."""
        wanted = any(self._asked.values()) if self._asked else False
        return self._due_s if wanted and not self._under_way else float("inf")

    @property
    def remains(self) -> str:
        """A text about our queues that are, or may be, on devices; empty if all have been removed."""
        may_have = (htb.UNREAD,) if self.config.queued else ()
        left = [d for d in self.devices.values() if d.found.is_ours or d.found in may_have]
        requested = self._asked is None or self._under_way or any(self._asked.values())
        if not (requested or left):
            return ""
        names = ", ".join(sorted(device.name for device in left)) or "uplinks"
        why = next((device.error for device in left if device.error), None)
        return f"queues may stay on {names} ({why})" if why else f"queues stay on {names}"

    def impossible(self) -> Iterator[str]:
        """Yield a text for each setting that cannot be applied: the problem, and what to do."""
        config = self.config
        if not config.queued:
            return
        capacities_bps = self._capacities_bps()
        for uplink in config.uplinks:
            name, reserved_bps = uplink.name, self._reserved_bps(uplink.name)
            if name not in capacities_bps:
                remedy = "set capacity-mbps, which shares and reservations need"
                yield f"capacity of {name} is unknown; {remedy}"
            elif config.offload.past_queues:
                ports = ", ".join(config.offload.past_queues)
                found = f"frames from {ports} bypass the queues because of hw-offload"
                yield f"queues of {name}: {found}; set hw-offload=false, or do not use representors"
            elif not can_promise(reserved_bps, 0.0, capacities_bps[name]):
                found, most_bps = f"{reserved_bps / 1e6:g}", room_bps(capacities_bps[name])
                yield f"reservations on {name} total {found} Mbit/s; expected at most {most_bps / 1e6:g}"

        for port in config.vm_ports:
            rewritten = PRESETS[port.policy].classifier is Classifier.TRANSPORT
            if port.is_queued and rewritten and not (config.on_a_lag or port.unsplittable):
                found = f"{port.policy} rewrites source addresses on all but the home uplink"
                yield f"shares of {port.name}: {found}; pin the port, or use another policy"

    def not_done(self) -> Iterator[str]:
        """Yield a text for each setting that a device did not accept: the problem, and what to do."""
        for name, device in sorted(self.devices.items()):
            if not self._asked or not self._asked.get(name):
                continue
            if device.found.is_foreign:
                yield f"{name} has qdisc {device.found}; remove it, or set ovs-lbt-qdisc=replace"
            elif device.error is not None:
                yield f"shares on {name}: {device.error}"

    def drops(self, port: VmPortConfig) -> int | None:
        """Return the number of frames dropped by a VM port's full queues; None if it has no queue."""
        found: Counter[int] = Counter()
        for device in self.devices.values():
            found.update(device.found.drops)
        return found.get(htb.class_minor(port.ofport))


def _uses_several(port: VmPortConfig) -> bool:
    """Whether a VM port can send on more than one uplink at the same time."""
    preset = PRESETS[port.policy]
    spread = preset.classifier.hashed or preset.splits_by is not None
    return port.per_address or (spread and not port.unsplittable)
