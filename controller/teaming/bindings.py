"""Which uplink each unit uses: where it belongs, where it is, since when and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.api.events import Setting
from controller.config.kinds import moves_text
from controller.config.rows import PREFIX
from controller.config.values import BridgeConfig
from policies import failover, homes
from policies.damping import Moved
from policies.model import Move, Reason, Role, Unit, Uplink

# Said of a binding that is what it was before, rather than the result of a move.
RESTORED = "restored"
# An uplink that carries again gets its VM ports back in steps: each move has the switches
# upstream learn addresses anew, and a whole host's at once is more than some can take.
RETURNS_AT_ONCE = 8
RETURN_INTERVAL_S = 1.0
# A choice that the switch refused is dropped; anything else is still called for.
CHOSEN = (Reason.MANUAL, Reason.THRESHOLD, Reason.REBALANCE)


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding: the uplink, since when (engine time), and why."""

    uplink: str
    since_s: float
    reason: str


@dataclass(slots=True)
class Bindings:
    """The bindings of one bridge's units, by name.

    A *home* is where a unit belongs; `bound` is where it is, which differs while its home
    carries nothing. `held`: links alone move units; policies, rules and roles do not.
    """

    homes: dict[str, str] = field(default_factory=dict)
    bound: dict[str, Bound] = field(default_factory=dict)
    held: bool = False
    _asked: dict[str, Reason] = field(default_factory=dict)
    _aside: dict[str, str] = field(default_factory=dict)
    _returning: bool = False
    _next_return_s: float = 0.0
    # The rules by which units have their homes.
    _settled: frozenset[object] = frozenset()
    # The units that have no uplink, as none that they may use carries traffic.
    _cut_off: frozenset[str] = frozenset()
    # How many members of each anti-affinity set are on each uplink.
    _taken: dict[str, Counter[str]] = field(default_factory=dict)

    def hold(self) -> Bindings:
        """The same bindings, where every unit is at home where it is now."""
        return Bindings(self.by_unit(), dict(self.bound), held=True)

    def keep(self, names: Iterable[str]) -> None:
        """Forget units that are gone."""
        present = set(names)
        self.homes = {name: home for name, home in self.homes.items() if name in present}
        self.bound = {name: bound for name, bound in self.bound.items() if name in present}

    def place_anew(self, unit: str) -> None:
        """Forget where a unit belongs; its policy says it anew."""
        self.homes.pop(unit, None)
        self._aside.pop(unit, None)

    def set_aside(self, stored: Mapping[str, str]) -> None:
        """Place units anew for a time, and note their homes for when that is over.

        `stored`: those of units that are not known here yet.
        """
        self._aside, self.homes = {**stored, **self.homes}, {}

    def take_up(self) -> None:
        """That time is over."""
        self.homes, self._aside = self._aside, {}

    def place(self, unit: str, uplink: str, reason: Reason) -> None:
        """Make an uplink a unit's home; `follow` moves it there."""
        self.homes[unit] = uplink
        self._asked[unit] = reason

    def follow(
        self, units: Sequence[Unit], uplinks: tuple[Uplink, ...], now_s: float
    ) -> list[Move]:
        """Bind every unit to the best uplink it may use; the moves this makes.

        A unit that may use none is not bound, nor is a confined one while none that it may use
        has a link; bound again, it moves from nowhere (""). `Unit.uplink` is where one was before anybody
        knew it here. Returns of VM ports to a better uplink are made in steps; everything else
        at once.
        """
        asked, self._asked = self._asked, {}
        returns = RETURNS_AT_ONCE if now_s >= self._next_return_s else 0
        self._returning = False
        moves: list[Move] = []
        by_name = {uplink.name: uplink for uplink in uplinks}
        at_home = self._homes(units, uplinks) if uplinks else {}
        targets = self._targets(units, uplinks, at_home)
        was_cut_off, cut_off = self._cut_off, set[str]()
        for unit in units if uplinks else ():
            name, bound = unit.name, self.bound.get(unit.name)
            if name not in at_home:
                # No uplink that it may use carries its VLANs: it has its neighbours on this bridge.
                self.homes.pop(name, None)
                self.bound.pop(name, None)
                continue
            known = self.homes.get(name)
            home = self.homes[name] = at_home[name]
            order = self._best_first(unit, uplinks)
            if not order:
                self.bound.pop(name, None)
                continue
            target = targets.get(name, order[0].name)
            waiting = [uplink.name for uplink in order if uplink.waiting]
            if waiting and not by_name[target].usable:
                # Better than none that it may use, and not left for one that waits as well.
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
            why = _why(by_name.get(bound.uplink), home, reason)
            if why is Reason.FAILBACK and not unit.is_bucket:
                if not returns:
                    self._returning = True
                    continue
                returns -= 1
                self._next_return_s = now_s + RETURN_INTERVAL_S
            self.bound[name] = Bound(target, now_s, why.value)
            moves.append(Move(name, bound.uplink, target, why))
        self._cut_off = frozenset(cut_off)
        self._taken = self._count(units)
        return moves

    def deadline_s(self) -> float:
        """When the next VM ports return; infinity when none wait for that."""
        return self._next_return_s if self._returning else float("inf")

    def order(self, unit: Unit, uplinks: tuple[Uplink, ...]) -> tuple[Uplink, ...]:
        """The uplinks a unit may use, the one in force first."""
        bound = self.bound.get(unit.name)
        best_first = self._best_first(unit, uplinks, self._beside(unit))
        return tuple(sorted(best_first, key=lambda u: bound is None or u.name != bound.uplink))

    def take_back(self, moves: Iterable[Move], now_s: float) -> None:
        """Moves that the switch refused did not happen."""
        for move in reversed(list(moves)):
            if move.unit in self.bound and not move.source:
                del self.bound[move.unit]
                self._cut_off |= {move.unit}
            elif move.unit in self.bound:
                self.bound[move.unit] = Bound(move.source, now_s, RESTORED)
                if move.reason in CHOSEN:
                    self.homes[move.unit] = move.source

    def by_unit(self) -> dict[str, str]:
        """The uplink each VM port is bound to."""
        return {name: bound.uplink for name, bound in self.bound.items()}

    def on(self, uplink: str) -> list[str]:
        """The VM ports bound to an uplink."""
        return sorted(name for name, bound in self.bound.items() if bound.uplink == uplink)

    def _homes(self, units: Sequence[Unit], uplinks: tuple[Uplink, ...]) -> dict[str, str]:
        """Where units belong; held, where they have been so far, if they may stay there."""
        stay: dict[str, str] = {}
        for unit in units if self.held else ():
            known = self.homes.get(unit.name)
            if any(uplink.name == known for uplink in failover.only(unit.allowed, uplinks)):
                stay[unit.name] = str(known)
        placed = [self._as_known(unit) for unit in units if unit.name not in stay]
        found = homes.homes(placed, uplinks, self._settled)
        if not self.held:
            self._settled = found.settled
        by_name = found.by_name
        for unit in placed if self.held else ():
            if unit.name in by_name and (order := _order(unit, by_name[unit.name], uplinks)):
                by_name[unit.name] = order[0].name
        return stay | by_name

    def _targets(
        self, units: Sequence[Unit], uplinks: tuple[Uplink, ...], at_home: Mapping[str, str]
    ) -> dict[str, str]:
        """Where members of sets are while one of them cannot be at home."""
        if self.held:
            return {}
        return homes.targets(units, uplinks, at_home)

    def _count(self, units: Iterable[Unit]) -> dict[str, Counter[str]]:
        taken: dict[str, Counter[str]] = {}
        for unit in units:
            if unit.rules.anti_affinity is not None and unit.name in self.bound:
                there = taken.setdefault(unit.rules.anti_affinity, Counter())
                there[self.bound[unit.name].uplink] += 1
        return taken

    def _beside(self, unit: Unit) -> Mapping[str, int]:
        """How many other members of its anti-affinity set each uplink has."""
        if unit.rules.anti_affinity is None:
            return {}
        beside = Counter(self._taken.get(unit.rules.anti_affinity, ()))
        if unit.name in self.bound:
            beside[self.bound[unit.name].uplink] -= 1
        return beside

    def _as_known(self, unit: Unit) -> Unit:
        before = None if unit.name in self.bound else unit.uplink
        return replace(unit, uplink=self.homes.get(unit.name) or before)

    def _best_first(
        self,
        unit: Unit,
        uplinks: tuple[Uplink, ...],
        taken: Mapping[str, int] | None = None,
    ) -> tuple[Uplink, ...]:
        home = self.homes.get(unit.name, "")
        if self.held:
            uplinks = tuple(replace(u, role=Role.ACTIVE) if u.name == home else u for u in uplinks)
        return _order(unit, home, uplinks, taken)


