"""The OpenFlow port flag `no-flood`, which keeps NORMAL from flooding to ports that we deliver to.

On a bond, flooded frames from uplinks also go to NORMAL, for VM ports that came while the service
was down. NORMAL would bring a second copy to all other VM ports if they did not have the flag
`no-flood`. So the flags change only while NORMAL gets no frames: the first bundle stops that, then
the flags are set, then another bundle starts it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.api.engine_commands import Command, ReadLearned, SetPortFlags
from controller.api.events import PortFlagsSet
from controller.dataplane import flooding, specs
from controller.features.feature import Feature, Request


@dataclass(eq=False)
class NoFlood(Feature[PortFlagsSet]):
    """The flags of one bridge."""

    hears = (PortFlagsSet,)

    # The ofports that have the flag; None: not known.
    ports: frozenset[int] | None = None
    # The ofports on which another program had set the flag when the switch was last asked.
    others: frozenset[int] = frozenset()
    request: Request[frozenset[int]] = field(default_factory=Request)
    # The flags set by a confirmed request that `take_up` has not taken up yet.
    _set: frozenset[int] | None = None

    @property
    def changing(self) -> bool:
        """Whether a request, or the step that follows its answer, is outstanding."""
        return self.request.asked is not None or self._set is not None

    def forget_switch(self) -> None:
        """The connection ended, and with it any request under way."""
        self.request.forget_switch()
        self.ports = self._set = None

    def restore(self, installed: specs.Pipeline) -> None:
        """Derive the flags from what is installed.

        If flags are needed, or a rescue has set some, the switch is asked to make sure.
        """
        needed = self.config.on_bond and (self.bridge.serves or installed != specs.EMPTY)
        rescued = flooding.cut_off(installed)
        flagged = flooding.no_flood(installed) if needed else frozenset[int]()
        self.ports = rescued or flagged
        self.request.confirmed = None if rescued or needed else flagged

    def gone(self, ofport: int) -> None:
        """A port is gone. The next port with its ofport has no flag."""
        if self.ports is not None:
            self.ports -= {ofport}
        self.request.confirmed = None

    def came(self, ofport: int) -> None:
        """A port came. It may have been missing when the flags were set."""
        if self.ports is None or ofport not in self.ports:
            self.request.confirmed = None

    def inspect(self, now_s: float) -> list[Command]:
        """Ask which ports have the flag, and change none."""
        return self._ask(frozenset(), frozenset(), now_s)

    def want(self, now_s: float) -> list[Command]:
        """Give VM ports the flag while our pipeline serves them on a bond."""
        config = self.config
        vm_ports = frozenset(int(port.ofport) for port in config.vm_ports)
        over_normal = self.bridge.serves and config.on_bond
        if not over_normal and self.given_back:
            return []
        wanted = vm_ports if over_normal else self._before
        return self._ask(wanted, vm_ports - wanted, now_s)

    @property
    def given_back(self) -> bool:
        """Whether no port has a flag that we set."""
        return self.ports is not None and self.ports <= self._before

    @property
    def _before(self) -> frozenset[int]:
        """The VM ports that had the flag before attach, and keep it when the bridge is given back."""
        config = self.config
        before = config.no_flood_before
        return frozenset(int(port.ofport) for port in config.vm_ports if port.name in before)

    @property
    def by_others(self) -> tuple[str, ...]:
        """The VM ports on which another program had set the flag when the switch was last asked."""
        ports = self.config.vm_ports
        return tuple(sorted(port.name for port in ports if port.ofport in self.others))

    def _ask(self, wanted: frozenset[int], others: frozenset[int], now_s: float) -> list[Command]:
        """The request after which `wanted` have the flag and `others` do not, if one is needed."""
        number = None if self.changing else self.request.number_for(wanted, now_s)
        if number is None:
            return []
        flood = (others | (self.ports or frozenset())) - wanted
        return [SetPortFlags(self.config.name, number, wanted, flood)]

    def heard(self, event: PortFlagsSet, now_s: float) -> list[Command]:
        """The switch has changed the flag of ports, or has refused to.

        If ports have newly got it, learned addresses are read before `take_up` changes `ports`.
        """
        if not self.request.is_under_way(event.number):
            return []
        bridge = self.bridge
        what = f"{bridge.config.name}: the flag no-flood of VM ports"
        warnings = self.request.finish(event.error, what, now_s)
        if event.error is None:
            before = self.ports or frozenset()
            self.others, self._set = event.before - before, event.no_flood
            if event.no_flood - before:
                return [ReadLearned(bridge.config.name)]
        elif not bridge.serves:
            # It is better to leave a flag behind than not to give the bridge back.
            self.ports = self.request.confirmed = frozenset()
        self.take_up()
        return [*warnings, *bridge.reconcile(now_s)]

    def take_up(self) -> None:
        """Take up the flags that the switch has confirmed."""
        if self._set is not None:
            self.ports, self._set = self._set, None
