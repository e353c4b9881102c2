"""Replays one host's recorded traffic with one policy: runs the engine with a simulated switch.

Time jumps from one event to the next. Polls at which the engine would not decide anything are
skipped. The figures include the traffic of the skipped time, but the switch's clocks and counters
do not advance. So every window has exactly the same contents as if nothing were skipped, and all
decisions are exactly the same. If a policy acts immediately, and would move nothing at the loads of
a sample in the trace, the sample is replayed without any poll (it "passes by").
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.api import engine_commands, events
from controller.bridge.bridge import Bridge
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, PortRow
from controller.dataplane.team import Team
from controller.engine import Engine
from controller.load.polling import DIGITS
from controller.replay import skipping
from controller.replay.figures import Figures, MacMoves
from controller.replay.skipping import ON_TIME_RATIO
from controller.replay.switch import TICKS_PER_S, Loads, Mix, Switch, mac_of
from controller.replay.trace import HostTrace
from controller.text.wording import Refused
from policies.model import Load, OfPort, Snapshot, Unit, Uplink
from policies.optimum import optimality_ratio
from policies.presets import PRESETS

# The time from sending a bundle until traffic follows it. The switch checks its cached flows every
# half second, so a quarter of a second on average.
REACTION_S = 0.25
# The engine takes over its bridge before the trace begins.
TAKEOVER_S = 60.0
# This long after the takeover, the engine has read all counters often enough for policies that act
# immediately.
KNOWN_S = 5.0
# The amount by which measured loads may exceed offered loads, because the switch rounds to whole bytes.
ROUNDING_RATIO = 1e-3
# The shortest time in whole milliseconds that is a whole number of the switch's ticks.
WHOLE_MS = 1000 // math.gcd(1000, TICKS_PER_S)


@dataclass(frozen=True, slots=True)
class Options:
    """Replay options for all policies. `settings`: the bridge's values, by key without prefix."""

    uplinks: int = 2
    mix: Mix = field(default_factory=Mix)
    settings: Mapping[str, str] = field(default_factory=dict)
    skips: bool = True


