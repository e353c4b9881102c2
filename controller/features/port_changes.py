"""Handles ports that are added or removed, and links that go down or up."""

from __future__ import annotations

from controller.api.engine_commands import Command
from controller.api.events import PortChanged, PortRemoved, PortState
from controller.features.feature import Feature
from controller.teaming.links import PORT_NAME_CHARACTERS

# How long cached flows may still send VM ports' frames to NORMAL after an uplink has come up.
REVALIDATED_S = 1.0


class PortChanges(Feature[PortChanged | PortRemoved]):
    """Handles changes of ports and links of one bridge."""

    def heard(self, event: PortChanged | PortRemoved, now_s: float) -> list[Command]:
        if isinstance(event, PortChanged):
            return self._change_port(event.port, now_s)
        self.bridge.links.remove(event.ofport, now_s)
        self.bridge.no_flood.gone(event.ofport)
        self.bridge.loads.remove(event.ofport)
        return self.bridge.reconcile(now_s)

    def _change_port(self, port: PortState, now_s: float) -> list[Command]:
        """Handle a new port, or a change of a port's link."""
        if port.ofport not in self.bridge.links.ports:
            self.bridge.no_flood.came(port.ofport)
            self.bridge.shaping.read_anew()
        was_cut_off, before = not self.bridge.any_up, self.bridge.links.ports.get(port.ofport)
        self.bridge.links.note_port(port, now_s)
        # The switch first reports a new port as present, and soon after as live.
        # A guest may turn the link of its VM port off and on repeatedly, which causes no failover.
        failed = self._is_uplink(port) and not port.up and before is not None and before.up
        if failed:
            self.bridge.installation.pause(now_s)
        # The switch reports a new port before the database does. Ports that are not in the configuration
        # have no effect, and with hundreds of buckets, updating the bridge for them would take long.
        if not self._is_uplink(port) and port.ofport not in self.config.port_at:
            return []
        commands = self.bridge.reconcile(now_s)
        if failed:
            commands += self.bridge.announcer.announce_failover()
        if was_cut_off and self.bridge.any_up:
            # Upstream switches may have forgotten all VMs, and NORMAL has learned them.
            self.bridge.announcer.announce(self.bridge.announcer.everything, now_s)
            self.bridge.handover.taken_over_with = ()
            self.bridge.installation.audit_by(now_s + REVALIDATED_S)
        return commands

    def _is_uplink(self, port: PortState) -> bool:
        names = {uplink.name[:PORT_NAME_CHARACTERS] for uplink in self.config.uplinks}
        return port.name in names or port.ofport in self.config.uplink_at

    def record(self, now_s: float) -> list[Command]:
        """Record the uplinks whose links went up or down."""
        silent = {uplink.name: self.bridge.links.silent(uplink) for uplink in self.config.uplinks}
        return [
            record
            for uplink, up in self.bridge.links.take_changes()
            for record in self.bridge.decision_log.linked(
                self.bridge.placing.team_view(), uplink, up, silent.get(uplink, ()), now_s
            )
        ]

    def end_delays(self, now_s: float) -> list[Command]:
        self.bridge.links.end_delays(now_s)
        return self.bridge.reconcile(now_s)

    def ask_for_frame(self, now_s: float) -> list[Command]:
        """Send a broadcast to reach uplinks that must receive a frame before they are used."""
        self.bridge.links.note_asked(now_s)
        if not self.bridge.announces:
            return []
        # If all uplinks are in one network, a broadcast from one uplink reaches all others.
        return self.bridge.announcer.announce_once(
            self.bridge.announcer.carried_by(set(sorted(self.bridge.placing.bound)[:1]))
        )
