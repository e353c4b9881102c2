"""One VM port and all that bears on where it is: what `explain` puts into sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller.api.history import Entry, Happened, Moved
from controller.bridge.bridge import Bridge
from controller.config.values import VmPortConfig
from controller.decisions import planning
from controller.decisions.planning import Basis
from controller.load.rates import COVERAGE_RATIO
from controller.teaming.bindings import Bound
from controller.teaming.buckets import hashed_by
from policies.model import Load, Reason, Unit, Uplink
from policies.presets import PRESETS
from policies.rules import Rule
from policies.verdicts import Standing, Verdict


class Held(StrEnum):
    """What keeps a policy from being asked about a VM port.

    `AWAY`: it is not at home, and returns there. `UNBOUND`: no uplink that it may use carries
    its VLANs, or traffic.
    `RESTING`: it has moved because of load, and is left alone for a while; `SPENT`: it has moved
    as often as an address should.
    `UNKNOWN`: not enough is known of the uplinks' loads; `NEW`: of its own.
    """

    NOT_CONNECTED = "not-connected"
    UNBOUND = "no-uplink"
    FALLEN_BACK = "lacp-fallback"
    AWAY = "away-from-home"
    PINNED = "pinned"
    EXCLUDED = "excluded"
    RESTING = "resting"
    SPENT = "budget-spent"
    UNKNOWN = "loads-unknown"
    NEW = "load-unknown"


@dataclass(frozen=True, slots=True)
class Behind:
    """An address behind a VM port, in VLAN `vlan` (0: untagged), and the uplink it has."""

    mac: str
    vlan: int
    uplink: str | None
    load: Load

    @property
    def total_bps(self) -> float:
        return self.load.tx_bps + self.load.rx_bps

    def __str__(self) -> str:
        return f"{self.mac} in VLAN {self.vlan}" if self.vlan else self.mac


@dataclass(frozen=True, slots=True)
class Account:
    """A VM port now.

    `bound`: in force; `planned`: where it would be, on a bridge that is only observed (`observed`;
    `on_normal`: on a bond, whose own choice nobody knows). `load` is what crosses uplinks,
    over `covers_s` (None: lately; of the last `known_s` it is known). `uplinks`: the team over the same
    time, and `judged`, as its policy sees it; `order`: those that it may use, the one in force first. `last`: the decision that
    brought it there, as far as it is remembered. `against`: what keeps it there, and
    `verdict` what its policy says, if it was asked. `rules`: what is wrong with each of its own;
    an empty text where nothing is. `behind`: the addresses behind it that are
    units of their own, the busiest first; all else is about what is left to the VM port itself.
    `rests_until_s`: when load may move it again, where it may not now.
    `split_s`: since when what it sends is spread by connection, and `split_why` that is so.
    """

    bridge: str
    bridge_policy: str
    port: VmPortConfig
    own_policy: str
    bound: Bound | None
    home: str | None
    why_away: str
    planned: str | None
    observed: bool
    on_normal: bool
    threshold_ratio: float
    load: Load
    covers_s: float | None
    known_s: float
    uplinks: Mapping[str, Uplink]
    judged: Mapping[str, Uplink]
    order: tuple[Uplink, ...]
    links: Mapping[str, str]
    last: Entry | None
    moved: Moved | None
    basis: Basis
    against: Held | Standing
    verdict: Verdict | None = None
    buckets: Mapping[str, int] = field(default_factory=dict)
    rules: Mapping[Rule, str] = field(default_factory=dict)
    behind: tuple[Behind, ...] = ()
    rests_until_s: float | None = None
    split_s: float | None = None
    split_why: str = ""

    @property
    def uplink(self) -> Uplink | None:
        """The uplink it is on, or would be."""
        return self.uplinks.get(self.bound.uplink) if self.bound else None

    @property
    def decided_in_s(self) -> float:
        """When a full window is known, and its policy decides."""
        return max(0.0, self.basis.window_s - self.basis.covered_s)


def account(bridge: Bridge, port: VmPortConfig, now_s: float) -> Account:
    """What there is to say of a VM port of a bridge; `port` as it is configured now."""
    judged, config = bridge.judged, bridge.config
    basis = planning.basis(judged, port.policy, bridge.deciding.last_moved_s(port.policy), now_s)
    known_s = _known_s(bridge, port)
    known = basis.known and known_s >= COVERAGE_RATIO * basis.covered_s
    window_s = basis.covered_s if known else None
    loaded = judged.loaded(window_s)
    unit = next(unit for unit in loaded if unit.name == port.name)
    carrying = {uplink.name: uplink for uplink in judged.carrying(window_s)}
    uplinks = {uplink.name: uplink for uplink in judged.uplinks(window_s)}
    bound = bridge.bound.get(port.name)
    planned = judged.bound.get(port.name)
    last, moved = _last_move(bridge, port.name, bound)
    rests_until_s, spent = bridge.rests(now_s).get(port.name, (None, False))
    resting = (Held.SPENT if spent else Held.RESTING) if rests_until_s is not None else None
    against, verdict = _against(bridge, port, unit, basis, known_s, resting)
    asked = next((p for p in config.asked.vm_ports if p.name == port.name), port)
    home = bridge.bindings.homes.get(port.name)
    return Account(
        bridge=config.name,
        bridge_policy=config.asked.policy,
        port=port,
        own_policy=asked.policy,
        bound=bound,
        home=home,
        why_away=_why_away(bridge, home, now_s),
        planned=planned.uplink if bridge.observing and planned else None,
        observed=bridge.observing,
        on_normal=bridge.on_normal,
        threshold_ratio=config.threshold_ratio,
        load=unit.load,
        covers_s=window_s,
        known_s=known_s,
        uplinks=carrying if bridge.on_normal else uplinks,
        judged=carrying,
        order=bridge.in_force.order(unit, judged.uplinks()),
        links={u.name: bridge.links.why_unused(u, now_s) for u in config.uplinks},
        last=last,
        moved=moved,
        basis=basis,
        against=against,
        verdict=verdict,
        buckets=_buckets(bridge, port),
        rules=bridge.rules.get(port.name, {}),
        behind=_behind(bridge, loaded, port),
        rests_until_s=rests_until_s if against is resting else None,
        split_s=bridge.deciding.splits.since_s.get(port.name),
        split_why=_split_why(bridge, port.name),
    )


def _split_why(bridge: Bridge, name: str) -> str:
    for entry in reversed(bridge.chronicle.entries):
        if any(m.unit == name and m.reason == Reason.SPLIT for m in entry.moves):
            return entry.why
    return "the switch had it so when the service started"


def _behind(bridge: Bridge, loaded: Iterable[Unit], port: VmPortConfig) -> tuple[Behind, ...]:
    bound, known = bridge.in_force.bound, bridge.stations.by_name
    found = [
        Behind(known[u.name].mac, known[u.name].vlan, bound[u.name].uplink, u.load)
        for u in loaded
        if u.behind == port.name and u.name in bound
    ]
    return tuple(sorted(found, key=lambda one: (-one.total_bps, one.mac, one.vlan)))


def _against(
    bridge: Bridge,
    port: VmPortConfig,
    unit: Unit,
    basis: Basis,
    known_s: float,
    resting: Held | None,
) -> tuple[Held | Standing, Verdict | None]:
    """What keeps a VM port where it is, the strongest first."""
    preset, name = PRESETS[port.policy], port.name
    judged = bridge.judged
    bound = judged.bound.get(name)
    if not bridge.connected:
        return Held.NOT_CONNECTED, None
    if bound is None:
        return Held.UNBOUND, None
    if bridge.config.fallen_back:
        return Held.FALLEN_BACK, None
    if bridge.bindings.homes.get(name, bound.uplink) != bound.uplink:
        return Held.AWAY, None
    if not unit.movable:
        return Held.PINNED if unit.rules.pin else Held.EXCLUDED, None
    if not preset.rebalances or preset.classifier.hashed:
        return Standing.NEVER, None
    if resting is not None:
        return resting, None
    snapshot = judged.snapshot(port.policy, basis.covered_s) if basis.known else None
    if snapshot is None:
        return Held.UNKNOWN, None
    if known_s < COVERAGE_RATIO * basis.covered_s:
        return Held.NEW, None
    verdict = preset.verdict(snapshot, name)
    return verdict.standing, verdict


def _known_s(bridge: Bridge, port: VmPortConfig) -> float:
    """For how long the part of its load is known that crosses uplinks."""
    if bridge.on_normal:
        return bridge.loads.known_s(port.ofport, 0.0)
    return bridge.loads.unit_known_s(port.ofport)


def _last_move(bridge: Bridge, name: str, bound: Bound | None) -> tuple[Entry | None, Moved | None]:
    """The decision that brought a VM port where it is."""
    happened = Happened.PLANNED if bridge.on_normal else Happened.MOVED
    for entry in reversed(bridge.chronicle.entries):
        for moved in entry.moves if entry.happened is happened else ():
            resplit = moved.reason in (Reason.SPLIT, Reason.MERGE)
            if moved.unit == name and not (moved.buckets or resplit):
                brought = bound is not None and moved.target == bound.uplink
                return (entry, moved) if brought else (None, None)
    return None, None


def _why_away(bridge: Bridge, home: str | None, now_s: float) -> str:
    by_name = {uplink.name: uplink for uplink in bridge.config.uplinks}
    if home not in by_name or home in bridge.links.usable(bridge.config.uplinks):
        return "a few return each second"
    return bridge.links.why_unused(by_name[str(home)], now_s)


def _buckets(bridge: Bridge, port: VmPortConfig) -> dict[str, int]:
    """How many of the buckets that a VM port sends by each uplink has."""
    found: dict[str, int] = {}
    bound = bridge.in_force.bound
    if hashed_by(port) is not None:
        for unit in bridge.units():
            if unit.is_bucket and unit.policy == port.policy and unit.name in bound:
                uplink = bound[unit.name].uplink
                found[uplink] = found.get(uplink, 0) + 1
    return found
