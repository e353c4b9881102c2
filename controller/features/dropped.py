"""Counts the frames of VM ports that ovs-lbt drops on purpose, by reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controller.config.values import BridgeConfig
from controller.dataplane import drops
from controller.dataplane.drops import Drop

# How long `check` reports dropped frames.
TOLD_FOR_S = 900.0


@dataclass(slots=True)
class DroppedFrames:
    """The frames of one bridge's VM ports that were dropped on purpose, by VM port.

    Counting starts with the first reading of flows that drop frames. `by_port`: counts by reason.
    """

    by_port: dict[str, dict[str, int]] = field(default_factory=dict)
    # The counters in the last reading; None before the first one.
    _last: Mapping[drops.Dropped, int] | None = None
    # When frames were last dropped, in seconds of engine time.
    _grown_s: dict[tuple[str, Drop], float] = field(default_factory=dict)

    def take(
        self, counted: Mapping[drops.Dropped, int], config: BridgeConfig, now_s: float
    ) -> None:
        """Store the counters of a reading. A counter restarts at 0 when its flow is reinstalled."""
        ports: dict[int | str, str] = {int(port.ofport): port.name for port in config.vm_ports}
        ports |= {mac: port.name for port in config.vm_ports for mac in port.attached_macs}
        last, self._last = self._last, counted
        for (port, reason), frames in counted.items():
            before = last.get((port, reason), 0) if last is not None else 0
            more, name = frames - before if frames >= before else frames, ports.get(port)
            if name is None or not more:
                continue
            counts = self.by_port.setdefault(name, {})
            counts[reason.value] = counts.get(reason.value, 0) + more
            if last is not None:
                self._grown_s[name, reason] = now_s
        for name in self.by_port.keys() - config.port_named.keys():
            del self.by_port[name]
        self._grown_s = {key: at_s for key, at_s in self._grown_s.items() if key[0] in self.by_port}

    def recent(self, config: BridgeConfig, now_s: float) -> Iterator[tuple[str, Drop, int]]:
        """Yield (VM port, reason, total number of dropped frames) for reasons with recent drops.

        Drops of frames that would now be accepted are left out.
        """
        for (name, reason), grown_s in sorted(self._grown_s.items()):
            if (port := config.port_named.get(name)) is None or now_s - grown_s > TOLD_FOR_S:
                continue
            accepts = {Drop.ADDRESS: port.forges, Drop.CLAIMED: port.trusted}
            if not accepts.get(reason):
                yield name, reason, self.by_port[name][reason]
