"""A drain in progress: an uplink is taken out of service, and its VM ports leave it."""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.engine_commands import Setting
from controller.bridge.bridge import Commands
from controller.config.rows import PREFIX
from controller.config.values import UplinkConfig
from controller.operations.jobs import Job, Step
from policies.model import Role

# An operator is waiting. The last learning packet is sent 3 s after a move.
DRAIN_TIMEOUT_S = 10.0


@dataclass(slots=True, eq=False, kw_only=True)
class Drain(Job):
    """A drain in progress: STORE, EMPTY.

    `ports`, `addresses`: the number of VM ports, and of addresses behind VM ports, that used the
    uplink.
    """

    uplink: str
    ports: int
    addresses: int
    deadline_s: float

    def written(self, error: str | None, now_s: float) -> Commands:
        assert self.step is Step.STORE, "the role is written once"
        if error is not None:
            return self.end(f"database: {error}", now_s, refused=True)
        self.step = Step.EMPTY
        return []

    def goes_on_s(self) -> float:
        return self.deadline_s if self.step is Step.EMPTY else float("inf")

    def proceed(self, now_s: float) -> Commands:
        """Answer once the uplink is idle and the learning packets are sent."""
        bridge = self.bridge
        if bridge is None:
            return self._refuse("the bridge was detached meanwhile -> an attached bridge", now_s)
        roles = {uplink.name: uplink.role for uplink in bridge.config.uplinks}
        over = roles.get(self.uplink) in (Role.DRAINED, None) and bridge.at_rest
        in_time = now_s < self.deadline_s
        if self.step is Step.STORE or (in_time and not over):
            return []
        cause = self.blame(self.deadline_s - DRAIN_TIMEOUT_S) or " -> a switch that answers"
        if not bridge.connected:
            return self._refuse(f"drained, but the switch is not connected{cause}", now_s)
        if remaining := bridge.placing.planned.on(self.uplink):
            found = f"drained, but still used by {', '.join(remaining)}"
            expected = "VM ports that may use another uplink that is up"
            return self._refuse(f"{found} -> {expected}", now_s)
        if not in_time and not bridge.settled:
            found = "drained, but the switch has not confirmed the moves"
            return self._refuse(f"{found}{cause}", now_s)
        text = f"{self.uplink}: idle, {self.ports} VM port{'' if self.ports == 1 else 's'}"
        if self.addresses:
            text += f" and {self.addresses} address{'' if self.addresses == 1 else 'es'}"
        text += " moved"
        if bridge.config.on_a_lag:
            text += "; the upstream switch continues to send on it until its link goes down"
        return self.end(text, now_s)

    def _refuse(self, why: str, now_s: float) -> Commands:
        return self.end(f"uplink {self.uplink}: {why}", now_s, refused=True)


def drained(uplink: UplinkConfig) -> tuple[Setting, ...]:
    """The settings that drain an uplink and save its previous role."""
    before = None if uplink.role is Role.ACTIVE else uplink.role.value
    return (_setting(uplink, "role", Role.DRAINED.value), _setting(uplink, "role-before", before))


def undrained(uplink: UplinkConfig) -> tuple[Setting, ...]:
    """The settings that restore the uplink's previous role."""
    role = None if uplink.role_before is Role.ACTIVE else uplink.role_before.value
    return (_setting(uplink, "role", role), _setting(uplink, "role-before", None))


def _setting(uplink: UplinkConfig, key: str, value: str | None) -> Setting:
    return Setting("Interface", uplink.name, PREFIX + key, value)
