"""The engine: events in, commands out, and no I/O of its own.

From a reply with port statistics to a group mod, in six steps: the shell decodes the
reply (`openflow`), `rates` makes counters into loads, `Bridge` takes a snapshot, the
policy plans, `reconcile` compares the pipeline that the new bindings need with the one
installed, and the shell encodes the difference as one bundle.
"""

from __future__ import annotations

from controller.adoption import Adoption
from controller.bridge import Bridge, Commands
from controller.events import (
    BundleDone,
    Command,
    DatabaseRead,
    Event,
    ForwardingRead,
    InboundRead,
    InstalledRead,
    LearnedRead,
    PortChanged,
    PortFlagsSet,
    PortRemoved,
    PortStatsRead,
    Request,
    Shaped,
    SwitchConnected,
    SwitchGone,
    Tick,
    UnitCountersRead,
    Written,
)
from controller.fleet import Fleet
from controller.operator import Operator
from controller.status import BridgeStatus


class Engine:
    """All bridges. Call `handle` from one thread only.

    `epoch_s` is the wall-clock time at which `now_s` was zero.
    """

    def __init__(self, epoch_s: float = 0.0) -> None:
        self.fleet = Fleet(epoch_s)
        self.operator = Operator(self.fleet, Adoption(self.fleet))

    def handle(self, event: Event, now_s: float) -> tuple[Command, ...]:
        """Take one event, at a time that never runs backwards; what to do about it."""
        commands = self._handle(event, now_s)
        return (*commands, *self.operator.proceed(now_s))

    def deadline_s(self) -> float:
        """When a `Tick` is next due; infinity when nothing is waiting."""
        times = [bridge.deadline_s() for bridge in self.fleet.bridges.values()]
        return min([*times, self.operator.deadline_s()])

    def status(self) -> tuple[BridgeStatus, ...]:
        """Every attached bridge, by name."""
        return self.fleet.status()

    def _handle(self, event: Event, now_s: float) -> Commands:
        match event:
            case DatabaseRead(bridges=rows):
                return self.fleet.follow(rows, self.operator.in_hand, now_s)
            case Tick():
                return [c for b in self.fleet.bridges.values() for c in b.tick(now_s)]
            case Request():
                return self.operator.answer(event, now_s)
            case Written():
                answered = self.operator.written(event, now_s)
                return [*answered, *self.fleet.let_go(self.operator.in_hand)]
            case _:
                bridge = self.fleet.bridges.get(event.bridge)
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
                return bridge.take_port_stats(event, now_s)
            case UnitCountersRead():
                return bridge.take_unit_counters(event, now_s)
            case InboundRead():
                return bridge.take_inbound(event, now_s)
            case LearnedRead():
                return bridge.take_learned(event, now_s)
            case ForwardingRead():
                return bridge.take_forwarding(event, now_s)
            case PortFlagsSet():
                return bridge.take_port_flags(event, now_s)
            case Shaped():
                return bridge.take_shaped(event, now_s)
            case BundleDone():
                return bridge.finish_bundle(event, now_s)
            case _:
                raise TypeError(f"no handler for {event!r}")
