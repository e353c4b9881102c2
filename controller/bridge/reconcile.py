"""How a bridge is brought in line with its configuration, its links and its policies.

Each event ends in `reconcile`: a list of steps, none of which handles an event.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.events import (
    Report,
)
from controller.api.history import Entry, Happened
from controller.bridge.phase import Turn, after
from controller.bridge.state import BridgeState, Commands
from controller.config.values import BridgeConfig

# How long after a VM port came to read its addresses, in case ovs-vswitchd restarts and forgets
# them. By then its VM has usually sent something.
NEW_VM_AUDIT_S = 2.0


@dataclass(slots=True)
class ReconciledBridge(BridgeState):
    """A bridge, and the steps by which its switch follows its state."""

    # ---- phases ------------------------------------------------------------------------------

    def turn(self, turn: Turn) -> None:
        self.phase = after(self.phase, turn, self.config.observes_bond)

    # ---- the configuration in force ----------------------------------------------------------

    def _take_config(self, config: BridgeConfig, now_s: float) -> Commands:
        """Take a configuration in force, that is, after the fallback without LACP is considered."""
        self.placing.end_splits(config)
        old, self.config = self.config, config
        other_mode = old.mode != config.mode
        self.turn(Turn.CHANGE_MODE if other_mode else Turn.CONFIGURE)
        if old.failback_delay_s != config.failback_delay_s:
            self.links.follow_delay(config.failback_delay_s)
        self.links.follow_team(old.uplinks, config.uplinks, now_s)
        self.addresses.keep(config.vm_ports)
        self.address_units.keep(config)
        if {port.name for port in config.vm_ports} - {port.name for port in old.vm_ports}:
            self.installation.audit_by(now_s + NEW_VM_AUDIT_S)
        if old.offload.by_tc != config.offload.by_tc:
            # Flows are counted otherwise from now on.
            self.loads.forget_rates()
            self.scheduler.forget_loads()
        commands = _errors_reported(old, config)
        if config.fallen_back and not old.fallen_back:
            commands += self._fall_back()
        self.placing.place_anew(old)
        if old.fallen_back and not config.fallen_back:
            commands += self._end_fallback()
        if other_mode:
            # Earlier loads do not belong to the bindings that are judged from now on.
            self.scheduler.begin_windows(now_s)
            commands += self.handover.leave(now_s)
            commands += self.handover.read_before()
        if config.fallen_back and not old.fallen_back and self.any_up:
            self.announcer.announce(self.announcer.everything, now_s)
        return commands

    def _fall_back(self) -> Commands:
        """LACP is not negotiated: to the upstream switch, each member is a port of its own."""
        asked = self.config.asked.vm_ports
        self.placing.bindings.set_aside({port.name: port.binding for port in asked if port.binding})
        found = f"{self.config.name}: LACP is not negotiated, so one uplink serves all VM ports"
        return [Report("warning", f"{found} -> LACP on the upstream switch")]

    def _end_fallback(self) -> Commands:
        """Members are one link again: drop the announcements planned for single members."""
        self.placing.bindings.take_up()
        self.announcer.forget()
        return [Report("info", f"{self.config.name}: LACP is negotiated again")]

    def _count_anew(self, now_s: float) -> None:
        """Ignore what buckets have counted so far: other VM ports may have sent it."""
        self.polling.read_buckets_at(self.scheduler.count_anew(now_s))

    # ---- the steps ---------------------------------------------------------------------------

    def reconcile(self, now_s: float) -> Commands:
        """Bring bindings in line with homes and links, and the switch in line with bindings.

        A list of steps, none of which handles an event. A bundle without changes is done at once,
        so the list then runs again. Announcements are planned here; `tick` sends them.
        """
        commands: Commands = []
        if self.phase.changes_nothing:
            return commands
        again = True
        while again:
            if self.phase.is_attached:
                commands += self._follow_lacp(now_s)
                self.announcer.announce_waiting(now_s)
                commands += self._follow_paths(now_s)
                commands += self.port_changes.record(now_s)
                self.placing.choose_applied(now_s)
                commands += self.placing.bind(now_s)
                commands += self.placing.judge_rules(now_s)
            sent, again = self.installing.install(now_s)
            commands += sent
        return [*commands, *self.shaping.shape(now_s)]

    def _follow_lacp(self, now_s: float) -> Commands:
        """Fall back to one uplink while LACP is not negotiated, and return when it is."""
        config = self.config.in_force(self.links.lacp_known(self.config.uplinks))
        changed = config.fallen_back is not self.config.fallen_back
        return self._take_config(config, now_s) if changed else []

    def _follow_paths(self, now_s: float) -> Commands:
        """Leave uplinks that probes do not reach or that are blocked, and take them back later."""
        config, paths = self.config, self.paths
        before = dict(paths.since_s)
        changed = self.probing.find(now_s)
        unreachable = paths.unreachable() | {u.name for u in config.uplinks if u.blocked}
        if unreachable != self.links.unreachable:
            self.links.follow_paths(unreachable, config.uplinks, now_s)
        if not changed:
            return []
        records = [*self.decision_log.paths(config.name, before, paths.since_s, now_s)]
        return [*records, *(_path_reported(record.entry) for record in records)]

    # ---- the result of a bundle --------------------------------------------------------------


def _path_reported(entry: Entry) -> Report:
    found = entry.happened is Happened.PATH_FAULT
    return Report("warning" if found else "info", f"{entry.bridge}: path check: {entry.why}")


def _errors_reported(old: BridgeConfig, new: BridgeConfig) -> Commands:
    """A log line for each configuration error that is new."""
    known = {*old.errors}
    return [Report("warning", str(error)) for error in new.errors if error not in known]