class Host:
    """Replays one host's trace with one policy."""

    def __init__(self, trace: HostTrace, policy: str, options: Options) -> None:
        self.trace, self.policy, self.skips = trace, policy, options.skips
        self._at_once = PRESETS[policy].at_once
        self.figures = Figures()
        names = _uplink_names(options.uplinks, set(trace.ports))
        uplinks = dict(enumerate(names, 1))
        # Ofports follow the order of names, as if VM ports were added in it. Static policies place
        # VM ports by ofport.
        vm_ports = dict(enumerate(trace.ports, options.uplinks + 1))
        self.switch = Switch(trace.name, uplinks, vm_ports, options.mix)
        self.row = _row(trace, policy, uplinks, vm_ports, options.settings)
        self.engine = Engine()
        self.now_s = 0.0
        self._macs = MacMoves()
        self._ofports = {name: ofport for ofport, name in vm_ports.items()}
        # For each pending bundle: when it is done, its number, and the team that it installs.
        self._pending: deque[tuple[float, int, Team]] = deque()
        self._events: deque[events.Event] = deque()
        # When offered loads or bindings last changed.
        self._changed_s = 0.0
        # The start of the current sample, in the trace's time; None: the trace has not begun.
        self._sample_s: float | None = None
        # Whether the current sample cannot cause a decision, neither while it lasts nor later.
        self._passes_by = False
        # The team without loads, as it was before the first sample that passes by.
        self._resting = Snapshot((), ())
        # The time until which polls are skipped.
        self._resume_s = 0.0
        # The times when counters were read, and the last poll that read all counters.
        self._readings = skipping.Readings()
        self._all_read_s = 0.0
        # The time up to which the figures include the loads of uplinks.
        self._held_s = 0.0
        self._optimality_ratio = 1.0
        self._uplinks: list[Uplink] = []

    def replay(self, passed: Callable[[], None] = lambda: None) -> Figures:
        """Replay the whole trace, and return the figures. `passed` is called after each sample.

        Raises:
            Refused: the engine refuses the policy or a setting, or a VM port has no uplink.
        """
        self._take_over()
        intervals = self.trace.intervals()
        ahead_s = TAKEOVER_S - intervals[0][0]
        offered = [
            {self._ofports[name]: bps for name, bps in loads.items()} for _, _, loads in intervals
        ]
        lasting_s = [*(end_s - start_s for start_s, end_s, _ in intervals), math.inf]
        before: Loads = {}
        for (start_s, end_s, _), now, following, seconds in zip(
            intervals, offered, [*offered[1:], {}], lasting_s[1:], strict=True
        ):
            rested = self._quiet_until_s() > self.now_s
            if rested and self._at_once:
                lasting = end_s - start_s, seconds
                self._passes_by = self._may_pass(before, now, following, *lasting)
            else:
                # The next sample lasts longer than loads of this sample affect decisions.
                forgotten = seconds > skipping.remembered_s(self.bridge.placing.team_view())
                calm = map(self._is_calm, (before, now, following))
                self._passes_by = rested and forgotten and all(calm)
            before = now
            self._hold()
            self._sample_s, self._changed_s = start_s, self.now_s
            self.switch.carry(now, self.now_s)
            self._reckon()
            self._run_until(end_s + ahead_s)
            passed()
        self._hold()
        self.figures.most_moves_per_mac = self._macs.most
        return self.figures

    @property
    def bridge(self) -> Bridge:
        return self.engine.fleet.bridges[self.trace.name]

    def _measured(self, offered: Loads) -> dict[str, Load]:
        """Return the measured loads of VM ports, by name. The switch counts only whole bytes."""
        return {
            self.switch.vm_ports[ofport]: Load(8.0 * round(tx_bps / 8), 8.0 * round(rx_bps / 8))
            for ofport, (tx_bps, rx_bps) in offered.items()
        }

    def _take_over(self) -> None:
        self._say(events.DatabaseRead((self.row,)))
        errors = self.bridge.config.errors
        if errors:
            raise Refused(str(errors[0]))
        self._reckon()
        self._run_until(TAKEOVER_S)
        missing = self.switch.vm_ports.keys() - self.switch.routes.keys()
        if missing:
            found = f"{len(missing)} VM ports have no uplink that can carry their traffic"
            raise Refused(f"{self.policy}: {found}")

    # ---- time ----------------------------------------------------------------------------

    def _run_until(self, end_s: float) -> None:
        while True:
            self._skip(end_s)
            pending_s = self._pending[0][0] if self._pending else math.inf
            due_s = max(self.now_s, self._resume_s, min(pending_s, self.engine.deadline_s()))
            self.now_s = min(due_s, end_s)
            if due_s >= end_s:
                return
            if pending_s > self.now_s:
                self._say(events.Tick())
                continue
            _, number, team = self._pending.popleft()
            self._commit(team)
            self._say(events.BundleDone(self.trace.name, number))

    def _quiet_until_s(self) -> float:
        """Return the time until which the engine makes no decision if loads do not change."""
        if not self.skips or self._pending or not self.bridge.settled:
            return self.now_s
        if self._sample_s is None and not (self._at_once and self.now_s >= KNOWN_S):
            return self.now_s
        if self._passes_by:
            return math.inf
        # Other policies use mean loads, which start again with each change of bindings.
        steady_s = self.switch.steady_s if self._at_once else self._changed_s
        return skipping.quiet_until_s(
            self.bridge, self._at_once, steady_s, self._readings, self.now_s
        )

    def _skip(self, end_s: float) -> None:
        """Skip the polls before `end_s` at which the engine would decide nothing, and their time."""
        bridge, quiet_until_s = self.bridge, self._quiet_until_s()
        if quiet_until_s <= self.now_s or bridge.scheduler.last_s is None:
            return
        polled_s = round(skipping.polled_s(bridge), DIGITS)
        interval_s = bridge.config.poll_interval_s
        polls = math.floor((end_s - polled_s) / interval_s + ON_TIME_RATIO)
        if quiet_until_s <= end_s:
            polls = min(polls, skipping.polls_before(quiet_until_s, polled_s, interval_s))
        if self._at_once:
            self._pass_readings(polls)
            return
        if not self._passes_by:
            # Make the last poll, because means must end at the change of loads.
            polls -= 1
        in_round = round(skipping.round_s(bridge.placing.team_view()) / interval_s)
        of_ports = skipping.polls_before(skipping.reading_s(bridge), polled_s, interval_s)
        # The next poll must read all counters, a whole number of rounds after the last such poll.
        since = round((polled_s - self._all_read_s) / interval_s)
        aligned = polls - (since + polls + 1) % in_round
        # The lowest number of polls whose duration is a whole number of the switch's ticks.
        whole_polls = WHOLE_MS // math.gcd(WHOLE_MS, round(1000 * interval_s))
        while aligned > 0 and aligned % whole_polls:
            aligned -= in_round
        # With any other number of skipped polls, the means would lack a reading.
        if aligned > 0 and aligned >= of_ports and not aligned % in_round:
            self._pass(aligned)
            ticks = aligned * round(1000 * interval_s) * TICKS_PER_S // 1000
            # In samples without polls, part of the ticks may have been skipped earlier.
            self.switch.counters.stand_still(self.now_s, ticks)
            self.switch.bucket_counters.stand_still(self.now_s, ticks)

    def _pass_readings(self, polls: int) -> None:
        """Skip `polls` polls that would measure the same loads as the last readings.

        If VM ports use buckets, the next reading of each counter has the same time as without skipping.
        Otherwise any poll may read VM ports' flows, whose counters equal those of the ports.
        """
        if polls <= 0:
            return
        bridge, interval_s = self.bridge, self.bridge.config.poll_interval_s
        polled_s = round(skipping.polled_s(bridge), DIGITS)
        if bridge.placing.hashed:
            # Each reading of buckets starts a round, so only the last round matters.
            due_s = max(polled_s, bridge.polling.buckets_s)
            before = max(0, skipping.polls_before(due_s, polled_s, interval_s))
            in_round = skipping.round_polls(interval_s, buckets=True)
            last_round = (polls - 1 - before) // in_round * in_round if polls > before else -before
            for number in range(before + 1 + last_round, polls + 1):
                at_s = round(polled_s + number * interval_s, DIGITS)
                _, buckets = bridge.polling.take_turn(at_s, interval_s, buckets=True)
                if buckets:
                    self._readings.note(True, at_s)
                    self.switch.bucket_counters.stand_still(at_s)
        self._pass(polls)
        # The engine does not measure the loads of samples that pass by.
        if not self._passes_by:
            self._readings.note(False, round(polled_s + polls * interval_s, DIGITS))
        self.switch.counters.stand_still(self.now_s)

    def _pass(self, polls: int) -> None:
        """Skip `polls` polls (at least one), and advance the replay's time accordingly."""
        bridge, interval_s = self.bridge, self.bridge.config.poll_interval_s
        polled_s = round(skipping.polled_s(bridge), DIGITS)
        self.now_s = max(self.now_s, round(polled_s + polls * interval_s, DIGITS))
        self._resume_s = round(polled_s + (polls + 1) * interval_s, DIGITS)
        if self._at_once and not self._passes_by:
            skipping.hold(bridge, round(polled_s + polls * interval_s, DIGITS))

    def _may_pass(
        self, before: Loads, now: Loads, following: Loads, seconds: float, next_s: float
    ) -> bool:
        """Whether a policy that acts immediately moves nothing during the sample `now` or because of it.

        This is decided from the loads of the samples. So each sample must begin at a poll, and last
        longer than the engine remembers earlier loads. The last sample before a possible move does not
        pass by, so the engine measures its loads.
        """
        bridge = self.bridge
        if bridge.placing.hashed or self._sample_s is None or not following:
            return False
        if min(self.now_s - self._changed_s, seconds, next_s) <= skipping.REMEMBERED_S:
            return False
        polled_s, interval_s = skipping.polled_s(bridge), bridge.config.poll_interval_s
        for at_s in (self.now_s, self.now_s + seconds):
            polls = (at_s - polled_s) / interval_s
            if abs(polls - round(polls)) > ON_TIME_RATIO:
                return False
        rates = (bridge.loads.at(ofport).rates for ofport, bps in now.items() if any(bps))
        if not all(map(skipping.is_live, rates)):
            return False
        if not self._passes_by:
            if bridge.scheduler.awaits_confirmation:
                return False
            self._resting = skipping.at_rest(bridge)
            # If the previous sample passed by, this has been checked already.
            if not self._stays_calm(before, now):
                return False
        return self._stays_calm(now, following)

    def _stays_calm(self, before: Loads, now: Loads) -> bool:
        """Whether nothing is moved when a sample with loads `now` follows one with loads `before`."""
        return skipping.stays_calm(self._resting, self._measured(now), self._measured(before))

    def _is_calm(self, offered: Loads) -> bool:
        """Whether the engine moves nothing, however the VM ports divide each uplink's load."""
        if not offered:
            return True
        carried, more = self.switch.carried(offered), 1.0 + ROUNDING_RATIO
        team_view = self.bridge.placing.team_view()
        uplinks = tuple(
            uplink.carrying(Load(*(more * bps for bps in carried[uplink.ofport])))
            for uplink in team_view.uplinks()
        )
        team = Snapshot(uplinks, (), team_view.config.threshold_ratio)
        judges = [PRESETS[policy].is_calm for policy in team_view.config.rebalancing]
        # Policies without `is_calm` base decisions on the loads of units.
        return all(judge is not None and judge(team) for judge in judges)

    # ---- the shell -----------------------------------------------------------------------

    def _say(self, event: events.Event) -> None:
        self._events.append(event)
        while self._events:
            for command in self.engine.handle(self._events.popleft(), self.now_s):
                self._carry_out(command)

    def _carry_out(self, command: engine_commands.Command) -> None:
        name = self.trace.name
        match command:
            case engine_commands.Connect():
                ports = self.switch.ports(self.trace.capacity_bps)
                self._events.append(events.SwitchConnected(name, ports))
            case engine_commands.ReadInstalled(number=number) if not self.bridge.settled:
                # The switch is read before the first bundle. Later, the engine checks for other
                # programs' changes, and the simulated switch has none.
                self._events.append(events.InstalledRead(name, (), (), number=number))
            case engine_commands.ReadStats():
                self._read(command)
            case engine_commands.ReadLearned():
                self._events.append(self.switch.learned())
            case engine_commands.ReadForwarding():
                self._events.append(events.ForwardingRead(name, ()))
            case engine_commands.Apply(bundle_id=number):
                team = self.bridge.installation.team
                assert team is not None, "a bundle installs a team"
                self._pending.append((self.now_s + REACTION_S, number, team))
            case engine_commands.Write(request_id=int(request_id)):
                self._events.append(events.Written(request_id))
            case engine_commands.ReportFailure(error=error):
                raise error

    def _read(self, read: engine_commands.ReadStats) -> None:
        if read.buckets or (read.units and not self.bridge.placing.hashed):
            self._all_read_s = self.now_s
        self._readings.note(read.buckets, self.now_s)
        self._events += self.switch.stats(read.buckets, self.now_s)[: None if read.units else 1]

    def _commit(self, team: Team) -> None:
        switch = self.switch
        homes = {ofport: route.home for ofport, route in switch.routes.items()}
        buckets, seen_at = switch.bucket_uplinks, switch.seen_at()
        self._hold()
        switch.commit(team, self.now_s)
        self._changed_s = self.now_s
        if self._sample_s is not None:
            after = {ofport: route.home for ofport, route in switch.routes.items()}
            self.figures.moves += _changes(homes, after) + _changes(buckets, switch.bucket_uplinks)
            for ofport, uplink in switch.seen_at().items():
                if seen_at.get(ofport, uplink) != uplink:
                    self._macs.moved(ofport, self.now_s)
        self._reckon()

    # ---- figures -------------------------------------------------------------------------

    def _hold(self) -> None:
        """Add the last computed loads to the figures, for the time up to now."""
        seconds, self._held_s = self.now_s - self._held_s, self.now_s
        if seconds > 0.0 and self._sample_s is not None:
            threshold_ratio = self.bridge.config.threshold_ratio
            self.figures.hold_figures(
                self._sample_s, seconds, self._uplinks, self._optimality_ratio, threshold_ratio
            )

    def _reckon(self) -> None:
        """Compute the current loads of uplinks and the optimality ratio of the placement."""
        switch, capacity_bps = self.switch, self.trace.capacity_bps
        self._uplinks = [
            Uplink(name, OfPort(ofport), capacity_bps, load=Load(*switch.uplink_bps[ofport]))
            for ofport, name in switch.uplinks.items()
            if ofport in switch.uplink_bps
        ]
        self._optimality_ratio = optimality_ratio(self._uplinks, self._units())

    def _units(self) -> list[Unit]:
        """Return the units that the policy can place. Buckets do not move with their VM port."""
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


def _uplink_names(count: int, taken: set[str]) -> list[str]:
    """Return `count` names for uplinks that differ from the names in `taken`."""
    prefix = "uplink"
    while taken.intersection(names := [f"{prefix}{number}" for number in range(1, count + 1)]):
        prefix += "-"
    return names


def _row(
    trace: HostTrace,
    policy: str,
    uplinks: Mapping[int, str],
    vm_ports: Mapping[int, str],
    settings: Mapping[str, str],
) -> BridgeRow:
    """Return the bridge's database row, as it would be on a host."""
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


def _changes(before: Mapping[Any, int], after: Mapping[Any, int]) -> int:
    return sum(before[key] != uplink for key, uplink in after.items() if key in before)
