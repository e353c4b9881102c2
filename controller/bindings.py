"""Which uplink each VM port uses: where it belongs, where it is, since when and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controller.config import VmPortConfig
from policies import failover, rules
from policies.model import Move, Reason, Role, Unit, Uplink
from policies.presets import PRESETS

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
    """The bindings of one bridge's VM ports, by name.

    A *home* is where a VM port belongs; `bound` is where it is, which differs while its
    home carries nothing. `held`: links alone move VM ports; policies, pins and roles
    do not.
    """

    homes: dict[str, str] = field(default_factory=dict)
    bound: dict[str, Bound] = field(default_factory=dict)
    held: bool = False
    _asked: dict[str, Reason] = field(default_factory=dict)
    _returning: bool = False
    _next_return_s: float = 0.0

    def hold(self) -> Bindings:
        """The same bindings, where every VM port is at home where it is now."""
        return Bindings(self.by_unit(), dict(self.bound), held=True)

    def keep(self, names: Iterable[str]) -> None:
        """Forget VM ports that are gone."""
        present = set(names)
        self.homes = {name: home for name, home in self.homes.items() if name in present}
        self.bound = {name: bound for name, bound in self.bound.items() if name in present}

    def place(self, unit: str, uplink: str, reason: Reason) -> None:
        """Make an uplink a VM port's home; `follow` moves it there."""
        self.homes[unit] = uplink
        self._asked[unit] = reason

    def follow(
        self, ports: Iterable[VmPortConfig], uplinks: tuple[Uplink, ...], policy: str, now_s: float
    ) -> list[Move]:
        """Bind every VM port to the best uplink it may use; the moves this makes.

        A VM port that may use none is not bound. Returns to a better uplink are made in
        steps; everything else at once.
        """
        asked, self._asked = self._asked, {}
        returns = RETURNS_AT_ONCE if now_s >= self._next_return_s else 0
        self._returning = False
        moves: list[Move] = []
        by_name = {uplink.name: uplink for uplink in uplinks}
        for port in ports if uplinks else ():
            name, bound = port.name, self.bound.get(port.name)
            if port.allowed == frozenset():
                # No uplink carries its VLANs: it has its neighbours on this bridge.
                self.homes.pop(name, None)
                self.bound.pop(name, None)
                continue
            known = self.homes.get(name)
            home = self.homes[name] = self._home(port, uplinks, policy)
            order = self._best_first(port, uplinks, policy)
            if not order:
                self.bound.pop(name, None)
                continue
            target = order[0].name
            if bound is None:
                restored = port.binding == target
                self.bound[name] = Bound(target, now_s, RESTORED if restored else policy)
                continue
            if bound.uplink == target:
                continue
            if home != known:
                asked.setdefault(name, _why_home(port, known, home))
            reason = asked.get(name) if target == home else None
            why = _why(by_name.get(bound.uplink), home, reason)
            if why is Reason.FAILBACK:
                if not returns:
                    self._returning = True
                    continue
                returns -= 1
                self._next_return_s = now_s + RETURN_INTERVAL_S
            self.bound[name] = Bound(target, now_s, why.value)
            moves.append(Move(name, bound.uplink, target, why))
        return moves

    def deadline_s(self) -> float:
        """When the next VM ports return; infinity when none wait for that."""
        return self._next_return_s if self._returning else float("inf")

    def order(
        self, port: VmPortConfig, uplinks: tuple[Uplink, ...], policy: str
    ) -> tuple[Uplink, ...]:
        """The uplinks a VM port may use, the one in force first."""
        best_first = self._best_first(port, uplinks, policy)
        bound = self.bound.get(port.name)
        return tuple(sorted(best_first, key=lambda u: bound is None or u.name != bound.uplink))

    def take_back(self, moves: Iterable[Move], now_s: float) -> None:
        """Moves that the switch refused did not happen."""
        for move in reversed(list(moves)):
            if move.unit in self.bound:
                self.bound[move.unit] = Bound(move.source, now_s, RESTORED)
                if move.reason in CHOSEN:
                    self.homes[move.unit] = move.source

    def by_unit(self) -> dict[str, str]:
        """The uplink each VM port is bound to."""
        return {name: bound.uplink for name, bound in self.bound.items()}

    def on(self, uplink: str) -> list[str]:
        """The VM ports bound to an uplink."""
        return sorted(name for name, bound in self.bound.items() if bound.uplink == uplink)

    def _home(self, port: VmPortConfig, uplinks: tuple[Uplink, ...], policy: str) -> str:
        known = self.homes.get(port.name)
        if self.held and any(u.name == known for u in failover.only(port.allowed, uplinks)):
            return str(known)
        stored = port.binding if port.name not in self.bound else None
        unit = Unit(
            port.name, port.ofport, uplink=known or stored, pin=port.pin, allowed=port.allowed
        )
        home = rules.home(unit, uplinks, PRESETS[policy])
        if self.held and (order := _order(port, home, uplinks, policy)):
            return order[0].name
        return home

    def _best_first(
        self, port: VmPortConfig, uplinks: tuple[Uplink, ...], policy: str
    ) -> tuple[Uplink, ...]:
        home = self.homes.get(port.name, "")
        if self.held:
            uplinks = tuple(replace(u, role=Role.ACTIVE) if u.name == home else u for u in uplinks)
        return _order(port, home, uplinks, policy)


def _order(
    port: VmPortConfig, home: str, uplinks: tuple[Uplink, ...], policy: str
) -> tuple[Uplink, ...]:
    backup = PRESETS[policy].backup
    ordered = failover.order(port.name, home, uplinks, backup, port.allowed)
    return failover.usable_first(ordered)


def _why_home(port: VmPortConfig, known: str | None, home: str) -> Reason:
    """Why a VM port has another home, which nobody asked for."""
    if home == port.pin:
        return Reason.PIN
    outlawed = port.allowed is not None and known not in port.allowed
    return Reason.RULE if outlawed else Reason.REBALANCE


def _why(left: Uplink | None, home: str, asked: Reason | None) -> Reason:
    """Why a VM port leaves an uplink (None: it is no longer in the team)."""
    if left is None or not left.usable:
        return Reason.FAILOVER
    if left.role in (Role.DRAINED, Role.UNUSED):
        return Reason.DRAIN
    if left.name == home:
        return Reason.RULE if left.role is Role.ACTIVE else Reason.DRAIN
    return asked or Reason.FAILBACK
