"""Which uplink each VM port uses: where it belongs, where it is, since when and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.config import VmPortConfig
from policies import failover, rules
from policies.model import Move, Reason, Role, Unit, Uplink
from policies.presets import PRESETS

# Said of a binding that is what it was before, rather than the result of a move.
RESTORED = "restored"


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
    home carries nothing.
    """

    homes: dict[str, str] = field(default_factory=dict)
    bound: dict[str, Bound] = field(default_factory=dict)

    def keep(self, names: Iterable[str]) -> None:
        """Forget VM ports that are gone."""
        present = set(names)
        self.homes = {name: home for name, home in self.homes.items() if name in present}
        self.bound = {name: bound for name, bound in self.bound.items() if name in present}

    def follow(
        self,
        ports: Iterable[VmPortConfig],
        uplinks: tuple[Uplink, ...],
        policy: str,
        now_s: float,
        reason: Reason,
    ) -> list[Move]:
        """Bind every VM port to the best uplink that carries traffic; the moves this makes.

        `reason` is that of moves which no uplink's failure or return explains.
        """
        moves: list[Move] = []
        by_name = {uplink.name: uplink for uplink in uplinks}
        for port in ports if uplinks else ():
            known = self.homes.get(port.name)
            stored = port.binding if port.name not in self.bound else None
            unit = Unit(port.name, port.ofport, uplink=known or stored, pin=port.pin)
            home = self.homes[port.name] = rules.home(unit, uplinks, PRESETS[policy])
            target = self.order(port, uplinks, policy)[0].name
            bound = self.bound.get(port.name)
            if bound is None:
                first = RESTORED if stored == target else policy
                self.bound[port.name] = Bound(target, now_s, first)
            elif bound.uplink != target:
                why = _why(by_name.get(bound.uplink), target == home, reason)
                self.bound[port.name] = Bound(target, now_s, why.value)
                moves.append(Move(port.name, bound.uplink, target, why))
        return moves

    def order(
        self, port: VmPortConfig, uplinks: tuple[Uplink, ...], policy: str
    ) -> tuple[Uplink, ...]:
        """The uplinks a VM port may use, the one in force first."""
        backup = PRESETS[policy].backup
        ordered = failover.order(port.name, self.homes[port.name], uplinks, backup)
        return failover.usable_first(ordered or uplinks)

    def take_back(self, moves: Iterable[Move], now_s: float) -> None:
        """Moves that the switch refused did not happen, and shall not happen later."""
        for move in moves:
            self.homes[move.unit] = move.source
            self.bound[move.unit] = Bound(move.source, now_s, RESTORED)

    def by_unit(self) -> Mapping[str, str]:
        """The uplink each VM port is bound to."""
        return {name: bound.uplink for name, bound in self.bound.items()}


def _why(left: Uplink | None, goes_home: bool, reason: Reason) -> Reason:
    """Why a VM port leaves an uplink (None: it is no longer in the team)."""
    if left is not None and left.usable and left.role in (Role.DRAINED, Role.UNUSED):
        return Reason.DRAIN
    if not goes_home or left is None or not left.usable:
        return Reason.FAILOVER
    return Reason.FAILBACK if reason is Reason.FAILOVER else reason
