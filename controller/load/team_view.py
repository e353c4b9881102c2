"""The team as policies see it: uplinks and units with mean loads over a window or current loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from controller.config.values import BridgeConfig, UplinkConfig, VmPortConfig
from controller.load.as_carried import as_carried, by_uplink, down_to, is_live, scaled, sums
from controller.load.loads import UPLINK_LAG_S, Loads
from controller.load.recent_loads import RecentLoads
from controller.load.reused import Reused
from controller.teaming import address_units, buckets, splits
from controller.teaming.address_units import AddressUnits
from controller.teaming.bindings import Bound
from controller.teaming.buckets import Bucket
from controller.teaming.links import Links
from controller.teaming.path_plan import NONE, NOTHING, KeptOff
from policies.model import IDLE, NO_RULES, Load, Snapshot, Unit, Uplink
from policies.presets import PRESETS
from policies.values import value

# The capacity of every uplink while the speed of none is known.
UNKNOWN_CAPACITY_BPS = 1e9
# The time over which loads that only flows count are averaged. Flow counters are updated twice a
# second, so single readings would show several times the load, or none.
BY_FLOWS_S = 2.0
# The time over which loads must be known before a policy that acts immediately is run.
KNOWN_S = 1.0
# How long it takes until all traffic follows a changed group.
REACTION_S = 0.3
NO_PEAKS = RecentLoads()


@value(frozen=True, slots=True)
class TeamView:
    """The team of one bridge as policies see it at one moment.

    `bound`: the bindings that policies see. `found`: the buckets' home uplinks before the service
    started. `on_normal`: the NORMAL action forwards, so no flow counts traffic over uplinks.
    `in_cooldown`: the units that must not be moved now by policies that act immediately. `merge_due`:
    split VM ports that can be merged.
    `late_known`: whether late counters (`controller.load.rates`) cover only time since loads changed.
    """

    config: BridgeConfig
    links: Links
    loads: Loads
    bound: Mapping[str, Bound]
    found: Mapping[str, str]
    on_normal: bool = False
    address_units: AddressUnits = field(default_factory=AddressUnits)
    in_cooldown: frozenset[str] = frozenset()
    merge_due: frozenset[str] = frozenset()
    late_known: bool = True
    # The VM ports that are split.
    split: frozenset[str] = frozenset()
    reused: Reused = field(default_factory=Reused)
    # The uplinks that lose frames of units.
    kept_off: KeptOff = NOTHING
    # Caches of uplinks and units by window, because a decision needs them more than once.
    _team: dict[float | None, tuple[Uplink, ...]] = field(default_factory=dict, init=False)
    _made: dict[float | None, tuple[Unit, ...]] = field(default_factory=dict, init=False)
    _unexplained: dict[str, Load] = field(default_factory=dict, init=False)

    def times(self, window_s: float | None) -> tuple[float | None, float]:
        """Return the length of the window over which loads are known, and the time since its end.

        Both are in seconds. They differ from `window_s` and 0 if flows are counted later than usual
        (`controller.load.lateness`).
        """
        if window_s is None:
            return None, 0.0
        return self._known_times(window_s) or (window_s, 0.0)

    def _known_times(self, window_s: float) -> tuple[float, float] | None:
        """Return the same as `times`; None while the loads of flows are not known."""
        return (window_s, 0.0) if self.on_normal else self.loads.lateness.times(window_s)

    @property
    def longest_window_s(self) -> float:
        """The longest window of the policies in use, in seconds."""
        return max([self.config.window_s, *map(self.window_s, self.config.rebalancing)])

    def window_s(self, policy: str) -> float:
        """Return a policy's averaging window, which is also the shortest time between its moves."""
        return PRESETS[policy].window_s or self.config.window_s

    def pause_s(self, policy: str) -> float:
        """Return the time that a policy must wait after a move, in seconds.

        After that time, loads are known over a full window that began after the move. A policy that
        acts immediately waits until the switch has made the move and two polls have measured it.
        """
        if PRESETS[policy].at_once:
            return REACTION_S + 2 * self.config.poll_interval_s
        window_s = self.window_s(policy)
        over_s, ago_s = self._known_times(window_s) or (window_s, 0.0)
        return over_s + ago_s + self.config.poll_interval_s + UPLINK_LAG_S

    @property
    def in_use(self) -> list[str]:
        """The policies in use that hash frames onto buckets."""
        return buckets.in_use(self.config, self.split)

    @property
    def keep_s(self) -> float:
        """The time to keep counters, in seconds: enough for the longest window of the policies in use."""
        at_most_s = self.longest_window_s + 2 * self.config.poll_interval_s + UPLINK_LAG_S
        return at_most_s + self.loads.lateness.more_s

    def covers(self, window_s: float) -> bool:
        """Whether the loads of all uplinks and units are known over a whole window."""
        if (times := self._known_times(window_s)) is None:
            return False
        over_s, ago_s = times
        return self.loads.covers(self.config.uplink_at, over_s, ago_s + UPLINK_LAG_S)

    def known_s(self, window_s: float) -> float:
        """Return the time, at most `window_s`, over which the loads of all uplinks and units are known."""
        if self.covers(window_s):
            return window_s
        if (times := self._known_times(window_s)) is None:
            return 0.0
        lag_s = times[1] + UPLINK_LAG_S
        uplinks = (self.loads.at(uplink.ofport).rates for uplink in self.config.uplinks)
        known_s = min((rates.known_s(lag_s) for rates in uplinks), default=0.0)
        return known_s if self.covers(known_s) else 0.0

    def covered(self, window_s: float) -> float | None:
        """Return `window_s` if loads are known over it, or None if only the latest loads are known."""
        return window_s if self.covers(window_s) else None

    def uplinks(self, window_s: float | None = None) -> tuple[Uplink, ...]:
        """Return the uplinks with their mean loads over a window (None: with the latest loads)."""
        if window_s not in self._team:
            self._team[window_s] = self._made_uplinks(window_s)
        return self._team[window_s]

    def _made_uplinks(self, window_s: float | None) -> tuple[Uplink, ...]:
        usable, reserved_bps = self.links.usable(), self._reserved_bps()
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
        """Return the total reservations of the VM ports bound to each uplink, by uplink name."""
        found: Counter[str] = Counter()
        for port in self.config.queued:
            if port.rules.reserve_bps and port.name in self.bound:
                found[self.bound[port.name].uplink] += round(port.rules.reserve_bps)
        return found

    def units(self) -> tuple[Unit, ...]:
        """Return all units without loads: VM ports, address units and buckets."""
        ports = self._vm_ports((port, port.binding, IDLE) for port in self.config.vm_ports)
        return (*ports, *self._behind(ports), *self._in_buckets("idle", self.found.get, None))

    def _vm_ports(self, loads: Iterable[tuple[VmPortConfig, str | None, Load]]) -> list[Unit]:
        """Make the units of VM ports, each with its uplink and its load."""
        on_a_lag, kept_off = self.config.on_a_lag, self.kept_off.by_unit
        found = []
        for port, uplink, load in loads:
            name = port.name
            is_split, due = name in self.split, name in self.merge_due
            parts = load, uplink, port, is_split, due, on_a_lag, kept_off.get(name, NONE)
            found.append(self.reused.reuse("VM port", name, _vm_port, parts))
        return found

    def _behind(self, ports: Iterable[Unit]) -> Iterable[Unit]:
        behind = address_units.units(self.address_units.by_name.values(), self.config, ports)
        return (_without_lossy(unit, self.kept_off) for unit in behind)

    def loaded(self, window_s: float | None = None) -> tuple[Unit, ...]:
        """Return all units, each with its uplink and its load on that uplink."""
        if window_s not in self._made:
            self._made[window_s] = self._made_loaded(window_s)
        return self._made[window_s]

    def _made_loaded(self, window_s: float | None) -> tuple[Unit, ...]:
        """Make all units. The load of a VM port does not include the loads of its address units."""
        over_s, ago_s = self.times(window_s)
        divided = frozenset() if self.on_normal else self.divided_ports
        ports = self._vm_ports(
            (
                port,
                self._at(port.name),
                self.loads.own(port.ofport, over_s, ago_s)
                if port.ofport in divided
                else self._load_of(port, over_s, ago_s),
            )
            for port in self.config.vm_ports
        )
        behind = [
            replace(
                unit,
                uplink=self._at(unit.name),
                load=self.loads.address_unit(unit.name, over_s, ago_s),
            )
            for unit in self._behind(ports)
        ]
        if behind and window_s is None:
            behind = self._within_ports(behind)
        in_buckets = self._in_buckets(str(window_s), self._at, (over_s, ago_s))
        units = self._evenly([*ports, *behind, *in_buckets])
        if window_s is None and not self.config.observes and any(map(is_live, units)):
            # Nothing tells by how much late counters are off if loads have changed since their updates.
            late = self.late_units(units) if self.late_known else set()
            units = as_carried(units, self.uplinks(), late)
        return tuple(units)

    def _in_buckets(
        self,
        use: str,
        uplink_of: Callable[[str], str | None],
        times: tuple[float | None, float] | None,
    ) -> tuple[Unit, ...]:
        """Return the units of buckets; for the same `use`, the previous units if nothing changed.

        `times`: as in `times`; None: the units have no loads.
        """
        there = buckets.there(self.config, self.split, self.config.uplinks)
        names = [bucket.name for bucket in there]
        loads = self.loads.of_buckets(names, *times) if times else (IDLE,) * len(there)
        parts = loads, tuple(map(uplink_of, names)), there, self.kept_off
        return self.reused.reuse("buckets", use, _buckets, parts) if there else ()

    def _within_ports(self, behind: Sequence[Unit]) -> list[Unit]:
        """Scale the current loads of address units to the load of their VM port.

        The sum of the loads may be too high, because flow counters and port counters are updated at
        different times.
        """
        seem = sums((unit.behind, unit.load) for unit in behind)
        parts = {
            port.name: down_to(self.loads.port(port.ofport, None), seem[port.name])
            for port in self.config.vm_ports
            if port.name in seem and not port.counted_by_flows
        }
        return [
            scaled(unit, *parts[unit.behind]) if unit.behind in parts else unit for unit in behind
        ]

    def carrying(self, window_s: float | None = None) -> tuple[Uplink, ...]:
        """Return the uplinks with their loads; in observe mode, their loads after planned moves."""
        uplinks = self.uplinks(window_s)
        if not self.config.observes:
            return uplinks
        loads = by_uplink(self.loaded(window_s))
        return tuple(replace(uplink, load=loads.get(uplink.name, IDLE)) for uplink in uplinks)

    def is_calm(self, policy: str) -> bool:
        """Whether the loads of uplinks alone show that a policy moves nothing."""
        is_calm, window_s = PRESETS[policy].is_calm, self.window_s(policy)
        if is_calm is None or not self.covers(window_s):
            return False
        return is_calm(Snapshot(self.carrying(window_s), (), self.config.threshold_ratio))

    def snapshot(self, policy: str, window_s: float) -> Snapshot | None:
        """Return the team with mean loads over a full window; None while these loads are unknown.

        An uplink's load includes all its traffic. The units are those that the policy can move.
        """
        if not self.covers(window_s):
            return None
        # Traffic that a VM port sends through buckets moves with buckets.
        units = tuple(
            u.as_judged(u.own_load, u.load.tx_bps, u.excluded) if u.spread else u
            for u in self.loaded(window_s)
        )
        return _snapshot(units, self.carrying(window_s), policy, self.config.threshold_ratio)

    def offered(
        self,
        policy: str,
        peaks: RecentLoads = NO_PEAKS,
        unexplained: Mapping[str, Load] | None = None,
    ) -> Snapshot | None:
        """Return the team with the offered load, which may exceed the capacity of uplinks.

        Each unit has its peak, or its current load if no peak is known. The load of an uplink is
        the sum of its units' loads and its other traffic: `unexplained`, by uplink name (None: the
        current one). So a move changes these loads immediately, even while queues drain and
        switches adapt. Return None if loads have been known for less than `KNOWN_S`.
        """
        if not self.loads.covers(self.config.uplink_at, KNOWN_S, 0.0):
            return None
        more = self.unexplained() if unexplained is None else unexplained
        units, cooling = list(self.loaded()), self.in_cooldown
        use, peak_of = "present" if peaks is NO_PEAKS else "peaks", peaks.peaks()
        for number, unit in enumerate(units):
            most = peak_of.get(unit.name)
            if unit.load is IDLE and most is None and unit.name not in cooling:
                # Most buckets are idle.
                continue
            load = unit.own_load
            if most and load.tx_bps <= most.tx_bps and load.rx_bps <= most.rx_bps and load != most:
                load = most
            excluded = unit.excluded or unit.name in cooling
            if load is not unit.load or excluded:
                parts = unit, load, unit.load.tx_bps if unit.spread else 0.0, excluded
                units[number] = self.reused.reuse(use, unit.name, Unit.as_judged, parts)
        team = tuple(units), self.uplinks(), policy, self.config.threshold_ratio, more
        return self.reused.reuse("team", policy, _snapshot, team)

    def unexplained(self) -> dict[str, Load]:
        """Return, by uplink name, the current traffic that does not belong to a unit on the uplink."""
        if not self._unexplained:
            known = by_uplink(self.loaded())
            for u in self.carrying():
                self._unexplained[u.name] = IDLE.larger(u.load - known.get(u.name, IDLE))
        return self._unexplained

    @property
    def late_ports(self) -> set[int]:
        """The ofports of VM ports whose units have late counters (`controller.load.rates`).

        These are ports whose own counters are late, and ports with address units.
        """
        late = self.loads.late_ports()
        return {*[p.ofport for p in self.config.vm_ports if p.ofport in late], *self.divided_ports}

    @property
    def divided_ports(self) -> frozenset[int]:
        """The ofports of VM ports with address units."""
        if not self.address_units.by_name:
            return frozenset()
        behind = {unit.port for unit in self.address_units.by_name.values()}
        return frozenset(int(p.ofport) for p in self.config.per_address if p.name in behind)

    def late_units(self, units: Iterable[Unit]) -> set[str]:
        """Return the names of those `units` whose counters lag."""
        ofports = self.late_ports
        late = {port.name for port in self.config.vm_ports if port.ofport in ofports}
        return {u.name for u in units if u.name in late or u.behind in late} if late else late

    def _evenly(self, units: list[Unit]) -> list[Unit]:
        """In observe mode, divide the traffic that split VM ports send evenly among the buckets.

        Such VM ports are split only in the plan, so the switch has no counters of their buckets.
        """
        if not self.config.observes or not self.split:
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
        """Return the uplink that a unit is bound to."""
        bound = self.bound.get(unit)
        return bound.uplink if bound else None

    def _load_of(self, port: VmPortConfig, window_s: float | None, ago_s: float) -> Load:
        """Return the load of a VM port on uplinks."""
        if self.on_normal:
            return self.loads.port(port.ofport, window_s)
        if window_s is None and PRESETS[port.policy].at_once:
            return self.live_load(port)
        return self.loads.unit(port.ofport, window_s, ago_s)

    def live_load(self, port: VmPortConfig) -> Load:
        """Return the current load of a VM port on uplinks."""
        if port.counted_by_flows:
            return self.loads.unit(port.ofport, BY_FLOWS_S)
        return self.loads.live_unit(port.ofport)

    def capacity_bps(self, uplink: UplinkConfig) -> float:
        """Return the capacity of an uplink; if unknown, the lowest known capacity of other uplinks.

        A service that starts while a link is down does not know the link's speed.
        """
        if known_bps := self.known_capacity_bps(uplink):
            return known_bps
        others_bps = filter(None, map(self.known_capacity_bps, self.config.uplinks))
        return min(others_bps, default=UNKNOWN_CAPACITY_BPS)

    def known_capacity_bps(self, uplink: UplinkConfig) -> float | None:
        """Return the capacity of an uplink; None if it is neither configured nor reported."""
        return (
            uplink.capacity_bps
            or self.links.by_name[uplink.name].speed_bps
            or uplink.link_speed_bps
        )


