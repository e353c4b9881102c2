"""Which ports the switch's own NORMAL does not flood to: those that our pipeline delivers to.

On a bond, NORMAL is given what uplinks flood, for VM ports that came while the service was
dead. It would bring a second copy to all others, if they did not have the flag `no-flood`.
So the flags change only while NORMAL is given nothing: first a bundle that ends that, then
the flags, then the bundle that begins it anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.events import PortFlagsSet, SetPortFlags
from controller.config.values import BridgeConfig
from controller.dataplane import pipeline, specs

RETRY_AFTER_S = 30.0


@dataclass(slots=True)
class Flooding:
    """The flags of one bridge. `ports`: those that have it; None while nobody knows."""

    ports: frozenset[int] | None = None
    error: str | None = None
    # Those that had it from somebody else when the switch was asked last.
    others: frozenset[int] = frozenset()
    _number: int = 0
    _asked: frozenset[int] | None = None
    _answered: frozenset[int] | None = None
    _set: frozenset[int] | None = None
    _refused: frozenset[int] | None = None
    _not_before_s: float = 0.0

    @property
    def changing(self) -> bool:
        """Whether an answer, or what is done upon it, is outstanding."""
        return self._asked is not None or self._set is not None

    def forget(self) -> None:
        """The connection is gone, and with it whatever was asked."""
        self.ports = self._asked = self._answered = self._set = self._refused = None

    def assume(self, installed: specs.Pipeline, needed: bool) -> None:
        """What the flags must be, given what is installed.

        Where they are `needed`, or a rescue has set some, the switch is asked to make sure.
        """
        rescued = pipeline.cut_off(installed)
        flagged = pipeline.no_flood(installed) if needed else frozenset[int]()
        self.ports = rescued or flagged
        self._answered = None if rescued or needed else flagged

    def give_up(self) -> None:
        """The switch does not take the flags back; go on as if it had."""
        self.ports = self._answered = frozenset()

    def gone(self, ofport: int) -> None:
        """A port is gone; the next one with its number has no flag."""
        if self.ports is not None:
            self.ports -= {ofport}
        self._answered = None

    def came(self, ofport: int) -> None:
        """A port is there; it may have been missing when flags were set."""
        if self.ports is None or ofport not in self.ports:
            self._answered = None

    def look(self, bridge: str, now_s: float) -> list[SetPortFlags]:
        """Change nothing, and be told which ports have the flag."""
        return self._ask(bridge, frozenset(), frozenset(), now_s)

    def follow(self, config: BridgeConfig, serves: bool, now_s: float) -> list[SetPortFlags]:
        """What to send so that VM ports have the flag while our pipeline `serves` them."""
        vm_ports = frozenset(int(port.ofport) for port in config.vm_ports)
        over_normal = serves and config.on_bond
        if not over_normal and self.given_back(config):
            return []
        wanted = vm_ports if over_normal else _before(config)
        return self._ask(config.name, wanted, vm_ports - wanted, now_s)

    def given_back(self, config: BridgeConfig) -> bool:
        """Whether no port has the flag from us."""
        return self.ports is not None and self.ports <= _before(config)

    def others_in(self, config: BridgeConfig) -> tuple[str, ...]:
        """The VM ports that had the flag when we looked, and not from us."""
        return tuple(sorted(p.name for p in config.vm_ports if p.ofport in self.others))

    def _ask(
        self, bridge: str, wanted: frozenset[int], others: frozenset[int], now_s: float
    ) -> list[SetPortFlags]:
        """What to send so that `wanted`, and none of `others`, have the flag."""
        waits = wanted == self._refused and now_s < self._not_before_s
        if self.changing or wanted == self._answered or waits:
            return []
        self._asked = wanted
        self._number += 1
        flood = (others | (self.ports or frozenset())) - wanted
        return [SetPortFlags(bridge, self._number, wanted, flood)]

    def expects(self, event: PortFlagsSet) -> bool:
        """Whether it answers what was asked last."""
        return self._asked is not None and event.number == self._number

    def answer(self, event: PortFlagsSet, now_s: float) -> frozenset[int]:
        """Take the switch's answer: the ports that have the flag anew.

        They count when `settle` is called, so that something can be done before.
        """
        asked, self._asked = self._asked, None
        self.error = event.error
        if event.error is not None:
            self._refused, self._not_before_s = asked, now_s + RETRY_AFTER_S
            return frozenset()
        self.others = event.before - (self.ports or frozenset())
        self._answered, self._set = asked, event.no_flood
        return event.no_flood - (self.ports or frozenset())

    def settle(self) -> None:
        """The ports that the switch has answered for are those that have the flag."""
        if self._set is not None:
            self.ports, self._set = self._set, None


def _before(config: BridgeConfig) -> frozenset[int]:
    """The VM ports that keep the flag when the bridge is given back."""
    before = config.no_flood_before
    return frozenset(int(port.ofport) for port in config.vm_ports if port.name in before)
