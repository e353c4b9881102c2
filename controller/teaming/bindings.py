"""The bindings of units: each unit's home and current uplink, and when and why this uplink was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from controller.api.engine_commands import Setting
from controller.config.kinds import moves_text
from controller.config.rows import PREFIX
from controller.config.values import BridgeConfig
from policies import failover, homes
from policies.damping import Moved
from policies.model import Move, Reason, Role, Unit, Uplink
from policies.presets import PRESETS

# The reason for a binding that was kept or restored, rather than changed by a move.
RESTORED = "restored"
# VM ports return to an uplink that carries traffic again in steps of this many. After each move,
# upstream switches must learn addresses again, and some cannot learn a whole host's addresses at the same time.
RETURNS_AT_ONCE = 8
RETURN_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Bound:
    """The binding of a unit: its uplink, when the binding began (engine time), and the reason."""

    uplink: str
    since_s: float
    reason: str


class Whereabouts(NamedTuple):
    """The state of a unit on which the order of its uplinks depends.

    `bound`: the current uplink; None: the unit is not bound. `home`: empty if there is no home.
    `held`: as in `Bindings`. `beside`: other members of its anti-affinity set, counted by uplink.
    """

    bound: str | None
    home: str
    held: bool
    beside: Mapping[str, int]


@dataclass(slots=True)
class Bindings:
    """The bindings of one bridge's units, by name.

    A *home* is the uplink that a unit belongs to. `bound`: the current bindings; a unit is bound to
    another uplink while its home carries no traffic. `held`: whether units move only when links
    change, and not because of policies, rules or roles.
    """

    homes: dict[str, str] = field(default_factory=dict)
    bound: dict[str, Bound] = field(default_factory=dict)
    held: bool = False
    # If held: the units that have a home already. The roles of uplinks apply only to other units.
    _stay: frozenset[str] = frozenset()
    # The reason for each home that `place` has set since the last `rebind`.
    _asked: dict[str, Reason] = field(default_factory=dict)
    # The homes to restore when `take_up` is called.
    _aside: dict[str, str] = field(default_factory=dict)
    # Whether VM ports wait to return, and when the next ones may return, in seconds of engine time.
    _returning: bool = False
    _next_return_s: float = 0.0
    # The rules that the homes of units already satisfy.
    _satisfied: frozenset[object] = frozenset()
    # The confined units without an uplink, because no uplink that they may use carries traffic.
    _cut_off: frozenset[str] = frozenset()
    # How many members of each anti-affinity set are on each uplink.
    _taken: dict[str, Counter[str]] = field(default_factory=dict)
    # A cache of units and copies of these at their homes: `rebind` needs hundreds, mostly unchanged.
    _known: dict[str, tuple[Unit, Unit]] = field(default_factory=dict, compare=False, repr=False)

    def frozen(self) -> Bindings:
        """Return a copy with `held` set, in which each unit's home is its current uplink."""
        return Bindings(self.by_unit(), dict(self.bound), True, _stay=frozenset(self.bound))

    def _holds(self, unit: Unit) -> bool:
        """Whether only link changes move a unit."""
        return self.held and unit.name in self._stay

    def keep_bound(self, names: Iterable[str]) -> None:
        """Forget all units except `names`."""
        present = set(names)
        self.homes = {name: home for name, home in self.homes.items() if name in present}
        self.bound = {name: bound for name, bound in self.bound.items() if name in present}
        self._known = {name: made for name, made in self._known.items() if name in present}

    def place_anew(self, unit: str) -> None:
        """Forget a unit's home uplink, so that the unit's policy places it again."""
        self.homes.pop(unit, None)
        self._aside.pop(unit, None)

    def set_aside(self, stored: Mapping[str, str]) -> None:
        """Set all home uplinks aside: units are placed as if new until `take_up` is called.

        `stored`: the homes of units that are not in `homes` yet.
        """
        self._aside, self.homes = {**stored, **self.homes}, {}

    def take_up(self) -> None:
        """Restore the home uplinks that were set aside."""
        self.homes, self._aside = self._aside, {}

    def place(self, unit: str, uplink: str, reason: Reason) -> None:
        """Make an uplink a unit's home uplink; `rebind` then moves the unit there."""
        self.homes[unit] = uplink
        self._asked[unit] = reason

    def foreseen(
        self, units: Sequence[Unit], uplinks: tuple[Uplink, ...], now_s: float
    ) -> tuple[Bindings, list[Move]]:
        """Return the bindings that `rebind` would produce, and the moves that it would make."""
        ahead = replace(
            self, homes=dict(self.homes), bound=dict(self.bound), _asked=dict(self._asked)
        )
        return ahead, ahead.rebind(units, uplinks, now_s)

    def rebind(
        self, units: Sequence[Unit], uplinks: tuple[Uplink, ...], now_s: float
    ) -> list[Move]:
        """Bind every unit to the best uplink that it can use, and return the moves.

        A unit without an allowed uplink is not bound. A confined unit is not bound while no allowed
        uplink has a link; when it is bound again, its move has the source "". `Unit.uplink` is the
        uplink of a unit that is not in `bound` yet. VM ports return to a better uplink in steps;
        all other moves are made immediately.
        """
        asked, self._asked = self._asked, {}
        returns = RETURNS_AT_ONCE if now_s >= self._next_return_s else 0
        self._returning = False
        moves: list[Move] = []
        by_name = {uplink.name: uplink for uplink in uplinks}
        at_home = self._homes(units, uplinks) if uplinks else {}
        targets = {} if self.held else homes.targets(units, uplinks, at_home)
        was_cut_off, cut_off = self._cut_off, set[str]()
        serving = {u.name for u in uplinks if u.usable and u.role is Role.ACTIVE}
        for unit in units if uplinks else ():
            name, bound = unit.name, self.bound.get(unit.name)
            if name not in at_home:
                # No uplink that the unit may use carries its VLANs: the unit only reaches ports of this bridge.
                self.homes.pop(name, None)
                self.bound.pop(name, None)
                continue
            known = self.homes.get(name)
            home = self.homes[name] = at_home[name]
            at_rest = bound is not None and known == home == bound.uplink and home in serving
            if at_rest and name not in targets and home not in unit.kept_off:
                # The usual case: the unit is on its home, which is the best of its uplinks.
                continue
            order = _best_first(unit, home, uplinks, self._holds(unit))
            if not order:
                self.bound.pop(name, None)
                continue
            target = targets.get(name, order[0].name)
            waiting = [uplink.name for uplink in order if uplink.waiting]
            if waiting and not by_name[target].usable:
                # An uplink in its failback delay is better than none. A unit that is on one stays there.
                target = bound.uplink if bound and bound.uplink in waiting else waiting[0]
            elif unit.rules.confined and not by_name[target].usable:
                cut_off.add(name)
                self.bound.pop(name, None)
                continue
            if bound is None and name in was_cut_off:
                self.bound[name] = Bound(target, now_s, Reason.FAILBACK.value)
                moves.append(Move(name, "", target, Reason.FAILBACK))
                continue
            if bound is None:
                restored = unit.uplink == target
                self.bound[name] = Bound(target, now_s, RESTORED if restored else unit.policy)
                continue
            if bound.uplink == target:
                continue
            if home != known:
                asked.setdefault(name, _why_home(unit, known, home))
            reason = asked.get(name) if target == home else None
            why = _why(by_name.get(bound.uplink), home, reason, unit.kept_off)
            if why is Reason.FAILBACK and not unit.is_bucket:
                if not returns:
                    self._returning = True
                    continue
                returns -= 1
                self._next_return_s = now_s + RETURN_INTERVAL_S
            assert target in by_name, "a unit moves within its team"
            self.bound[name] = Bound(target, now_s, why.value)
            moves.append(Move(name, bound.uplink, target, why))
        assert cut_off.isdisjoint(self.bound), "units that are cut off use no uplink"
        assert len({move.unit for move in moves}) == len(moves), "no unit moves twice"
        self._cut_off = frozenset(cut_off)
        self._taken = self._count(units)
        return moves

    def returns_s(self) -> float:
        """Return when VM ports next return to better uplinks; infinity if none waits to return."""
        return self._next_return_s if self._returning else float("inf")

    def order(self, unit: Unit, uplinks: tuple[Uplink, ...]) -> tuple[Uplink, ...]:
        """Return the uplinks that a unit can use, the current one first."""
        return ordered(self.whereabouts(unit), unit, uplinks)

    def whereabouts(self, unit: Unit) -> Whereabouts:
        """Return the state that determines the order of a unit's uplinks."""
        bound = self.bound.get(unit.name)
        at = bound.uplink if bound else None
        return Whereabouts(at, self.homes.get(unit.name, ""), self._holds(unit), self._beside(unit))

    def take_back(self, moves: Iterable[Move], now_s: float) -> None:
        """Undo moves that the switch refused."""
        for move in reversed(list(moves)):
            if move.unit in self.bound and not move.source:
                del self.bound[move.unit]
                self._cut_off |= {move.unit}
            elif move.unit in self.bound:
                self.bound[move.unit] = Bound(move.source, now_s, RESTORED)
                # `rebind` repeats moves because of links and rules. Policies and operators decide again.
                if move.reason.by_load or move.reason is Reason.MANUAL:
                    self.homes[move.unit] = move.source

    def bind_anew(self, now_s: float) -> None:
        """Record `now_s` as the time when all bindings began."""
        self.bound = {name: replace(bound, since_s=now_s) for name, bound in self.bound.items()}

    def by_unit(self) -> dict[str, str]:
        """Return the uplink that each unit is bound to."""
        return {name: bound.uplink for name, bound in self.bound.items()}

    def on(self, uplink: str) -> list[str]:
        """Return the units bound to an uplink, sorted by name."""
        return sorted(name for name, bound in self.bound.items() if bound.uplink == uplink)

    def _homes(self, units: Sequence[Unit], uplinks: tuple[Uplink, ...]) -> dict[str, str]:
        """Return the homes of units; if held, their previous homes where still allowed."""
        stay: dict[str, str] = {}
        for unit in units if self.held else ():
            known = self.homes.get(unit.name, unit.uplink)
            if any(uplink.name == known for uplink in failover.only(unit.allowed, uplinks)):
                stay[unit.name] = str(known)
        self._stay = frozenset(stay)
        placed = [self._as_known(unit) for unit in units if unit.name not in stay]
        found = homes.homes(placed, uplinks, self._satisfied)
        if not self.held:
            self._satisfied = found.satisfied
        by_name = found.by_name
        for unit in placed if self.held else ():
            if unit.name in by_name and (order := _best_first(unit, by_name[unit.name], uplinks)):
                by_name[unit.name] = order[0].name
        return stay | by_name

    def _count(self, units: Iterable[Unit]) -> dict[str, Counter[str]]:
        taken: dict[str, Counter[str]] = {}
        for unit in units:
            if unit.rules.anti_affinity is not None and unit.name in self.bound:
                there = taken.setdefault(unit.rules.anti_affinity, Counter())
                there[self.bound[unit.name].uplink] += 1
        return taken

    def _beside(self, unit: Unit) -> Mapping[str, int]:
        """Return the number of other members of a unit's anti-affinity set on each uplink."""
        if unit.rules.anti_affinity is None:
            return {}
        beside = Counter(self._taken.get(unit.rules.anti_affinity, ()))
        if unit.name in self.bound:
            beside[self.bound[unit.name].uplink] -= 1
        return beside

    def _as_known(self, unit: Unit) -> Unit:
        before = None if unit.name in self.bound else unit.uplink
        known = self.homes.get(unit.name) or before
        if unit.uplink == known:
            return unit
        asked, found = self._known.get(unit.name, (None, unit))
        if asked is not unit or found.uplink != known:
            found = replace(unit, uplink=known)
            self._known[unit.name] = unit, found
        return found


