"""A drain in progress: an uplink is taken out of service, and its VM ports leave it."""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.events import Faulted, Reply, Setting
from controller.bridge.bridge import Bridge, Commands
from controller.config.rows import PREFIX
from controller.config.values import UplinkConfig
from controller.text.wording import OUR_LOG
from policies.model import Role

# An operator is waiting. The last learning packet is sent 3 s after a move.
DRAIN_TIMEOUT_S = 10.0


@dataclass(slots=True)
class Drain:
    """A drain in progress.

    `ports`, `addresses`: the number of VM ports, and of addresses behind VM ports, that used the
    uplink. `written`: the database has stored the new role.
    """

    request_id: int
    bridge: str
    uplink: str
    ports: int
    deadline_s: float
    written: bool = False
    addresses: int = 0

    def proceed(self, bridge: Bridge | None, fault: Faulted | None, now_s: float) -> Commands:
        """The answer, once the uplink is idle and the learning packets are sent.

        `fault`: the last fault of ovs-lbt since the drain began.
        """
        if bridge is None:
            return self._refuse("the bridge was detached meanwhile -> an attached bridge")
        in_time = now_s < self.deadline_s
        if not self.written or (in_time and not self._over(bridge)):
            return []
        if not bridge.connected:
            return self._refuse(f"drained, but the switch is not connected{_expected(fault)}")
        if remaining := bridge.placing.bindings.on(self.uplink):
            found = f"drained, but still used by {', '.join(remaining)}"
            return self._refuse(f"{found} -> VM ports that may use another uplink that is up")
        if not in_time and not bridge.settled:
            return self._refuse(
                f"drained, but the switch has not confirmed the moves{_expected(fault)}"
            )
        text = f"{self.uplink}: idle, {self.ports} VM port{'' if self.ports == 1 else 's'}"
        if self.addresses:
            text += f" and {self.addresses} address{'' if self.addresses == 1 else 'es'}"
        text += " moved"
        if bridge.config.on_a_lag:
            text += "; the upstream switch continues to send on it until its link goes down"
        return [Reply(self.request_id, text)]

    def _over(self, bridge: Bridge) -> bool:
        roles = {uplink.name: uplink.role for uplink in bridge.config.uplinks}
        return roles.get(self.uplink) in (Role.DRAINED, None) and bridge.at_rest

    def _refuse(self, why: str) -> Commands:
        return [Reply(self.request_id, f"uplink {self.uplink}: {why}", refused=True)]


def _expected(fault: Faulted | None) -> str:
    """What is expected: an answer from the switch, unless ovs-lbt itself has failed."""
    if fault is None:
        return " -> a switch that answers"
    return f", because ovs-lbt itself failed: {fault.text} -> {OUR_LOG}"


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
