"""Hands a bond over from NORMAL to our pipeline and back, including the addresses that each has learned.

Only the side that has forwarded a VM's frames knows the VM's port. Silent VMs would be unreachable if their
addresses were not passed on.

On an active-backup bond, NORMAL drops frames that backup members receive, so frames on their way to a VM
would be lost. Before NORMAL takes over such a bond, all units *gather*: they are bound to the active member.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from controller.api.engine_commands import Command, ForgetForwarding, ReadForwarding, SendFrame
from controller.api.events import ForwardingRead
from controller.bridge.phase import Phase, Turn
from controller.dataplane import frames, specs
from controller.features.feature import Feature, Timer
from controller.features.learned_addresses import learns
from policies.model import OfPort

# After a move, frames for a VM arrive on the old member until the upstream switch has applied the
# learning packet to its flow cache: immediately, or after the second packet (1 s).
GATHERED_AFTER_S = 1.2
ASKED_FOR = "requested by an operator"


@dataclass(eq=False)
class Handover(Feature[ForwardingRead]):
    """Hands one bridge over from NORMAL to our pipeline, and back."""

    # The uplinks of the bridge when NORMAL's learned addresses were last cleared; empty if never.
    taken_over_with: tuple[OfPort, ...] = ()
    # When frames no longer arrive on other members, in engine time; infinity unless units gather.
    gathered_s: float = math.inf
    # The reason for the next takeover by NORMAL, in words; empty for an operator's request.
    because: str = ""

    @property
    def is_gathering(self) -> bool:
        return self.gathered_s < math.inf

    def gather(self, now_s: float) -> bool:
        """Bind every unit to one member, if this is needed before NORMAL takes over.

        Policies and pins then have no effect until NORMAL has taken over. Return whether units were bound.
        """
        bridge, because, self.because = self.bridge, self.because or ASKED_FOR, ""
        if not bridge.connected or not bridge.installed_anything or bridge.interrupted:
            return False
        member = bridge.config.active_member
        bound = bridge.placing.on_switch.bound.values()
        if member is None or all(at.uplink == member for at in bound):
            return False
        bridge.turn(Turn.GATHER)
        assert bridge.phase is Phase.GATHERING, "units gather before NORMAL takes over"
        self.gathered_s = now_s + GATHERED_AFTER_S
        bridge.placing.gather_on(member)
        bridge.decision_log.because = f"{because}: NORMAL takes over on {member}"
        return True

    def end_gathering(self) -> None:
        self.gathered_s = math.inf

    def timers(self) -> Iterable[Timer]:
        return ((self.gathered_s, self._gathered),) if self.bridge.observing else ()

    def _gathered(self, now_s: float) -> list[Command]:
        self.end_gathering()
        self.bridge.turn(Turn.GATHERED)
        return [*self.read_for_normal(), *self.bridge.reconcile(now_s)]

    def leave(self, now_s: float) -> list[Command]:
        """Hand the bond over to NORMAL, after binding every unit to one member if necessary."""
        self.end_gathering()
        bridge = self.bridge
        if not bridge.on_normal or not bridge.connected or not bridge.installed_anything:
            return []
        return [] if self.gather(now_s) else self.read_for_normal()

    def read_for_normal(self) -> list[Command]:
        """Read, before our flows are removed, the addresses to announce to NORMAL and upstream."""
        read = self.bridge.announcer.announce_once(self.bridge.announcer.everything)
        return read if self.bridge.connected else []

    def introduce(self) -> None:
        """Prepare the frames from which NORMAL learns the VMs' ports after it has taken over a bond.

        The frames do not leave the bridge. A later attach gets even silent VMs' addresses from NORMAL.
        """
        if not self.config.on_bond:
            return
        ports = self.config.port_named
        self.bridge.announcer.introductions += (
            SendFrame(
                self.config.name,
                int(ports[name].ofport),
                frames.rarp(mac, ports[name].vlans.tag_in(vlan), to_itself=True),
            )
            for name, known in sorted(self.bridge.addresses.by_port.items())
            if name in ports
            for mac, vlan in known
        )

    def read_forwarding(self) -> list[Command]:
        """Read the addresses learned by NORMAL, before our pipeline replaces it on a bond."""
        self.bridge.addresses.awaits_normal = True
        return [ReadForwarding(self.config.name)]

    def heard(self, event: ForwardingRead, now_s: float) -> list[Command]:
        """Store the addresses learned by NORMAL, before our pipeline replaces NORMAL."""
        if not self.bridge.addresses.awaits_normal:
            return []
        self.bridge.addresses.awaits_normal = False
        self.bridge.addresses.learn(event.addresses, was_cleared=not self.bridge.on_normal)
        self.bridge.addresses.known |= event.error is None
        return self.bridge.reconcile(now_s)

    def take_over(self) -> list[Command]:
        """Clear the addresses learned by NORMAL, once for each set of uplinks of our pipeline.

        Otherwise, when a member fails, the bond would announce these addresses on another member.
        The announcements would return to our pipeline, and VMs would seem to be outside the bridge.
        """
        bridge, config = self.bridge, self.config
        uplinks = tuple(uplink.ofport for uplink in config.uplinks)
        taken_over = uplinks == self.taken_over_with or not bridge.serves
        if not config.on_bond or taken_over or not learns(bridge.installed or specs.EMPTY):
            return []
        self.taken_over_with = uplinks
        return [ForgetForwarding(config.name)]
