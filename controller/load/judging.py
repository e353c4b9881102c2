"""The team as policies judge it: uplinks and units with what they carry over a window."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.config.values import BridgeConfig, UplinkConfig, VmPortConfig
from controller.load.loads import Loads
from controller.load.peaks import Peaks
from controller.load.polling import round_polls
from controller.teaming import buckets, splits, stations
from controller.teaming.bindings import Bound
from controller.teaming.links import Links
from controller.teaming.stations import Stations
from policies.model import IDLE, Load, Snapshot, Unit, Uplink
from policies.presets import PRESETS

# Assumed where nobody knows the speed of any uplink.
UNKNOWN_CAPACITY_BPS = 1e9
# Flow counters are half a second behind port counters at worst. Uplinks are judged by what
# was twice that ago, or a VM port would look smaller than its part of an uplink that is
# filling up, and one too big for any uplink would be moved. While it empties, the load of a VM
# port is the mean of then or of now, whichever is more, for the same reason.
UPLINK_LAG_S = 1.0
# Before that, a policy that acts at once does not know who carries what.
KNOWN_S = 1.0
# Until all that is under way follows a change of a group.
REACTION_S = 0.3
NO_PEAKS = Peaks()
NOTHING = (0.0, 0.0, 0.0, 0.0)
# Of what addresses behind a VM port send: what the port seems to send beside them.
NEGLIGIBLE_RATIO = 0.25
# A rate by looks is off by two readings of a beat at most; what is more is something else.
MOST_OFF = 1.5
# An uplink that carries so much of its capacity may be dropping more.
FULL_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Judged:
    """What there is to judge, at this moment.

    `bound`: the bindings that policies see. `found`: the homes that buckets had before the
    service started. `on_normal`: NORMAL forwards, and nobody counts what crosses uplinks.
    `stations`: the addresses that are units of their own. `resting`: the units that a policy
    which acts at once leaves where they are, `peaks`: the loads by which it does. `ripe`: the VM
    ports that need no longer be split. `late_known`: what is counted late
    (`controller.load.beats`) has been counted since loads changed.
    """

    config: BridgeConfig
    links: Links
    loads: Loads
    bound: Mapping[str, Bound]
    found: Mapping[str, str]
    on_normal: bool = False
    stations: Stations = field(default_factory=Stations)
    resting: frozenset[str] = frozenset()
    peaks: Peaks = field(default_factory=Peaks)
    ripe: frozenset[str] = frozenset()
    late_known: bool = True
    # Uplinks, and units, with their loads by window: asked for more than once in a decision.
    _team: dict[float | None, tuple[Uplink, ...]] = field(default_factory=dict, init=False)
    _made: dict[float | None, tuple[Unit, ...]] = field(default_factory=dict, init=False)

    def times(self, window_s: float | None) -> tuple[float | None, float]:
        """Over how long loads are looked at for a window, and how long ago that ended.

        What flows count later than ever is waited for (`controller.load.lateness`).
        """
        if window_s is None or self.on_normal:
            return window_s, 0.0
        return self.loads.lateness.times(window_s) or (window_s, 0.0)

    @property
    def rebalancing(self) -> list[str]:
        """The policies in use that move something because of load."""
        return [policy for policy in self.policies if PRESETS[policy].rebalances]

    @property
    def policies(self) -> list[str]:
        """The policies in use."""
        return sorted({port.policy for port in self.config.vm_ports})

    @property
    def longest_window_s(self) -> float:
        """The longest over which any policy in use looks back."""
        return max([self.config.window_s, *map(self.window_s, self.rebalancing)])

    def window_s(self, policy: str) -> float:
        """Over how long a policy looks back, and how far its moves are apart at least."""
        return PRESETS[policy].window_s or self.config.window_s

    def pause_s(self, policy: str) -> float:
        """How long after a move a full window has passed that began after it.

        Where live counters are judged: the switch follows, and two polls show it.
        """
        if PRESETS[policy].at_once:
            return REACTION_S + self.ports_follow_s
        over_s, ago_s = self.times(self.window_s(policy))
        return (over_s or 0.0) + ago_s + self.config.poll_interval_s + UPLINK_LAG_S

    @property
    def ports_follow_s(self) -> float:
        """How long after a change the latest loads of ports are of nothing before it."""
        return 2 * self.config.poll_interval_s

    def remembered_s(self, policy: str) -> float:
        """For how long a change of loads is seen in what a policy judges, if polls are on time."""
        round_s = self.round_s
        if PRESETS[policy].at_once:
            return 2 * round_s
        # What is not read with each poll was read up to a round ago.
        rounds = math.ceil(self.window_s(policy) / round_s) + math.ceil(UPLINK_LAG_S / round_s) + 1
        return round_s * rounds

    @property
    def round_s(self) -> float:
        """After how long everything has been read: counters of flows are not with each poll."""
        poll_s = self.config.poll_interval_s
        hashed = not set(self.rebalancing).isdisjoint(buckets.in_use(self.config))
        return poll_s * round_polls(poll_s, hashed)

    @property
    def keep_s(self) -> float:
        """For how long counters are remembered: as long as any policy in use looks back."""
        at_most_s = self.longest_window_s + 2 * self.config.poll_interval_s + UPLINK_LAG_S
        return at_most_s + self.loads.lateness.more_s

    def covers(self, window_s: float) -> bool:
        """Whether the loads of all uplinks are known over a whole window, and whose they are."""
        if not self.on_normal and self.loads.lateness.times(window_s) is None:
            return False
        ofports = [uplink.ofport for uplink in self.config.uplinks]
        over_s, ago_s = self.times(window_s)
        return self.loads.covers(ofports, over_s or window_s, ago_s + UPLINK_LAG_S)

    def known_s(self, window_s: float) -> float:
        """For how long the loads of all uplinks are known, up to a window."""
        if self.covers(window_s):
            return window_s
        of = self.loads.known_s
        return min((of(uplink.ofport, UPLINK_LAG_S) for uplink in self.config.uplinks), default=0.0)

    def covered(self, window_s: float) -> float | None:
        """That window, if loads are known over it; None: the latest have to do."""
        return window_s if self.covers(window_s) else None

    def uplinks(self, window_s: float | None = None) -> tuple[Uplink, ...]:
        """The team as policies see it; loads over a window, or the latest."""
        if window_s not in self._team:
            self._team[window_s] = self._made_uplinks(window_s)
        return self._team[window_s]

    def _made_uplinks(self, window_s: float | None) -> tuple[Uplink, ...]:
        usable, reserved_bps = self.links.usable(self.config.uplinks), self._reserved_bps()
        over_s, ago_s = self.times(window_s)
        return tuple(
            Uplink(
                name=uplink.name,
                ofport=uplink.ofport,
                capacity_bps=self.capacity_bps(uplink),
                role=uplink.role,
                usable=uplink.name in usable,
                load=self.loads.port(uplink.ofport, over_s, ago_s + UPLINK_LAG_S),
                reserved_bps=reserved_bps[uplink.name],
                waiting=uplink.name not in usable and self.links.up(uplink),
            )
            for uplink in self.config.uplinks
        )

    def _reserved_bps(self) -> Counter[str]:
        """What VM ports are promised, by the uplink that they are bound to."""
        found: Counter[str] = Counter()
        for port in self.config.vm_ports:
            if port.rules.reserve_bps and port.name in self.bound:
                found[self.bound[port.name].uplink] += round(port.rules.reserve_bps)
        return found

    def units(self) -> tuple[Unit, ...]:
        """VM ports, addresses behind them, and buckets, as far as is known."""
        ports = [self._vm_port(port, port.binding, IDLE) for port in self.config.vm_ports]
        in_buckets = buckets.units(self.config, self.uplinks(), self.found)
        return (*ports, *self._behind(ports), *in_buckets)

    def _vm_port(self, port: VmPortConfig, uplink: str | None, load: Load) -> Unit:
        return Unit(
            name=port.name,
            number=port.ofport,
            policy=port.policy,
            uplink=uplink,
            load=load,
            rules=port.rules,
            excluded=port.excluded,
            allowed=port.allowed,
            spread=buckets.hashed_by(port) is not None,
            divisible=not port.split and splits.may_split(port, self.config),
            ripe=port.name in self.ripe,
        )

    def _behind(self, ports: Iterable[Unit]) -> Iterable[Unit]:
        known = self.stations
        return stations.units(known.by_name.values(), known.found, self.config, ports)

    def loaded(self, window_s: float | None = None) -> tuple[Unit, ...]:
        """Units where they are bound, with what they carry over uplinks."""
        if window_s not in self._made:
            self._made[window_s] = self._made_loaded(window_s)
        return self._made[window_s]

    def _made_loaded(self, window_s: float | None) -> tuple[Unit, ...]:
        """What addresses of a VM port carry that are units of their own is not the VM port's."""
        over_s, ago_s = self.times(window_s)
        ports = [
            self._vm_port(port, self._at(port.name), self._load_of(port, over_s, ago_s))
            for port in self.config.vm_ports
        ]
        behind = [
            replace(
                unit,
                uplink=self._at(unit.name),
                load=self.loads.station(unit.name, over_s, UPLINK_LAG_S, ago_s),
            )
            for unit in self._behind(ports)
        ]
        in_buckets = buckets.loaded(
            self.config, self.uplinks(), self._at, lambda n: self.loads.bucket(n, over_s, ago_s)
        )
        units = self._evenly([*ports, *behind, *in_buckets])
        if behind:
            apart_bps: dict[str, float] = {}
            for unit in behind:
                name = str(unit.behind)
                apart_bps[name] = apart_bps.get(name, 0.0) + unit.load.tx_bps
            late = self._late_units(ports) if window_s is None else set()
            units = [
                _without(unit, apart_bps.get(unit.name, 0.0), unit.name in late) for unit in units
            ]
        return tuple(self._as_carried(units) if window_s is None else units)

    def carrying(self, window_s: float | None = None) -> tuple[Uplink, ...]:
        """The team with what it carries; observing, what it would carry as units are bound."""
        uplinks = self.uplinks(window_s)
        if self.config.mode != "observe":
            return uplinks
        loads = {uplink.name: Load() for uplink in uplinks}
        for unit, load in self.carried(window_s):
            if unit.uplink in loads:
                loads[unit.uplink] += load
        return tuple(replace(uplink, load=loads[uplink.name]) for uplink in uplinks)

    def carried(self, window_s: float | None = None) -> list[tuple[Unit, Load]]:
        """Units, and what moves with each: what is in a bucket does not go with its VM port."""
        return [(unit, unit.own_load) for unit in self.loaded(window_s)]

    def asked(self, policy: str, window_s: float) -> Snapshot | None:
        """What a policy is asked about: loads over a window, or peaks where it acts at once."""
        if not PRESETS[policy].at_once:
            return self.snapshot(policy, window_s)
        return self.live(policy, self.peaks)

    def is_calm(self, policy: str, uplinks: tuple[Uplink, ...] = ()) -> bool:
        """Whether a policy moves nothing, whatever units carry, over a window as uplinks are.

        Or with these uplinks. That is known without a look at a single unit.
        """
        is_calm, window_s = PRESETS[policy].is_calm, self.window_s(policy)
        if is_calm is None or not (uplinks or self.covers(window_s)):
            return False
        uplinks = uplinks or self.carrying(window_s)
        return is_calm(Snapshot(uplinks, (), self.config.threshold_ratio))

    def snapshot(self, policy: str, window_s: float) -> Snapshot | None:
        """The team with loads over a full window; None while less is known.

        All that uplinks carry counts, the units are those that the policy may move.
        """
        if not self.covers(window_s):
            return None
        units = tuple(map(_apart, self.loaded(window_s)))
        return self._snapshot(policy, self.carrying(window_s), units)

    def live(self, policy: str, peaks: Peaks = NO_PEAKS) -> Snapshot | None:
        """The team with what units carry at their peaks; at this moment where none is known.

        What else an uplink carries at this moment comes on top of that. None while less than a
        second is known.
        """
        if not self.loads.covers((u.ofport for u in self.config.uplinks), KNOWN_S, 0.0):
            return None
        # Sent and received, at this moment and at most, by uplink.
        sums: dict[str | None, list[float]] = {}
        units = []
        for unit in self.loaded():
            most, excluded = peaks.of(unit.name), unit.excluded or unit.name in self.resting
            if most is None and unit.load is IDLE and excluded is unit.excluded:
                # As most buckets are.
                units.append(unit)
                continue
            load = unit.own_load
            most = most or load
            at = sums.setdefault(unit.uplink, [0.0, 0.0, 0.0, 0.0])
            at[0] += load.tx_bps
            at[1] += load.rx_bps
            at[2] += most.tx_bps
            at[3] += most.rx_bps
            if most != unit.load or excluded or unit.spread:
                spread_bps = unit.load.tx_bps if unit.spread else 0.0
                unit = unit.as_judged(most, spread_bps, excluded)
            units.append(unit)
        uplinks = tuple(
            replace(u, load=_with_peaks(u.load, *sums.get(u.name, NOTHING)))
            for u in self.carrying()
        )
        return self._snapshot(policy, uplinks, tuple(units))

    def offered(
        self, policy: str, beside: Callable[[str], Load], peaks: Peaks = NO_PEAKS
    ) -> Snapshot | None:
        """The team with what units carry at their peaks, or at this moment where none is known.

        Also what an uplink has no room for. `beside`: what each uplink carries beside them. So it
        is known at once what a move has brought, while queues empty and switches follow.
        """
        if not self.loads.covers((u.ofport for u in self.config.uplinks), KNOWN_S, 0.0):
            return None
        loads = {uplink.name: beside(uplink.name) for uplink in self.config.uplinks}
        units = []
        for unit in self.loaded():
            load = unit.own_load
            if (
                (most := peaks.of(unit.name))
                and load.tx_bps <= most.tx_bps
                and load.rx_bps <= most.rx_bps
            ):
                load = most
            excluded = unit.excluded or unit.name in self.resting
            if unit.uplink in loads and load is not IDLE:
                loads[unit.uplink] += load
            if load is not unit.load or excluded:
                spread_bps = unit.load.tx_bps if unit.spread else 0.0
                unit = unit.as_judged(load, spread_bps, excluded)
            units.append(unit)
        uplinks = tuple(replace(u, load=loads[u.name]) for u in self.uplinks())
        return self._snapshot(policy, uplinks, tuple(units))

    def beside(self) -> dict[str, Load]:
        """What each uplink carries beside its units at this moment."""
        sums = {uplink.name: uplink.load for uplink in self.carrying()}
        for unit in self.loaded():
            if unit.uplink in sums and unit.load is not IDLE:
                sums[unit.uplink] -= unit.own_load
        return {
            name: Load(max(0.0, left.tx_bps), max(0.0, left.rx_bps)) for name, left in sums.items()
        }

    def _snapshot(
        self, policy: str, uplinks: tuple[Uplink, ...], units: tuple[Unit, ...]
    ) -> Snapshot:
        hashed = PRESETS[policy].classifier.hashed
        return Snapshot(
            uplinks=uplinks,
            units=tuple(u for u in units if u.policy == policy and (u.is_bucket or not hashed)),
            threshold_ratio=self.config.threshold_ratio,
            in_sets=tuple(unit for unit in units if not unit.is_bucket and unit.rules.in_set),
        )

    def _as_carried(self, units: list[Unit]) -> list[Unit]:
        """At this moment, VM ports cannot exchange more by an uplink than it carries.

        Unless it is full, and drops the rest. What they seem to exchange beyond that stays on this
        host, as their flows will tell.
        """
        live = [not unit.is_bucket and PRESETS[unit.policy].at_once for unit in units]
        if self.config.mode == "observe" or not any(live):
            return units
        sums: dict[str | None, Load] = {}
        for unit in units:
            if unit.load is not IDLE:
                sums[unit.uplink] = sums.get(unit.uplink, IDLE) + unit.own_load
        late = self._late_units(units)
        if late:
            units = self._late_as_carried(units, late, sums)
        parts = {u.name: _parts(u, sums.get(u.name, IDLE)) for u in self.uplinks()}
        parts = {name: part for name, part in parts.items() if min(part) < 1.0}
        if not parts:
            return units
        return [
            _scaled(unit, *parts[unit.uplink]) if scales and unit.uplink in parts else unit
            for unit, scales in zip(units, live, strict=True)
        ]

    def late_units(self) -> frozenset[str]:
        """The units that are counted by looks, by name."""
        return frozenset(self._late_units(self.loaded()))

    def _late_units(self, units: Iterable[Unit]) -> set[str]:
        """Those that are counted by looks, by name."""
        late = {p.name for p in self.config.vm_ports if self.loads.is_late(p.ofport)}
        return {u.name for u in units if u.name in late or u.behind in late} if late else late

    def _late_as_carried(
        self, units: list[Unit], late: set[str], sums: dict[str | None, Load]
    ) -> list[Unit]:
        """Looks tell shares well and times badly: together units carry what their uplink does.

        What changed since the last look is not known yet, and an uplink that is full drops some.
        `sums` follows.
        """
        if not self.late_known:
            return units
        of: dict[str | None, Load] = {}
        for unit in units:
            if unit.name in late:
                of[unit.uplink] = of.get(unit.uplink, IDLE) + unit.own_load
        factors = {}
        for uplink in self.uplinks():
            seems, carried = of.get(uplink.name, IDLE), uplink.load
            others = sums.get(uplink.name, IDLE) - seems
            full_bps = FULL_RATIO * uplink.capacity_bps
            factors[uplink.name] = (
                _factor(carried.tx_bps, others.tx_bps, seems.tx_bps, full_bps),
                _factor(carried.rx_bps, others.rx_bps, seems.rx_bps, full_bps),
            )
            tx, rx = factors[uplink.name]
            sums[uplink.name] = others + Load(seems.tx_bps * tx, seems.rx_bps * rx)
        return [
            _scaled(u, *factors[u.uplink]) if u.name in late and u.uplink in factors else u
            for u in units
        ]

    def _evenly(self, units: list[Unit]) -> list[Unit]:
        """Observing, VM ports are split in mind only: what they send is in all buckets alike."""
        if self.config.mode != "observe" or not any(port.split for port in self.config.vm_ports):
            return units
        sent_bps, count = Counter[str](), Counter(u.policy for u in units if u.is_bucket)
        for unit in units:
            sent_bps[unit.policy] += round(unit.load.tx_bps) if unit.spread else 0
        return [
            replace(u, load=Load(tx_bps=sent_bps[u.policy] / count[u.policy]))
            if u.is_bucket and PRESETS[u.policy].splits_by
            else u
            for u in units
        ]

    def _at(self, unit: str) -> str | None:
        """The uplink that a unit is bound to."""
        bound = self.bound.get(unit)
        return bound.uplink if bound else None

    def port_load(self, port: VmPortConfig) -> Load:
        """What a VM port sends and receives now: it is not shown with more than uplinks carry.

        Where its counter says so, as that is not of this moment, and all it has crosses uplinks.
        """
        load = self.loads.port(port.ofport, None)
        if not self.loads.is_late(port.ofport) or not self.loads.crosses_whole(port.ofport):
            return load
        carried = sum((uplink.load for uplink in self.uplinks()), IDLE)
        return Load(min(load.tx_bps, carried.tx_bps), min(load.rx_bps, carried.rx_bps))

    def _load_of(self, port: VmPortConfig, window_s: float | None, ago_s: float) -> Load:
        """What a VM port carries over uplinks."""
        if self.on_normal:
            return self.loads.port(port.ofport, window_s)
        if window_s is None and PRESETS[port.policy].at_once:
            return self.loads.live_unit(port.ofport)
        return self.loads.unit(port.ofport, window_s, UPLINK_LAG_S, ago_s)

    def capacity_bps(self, uplink: UplinkConfig) -> float:
        """Where nobody knows the speed, as much as the slowest of the others has.

        A service that starts while a link is down has never seen its speed.
        """
        if known_bps := self.known_capacity_bps(uplink):
            return known_bps
        others_bps = filter(None, map(self.known_capacity_bps, self.config.uplinks))
        return min(others_bps, default=UNKNOWN_CAPACITY_BPS)

    def known_capacity_bps(self, uplink: UplinkConfig) -> float | None:
        """None where nobody knows the speed."""
        return uplink.capacity_bps or self.links.speed_bps(uplink) or uplink.link_speed_bps


