"""Decides when VM ports need learning packets and multicast queries, and builds the frames.

Before each announcement, the service reads the addresses that the switch has learned on those ports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.api.engine_commands import Command, DeliverFrame, ReadLearned, Renew, SendFrame
from controller.api.events import LearnedRead
from controller.config.values import BridgeConfig
from controller.dataplane import frames, specs
from controller.features.feature import Feature, Schedule, Timer
from controller.features.learned_addresses import learns
from controller.teaming.address_units import Located
from controller.teaming.buckets import hashed_by, rehashed
from policies.model import Move
from policies.presets import PRESETS

# When to announce, in seconds after a move. A megaflow that is not revalidated yet (up to about 1 s) may
# send frames on the old uplink after a learning packet. So the packet is repeated after that time, and
# once more for upstream switches that lost it.
AFTER_S = (0.0, 1.0, 3.0)
# How often to read learned addresses while the queues of uplinks lack an address of a VM port, or
# while addresses are separate units. Before a reading, a new VM uses its port's home uplink, and
# the flows of a VM that no longer exists have no effect.
LEARNED_INTERVAL_S = 2.0

# Something to announce: a VM port, by its ofport, or one address behind a VM port.
Announced = int | Located


@dataclass(eq=False)
class Announcer(Feature[LearnedRead]):
    """Announces VM ports of one bridge, and single addresses behind them, to upstream switches."""

    # The scheduled announcements.
    due: Schedule[Announced] = field(default_factory=Schedule)
    # The ports and addresses to announce when the pending reading of learned addresses is answered.
    _asked: frozenset[Announced] = frozenset()
    # The ports and addresses to announce once it is known whether LACP is negotiated.
    _waiting: frozenset[Announced] = frozenset()
    # Frames to send when NORMAL has started to forward.
    introductions: list[Command] = field(default_factory=list)
    # Whether a reading was requested directly after the pending bundle, to show the state after the bundle.
    reads_ahead: bool = False
    # When addresses may be read again for units or queues, in seconds of engine time.
    _read_again_s: float = 0.0

    @property
    def everything(self) -> frozenset[Announced]:
        """All VM ports, and the addresses that are announced separately."""
        ofports = {port.ofport for port in self.config.vm_ports}
        return frozenset[Announced](ofports | self.bridge.address_units.located(self.config))

    def forget(self) -> None:
        """Drop all planned announcements."""
        self.due.clear()
        self._asked = frozenset()

    def forget_switch(self) -> None:
        """Forget pending requests, because no replies will come, and drop the frames for NORMAL."""
        self.introductions, self.reads_ahead = [], False

    # ---- announcements -----------------------------------------------------------------

    def announce(self, announced: frozenset[Announced], now_s: float) -> None:
        """Schedule announcements after each delay in AFTER_S; a pending address reading delays the first."""
        if not announced or not self.bridge.announces:
            return
        if self.bridge.lacp_in_doubt:
            self._waiting |= announced
            return
        self.due.plan(announced, now_s, AFTER_S)
        if self.reads_ahead:
            self._take_due(now_s)

    def announce_once(self, announced: Iterable[Announced]) -> list[Command]:
        """Announce VM ports and addresses once, when the switch has returned its learned addresses."""
        self._asked |= frozenset(announced)
        return [ReadLearned(self.config.name)]

    def announce_waiting(self, now_s: float) -> None:
        """Schedule announcements that wait for LACP, unless the state of LACP is still unclear."""
        if not self.bridge.lacp_in_doubt:
            waiting, self._waiting = self._waiting, frozenset()
            self.announce(waiting, now_s)

    def announce_moves(self, moves: Iterable[Move], before: specs.Pipeline, now_s: float) -> None:
        """Announce VM ports and addresses whose uplinks have changed, with or without a move.

        `before`: what was installed until then.
        """
        bridge, installed = self.bridge, self.bridge.installed or specs.EMPTY
        announced = self.carried_by(self._seen_upstream(moves))
        otherwise = bridge.address_units.take_unannounced(
            installed, bridge.config, bridge.placing.on_switch.bound
        )
        if not bridge.config.on_a_lag:
            announced |= otherwise | rehashed(before, installed, bridge.config)
        self.announce(announced, now_s)

    def announce_failover(self) -> list[Command]:
        """Announce VM ports and addresses immediately if a link failure changed their uplink.

        The switch fails over by itself, but moves are sent and announced only when its flow cache is
        updated. Until then, a silent VM would be unreachable. If a move chooses yet another uplink,
        the VM port is announced again.
        """
        bridge, moved = self.bridge, self._seen_upstream(self.bridge.installation.expected)
        if not (moved and bridge.any_up and bridge.announces) or bridge.lacp_in_doubt:
            return []
        return self.announce_once(self.carried_by(moved))

    def carried_by(self, units: set[str]) -> frozenset[Announced]:
        """Return the VM ports and addresses to announce if `units` have moved.

        If a policy hashes addresses to buckets, announce all its VM ports: only the switch knows the bucket
        of an address. Frames hashed by other fields get source MACs that need no announcement.
        """
        bridge, ports = self.bridge, self.config.vm_ports
        hashes = {u.policy for u in bridge.placing.units() if u.is_bucket and u.name in units}
        by_address = {policy for policy in hashes if PRESETS[policy].classifier.by_address}
        split = bridge.placing.split
        ofports = {
            int(p.ofport) for p in ports if p.name in units or hashed_by(p, split) in by_address
        }
        return frozenset[Announced](ofports | bridge.address_units.located(bridge.config, units))

    def _seen_upstream(self, moves: Iterable[Move]) -> set[str]:
        """Return the units that upstream switches must learn again because of these moves.

        Upstream switches treat a LAG as one link. On a LAG, only units without a previous uplink are new.
        """
        on_a_lag = self.config.on_a_lag
        return {m.unit for m in moves if not (m.is_resplit or (m.source and on_a_lag))}

    # ---- readings of learned addresses -------------------------------------------------

    def read_ahead(self, moves: Iterable[Move]) -> list[Command]:
        """Request learned addresses directly after the bundle being sent, if it moves units."""
        self.reads_ahead = self.bridge.announces and bool(self._seen_upstream(moves))
        return [ReadLearned(self.config.name)] if self.reads_ahead else []

    def timers(self) -> Iterable[Timer]:
        wanted_s = self._read_again_s if self.bridge.wants_addresses else math.inf
        return ((min(self.due.due_s(), wanted_s), self._read),)

    def _read(self, now_s: float) -> list[Command]:
        """Read learned addresses for announcements that are due, unless such a reading is pending."""
        self._take_due(now_s)
        self._read_again_s = now_s + LEARNED_INTERVAL_S
        return [] if self.reads_ahead else [ReadLearned(self.config.name)]

    def _take_due(self, now_s: float) -> None:
        if due := self.due.take_due(now_s):
            self._asked |= due
            self._read_again_s = now_s + LEARNED_INTERVAL_S

    def heard(self, event: LearnedRead, now_s: float) -> list[Command]:
        """Store the learned addresses, and send the learning packets that are due.

        Units that have moved need these packets, and so do VM ports whose frames NORMAL forwarded before.
        """
        commands: list[Command] = []
        if self.bridge.installation.settled and self.bridge.phase.is_attached:
            self.bridge.addresses.learn(event.addresses)
            self.bridge.addresses.known = True
            if flows := self.bridge.addresses.renewals(now_s):
                commands.append(Renew(self.config.name, flows))
            commands += self._follow_addresses(event, now_s)
        elif not self.bridge.installation.settled:
            # This reading shows the addresses before the bundle.
            self.reads_ahead = False
        from_normal = learned_from_normal(event, self.config)
        if not self.bridge.no_flood.changing:
            from_normal -= set(event.addresses)
        packets = self.packets(event, from_normal, now_s)
        if self.bridge.on_normal and self.bridge.installed_anything:
            # On a LAG, upstream switches need no learning packets, and NORMAL would flood packets
            # for addresses that it has not learned yet.
            self.introductions += [] if self.config.on_a_lag else packets
        else:
            commands += packets
        if self.bridge.no_flood.changing:
            self.bridge.no_flood.take_up()
            commands += self.bridge.reconcile(now_s)
        return [*commands, *self.bridge.shaping.shape(now_s)]

    def _follow_addresses(self, read: LearnedRead, now_s: float) -> list[Command]:
        """Update the addresses that are separate units: new, removed, or no longer silent."""
        if not learns(self.bridge.installed or specs.EMPTY):
            return []
        silent = self.bridge.address_units.silent()
        changed = self.bridge.address_units.follow_learned(read, self.config, now_s)
        if not changed and silent <= self.bridge.address_units.silent():
            return []
        self.bridge.loads.forget_address_units(changed)
        self.bridge.placing.keep_units()
        return self.bridge.reconcile(now_s)

    # ---- frames ------------------------------------------------------------------------

    def packets(self, read: LearnedRead, from_normal: set[Located], now_s: float) -> list[Command]:
        """Return the learning packets and queries for VM ports and addresses with a due announcement.

        `from_normal`: addresses whose frames NORMAL has forwarded until now. Our pipeline learns these
        addresses from the learning packets, before it forgets the addresses of unknown ports.
        """
        config = self.config
        # These addresses are announced separately, because they may use another uplink than their port.
        apart = self.bridge.address_units.located(config)
        if from_normal and not config.on_a_lag:
            ofports = frozenset[Announced](ofport for ofport, _, _ in from_normal)
            self._asked |= ofports
            self.due.plan(ofports, now_s, AFTER_S[1:])
        asked, self._asked = self._asked, frozenset()
        ports = config.port_at
        located = from_normal | {
            (ofport, mac, vlan)
            for ofport, mac, vlan in read.addresses
            if ofport in ports and vlan in ports[ofport].vlans.carried
        }
        called_for = {
            one for one in located if one in asked or (one[0] in asked and one not in apart)
        }
        # On a LAG, only our own switch must learn the ports of these addresses.
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
    """Return the addresses on VM ports, with VLANs, whose frames NORMAL has forwarded until now."""
    return {
        (ofport, mac, vlan)
        for ofport, mac, tag in read.from_normal
        if (port := config.port_at.get(ofport))
        and (vlan := port.vlans.vlan_of(tag or 0)) is not None
    }
