"""A simulated bridge for `replay`: forwards as the installed team, and counts traffic.

Counters count all offered traffic, including the part that exceeds an uplink's capacity. They are
exact, so that constant loads give constant rates: the clock ticks 1024 times a second, and a counter
grows in each tick by a 1024th of a whole number of bytes per second. Sums and quotients of such
numbers have no rounding error. Otherwise rounding could decide between two equally good placements.

Port counters and bucket counters have separate clocks, as on a real switch, because a replay can
stop each clock separately.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.api.events import (
    Event,
    LearnedRead,
    PortCounters,
    PortState,
    PortStatsRead,
    Sample,
    UnitCountersRead,
)
from controller.dataplane.team import Team, VmPort

Loads = Mapping[int, tuple[float, float]]

TICKS_PER_S = 1024


@dataclass(frozen=True, slots=True)
class Mix:
    """The connections of each VM port: their number `flows`, and the `seed` of their hashes.

    The k-th connection carries 1/k of the first one's traffic (Zipf's law with exponent 1).
    """

    flows: int = 32
    seed: int = 0

    def shares(self) -> list[float]:
        """The share of each connection in a VM port's traffic; the sum is 1."""
        weights = [1 / rank for rank in range(1, self.flows + 1)]
        return [weight / sum(weights) for weight in weights]


