"""Learning packets and multicast queries: which VM ports need them and when, and the frames.

Before each announcement, the service reads which addresses the switch has learned on those ports.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field

from controller.api.events import Command, DeliverFrame, LearnedRead, SendFrame
from controller.config.values import BridgeConfig
from controller.dataplane import frames
from controller.teaming.address_units import AddressUnits, Located
from controller.teaming.buckets import hashed_by
from policies.model import Move, Unit
from policies.presets import PRESETS

# In seconds after the move. A megaflow that is not revalidated yet (up to about 1 s) may still send
# frames by the old uplink after a learning packet, so the packet is repeated after that, and once
# more for switches that lost it.
AFTER_S = (0.0, 1.0, 3.0)
# How often to read learned addresses while the queues of uplinks lack an address of a VM port, or
# while addresses are units of their own. Until then the frames of a new VM leave by its port's home,
# and the flows of a VM that left do no harm.
LEARNED_INTERVAL_S = 2.0

# What to announce: a VM port, by its ofport, or one of its addresses.
Announced = int | Located


@dataclass(slots=True)
class LearningPackets:
    """The VM ports of one bridge, and single addresses of theirs, that have to be announced."""

    # When to announce each set next, in seconds of engine time.
    _due: list[tuple[float, frozenset[Announced]]] = field(default_factory=list)
    # Those that the reading of learned addresses under way was sent for.
    _asked: frozenset[Announced] = frozenset()
    # Those that wait until the service knows whether LACP is negotiated.
    _waiting: frozenset[Announced] = frozenset()
    # Frames to send as soon as NORMAL has taken over.
    _introductions: list[Command] = field(default_factory=list)
    # Whether a reading was requested behind the bundle under way, to show the state after it.
    _reads_ahead: bool = False
    # When addresses may be read again for units or queues, in seconds of engine time.
    _read_again_s: float = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing is left to announce."""
        return not self._due

    def plan(self, announced: frozenset[Announced], now_s: float) -> None:
        """Announce these now, and again after AFTER_S. A reading ahead serves the first time."""
        self._due += [(now_s + after_s, announced) for after_s in AFTER_S]
        if self._reads_ahead:
            self._take_due(now_s)

    def plan_once(self, announced: frozenset[Announced]) -> None:
        """Announce these with the next reading."""
        self._asked |= announced

    def wait(self, announced: frozenset[Announced]) -> None:
        """Announce these once the service knows whether LACP is negotiated."""
        self._waiting |= announced

    def take_waiting(self) -> frozenset[Announced]:
        """Return those that waited for this, and forget them."""
        waiting, self._waiting = self._waiting, frozenset()
        return waiting

    def forget(self) -> None:
        """Drop all planned announcements."""
        self._due, self._asked = [], frozenset()

    def disconnect(self) -> None:
        """The connection ended: no reading will be answered. Drop the frames for NORMAL."""
        self._introductions, self._reads_ahead = [], False

    # ---- readings of learned addresses -------------------------------------------------

    def read_ahead(self, moved: Collection[str]) -> bool:
        """Whether to read right behind the bundle that is sent now: if units have moved."""
        self._reads_ahead = bool(moved)
        return self._reads_ahead

    def end_reading_ahead(self) -> None:
        """The bundle is done, or the reading was answered before the bundle."""
        self._reads_ahead = False

    def read(self, now_s: float) -> bool:
        """Whether to read learned addresses, now that this is due: not if a reading ahead serves."""
        self._take_due(now_s)
        self._read_again_s = now_s + LEARNED_INTERVAL_S
        return not self._reads_ahead

    def _take_due(self, now_s: float) -> None:
        due = [entry for entry in self._due if entry[0] <= now_s]
        if due:
            self._due = [entry for entry in self._due if entry[0] > now_s]
            self._asked = self._asked.union(*(announced for _, announced in due))
            self._read_again_s = now_s + LEARNED_INTERVAL_S

    def due_s(self) -> float:
        """When the next announcement is due; infinity if none is planned."""
        return min((at_s for at_s, _ in self._due), default=math.inf)

    def deadline_s(self, wanted: bool) -> float:
        """When to read next. `wanted`: units or queues need the addresses as well."""
        return min(self.due_s(), self._read_again_s if wanted else math.inf)

    # ---- frames ------------------------------------------------------------------------

    def introduce(self, commands: Iterable[Command]) -> None:
        """Send these as soon as NORMAL has taken over."""
        self._introductions += commands

    def take_introductions(self) -> list[Command]:
        """NORMAL has taken over: return the frames that teach it where VMs are."""
        introductions, self._introductions = self._introductions, []
        return introductions

    def take(
        self,
        read: LearnedRead,
        config: BridgeConfig,
        from_normal: set[Located],
        now_s: float,
        apart: Container[Located] = (),
    ) -> list[Command]:
        """The frames for the VM ports that are due.

        `from_normal`: addresses whose frames NORMAL has carried until now. Their learning packets
        teach our pipeline before it forgets what it has learned from an unknown port. `apart`:
        addresses that are announced by themselves, because they may leave by another uplink than
        their VM port.
        """
        if from_normal and not config.on_a_lag:
            ofports = frozenset[Announced](ofport for ofport, _, _ in from_normal)
            self._asked |= ofports
            self._due += [(now_s + after_s, ofports) for after_s in AFTER_S[1:]]
        asked, self._asked = self._asked, frozenset()
        ports = {int(port.ofport): port for port in config.vm_ports}
        located = from_normal | {
            (ofport, mac, vlan)
            for ofport, mac, vlan in read.addresses
            if ofport in ports and vlan in ports[ofport].vlans.carried
        }
        called_for = {
            (o, mac, vlan)
            for o, mac, vlan in located
            if (o, mac, vlan) in asked or (o in asked and (o, mac, vlan) not in apart)
        }
        # On a LAG, only our own switch has to learn where those are.
        quiet = from_normal - called_for if config.on_a_lag else set[Located]()
        heard = {(o, vlan) for o, _, vlan in located if o in asked}
        for port in config.vm_ports:
            if port.ofport in asked and port.vlans.native is not None:
                heard.add((port.ofport, port.vlans.native))
        queried = {(ofport, ports[ofport].vlans.tag_out(vlan)) for ofport, vlan in heard}
        commands: list[Command] = [
            SendFrame(config.name, ofport, frames.rarp(mac, tag, to_itself=to_itself))
            for ofport, mac, tag, to_itself in sorted(
                (o, mac, ports[o].vlans.tag_in(vlan), (o, mac, vlan) in quiet)
                for o, mac, vlan in called_for | from_normal
            )
        ]
        return commands + [
            DeliverFrame(config.name, ofport, query(vlan))
            for ofport, vlan in sorted(queried)
            for query in (frames.igmp_query, frames.mld_query)
        ]