def _with_peaks(
    load: Load, tx_bps: float, rx_bps: float, most_tx_bps: float, most_rx_bps: float
) -> Load:
    """What an uplink would carry with its units at their peaks; beside them, as now."""
    return Load(
        max(load.tx_bps, tx_bps) - tx_bps + most_tx_bps,
        max(load.rx_bps, rx_bps) - rx_bps + most_rx_bps,
    )


def _parts(uplink: Uplink, summed: Load) -> tuple[float, float]:
    """What an uplink carries of what its units seem to, in both directions."""
    full_bps = FULL_RATIO * uplink.capacity_bps

    def part(carried_bps: float, seems_bps: float) -> float:
        return carried_bps / seems_bps if carried_bps < min(seems_bps, full_bps) else 1.0

    return (
        part(uplink.load.tx_bps, summed.tx_bps),
        part(uplink.load.rx_bps, summed.rx_bps),
    )


def _factor(carried_bps: float, others_bps: float, seems_bps: float, full_bps: float) -> float:
    """By how much units carry more than they seem to; 1 where nobody can tell."""
    if carried_bps >= full_bps or not seems_bps:
        return 1.0
    factor = max(0.0, carried_bps - others_bps) / seems_bps
    return factor if 1.0 / MOST_OFF <= factor <= MOST_OFF else 1.0


def _scaled(unit: Unit, tx: float, rx: float) -> Unit:
    """What is spread is not its uplink's."""
    load = Load(unit.load.tx_bps * (1.0 if unit.spread else tx), unit.load.rx_bps * rx)
    return unit.as_judged(load, unit.spread_bps, unit.excluded)


def _apart(unit: Unit) -> Unit:
    """What is in buckets is moved with those."""
    if not unit.spread:
        return unit
    return replace(unit, load=unit.own_load, spread_bps=unit.load.tx_bps)


def _without(unit: Unit, sent_bps: float, late: bool) -> Unit:
    """Counters are not of quite the same moment. What comes in is counted apart by the switch.

    `late`: the port is counted by looks, so that little that seems to be left is nothing.
    """
    if not sent_bps:
        return unit
    left_bps = max(0.0, unit.load.tx_bps - sent_bps)
    if late and left_bps <= NEGLIGIBLE_RATIO * sent_bps:
        left_bps = 0.0
    return replace(unit, load=Load(left_bps, unit.load.rx_bps))
