"""Collects what `explain` reports about a VM port: its uplink, the reason, and the next move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from controller.api.history import Entry, Happened, Moved
from controller.bridge.bridge import Bridge
from controller.config.values import VmPortConfig
from controller.load.rates import COVERAGE_RATIO
from controller.operations.planning import Basis, basis
from controller.teaming.bindings import Bound
from controller.teaming.buckets import hashed_by
from policies.model import Load, Reason, Unit
from policies.presets import PRESETS
from policies.verdicts import Standing, Verdict


class Obstacle(StrEnum):
    """A reason why no policy evaluates a VM port.

    `AWAY`: the port will return to its home, the uplink that rules or its policy chose. `UNBOUND`:
    no allowed uplink carries traffic and the port's VLANs. `IN_COOLDOWN`: the port was moved to
    balance load, and is in cooldown. `SPENT`: the port has used up its move budget. `UNKNOWN`,
    `NEW`: the uplinks' loads, or the port's load, have not been measured for long enough.
    """

    NOT_CONNECTED = "not-connected"
    UNBOUND = "no-uplink"
    FALLEN_BACK = "lacp-fallback"
    AWAY = "away-from-home"
    PINNED = "pinned"
    EXCLUDED = "excluded"
    IN_COOLDOWN = "resting"
    SPENT = "budget-spent"
    UNKNOWN = "loads-unknown"
    NEW = "load-unknown"


@dataclass(frozen=True, slots=True)
class Behind:
    """An address behind a VM port in VLAN `vlan` (0: untagged), with its uplink, load and VM."""

    mac: str
    vlan: int
    uplink: str | None
    load: Load
    vm: str | None = None

    def __str__(self) -> str:
        named = f"{self.mac} ({self.vm})" if self.vm is not None else self.mac
        return f"{named} in VLAN {self.vlan}" if self.vlan else named


class Account:
    """The diagnosis of one VM port, or of an address behind one.

    `port`: its configuration in force. `unit`: the port with its load on uplinks, a mean over `window_s`
    (None: the latest rates). `known_s`: the time for which this load has been measured. `uplinks`: the
    team with loads over the same time. `team_view`: the team as seen by the port's policy. `planned`: the
    uplink that the port would use in enforce mode, if the bridge is in observe mode. `last`, `moved`: the
    log entry and the move to the current uplink, if still in the log. `against`: the reason why the port does
    not move. `verdict`: the verdict of the port's policy, if any. `rules`: for each rule of the port, the
    problem, or an empty text. `behind`: the addresses behind the port that are units, the busiest first;
    all other fields concern the port's other traffic. `cooldown_until_s`: the end of the cooldown, if any.
    `kept_off`: for each uplink that loses frames of the port, a description of these frames. `uplink`: the
    current (or, in observe mode, assumed) uplink. `home`: the home uplink. `own_policy`: the configured
    policy, perhaps not in force. `split_s`: the time since which sent traffic is spread by connection.
    `dropped`: the number of the port's frames that were dropped on purpose, by reason.
    `decided_in_s`: the time until a full window is measured, and the policy decides.
    """

    def __init__(self, bridge: Bridge, port: VmPortConfig, now_s: float) -> None:
        self.bridge, self.port, self.now_s = bridge, port, now_s
        team_view, placing, name = bridge.placing.team_view(), bridge.placing, port.name
        self.basis, self.known_s = basis(bridge, port.policy, now_s), placing.load_known_s(port)
        known = self.basis.known and self.known_s >= COVERAGE_RATIO * self.basis.covered_s
        self.window_s = self.basis.covered_s if known else None
        loaded = team_view.loaded(self.window_s)
        self.unit = next(unit for unit in loaded if unit.name == name)
        self.team_view = {uplink.name: uplink for uplink in team_view.carrying(self.window_s)}
        self.uplinks = self.team_view
        if not bridge.on_normal:
            self.uplinks = {uplink.name: uplink for uplink in team_view.uplinks(self.window_s)}
        self.bound, planned = placing.on_switch.bound.get(name), team_view.bound.get(name)
        self.planned = planned.uplink if bridge.observing and planned else None
        self.last, self.moved = _last_move(bridge, name, self.bound)
        self.against, self.verdict = _against(bridge, self.unit, self.basis, self.known_s, now_s)
        asked = isinstance(self.against, Standing)
        assert self.verdict is None or asked, "a policy is asked only if no obstacle exists"
        cooldown_until_s, _ = bridge.scheduler.cooldowns(team_view, now_s).get(name, (None, False))
        in_cooldown = self.against in (Obstacle.IN_COOLDOWN, Obstacle.SPENT)
        self.cooldown_until_s = cooldown_until_s if in_cooldown else None
        assert self.cooldown_until_s is None or not asked, "no verdict is given during a cooldown"
        self.buckets = _buckets(bridge, port)
        self.rules = placing.rules().get(name, {})
        self.behind = _behind(bridge, loaded, port)
        faults = sorted(bridge.paths.since_s)
        self.kept_off = {
            uplink: ", ".join(fault.short for fault in faults if fault.uplinks == (uplink,))
            for uplink in sorted(self.unit.kept_off)
        }
        self.uplink = self.uplinks.get(self.bound.uplink) if self.bound else None
        self.home = placing.planned.homes.get(name)
        self.own_policy = bridge.config.asked.port_named.get(name, port).policy
        self.dropped = dict(bridge.dropped.by_port.get(name, {}))
        self.split_s = bridge.scheduler.splits.since_s.get(name)
        self.decided_in_s = max(0.0, self.basis.window_s - self.basis.covered_s)

    def wall_s(self, at_s: float) -> float:
        """Convert engine time to seconds since the epoch."""
        return self.bridge.epoch_s + at_s


def _behind(bridge: Bridge, loaded: Iterable[Unit], port: VmPortConfig) -> tuple[Behind, ...]:
    bound, known = bridge.placing.on_switch.bound, bridge.address_units.by_name
    vms = {guest.mac: guest.vm for guest in port.guests}
    found = [
        Behind(one.mac, one.vlan, bound[u.name].uplink, u.load, vms.get(one.mac))
        for u in loaded
        if u.behind == port.name and u.name in bound
        for one in [known[u.name]]
    ]
    found.sort(key=lambda one: (-one.load.tx_bps - one.load.rx_bps, one.mac, one.vlan))
    return tuple(found)


def _against(
    bridge: Bridge, unit: Unit, basis: Basis, known_s: float, now_s: float
) -> tuple[Obstacle | Standing, Verdict | None]:
    """Return the strongest reason why a VM port stays on its uplink, and the policy's verdict."""
    preset, name, team_view = PRESETS[unit.policy], unit.name, bridge.placing.team_view()
    bound = team_view.bound.get(name)
    if not bridge.connected:
        return Obstacle.NOT_CONNECTED, None
    if bound is None:
        return Obstacle.UNBOUND, None
    if bridge.config.fallen_back:
        return Obstacle.FALLEN_BACK, None
    if bridge.placing.planned.homes.get(name, bound.uplink) != bound.uplink:
        return Obstacle.AWAY, None
    if not unit.movable:
        return Obstacle.PINNED if unit.rules.pin else Obstacle.EXCLUDED, None
    if not preset.rebalances or preset.classifier.hashed:
        return Standing.NEVER, None
    if (cooldown := bridge.scheduler.cooldowns(team_view, now_s).get(name)) is not None:
        _, spent = cooldown
        return Obstacle.SPENT if spent else Obstacle.IN_COOLDOWN, None
    snapshot = team_view.snapshot(unit.policy, basis.covered_s) if basis.known else None
    if snapshot is None:
        return Obstacle.UNKNOWN, None
    if known_s < COVERAGE_RATIO * basis.covered_s:
        return Obstacle.NEW, None
    verdict = preset.verdict(snapshot, name)
    return verdict.standing, verdict


def _last_move(bridge: Bridge, name: str, bound: Bound | None) -> tuple[Entry | None, Moved | None]:
    """Return the log entry and the move that brought a VM port to its current uplink, if known."""
    happened = Happened.PLANNED if bridge.on_normal else Happened.MOVED
    for entry in reversed(bridge.decision_log.entries):
        for moved in entry.moves if entry.happened is happened else ():
            resplit = moved.reason in (Reason.SPLIT, Reason.MERGE)
            if moved.unit == name and not (moved.buckets or resplit):
                brought = bound is not None and moved.target == bound.uplink
                return (entry, moved) if brought else (None, None)
    return None, None


def _buckets(bridge: Bridge, port: VmPortConfig) -> dict[str, int]:
    """Return, for each uplink, the number of buckets through which a VM port sends."""
    if hashed_by(port, bridge.placing.split) is None:
        return {}
    at = bridge.placing.on_switch.by_unit()
    units = (u for u in bridge.placing.units() if u.is_bucket and u.policy == port.policy)
    return Counter(at[unit.name] for unit in units if unit.name in at)
