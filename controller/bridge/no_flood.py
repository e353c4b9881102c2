"""The OpenFlow port flag `no-flood`, which keeps NORMAL from flooding to ports that we deliver to.

On a bond, flooded frames from uplinks also go to NORMAL, for VM ports that came while the service
was down. NORMAL would bring a second copy to all other VM ports if they did not have the flag
`no-flood`. So the flags change only while NORMAL gets no frames: the first bundle stops that, then
the flags are set, then another bundle starts it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.api.events import PortFlagsSet, SetPortFlags
from controller.bridge.request import Request
from controller.config.values import BridgeConfig
from controller.dataplane import readback, specs


@dataclass(slots=True)
class Flooding:
    """The flags of one bridge."""

    # The ofports that have the flag; None: not known.
    ports: frozenset[int] | None = None
    # The ofports on which another program had set the flag when the switch was last asked.
    others: frozenset[int] = frozenset()
    request: Request[frozenset[int]] = field(default_factory=Request)
    # The flags set by a confirmed request that `take_up` has not taken up yet.
    _set: frozenset[int] | None = None

    @property
    def error(self) -> str | None:
        """Why the switch refused the last change; None: it did not."""
        return self.request.error

    @property
    def changing(self) -> bool:
        """Whether a request, or the step that follows its answer, is outstanding."""
        return self.request.asked is not None or self._set is not None

    def forget(self) -> None:
        """The connection ended, and with it any request under way."""
        self.request.forget_switch()
        self.ports = self._set = None

    def assume(self, installed: specs.Pipeline, needed: bool) -> None:
        """Derive the flags from what is installed.

        If the flags are `needed`, or a rescue has set some, the switch is asked to make sure.
        """
        rescued = readback.cut_off(installed)
        flagged = readback.no_flood(installed) if needed else frozenset[int]()
        self.ports = rescued or flagged
        self.request.confirmed = None if rescued or needed else flagged

    def give_up(self) -> None:
        """The switch refuses to clear the flags: go on as if it had."""
        self.ports = self.request.confirmed = frozenset()

    def gone(self, ofport: int) -> None:
        """A port is gone. The next port with its ofport has no flag."""
        if self.ports is not None:
            self.ports -= {ofport}
        self.request.confirmed = None

    def came(self, ofport: int) -> None:
        """A port came. It may have been missing when the flags were set."""
        if self.ports is None or ofport not in self.ports:
            self.request.confirmed = None

    def inspect(self, bridge: str, now_s: float) -> list[SetPortFlags]:
        """Ask which ports have the flag, and change none."""
        return self._ask(bridge, frozenset(), frozenset(), now_s)

    def follow(self, config: BridgeConfig, serves: bool, now_s: float) -> list[SetPortFlags]:
        """The request, if any, that gives VM ports the flag while our pipeline `serves` them."""
        vm_ports = frozenset(int(port.ofport) for port in config.vm_ports)
        over_normal = serves and config.on_bond
        if not over_normal and self.given_back(config):
            return []
        wanted = vm_ports if over_normal else _before(config)
        return self._ask(config.name, wanted, vm_ports - wanted, now_s)

    def given_back(self, config: BridgeConfig) -> bool:
        """Whether no port has a flag that we set."""
        return self.ports is not None and self.ports <= _before(config)

    def others_in(self, config: BridgeConfig) -> tuple[str, ...]:
        """The VM ports on which another program had set the flag when the switch was last asked."""
        return tuple(sorted(p.name for p in config.vm_ports if p.ofport in self.others))

    def _ask(
        self, bridge: str, wanted: frozenset[int], others: frozenset[int], now_s: float
    ) -> list[SetPortFlags]:
        """The request after which `wanted` have the flag and `others` do not, if one is needed."""
        number = None if self.changing else self.request.number_for(wanted, now_s)
        if number is None:
            return []
        flood = (others | (self.ports or frozenset())) - wanted
        return [SetPortFlags(bridge, number, wanted, flood)]

    def expects(self, event: PortFlagsSet) -> bool:
        """Whether this answers the last request."""
        return self.request.is_under_way(event.number)

    def answer(self, event: PortFlagsSet, now_s: float) -> frozenset[int]:
        """Take the switch's answer, and return the ports that have newly got the flag.

        `ports` changes only when `take_up` is called, so that the caller can read learned addresses
        before.
        """
        self.request.finish(event.error, now_s)
        if event.error is not None:
            return frozenset()
        self.others = event.before - (self.ports or frozenset())
        self._set = event.no_flood
        return event.no_flood - (self.ports or frozenset())

    def take_up(self) -> None:
        """Take up the flags that the switch has confirmed."""
        if self._set is not None:
            self.ports, self._set = self._set, None


def _before(config: BridgeConfig) -> frozenset[int]:
    """The VM ports that had the flag before attach, and keep it when the bridge is given back."""
    before = config.no_flood_before
    return frozenset(int(port.ofport) for port in config.vm_ports if port.name in before)
