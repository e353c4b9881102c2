"""The engine: events in, commands out, and no I/O of its own.

From a reply with port statistics to a group mod, in six steps: the shell decodes the
reply (`openflow`), `rates` makes counters into loads, `Bridge` takes a snapshot, the
policy plans, `reconcile` compares the pipeline that the new bindings need with the one
installed, and the shell encodes the difference as one bundle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller import operator
from controller.bridge import Bridge, Commands
from controller.config import BridgeConfig, read_bridge
from controller.database import BridgeRow
from controller.events import (
    BundleDone,
    Command,
    Connect,
    DatabaseRead,
    Disconnect,
    Event,
    InstalledRead,
    LearnedRead,
    PortChanged,
    PortRemoved,
    PortStatsRead,
    Report,
    Request,
    SwitchConnected,
    SwitchGone,
    Tick,
    UnitCountersRead,
    Written,
)
from controller.status import BridgeStatus


@dataclass(slots=True)
class Engine:
    """All bridges. Call `handle` from one thread only.

    `epoch_s` is the wall-clock time at which `now_s` was zero; it is only ever shown.
    """

    epoch_s: float = 0.0
    rows: dict[str, BridgeRow] = field(default_factory=dict)
    bridges: dict[str, Bridge] = field(default_factory=dict)
    attaching: dict[str, operator.Attach] = field(default_factory=dict)
    detaching: dict[str, operator.Detach] = field(default_factory=dict)

    def handle(self, event: Event, now_s: float) -> tuple[Command, ...]:
        """Take one event at a time that never runs backwards; what to do about it."""
        commands = self._handle(event, now_s)
        return (*commands, *operator.proceed(self, now_s))

    def deadline_s(self) -> float:
        """When a `Tick` is next due; infinity when nothing is waiting."""
        times = [bridge.deadline_s() for bridge in self.bridges.values()]
        times += [attach.deadline_s for attach in self.attaching.values()]
        times += [detach.deadline_s for detach in self.detaching.values()]
        return min(times, default=float("inf"))

    def status(self) -> tuple[BridgeStatus, ...]:
        """Every attached bridge, by name."""
        return tuple(
            bridge.status(self.epoch_s)
            for _, bridge in sorted(self.bridges.items())
            if not bridge.candidate
        )

    def _handle(self, event: Event, now_s: float) -> Commands:
        match event:
            case DatabaseRead(bridges=rows):
                return self._take_database(rows, now_s)
            case Tick():
                return [c for bridge in self.bridges.values() for c in bridge.tick(now_s)]
            case Request():
                return operator.answer(self, event, now_s)
            case Written():
                return [*operator.written(self, event), *self._let_go()]
            case _:
                bridge = self.bridges.get(event.bridge)
                return self._handle_switch(bridge, event, now_s) if bridge else []

    def _handle_switch(self, bridge: Bridge, event: Event, now_s: float) -> Commands:
        match event:
            case SwitchConnected(ports=ports):
                return bridge.connect(ports, now_s)
            case SwitchGone():
                return bridge.disconnect()
            case InstalledRead():
                return bridge.take_installed(event, now_s)
            case PortChanged(port=port):
                return bridge.change_port(port, now_s)
            case PortRemoved(ofport=ofport):
                return bridge.remove_port(ofport, now_s)
            case PortStatsRead():
                return bridge.take_port_stats(event)
            case UnitCountersRead():
                return bridge.take_unit_counters(event, now_s)
            case LearnedRead():
                return bridge.take_learned(event)
            case BundleDone():
                return bridge.finish_bundle(event, now_s)
            case _:
                raise TypeError(f"no handler for {event!r}")

    def _take_database(self, rows: tuple[BridgeRow, ...], now_s: float) -> Commands:
        """Follow the operator: bridges come, go, and change while we run."""
        self.rows = {row.name: row for row in rows}
        commands = self._let_go()
        for name in sorted(self._wanted()):
            bridge = self.bridges.get(name)
            if bridge is None:
                commands += self.adopt(read_bridge(self.rows[name]))
            elif self.rows[name].attached and name not in self.detaching:
                bridge.candidate = False
                config = read_bridge(self.rows[name], bridge.config)
                commands += bridge.configure(config, now_s)
        return commands

    def _let_go(self) -> Commands:
        """Forget bridges that are not ours any more."""
        gone = sorted(self.bridges.keys() - self._wanted())
        for name in gone:
            del self.bridges[name]
        return [Disconnect(name) for name in gone]

    def adopt(self, config: BridgeConfig, candidate: bool = False) -> Commands:
        """Begin to look after a bridge."""
        self.bridges[config.name] = Bridge(config, candidate=candidate)
        reports = [Report("warning", str(error)) for error in config.errors]
        return [*reports, Connect(config.name)]

    def _wanted(self) -> set[str]:
        attached = {name for name, row in self.rows.items() if row.attached}
        return attached | (self.attaching.keys() | self.detaching.keys()) & self.rows.keys()