def _snapshot(
    units: tuple[Unit, ...],
    uplinks: tuple[Uplink, ...],
    policy: str,
    threshold_ratio: float,
    more: Mapping[str, Load] | None = None,
) -> Snapshot:
    """Make a team. `more`: the other traffic of uplinks that carry `units`; None: they have loads."""
    if more is not None:
        known = sums([(unit.uplink, unit.load) for unit in units if unit.load is not IDLE])
        uplinks = tuple(u.carrying(more[u.name] + known.get(u.name, IDLE)) for u in uplinks)
    hashed = PRESETS[policy].classifier.hashed
    return Snapshot(
        uplinks=uplinks,
        units=tuple([u for u in units if u.policy == policy and (u.is_bucket or not hashed)]),
        threshold_ratio=threshold_ratio,
        in_sets=tuple([u for u in units if u.rules is not NO_RULES and u.rules.in_set]),
    )


def _vm_port(
    load: Load,
    uplink: str | None,
    port: VmPortConfig,
    is_split: bool,
    due: bool,
    on_a_lag: bool,
    kept_off: frozenset[str],
) -> Unit:
    """Make the unit of a VM port."""
    return Unit(
        name=port.name,
        number=port.ofport,
        policy=port.policy,
        uplink=uplink,
        load=load,
        rules=port.rules,
        excluded=port.excluded,
        allowed=port.allowed,
        spread=buckets.hashed_by(port, {port.name} if is_split else ()) is not None,
        divisible=not (is_split or kept_off) and splits.may_split(port, on_a_lag),
        merge_due=due,
        kept_off=kept_off,
    )


def _buckets(
    loads: Sequence[Load],
    uplinks: Sequence[str | None],
    there: Sequence[Bucket],
    kept_off: KeptOff,
) -> tuple[Unit, ...]:
    """Make the units of buckets, each with its uplink and its load."""
    units = map(buckets.unit, there, uplinks, loads)
    return tuple(_without_lossy(unit, kept_off) for unit in units)


def _without_lossy(unit: Unit, kept_off: KeptOff) -> Unit:
    """Return an address unit or bucket with `kept_off` set to the uplinks that lose its frames."""
    by, key = (kept_off.by_policy, unit.policy) if unit.is_bucket else (kept_off.by_unit, unit.name)
    off = by.get(key, NONE)
    return unit if off == unit.kept_off else replace(unit, kept_off=off)
