"""Sets the OpenFlow port flag `no-flood`, so that NORMAL does not flood to VM ports that our flows serve.

On a bond, flooded frames from uplinks also go to NORMAL, for VM ports that were added while the
service was down. All other VM ports would receive a second copy from NORMAL without the flag
`no-flood`. So flags change only while NORMAL receives no frames: a first bundle stops them, then
the flags are set, and another bundle sends frames to NORMAL again.

OpenFlow 1.3 does not report changes of the flag. So the flags are read whenever the installed
flows are read, and set again on ports where another program has cleared them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.api.engine_commands import (
    Command,
    ReadLearned,
    Report,
    SetPortFlags,
    Setting,
    Write,
)
from controller.api.events import PortFlagsSet
from controller.config.rows import PREFIX
from controller.dataplane import flooding, specs
from controller.features.feature import Feature, Request

KEY = PREFIX + "no-flood-before"
# How long `check` reports that another program has cleared the flag.
CLEARED_FOR_S = 900.0


@dataclass(eq=False)
class NoFlood(Feature[PortFlagsSet]):
    """Sets the flag `no-flood` on one bridge's VM ports."""

    # The ofports that have the flag; None if they are not known.
    ports: frozenset[int] | None = None
    # The ofports on which another program had set the flag when the flags were last read.
    others: frozenset[int] = frozenset()
    request: Request[frozenset[int]] = field(default_factory=Request)
    # The ofports in a confirmed request, before `take_up` copies them to `ports`.
    _set: frozenset[int] | None = None
    # The ofports that the switch last confirmed on this connection; None if there was no request.
    _told: frozenset[int] | None = None
    # Whether the flags may have changed since the pending request was made.
    _doubted: bool = False
    # When another program last cleared the flag of VM ports, by name, in seconds of engine time.
    _cleared_s: dict[str, float] = field(default_factory=dict)

    @property
    def changing(self) -> bool:
        """Whether a request that changes flags, or the `take_up` after it, is pending."""
        asked = self.request.asked
        return (asked is not None and asked != self._told) or self._set is not None

    def forget_switch(self) -> None:
        """Forget the no-flood flags and any pending request, because the connection ended."""
        self.request.forget_switch()
        self.ports = self._set = self._told = None
        self._doubted = False

    def doubt(self) -> None:
        """Request the no-flood flags again, because they may have changed since the last confirmation."""
        self.request.confirmed, self._doubted = None, self.request.asked is not None

    def restore(self, installed: specs.Pipeline) -> None:
        """Derive the no-flood flags from the installed flows and groups.

        If any flags are needed, or set by `ovs-lbt rescue`, the next request reads them from the switch.
        """
        needed = self.config.on_bond and (self.bridge.serves or installed != specs.EMPTY)
        rescued = flooding.cut_off(installed)
        flagged = flooding.no_flood(installed) if needed else frozenset[int]()
        self.ports = rescued or flagged
        self.request.confirmed = None if rescued or needed else flagged

    def gone(self, ofport: int) -> None:
        """Forget the no-flood flag of a removed port, because a new port with the same ofport lacks it."""
        if self.ports is not None:
            self.ports -= {ofport}
        if self._told is not None:
            self._told -= {ofport}
        self.doubt()

    def came(self, ofport: int) -> None:
        """Handle a new port, which may have been missing when the no-flood flags were set."""
        if self.ports is None or ofport not in self.ports:
            self.doubt()

    def inspect(self, now_s: float) -> list[Command]:
        """Request the no-flood flags of all ports, without changing these flags."""
        return self._ask(frozenset(), frozenset(), now_s)

    def want(self, now_s: float) -> list[Command]:
        """Set no-flood on VM ports while our pipeline serves a bond; otherwise restore the previous flags."""
        config = self.config
        vm_ports = frozenset(int(port.ofport) for port in config.vm_ports)
        over_normal = self.bridge.serves and config.on_bond
        if not over_normal and self.given_back:
            return []
        wanted = vm_ports if over_normal else self._before
        return self._ask(wanted, vm_ports - wanted, now_s)

    @property
    def given_back(self) -> bool:
        """Whether no port has a no-flood flag that ovs-lbt set."""
        return self.ports is not None and self.ports <= self._before

    @property
    def _before(self) -> frozenset[int]:
        """The ofports that had the flag before attach, and keep it after detach."""
        config = self.config
        before = config.no_flood_before
        return frozenset(int(port.ofport) for port in config.vm_ports if port.name in before)

    def cleared(self, now_s: float) -> list[str]:
        """Return the VM ports on which another program has recently cleared no-flood."""
        return sorted(n for n, at_s in self._cleared_s.items() if now_s - at_s <= CLEARED_FOR_S)

    def _ask(self, wanted: frozenset[int], others: frozenset[int], now_s: float) -> list[Command]:
        """Return the request that sets the flag on `wanted` and clears it on `others`, if needed."""
        number = None if self._set is not None else self.request.number_for(wanted, now_s)
        if number is None:
            return []
        flood = (others | (self.ports or frozenset())) - wanted
        return [SetPortFlags(self.config.name, number, wanted, flood)]

    def heard(self, event: PortFlagsSet, now_s: float) -> list[Command]:
        """Handle the result of a request to change no-flood flags.

        If more ports now have `no-flood`, read learned addresses before `take_up` changes `ports`.
        """
        if not self.request.is_under_way(event.number):
            return []
        bridge = self.bridge
        what = f"{bridge.config.name}: the flag no-flood cannot be changed on VM ports"
        commands = self.request.finish(event.error, what, now_s)
        if self._doubted:
            self.doubt()
        if event.error is None:
            commands += self._compare(event, now_s)
            before = self.ports or frozenset()
            self.others, self._set = event.before - before, event.no_flood
            if event.no_flood - before:
                return [*commands, ReadLearned(bridge.config.name)]
        elif not bridge.serves:
            # It is better to leave a flag set than to fail to detach the bridge.
            self.ports = self.request.confirmed = frozenset()
        self.take_up()
        return [*commands, *bridge.reconcile(now_s)]

    def _compare(self, event: PortFlagsSet, now_s: float) -> list[Command]:
        """Find flags that another program has cleared. `detach` will not restore such a flag."""
        name, before = self.config.name, self.config.no_flood_before
        lacking = [port for port in self.config.vm_ports if port.ofport not in event.before]
        there = (self._told or frozenset()) & event.no_flood
        cleared = {port.name for port in lacking if port.ofport in there} - before
        self._told, commands = event.no_flood, list[Command]()
        if (gone := before & {port.name for port in lacking}) and self.bridge.phase.is_attached:
            left = ",".join(sorted(before - gone)) or None
            commands.append(Write((Setting("Bridge", name, KEY, left),)))
        if new := sorted(cleared - {*self.cleared(now_s)}):
            found = f"another program has cleared the port flag no-flood on {', '.join(new)}"
            commands.append(Report("warning", f"{name}: {found}; ovs-lbt has set the flag again"))
        self._cleared_s |= dict.fromkeys(cleared, now_s)
        return commands

    def take_up(self) -> None:
        """Set `ports` to the ports that have no-flood according to the last confirmed request."""
        if self._set is not None:
            self.ports, self._set = self._set, None