def remembered(
    config: BridgeConfig,
    bound: Mapping[str, Bound],
    moved: Mapping[str, Iterable[Moved]],
    epoch_s: float,
) -> tuple[Setting, ...]:
    """What the database is to know of VM ports, so that a restart moves nothing.

    `moved`: the moves that count against a budget, of those whose have changed.
    """
    settings = [
        Setting("Interface", port.name, PREFIX + "binding", bound[port.name].uplink)
        for port in config.vm_ports
        if port.name in bound and port.binding != bound[port.name].uplink
    ]
    for name, moves in moved.items():
        text = moves_text(replace(move, at_s=epoch_s + move.at_s) for move in moves)
        settings.append(Setting("Interface", name, PREFIX + "moved", text or None))
    return tuple(settings)


def _order(
    unit: Unit, home: str, uplinks: tuple[Uplink, ...], taken: Mapping[str, int] | None = None
) -> tuple[Uplink, ...]:
    return failover.usable_first(homes.order(unit, home, uplinks, taken))


def _why_home(unit: Unit, known: str | None, home: str) -> Reason:
    """Why a unit has another home, which nobody asked for."""
    if home == unit.rules.pin:
        return Reason.PIN
    outlawed = unit.allowed is not None and known not in unit.allowed
    return (
        Reason.RULE if outlawed or unit.rules.ruled or unit.rules.reserve_bps else Reason.REBALANCE
    )


def _why(left: Uplink | None, home: str, asked: Reason | None) -> Reason:
    """Why a VM port leaves an uplink (None: it is no longer in the team)."""
    if left is None or not (left.usable or left.waiting):
        return Reason.FAILOVER
    if left.role in (Role.DRAINED, Role.UNUSED):
        return Reason.DRAIN
    if left.name == home:
        return Reason.RULE if left.role is Role.ACTIVE else Reason.DRAIN
    return asked or Reason.FAILBACK
