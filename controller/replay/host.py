"""One host under one policy: the engine between a simulated switch and recorded traffic.

Time jumps from one thing that happens to the next. Once nothing can happen any more before loads
change, the rest of a sample is skipped: its bytes count for the figures, while the switch's clock
and counters stand still, so that windows hold after the jump what they would hold without it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.bridge import Bridge
from controller.database import PREFIX, BridgeRow, InterfaceRow, PortRow
from controller.engine import Engine
from controller.events import (
    Apply,
    BundleDone,
    Command,
    Connect,
    DatabaseRead,
    Event,
    ForwardingRead,
    PortFlagsSet,
    ReadForwarding,
    ReadInstalled,
    ReadLearned,
    ReadStats,
    SetPortFlags,
    Setting,
    SwitchConnected,
    Tick,
    Write,
    Written,
)
from controller.replay.figures import Figures, MacMoves, optimality_ratio
from controller.replay.flows import Mix
from controller.replay.switch import Switch, mac_of
from controller.replay.trace import HostTrace
from policies.model import Load, OfPort, Unit, Uplink
from policies.planners import threshold
from policies.presets import PRESETS

# From when a bundle is sent until what is under way follows it: the switch looks through what it
# has cached within half a second, a quarter on average.
REACTION_S = 0.25
# Before the trace begins, the engine takes its bridge over.
TAKEOVER_S = 60.0
# The policies that move nothing while no uplink's mean is above the threshold.
ACT_ABOVE_THRESHOLD = (threshold.relieve_saturated,)
# Counters are whole bytes.
ROUNDING_RATIO = 1e-3

Offered = Mapping[int, tuple[float, float]]


class Refused(Exception):
    """The engine does not take a policy or a setting: what was found and what is expected."""


@dataclass(frozen=True, slots=True)
class Options:
    """How every policy is replayed. `settings`: keys of the Bridge, without prefix."""

    uplinks: int = 2
    mix: Mix = field(default_factory=Mix)
    settings: Mapping[str, str] = field(default_factory=dict)
    skips: bool = True


class Host:
    """Replays one host's trace."""

    def __init__(self, trace: HostTrace, policy: str, options: Options) -> None:
        self.trace, self.policy, self.skips = trace, policy, options.skips
        self.figures = Figures()
        names = [f"uplink{number}" for number in range(1, options.uplinks + 1)]
        uplinks = dict(enumerate(names, 1))
        # As on a host that was filled in order; the number decides where static policies place.
        vm_ports = dict(enumerate(trace.ports, options.uplinks + 1))
        self.switch = Switch(trace.name, uplinks, vm_ports, options.mix)
        self.row = _row(trace, policy, uplinks, vm_ports, options.settings)
        self.engine = Engine()
        self.now_s = 0.0
        self._macs = MacMoves()
        self._ofports = {name: ofport for ofport, name in vm_ports.items()}
        self._pending: deque[tuple[float, Apply]] = deque()
        self._events: deque[Event] = deque()
        self._changed_s = 0.0
        self._sample_s: float | None = None
        self._passes_by = False
        self._rebalancing: list[str] = []
        self._optimality_ratio = 1.0
        self._uplinks: list[Uplink] = []

    def replay(self, passed: Callable[[], None] = lambda: None) -> Figures:
        """The whole trace; `passed` is called after each sample.

        Raises:
            Refused: the engine does not take the policy, or a setting.
        """
        self._take_over()
        intervals = self.trace.intervals()
        ahead_s = TAKEOVER_S - intervals[0][0]
        offered = [self._offered(loads) for _, _, loads in intervals]
        was_below = True
        for (start_s, end_s, _), now, following in zip(
            intervals, offered, [*offered[1:], {}], strict=True
        ):
            rested = self._at_rest and was_below
            was_below = self._stays_below(now)
            self._passes_by = rested and was_below and self._stays_below(following)
            self._sample_s, self._changed_s = start_s, self.now_s
            self.switch.carry(now)
            self._reckon()
            self._run_until(end_s + ahead_s)
            passed()
        self.figures.most_moves_per_mac = self._macs.most
        return self.figures

    @property
    def bridge(self) -> Bridge:
        return self.engine.fleet.bridges[self.trace.name]

    def _offered(self, loads: Mapping[str, tuple[float, float]]) -> Offered:
        return {self._ofports[name]: load for name, load in loads.items()}

    def _take_over(self) -> None:
        self._say(DatabaseRead((self.row,)))
        errors = self.bridge.config.errors
        if errors:
            raise Refused(str(errors[0]))
        self._reckon()
        self._run_until(TAKEOVER_S)
        missing = self.switch.vm_ports.keys() - self.switch.routes.keys()
        self._rebalancing = self.bridge.judged.rebalancing
        if missing:
            raise Refused(f"{self.policy}: {len(missing)} ports without a way out -> none")

    # ---- time ----------------------------------------------------------------------------

    def _run_until(self, end_s: float) -> None:
        while (due_s := self._due_s()) < end_s:
            self._advance(due_s)
            self._happen()
        self._advance(end_s)

    def _due_s(self) -> float:
        """When something happens next. At rest, that is when a moved address is free again.

        A policy may have held a move back, for an address that had moved often. Or a split VM
        port has been cool for long enough.
        """
        if self._at_rest:
            ripe_s = self.bridge.splits.deadline_s(self.now_s)
            later = [*self._macs.free_again_s(self.now_s), ripe_s]
            return min((at_s for at_s in later if at_s > self.now_s), default=math.inf)
        pending_s = self._pending[0][0] if self._pending else math.inf
        return max(self.now_s, min(pending_s, self.engine.deadline_s()))

    @property
    def _at_rest(self) -> bool:
        """Whether nothing can happen before loads change.

        Each policy has decided on a full window that began after everything had changed; or
        need not look, as it acts above the threshold only, and no window has come near that.
        """
        bridge = self.bridge
        if not self.skips or self._sample_s is None or self._pending or not bridge.settled:
            return False
        if self._passes_by:
            return True
        judged = bridge.judged
        pauses_s = [judged.pause_s(policy) for policy in self._rebalancing]
        if not pauses_s:
            return True
        decided_s = bridge.last_decision_s
        return decided_s is not None and decided_s >= self._changed_s + max(pauses_s)

    def _stays_below(self, offered: Offered) -> bool:
        """Whether a policy that acts above the threshold only is not called for by these loads.

        A mean over several such loads is below the threshold, too.
        """
        if any(PRESETS[p].rebalance not in ACT_ABOVE_THRESHOLD for p in self._rebalancing):
            return False
        capacity_bps, config = self.trace.capacity_bps, self.bridge.config
        most_bps = (1 - ROUNDING_RATIO) * config.threshold_ratio * capacity_bps
        return all(max(bps) < most_bps for bps in self.switch.carried(offered).values())

    def _advance(self, to_s: float) -> None:
        seconds = to_s - self.now_s
        if seconds > 0.0 and self._sample_s is not None:
            threshold_ratio = self.bridge.config.threshold_ratio
            self.figures.hold(
                self._sample_s, seconds, self._uplinks, self._optimality_ratio, threshold_ratio
            )
        if not self._at_rest:
            self.switch.count(seconds)
        self.now_s = to_s

    def _happen(self) -> None:
        if self._pending and self._pending[0][0] <= self.now_s:
            _, apply = self._pending.popleft()
            self._commit(apply)
            self._say(BundleDone(apply.bridge, apply.bundle_id))
        else:
            self._say(Tick())

    # ---- the shell -----------------------------------------------------------------------

    def _say(self, event: Event) -> None:
        self._events.append(event)
        while self._events:
            for command in self.engine.handle(self._events.popleft(), self.now_s):
                self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        name = self.trace.name
        match command:
            case Connect():
                ports = self.switch.ports(self.trace.capacity_bps)
                self._events.append(SwitchConnected(name, ports))
            case ReadInstalled() if not self.bridge.settled:
                # Otherwise it looks whether somebody has changed what it knows; here is nobody.
                self._events.append(self.switch.installed())
            case ReadStats(buckets=buckets, units=units):
                self._events += self.switch.stats(buckets)[: None if units else 1]
            case ReadLearned():
                self._events.append(self.switch.learned())
            case ReadForwarding():
                self._events.append(ForwardingRead(name, ()))
            case SetPortFlags(number=number, no_flood=no_flood):
                self._events.append(PortFlagsSet(name, number, no_flood))
            case Apply():
                self._pending.append((self.now_s + REACTION_S, command))
            case Write():
                self._write(command)

    def _write(self, write: Write) -> None:
        """Interfaces' keys: where VM ports are bound."""
        values = {(s.record, s.key): s for s in write.settings if s.table == "Interface"}
        ports = tuple(
            replace(port, interfaces=tuple(_with(i, values) for i in port.interfaces))
            for port in self.row.ports
        )
        self.row = replace(self.row, ports=ports)
        self._events.append(DatabaseRead((self.row,)))
        if write.request_id is not None:
            self._events.append(Written(write.request_id))

    def _commit(self, apply: Apply) -> None:
        switch = self.switch
        homes = {ofport: route.home for ofport, route in switch.routes.items()}
        buckets, seen_at = switch.bucket_uplinks, switch.seen_at()
        switch.commit(apply.changes)
        self._changed_s = self.now_s
        if self._sample_s is None:
            self._reckon()
            return
        after = {ofport: route.home for ofport, route in switch.routes.items()}
        self.figures.moves += _changes(homes, after) + _changes(buckets, switch.bucket_uplinks)
        for ofport, uplink in switch.seen_at().items():
            if seen_at.get(ofport, uplink) != uplink:
                self._macs.moved(ofport, self.now_s)
        self._reckon()

    # ---- figures -------------------------------------------------------------------------

    def _reckon(self) -> None:
        """What uplinks carry now, and how well that is placed."""
        switch, capacity_bps = self.switch, self.trace.capacity_bps
        self._uplinks = [
            Uplink(name, OfPort(ofport), capacity_bps, load=Load(*switch.uplink_bps[ofport]))
            for ofport, name in switch.uplinks.items()
            if ofport in switch.uplink_bps
        ]
        self._optimality_ratio = optimality_ratio(self._uplinks, self._units())

    def _units(self) -> list[Unit]:
        """What the policy can place: what is in a bucket does not go with its VM port."""
        switch = self.switch
        units = []
        for ofport, (tx_bps, rx_bps) in switch.port_bps.items():
            load = Load(0.0 if switch.routes[ofport].buckets else tx_bps, rx_bps)
            name = switch.vm_ports[ofport]
            units.append(Unit(name, OfPort(ofport), self.policy, load=load))
        for (number, bucket), bps in switch.bucket_bps.items():
            units.append(
                Unit(f"{number}/{bucket}", OfPort(bucket), self.policy, load=Load(tx_bps=bps))
            )
        return units


