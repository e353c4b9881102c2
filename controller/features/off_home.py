"""Announces off-home addresses (see dataplane/endpoints.py), and endpoints that stop using them.

Peers with Open vSwitch's userspace datapath keep the source address of the last tunnel frame, even if the
endpoint no longer uses this address. Upstream switches forget an address that is silent for minutes, and
then flood all traffic to it. So off-home addresses are announced at intervals, and whenever another uplink
serves them. If an endpoint's traffic is no longer spread, or if the endpoint loses an off-home address or
gets another home uplink, its own address is announced by gratuitous ARP and neighbour advertisements, from
which such peers also learn. An endpoint does not send from the off-home address of its home uplink.
If this uplink failed while the service was not running, upstream switches would not learn the new location
of that address. Other addresses do not have this problem: the endpoint sends frames from them.

Open vSwitch does not learn from a frame that matches a cached flow, such as an equal frame within 10 s, the
default of `max-idle`. So a second announcement within that time has no effect, even if a tunnel's frame
has arrived between the two. The last announcement is therefore sent 12 s after the one before.
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

# The interval of announcements. By default, switches forget an address after 300 s (IEEE 802.1Q).
INTERVAL_S = 60.0

# When to announce an endpoint's own address: for the last time when peers' cached flows have expired.
OWN_AFTER_S = (*AFTER_S, AFTER_S[-1] + 12.0)

# The endpoint's ofport, and an off-home address, or None for the endpoint's own address.
_Named = tuple[OfPort, str | None]


@dataclass(eq=False)
class OffHomeAddresses(Feature[Never]):
    """Announces off-home addresses of one bridge's endpoints to upstream switches."""

    # The uplink that serves each off-home address, for endpoints that may have sent from the address.
    _served: dict[_Named, OfPort] = field(default_factory=dict)
    # The last known endpoints: an endpoint without off-home addresses must still be announced.
    _ports: dict[OfPort, VmPortConfig] = field(default_factory=dict)
    # The home of each endpoint with off-home addresses.
    _homes: dict[OfPort, OfPort] = field(default_factory=dict)
    # The endpoints whose traffic the switch spreads over uplinks.
    _spread: frozenset[OfPort] = frozenset()
    # The scheduled announcements.
    due: Schedule[_Named] = field(default_factory=Schedule)
    # The last announcements, for peers that did not learn from earlier ones. No request waits for these.
    _late: Schedule[_Named] = field(default_factory=Schedule)
    # When to announce all off-home addresses next, in seconds of engine time.
    _all_s: float = math.inf

    def forget_switch(self) -> None:
        """Forget all announcements, because the bridge is detached or may have another switch."""
        self._served, self._homes, self._all_s = {}, {}, math.inf
        self.due.clear()
        self._late.clear()

    def want(self, now_s: float) -> list[Command]:
        """Schedule announcements if home uplinks, or off-home addresses' uplinks or endpoints, have changed."""
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
            # The last announcement of an earlier change, shortly before, would make this one ineffective.
            self._late.cancel(own)
            self._late.plan(own, now_s, OWN_AFTER_S[len(AFTER_S) :])
        if not served:
            self._all_s = math.inf
        elif self._all_s == math.inf:
            self._all_s = now_s + INTERVAL_S
        return []

    def _know(self) -> None:
        """Store the current endpoints, and forget endpoints whose port was removed or replaced."""
        config = self.config
        there = {(port.ofport, port.name) for port in config.vm_ports}
        kept = {o: port for o, port in self._ports.items() if (o, port.name) in there}
        self._ports = kept | {port.ofport: port for port in config.endpoints}

    def timers(self) -> Iterable[Timer]:
        return ((min(self._all_s, self.due.due_s(), self._late.due_s()), self._announce),)

    def _announce(self, now_s: float) -> list[Command]:
        """Send the announcements that are due."""
        self._know()
        due = self.due.take_due(now_s) | self._late.take_due(now_s)
        if now_s >= self._all_s:
            self._all_s = now_s + INTERVAL_S
            due |= self._served.keys()
        if not self.bridge.announces:
            return []
        return [*_frames(self.config.name, self._ports, due)]

    def part(self) -> list[Command]:
        """Announce the endpoints' own addresses to peers, several times, after our flows were removed.

        This includes endpoints on one uplink: an earlier service may have spread their traffic.
        Later announcements are needed as well: on plain uplinks, the bridge may not forward yet.
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
    """Yield frames that announce the address `off_home`; if None, the endpoint's own addresses.

    The frames are untagged, for the port's native VLAN. Without a native VLAN, there are no frames.
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
