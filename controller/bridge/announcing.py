"""Learning packets, and multicast queries: which VM ports are due for them, and the frames.

The switch is asked first which addresses it has learned on those ports.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from controller.api.events import Command, DeliverFrame, LearnedRead, SendFrame
from controller.config.values import BridgeConfig
from controller.dataplane import frames
from controller.teaming.stations import Located

# A learning packet can be overtaken by a megaflow that is not revalidated yet (about 1 s
# at worst), so it is repeated after that, and once more for switches that lost it.
AFTER_S = (0.0, 1.0, 3.0)

# What is to be announced: a VM port, by its ofport, or one of its addresses.
Announced = int | Located


@dataclass(slots=True)
class Announcing:
    """The VM ports of one bridge, and single addresses of theirs, that are to be announced.

    `_asked`: those for which a reading of what was learned is under way.
    """

    _due: list[tuple[float, frozenset[Announced]]] = field(default_factory=list)
    _asked: frozenset[Announced] = frozenset()

    @property
    def idle(self) -> bool:
        """Whether nothing is left to announce."""
        return not self._due

    def plan(self, announced: frozenset[Announced], now_s: float) -> None:
        """Announce these now, and repeat it."""
        self._due += [(now_s + after_s, announced) for after_s in AFTER_S]

    def plan_once(self, announced: frozenset[Announced]) -> None:
        """Announce these with the next reading."""
        self._asked |= announced

    def forget(self) -> None:
        self._due, self._asked = [], frozenset()

    def due(self, now_s: float) -> bool:
        """Whether a reading is called for."""
        due = [entry for entry in self._due if entry[0] <= now_s]
        self._due = [entry for entry in self._due if entry[0] > now_s]
        self._asked = self._asked.union(*(announced for _, announced in due))
        return bool(due)

    def deadline_s(self) -> float:
        """When the next are due; infinity when none are."""
        return min((at_s for at_s, _ in self._due), default=float("inf"))

    def take(
        self,
        read: LearnedRead,
        config: BridgeConfig,
        adopted: set[Located],
        now_s: float,
        apart: Container[Located] = (),
    ) -> list[Command]:
        """The frames for the VM ports that are due.

        `adopted`: addresses whose frames NORMAL has carried until now. Their learning packets
        teach our pipeline before it forgets what it has learned from an unknown port. `apart`:
        those that do not leave where their VM port does.
        """
        if adopted and not config.on_a_lag:
            ofports = frozenset[Announced](ofport for ofport, _, _ in adopted)
            self._asked |= ofports
            self._due += [(now_s + after_s, ofports) for after_s in AFTER_S[1:]]
        asked, self._asked = self._asked, frozenset()
        ports = {int(port.ofport): port for port in config.vm_ports}
        located = adopted | {
            (ofport, mac, vlan)
            for ofport, mac, vlan in read.addresses
            if ofport in ports and vlan in ports[ofport].vlans.carried
        }
        called_for = {
            (o, mac, vlan)
            for o, mac, vlan in located
            if (o, mac, vlan) in asked or (o in asked and (o, mac, vlan) not in apart)
        }
        # On a LAG only our switch is to learn where those are.
        quiet = adopted - called_for if config.on_a_lag else set[Located]()
        heard = {(o, vlan) for o, _, vlan in located if o in asked}
        for port in config.vm_ports:
            if port.ofport in asked and port.vlans.native is not None:
                heard.add((port.ofport, port.vlans.native))
        queried = {(ofport, ports[ofport].vlans.tag_out(vlan)) for ofport, vlan in heard}
        commands: list[Command] = [
            SendFrame(config.name, ofport, frames.rarp(mac, tag, to_itself=to_itself))
            for ofport, mac, tag, to_itself in sorted(
                (o, mac, ports[o].vlans.tag_in(vlan), (o, mac, vlan) in quiet)
                for o, mac, vlan in called_for | adopted
            )
        ]
        return commands + [
            DeliverFrame(config.name, ofport, query(vlan))
            for ofport, vlan in sorted(queried)
            for query in (frames.igmp_query, frames.mld_query)
        ]


def beneath(read: LearnedRead, config: BridgeConfig) -> set[Located]:
    """The addresses of our VM ports that NORMAL has served until now, with their VLANs."""
    ports = {int(port.ofport): port.vlans for port in config.vm_ports}
    return {
        (ofport, mac, vlan)
        for ofport, mac, tag in read.beneath
        if ofport in ports and (vlan := ports[ofport].vlan_of(tag or 0)) is not None
    }