def _row(
    trace: HostTrace,
    policy: str,
    uplinks: Mapping[int, str],
    vm_ports: Mapping[int, str],
    settings: Mapping[str, str],
) -> BridgeRow:
    """The bridge as it stands in the database of a host."""
    ids = {**settings, "policy": policy, "uplinks": ",".join(uplinks.values())}
    ports = [
        InterfaceRow(name, ofport, trace.capacity_bps, mac=f"02:00:00:00:00:{ofport:02x}")
        for ofport, name in uplinks.items()
    ]
    ports += [
        InterfaceRow(name, ofport, external_ids={"attached-mac": mac_of(ofport)})
        for ofport, name in vm_ports.items()
    ]
    return BridgeRow(
        trace.name,
        tuple(sorted((PortRow(i.name, (i,)) for i in ports), key=lambda port: port.name)),
        "secure",
        {PREFIX + key: value for key, value in ids.items()},
    )


def _with(interface: InterfaceRow, values: Mapping[tuple[str, str], Setting]) -> InterfaceRow:
    ids = dict(interface.external_ids)
    for (record, key), setting in values.items():
        if record == interface.name and setting.value is not None:
            ids[key] = setting.value
    return replace(interface, external_ids=ids)


def _changes(before: Mapping[Any, int], after: Mapping[Any, int]) -> int:
    return sum(before[key] != uplink for key, uplink in after.items() if key in before)
