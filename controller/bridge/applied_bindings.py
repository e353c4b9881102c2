"""The bindings and splits that the switch follows, if they differ from those that policies see.

In observe mode on plain uplinks, policies only plan, and the bindings in use stay. While units
gather on one member of a bond before NORMAL takes over, all of them are bound to that member,
whatever policies plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.teaming.bindings import Bindings
from policies.model import Move, Reason, Unit, Uplink


@dataclass(slots=True)
class AppliedBindings:
    """The applied bindings of one bridge."""

    # The bindings that the switch follows; None: the bindings that policies see.
    apart: Bindings | None = None
    # The VM ports whose frames the switch spreads over the buckets of their policy.
    split: frozenset[str] = frozenset()

    def bindings(self, planned: Bindings) -> Bindings:
        """The bindings that the switch follows; `planned`: those that policies see."""
        return self.apart or planned

    def set_apart(self, planned: Bindings) -> None:
        """Keep the bindings in use, whatever is planned from now on."""
        if self.apart is None:
            self.apart = planned.frozen()

    def gather(self, planned: Bindings, member: str) -> None:
        """Bind every unit to one uplink."""
        self.apart = self.bindings(planned).frozen()
        for name in self.apart.bound:
            self.apart.place(name, member, Reason.MANUAL)

    def release(self) -> None:
        """Follow the bindings that policies see."""
        self.apart = None

    def rebind_applied(
        self, units: Sequence[Unit], uplinks: tuple[Uplink, ...], now_s: float
    ) -> list[Move]:
        """The moves that changed links cause while the applied bindings are kept apart."""
        return [] if self.apart is None else self.apart.rebind(units, uplinks, now_s)

    def keep_applied(self, names: Iterable[str]) -> None:
        """Forget units that are gone."""
        if self.apart is not None:
            self.apart.keep_bound(names)

    def applied_returns_s(self) -> float:
        """When the next units return to a better uplink; infinity when none wait for that."""
        return math.inf if self.apart is None else self.apart.returns_s()
