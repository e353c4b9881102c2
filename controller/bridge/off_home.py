"""Announcements of the off-home addresses of tunnel endpoints, and of endpoints that are spread no more.

Peers with Open vSwitch's userspace datapath keep the address that they took from a tunnel's frame last,
whether the endpoint still sends from it or not. Switches upstream forget an address that is silent for
minutes, and would then flood everything that peers send there. So off-home addresses are announced at
intervals, and whenever another uplink serves them. When an endpoint is spread no more, an off-home address
of it has ended, or it has another home, it announces its own address, by gratuitous ARP and neighbour
advertisements: such peers take the address from these as well. For it sends nothing from the off-home address
of its home. If that uplink failed while the service is dead, nobody would tell switches upstream where that
address is then, as the endpoint's own frames tell it of the others.

An Open vSwitch learns nothing from a frame that it forwards by a cached flow, as it does if it has heard the
same within 10 s, its default of `max-idle`. So an announcement that follows another one within that time is
lost on it, and a tunnel's frame that was under way may come between them. The last one is sent later than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.api.events import AnnounceEndpoints, SendFrame
from controller.bridge.learning_packets import AFTER_S
from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane import frames
from controller.dataplane.team import Endpoint
from policies.model import OfPort

# How often. Switches forget an address after 300 s (IEEE 802.1Q) unless set otherwise.
INTERVAL_S = 60.0

# When to announce an endpoint's own address: the last time, peers have forgotten their cached flows.
OWN_AFTER_S = (*AFTER_S, AFTER_S[-1] + 12.0)

# An off-home address, or None for the endpoint's own, with the endpoint's ofport.
_Named = tuple[OfPort, str | None]


@dataclass(slots=True)
class OffHomeAddresses:
    """The off-home addresses of one bridge's endpoints, as far as switches upstream must know them."""

    # By which uplink each address comes, for the endpoints that may have sent from it.
    _served: dict[_Named, OfPort] = field(default_factory=dict)
    # The endpoints as they were last: one that has no off-home addresses any more is still announced.
    _ports: dict[OfPort, VmPortConfig] = field(default_factory=dict)
    # The home of each of them.
    _homes: dict[OfPort, OfPort] = field(default_factory=dict)
    # The endpoints that the switch spreads.
    _spread: frozenset[OfPort] = frozenset()
    # When to announce each set next, in seconds of engine time.
    _due: list[tuple[float, frozenset[_Named]]] = field(default_factory=list)
    # The same, for peers that have learned nothing from the ones before. No request waits for them.
    _late: list[tuple[float, frozenset[_Named]]] = field(default_factory=list)
    # When to announce all of them next.
    _all_s: float = math.inf

    @property
    def idle(self) -> bool:
        """Whether no change is left to announce, except to peers that may have learned nothing so far."""
        return not self._due

    @property
    def knows_none(self) -> bool:
        """Whether there was no endpoint so far, or it has ended."""
        return not self._served and not self._spread

    def forget(self) -> None:
        """Announce nothing of what is known now: the bridge is given back, or the switch is another one."""
        self._served, self._homes, self._due, self._late, self._all_s = {}, {}, [], [], math.inf

    def follow(
        self,
        config: BridgeConfig,
        endpoints: Iterable[Endpoint],
        homes: Mapping[OfPort, OfPort],
        lanes: Mapping[OfPort, tuple[OfPort, ...]],
        spread: frozenset[OfPort],
        now_s: float,
    ) -> None:
        """The switch has a pipeline with these homes and lanes, and spreads these endpoints."""
        self._know(config)
        may_spread = {port.ofport for port in config.endpoints if port.may_spread}
        known = {ofport for ofport, _ in self._served}
        served: dict[_Named, OfPort] = {
            (endpoint.ofport, mac): lanes[lane][0]
            for endpoint in endpoints
            if endpoint.ofport in may_spread | known
            for lane, mac in endpoint.off_home_macs
            if lanes.get(lane)
        }
        changed = {named for named, uplink in served.items() if self._served.get(named) != uplink}
        ended = {ofport for ofport, _ in self._served.keys() - served.keys()}
        its_homes = {ofport: homes[ofport] for ofport, _ in served if ofport in homes}
        moved = {o for o, home in its_homes.items() if self._homes.get(o, home) != home}
        own: set[_Named] = {(ofport, None) for ofport in ended | moved | (self._spread - spread)}
        self._served, self._homes, self._spread = served, its_homes, spread
        if changed | own:
            self._due += [(now_s + after_s, frozenset(changed | own)) for after_s in AFTER_S]
        if own:
            late_s = OWN_AFTER_S[len(AFTER_S) :]
            self._late += [(now_s + after_s, frozenset(own)) for after_s in late_s]
        if not served:
            self._all_s = math.inf
        elif self._all_s == math.inf:
            self._all_s = now_s + INTERVAL_S

    def _know(self, config: BridgeConfig) -> None:
        """Remember the endpoints, and forget those whose port is gone or another one."""
        there = {(port.ofport, port.name) for port in config.vm_ports}
        kept = {o: port for o, port in self._ports.items() if (o, port.name) in there}
        self._ports = kept | {port.ofport: port for port in config.endpoints}

    def deadline_s(self) -> float:
        """When to announce next."""
        return min((self._all_s, *(at_s for at_s, _ in (*self._due, *self._late))))

    def due_s(self) -> float:
        """When to announce a change next."""
        return min((at_s for at_s, _ in self._due), default=math.inf)

    def take(self, config: BridgeConfig, now_s: float) -> list[SendFrame]:
        """The frames that are due."""
        self._know(config)
        due = {named for at_s, of in (*self._due, *self._late) if at_s <= now_s for named in of}
        self._due = [entry for entry in self._due if entry[0] > now_s]
        self._late = [entry for entry in self._late if entry[0] > now_s]
        if now_s >= self._all_s:
            self._all_s = now_s + INTERVAL_S
            due |= self._served.keys()
        return list(_frames(config.name, self._ports, due))

    def part(self, config: BridgeConfig) -> list[SendFrame | AnnounceEndpoints]:
        """Our flows are gone: tell peers the endpoints' own addresses, now and for a while.

        Also those of endpoints of which nothing is known here: a service that has died may have spread
        them. On plain uplinks, the bridge may forward nothing yet.
        """
        self._know(config)
        ended = {port.ofport for port in config.endpoints}
        ended |= {ofport for ofport, _ in self._served} | self._spread
        self.forget()
        self._spread = frozenset()
        if not ended:
            return []
        own = ((ofport, None) for ofport in ended)
        return [*_frames(config.name, self._ports, own), AnnounceEndpoints(config.name)]


def _frames(
    bridge: str, ports: Mapping[OfPort, VmPortConfig], announced: Iterable[_Named]
) -> Iterable[SendFrame]:
    for ofport, mac in sorted(announced, key=lambda named: (named[0], named[1] or "")):
        port = ports.get(ofport)
        if port is None or port.vlans.native is None:
            continue
        assert port.tunnel_mac is not None
        tag = port.vlans.tag_in(port.vlans.native)
        if mac is not None:
            yield SendFrame(bridge, ofport, frames.rarp(mac, tag))
            continue
        for frame in frames.own_addresses(
            port.tunnel_mac, port.tunnel_addresses, port.tunnel_peers, tag
        ):
            yield SendFrame(bridge, ofport, frame)
