"""Announcements of off-home addresses of tunnel endpoints, and of endpoints that are no longer spread.

Peers with Open vSwitch's userspace datapath keep the source address of the last tunnel frame, whether the
endpoint still uses it or not. Upstream switches forget an address that is silent for minutes, and would
then flood all traffic to it. So off-home addresses are announced at intervals, and whenever another uplink
serves them. When an endpoint is no longer spread, loses an off-home address or gets another home, it
announces its own address, by gratuitous ARP and neighbour advertisements: such peers learn the address from
these as well. The reason is that it sends nothing from the off-home address of its home. If that uplink
failed while the service does not run, upstream switches would not learn the new location of that address,
as they do from the endpoint's own frames for the other addresses.

Open vSwitch does not learn from a frame that matches a cached flow, such as an equal frame within 10 s, the
default of `max-idle`. So an announcement that follows another one within that time has no effect on it, and
a tunnel's frame may arrive between the two. The last announcement is sent later than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Never

from controller.api.engine_commands import AnnounceEndpoints, Command, SendFrame
from controller.config.values import VmPortConfig
from controller.dataplane import frames
from controller.features.announcer import AFTER_S
from controller.features.feature import Feature, Schedule, Timer
from controller.teaming.buckets import hashed_by
from policies.model import OfPort

# How often. Switches forget an address after 300 s (IEEE 802.1Q) unless set otherwise.
INTERVAL_S = 60.0

# When to announce an endpoint's own address: the last time, peers have forgotten their cached flows.
OWN_AFTER_S = (*AFTER_S, AFTER_S[-1] + 12.0)

# An off-home address, or None for the endpoint's own, with the endpoint's ofport.
_Named = tuple[OfPort, str | None]


@dataclass(eq=False)
class OffHomeAddresses(Feature[Never]):
    """The off-home addresses of one bridge's endpoints that upstream switches must know."""

    # By which uplink each address comes, for the endpoints that may have sent from it.
    _served: dict[_Named, OfPort] = field(default_factory=dict)
    # The endpoints as they were last: one that has no off-home addresses any more is still announced.
    _ports: dict[OfPort, VmPortConfig] = field(default_factory=dict)
    # The home of each of them.
    _homes: dict[OfPort, OfPort] = field(default_factory=dict)
    # The endpoints that the switch spreads.
    _spread: frozenset[OfPort] = frozenset()
    # What is left to announce.
    due: Schedule[_Named] = field(default_factory=Schedule)
    # The same, for peers that have learned nothing from the ones before. No request waits for them.
    _late: Schedule[_Named] = field(default_factory=Schedule)
    # When to announce all of them next, in seconds of engine time.
    _all_s: float = math.inf

    def forget_switch(self) -> None:
        """Forget all announcements: the bridge is detached, or the switch is another one."""
        self._served, self._homes, self._all_s = {}, {}, math.inf
        self.due.clear()
        self._late.clear()

    def want(self, now_s: float) -> list[Command]:
        """The switch has a pipeline with other homes and lanes, or spreads other endpoints: plan."""
        bridge, config = self.bridge, self.config
        if not bridge.announces or not bridge.installed_anything:
            return []
        if not config.endpoints and not self._served and not self._spread:
            return []
        self._know()
        team = bridge.installation.team
        assert team is not None, "a bridge that announces has a pipeline"
        spread = frozenset(
            p.ofport for p in config.endpoints if hashed_by(p, bridge.placing.split_on_switch)
        )
        may_spread = {port.ofport for port in config.endpoints if port.may_spread}
        known = {ofport for ofport, _ in self._served}
        served: dict[_Named, OfPort] = {
            (endpoint.ofport, mac): team.lanes[lane][0]
            for endpoint in team.endpoints
            if endpoint.ofport in may_spread | known
            for lane, mac in endpoint.off_home_macs
            if team.lanes.get(lane)
        }
        homes = {port.ofport: port.order[0] for port in team.vm_ports if port.order}
        changed = {named for named, uplink in served.items() if self._served.get(named) != uplink}
        ended = {ofport for ofport, _ in self._served.keys() - served.keys()}
        its_homes = {ofport: homes[ofport] for ofport, _ in served if ofport in homes}
        moved = {o for o, home in its_homes.items() if self._homes.get(o, home) != home}
        own: set[_Named] = {(ofport, None) for ofport in ended | moved | (self._spread - spread)}
        self._served, self._homes, self._spread = served, its_homes, spread
        if changed | own:
            self.due.plan(changed | own, now_s, AFTER_S)
        if own:
            # An earlier change's last one would come between, and peers would learn from neither.
            self._late.cancel(own)
            self._late.plan(own, now_s, OWN_AFTER_S[len(AFTER_S) :])
        if not served:
            self._all_s = math.inf
        elif self._all_s == math.inf:
            self._all_s = now_s + INTERVAL_S
        return []

    def _know(self) -> None:
        """Remember the endpoints, and forget those whose port is gone or another one."""
        config = self.config
        there = {(port.ofport, port.name) for port in config.vm_ports}
        kept = {o: port for o, port in self._ports.items() if (o, port.name) in there}
        self._ports = kept | {port.ofport: port for port in config.endpoints}

    def timers(self) -> Iterable[Timer]:
        return ((min(self._all_s, self.due.due_s(), self._late.due_s()), self._announce),)

    def _announce(self, now_s: float) -> list[Command]:
        """Announce what is due."""
        self._know()
        due = self.due.take_due(now_s) | self._late.take_due(now_s)
        if now_s >= self._all_s:
            self._all_s = now_s + INTERVAL_S
            due |= self._served.keys()
        if not self.bridge.announces:
            return []
        return [*_frames(self.config.name, self._ports, due)]

    def part(self) -> list[Command]:
        """Our flows are removed: announce the endpoints' own addresses to peers, now and for a while.

        This includes endpoints that were not spread here: an earlier service may have spread them. On
        plain uplinks, the bridge may not forward yet.
        """
        self._know()
        name, ended = self.config.name, {p.ofport for p in self.config.endpoints}
        ended |= {ofport for ofport, _ in self._served} | self._spread
        self.forget_switch()
        self._spread = frozenset()
        if not ended:
            return []
        own = ((ofport, None) for ofport in ended)
        return [*_frames(name, self._ports, own), AnnounceEndpoints(name)]


def _frames(
    bridge: str, ports: Mapping[OfPort, VmPortConfig], announced: Iterable[_Named]
) -> Iterator[SendFrame]:
    for ofport, mac in sorted(announced, key=lambda named: (named[0], named[1] or "")):
        if (port := ports.get(ofport)) is not None:
            for frame in announcements(port, mac):
                yield SendFrame(bridge, ofport, frame)


def announcements(port: VmPortConfig, off_home: str | None = None) -> Iterator[bytes]:
    """The frames that announce an off-home address of an endpoint, or its own addresses to neighbours.

    They belong to its native VLAN, so they have no tag. Without that VLAN there are none.
    """
    assert port.endpoint is not None and port.tunnel_mac is not None
    if port.vlans.native is None:
        return
    if off_home is not None:
        yield frames.rarp(off_home)
        return
    for address in map(ip_address, port.endpoint.addresses):
        if isinstance(address, IPv4Address):
            yield frames.garp(port.tunnel_mac, address)
    for own, peer in port.tunnel_peers:
        yield frames.advertisement(port.tunnel_mac, IPv6Address(own), IPv6Address(peer))