@functools.cache
def in_buckets(
    mix: Mix, host: str, port: str, buckets: int, by_address: bool
) -> Mapping[int, float]:
    """Return the share of each bucket in a VM port's traffic if connections are hashed.

    `by_address`: source addresses are hashed instead. A VM port has one address.
    """

    def hashed(*words: str) -> int:
        text = "\0".join((str(mix.seed), host, port, *words)).encode(errors="surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) % buckets

    if by_address:
        return {hashed(): 1.0}
    found: dict[int, float] = {}
    for number, share in enumerate(mix.shares()):
        bucket = hashed(str(number))
        found[bucket] = found.get(bucket, 0.0) + share
    return found


@dataclass(frozen=True, slots=True)
class Route:
    """The uplinks of a VM port's sent traffic: its home uplink, or those of a hash's buckets.

    `number`: of the hash. `buckets`: shares by bucket; empty if all traffic uses `home`. `by_address`:
    upstream switches know the VM port's address on the uplink of its only bucket.
    """

    home: int
    number: int = 0
    buckets: Mapping[int, float] = field(default_factory=dict)
    by_address: bool = False


@dataclass(slots=True)
class Clock:
    """The age of counters, in ticks. `at`: the time when `age` was last updated, in ticks."""

    age: int = 0
    at: int = 0

    def advance(self, now_s: float) -> int:
        """Update `age` to the time `now_s`, and return the number of ticks that were added."""
        at = _ticks(now_s)
        ticks, self.at = at - self.at, at
        assert ticks >= 0, "a clock does not go back after ticks were skipped"
        self.age += ticks
        return ticks


class Switch:
    """A simulated bridge. `uplinks`, `vm_ports`: names by ofport. `mix`: connections of VM ports."""

    def __init__(
        self, bridge: str, uplinks: Mapping[int, str], vm_ports: Mapping[int, str], mix: Mix
    ) -> None:
        self.bridge, self.uplinks, self.vm_ports = bridge, uplinks, vm_ports
        self.routes: dict[int, Route] = {}
        self.bucket_uplinks: dict[tuple[int, int], int] = {}
        # The current loads: (sent, received) in bit/s by uplink, VM port and bucket.
        self.uplink_bps: dict[int, list[float]] = {}
        self.bucket_bps: dict[tuple[int, int], float] = {}
        self.port_bps: Loads = {}
        # The time since which the rates of all counters have been the same.
        self.steady_s = 0.0
        self._ports_clock, self._buckets_clock = Clock(), Clock()
        self._mix = mix
        # The counters: rates in bytes per second, and totals in bytes per `TICKS_PER_S`.
        self._rates: dict[int, tuple[int, int]] = {}
        self._bucket_rates: dict[tuple[int, int], int] = {}
        self._counted: dict[int, list[int]] = {o: [0, 0] for o in (*uplinks, *vm_ports)}
        self._counted_buckets: dict[tuple[int, int], int] = {}

    # ---- state and counters --------------------------------------------------------------

    def ports(self, capacity_bps: float) -> tuple[PortState, ...]:
        return tuple(
            PortState(ofport, name, True, capacity_bps if ofport in self.uplinks else 0.0)
            for ofport, name in (*self.uplinks.items(), *self.vm_ports.items())
        )

    def learned(self) -> LearnedRead:
        return LearnedRead(self.bridge, tuple((o, mac_of(o), 0) for o in self.vm_ports))

    def stats(self, buckets: bool, now_s: float) -> list[Event]:
        self._count_ports(now_s)
        if buckets:
            self._count_buckets(now_s)
        clock_s = self._ports_clock.age / TICKS_PER_S
        buckets_s = self._buckets_clock.age / TICKS_PER_S
        counted = {o: (tx / TICKS_PER_S, rx / TICKS_PER_S) for o, (tx, rx) in self._counted.items()}
        ports = [PortCounters(o, clock_s, *counted[o], 0, 0) for o in self.uplinks]
        # A port's counters are the switch's: it receives the traffic that a VM port sends.
        ports += [
            PortCounters(o, clock_s, counted[o][1], counted[o][0], 0, 0) for o in self.vm_ports
        ]
        units = tuple((o, Sample(clock_s, *counted[o])) for o in self.vm_ports)
        shared = tuple(
            (key, Sample(buckets_s, self._counted_buckets.get(key, 0) / TICKS_PER_S, 0))
            for key in (self.bucket_uplinks if buckets else ())
        )
        return [
            PortStatsRead(self.bridge, tuple(ports)),
            UnitCountersRead(self.bridge, units, shared),
        ]

    def commit(self, team: Team, now_s: float) -> None:
        """Forward as the pipeline of `team` from now on. All its links are up."""
        self.routes = {p.ofport: self._route(p, team) for p in team.vm_ports if p.order}
        self.bucket_uplinks = {
            (hashed.number, bucket): order[0]
            for hashed in team.hashes
            for bucket, order in enumerate(hashed.buckets)
            if order
        }
        self.carry(self.port_bps, now_s)

    def _route(self, port: VmPort, team: Team) -> Route:
        home = port.order[0]
        for one in team.hashes:
            if one.number == port.hashed:
                by_address = one.classifier.by_address
                name, buckets = self.vm_ports[port.ofport], len(one.buckets)
                shares = in_buckets(self._mix, self.bridge, name, buckets, by_address)
                return Route(home, one.number, shares, by_address)
        return Route(home)

    # ---- traffic -------------------------------------------------------------------------

    def carry(self, port_bps: Loads, now_s: float) -> None:
        """Set the traffic that VM ports offer from now on: (sent, received) in bit/s by ofport."""
        self.port_bps = port_bps
        self.bucket_bps = self._in_buckets(port_bps)
        self.uplink_bps = self._by_uplink(port_bps, self.bucket_bps)
        rates = {o: (round(tx / 8), round(rx / 8)) for o, (tx, rx) in port_bps.items()}
        bucket_rates = {key: round(bps / 8) for key, bps in self.bucket_bps.items()}
        # The counters of uplinks are exactly the sums of VM ports' counters.
        carried = self._by_uplink(rates, bucket_rates)
        rates |= {uplink: (round(tx), round(rx)) for uplink, (tx, rx) in carried.items()}
        if rates != self._rates or bucket_rates != self._bucket_rates:
            self._count_ports(now_s)
            self._count_buckets(now_s)
            self._rates, self._bucket_rates, self.steady_s = rates, bucket_rates, now_s

    def carried(self, port_bps: Loads) -> dict[int, list[float]]:
        """The traffic that uplinks would carry if VM ports offered `port_bps`: (sent, received)."""
        return self._by_uplink(port_bps, self._in_buckets(port_bps))

    def _by_uplink(
        self, port_bps: Loads, bucket_bps: Mapping[tuple[int, int], float]
    ) -> dict[int, list[float]]:
        carried = {uplink: [0.0, 0.0] for uplink in self.uplinks}
        for ofport, (tx_bps, rx_bps) in port_bps.items():
            route = self.routes[ofport]
            carried[route.home][1] += rx_bps
            if not route.buckets:
                carried[route.home][0] += tx_bps
        for key, bps in bucket_bps.items():
            carried[self.bucket_uplinks[key]][0] += bps
        return carried

    def _in_buckets(self, port_bps: Loads) -> dict[tuple[int, int], float]:
        found: dict[tuple[int, int], float] = {}
        for ofport, (tx_bps, _) in port_bps.items():
            route = self.routes[ofport]
            for bucket, share in route.buckets.items():
                key = (route.number, bucket)
                found[key] = found.get(key, 0.0) + share * tx_bps
        return found

    def _count_ports(self, now_s: float) -> None:
        """Advance the counters of ports to the time `now_s`, with the current rates."""
        ticks = self._ports_clock.advance(now_s)
        for ofport, (tx, rx) in self._rates.items() if ticks else ():
            counted = self._counted[ofport]
            counted[0] += tx * ticks
            counted[1] += rx * ticks

    def _count_buckets(self, now_s: float) -> None:
        """Advance the counters of buckets to the time `now_s`, with the current rates."""
        ticks = self._buckets_clock.advance(now_s)
        for key, rate in self._bucket_rates.items() if ticks else ():
            self._counted_buckets[key] = self._counted_buckets.get(key, 0) + rate * ticks

    def stand_still(self, ticks: int, now_s: float) -> None:
        """Skip `ticks` ticks without advancing counters, but never past `now_s`.

        In samples without polls, part of the ticks may have been skipped earlier.
        """
        for clock in (self._ports_clock, self._buckets_clock):
            clock.at = min(clock.at + ticks, _ticks(now_s))

    def ports_stand_still_until(self, now_s: float) -> None:
        """Skip the time from the last reading or change of loads until `now_s` in port counters.

        The counters of VM ports' flows skip this time as well, but not those of buckets.
        """
        self._ports_clock.at = _ticks(now_s)

    def buckets_stand_still_until(self, now_s: float) -> None:
        """Skip the time from the last reading or change of loads until `now_s` in bucket counters."""
        self._buckets_clock.at = _ticks(now_s)

    def seen_at(self) -> dict[int, int]:
        """The uplink on which upstream switches have learned each VM port's address."""
        return {ofport: self._known_at(route) for ofport, route in self.routes.items()}

    def _known_at(self, route: Route) -> int:
        if not route.by_address:
            return route.home
        (bucket,) = route.buckets
        return self.bucket_uplinks[route.number, bucket]


def _ticks(at_s: float) -> int:
    return math.floor(at_s * TICKS_PER_S)


def mac_of(ofport: int) -> str:
    """The MAC address of the VM behind a VM port."""
    return f"52:54:00:00:{ofport >> 8:02x}:{ofport & 0xFF:02x}"