def learned_from_normal(read: LearnedRead, config: BridgeConfig) -> set[Located]:
    """The addresses of our VM ports that NORMAL has served until now, with their VLANs."""
    ports = {int(port.ofport): port.vlans for port in config.vm_ports}
    return {
        (ofport, mac, vlan)
        for ofport, mac, tag in read.from_normal
        if ofport in ports and (vlan := ports[ofport].vlan_of(tag or 0)) is not None
    }


# ---- what to announce ------------------------------------------------------------------


def seen_upstream(config: BridgeConfig, moves: Iterable[Move]) -> set[str]:
    """The units among those that move of which the upstream switches must be told.

    To them a LAG is one link. But a VM may have started while no link was up to announce it.
    """
    return {m.unit for m in moves if not (m.is_resplit or (m.source and config.on_a_lag))}


def everything(config: BridgeConfig, address_units: AddressUnits) -> frozenset[Announced]:
    """All VM ports, and the addresses that are announced by themselves."""
    ofports = {port.ofport for port in config.vm_ports}
    return frozenset[Announced](ofports | address_units.located(config))


def ports_of(
    config: BridgeConfig, split: Collection[str], units: Iterable[Unit], moved: Collection[str]
) -> set[int]:
    """The VM ports that have moved, and those that may have an address in a bucket that moved.

    Only the switch knows which address is in which bucket. `split`: the VM ports that are split.
    Traffic rewritten to our MAC needs no announcement.
    """
    by_address = {u.policy for u in units if u.is_bucket and u.name in moved}
    by_address = {p for p in by_address if PRESETS[p].classifier.by_address}
    ports = config.vm_ports
    return {int(p.ofport) for p in ports if p.name in moved or hashed_by(p, split) in by_address}