def ordered(there: Whereabouts, unit: Unit, uplinks: tuple[Uplink, ...]) -> tuple[Uplink, ...]:
    """Return the uplinks that a unit can use, the current one first. Loads have no influence."""
    best_first = _best_first(unit, there.home, uplinks, there.held, there.beside)
    return tuple(sorted(best_first, key=lambda u: u.name != there.bound))


def remembered(
    config: BridgeConfig,
    bound: Mapping[str, Bound],
    moved: Mapping[str, Iterable[Moved]],
    epoch_s: float,
) -> tuple[Setting, ...]:
    """Return the settings to write for VM ports, so that a restart moves nothing.

    `moved`: for each VM port with new moves, the moves that count against its budget.
    """
    settings = []
    for port in config.vm_ports:
        at = bound[port.name].uplink if port.name in bound else port.binding
        if port.name not in bound:
            allowed = (u for u in config.uplinks if port.allowed is None or u.name in port.allowed)
            if {uplink.role for uplink in allowed} == {Role.UNUSED}:
                # Otherwise a service that starts in observe mode would bind the port to an unused uplink.
                at = None
        if at != port.binding:
            settings.append(Setting("Interface", port.name, PREFIX + "binding", at))
    for name, moves in moved.items():
        text = moves_text(replace(move, at_s=epoch_s + move.at_s) for move in moves)
        settings.append(Setting("Interface", name, PREFIX + "moved", text or None))
    return tuple(settings)


def places_anew(old: BridgeConfig, new: BridgeConfig) -> bool:
    """Whether a change of the team requires VM ports to be placed as if they were new.

    A drain does not count: it moves VM ports from one uplink, and these return when the drain ends.
    """
    if [uplink.name for uplink in old.uplinks] != [uplink.name for uplink in new.uplinks]:
        return True
    changed = [(o.role, n.role) for o, n in zip(old.uplinks, new.uplinks, strict=True)]
    return any(was is not now and Role.DRAINED not in (was, now) for was, now in changed)


def ports_placed_anew(old: BridgeConfig, new: BridgeConfig) -> set[str]:
    """Return the VM ports that are placed as if they were new, because their policy or team has changed."""
    other_team = places_anew(old, new)
    before = {port.name: port.policy for port in old.vm_ports}
    return {
        port.name
        for port in new.vm_ports
        if (other_team or before.get(port.name) != port.policy)
        and not PRESETS[port.policy].keeps_bindings
    }


def _best_first(
    unit: Unit,
    home: str,
    uplinks: tuple[Uplink, ...],
    held: bool = False,
    taken: Mapping[str, int] | None = None,
) -> tuple[Uplink, ...]:
    """Return the uplinks that a unit can use, best first. If `held`, its home's role is ignored."""
    if held:
        uplinks = tuple(replace(u, role=Role.ACTIVE) if u.name == home else u for u in uplinks)
    return failover.usable_first(homes.order(unit, home, uplinks, taken), unit.kept_off)


def _why_home(unit: Unit, known: str | None, home: str) -> Reason:
    """Return why a unit has a new home that neither a policy nor an operator requested."""
    if home == unit.rules.pin:
        return Reason.PIN
    outlawed = unit.allowed is not None and known not in unit.allowed
    ruled = unit.rules.ruled or unit.rules.reserve_bps
    return Reason.RULE if outlawed or ruled else Reason.REBALANCE


def _why(left: Uplink | None, home: str, asked: Reason | None, kept_off: frozenset[str]) -> Reason:
    """Return why a VM port leaves the uplink `left` (None: it is no longer in the team)."""
    if left is None or not (left.usable or left.waiting):
        return Reason.FAILOVER
    if left.name in kept_off:
        return Reason.RULE
    if left.role in (Role.DRAINED, Role.UNUSED):
        return Reason.DRAIN
    if left.name == home:
        return Reason.RULE if left.role is Role.ACTIVE else Reason.DRAIN
    return asked or Reason.FAILBACK
