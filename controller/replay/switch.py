"""A simulated bridge for `replay`, which forwards as the installed flows would, and counts traffic.

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
from typing import Generic, TypeVar

from controller.api import events
from controller.dataplane.team import Team, VmPort

Loads = Mapping[int, tuple[float, float]]
Key = TypeVar("Key")

TICKS_PER_S = 1024


@dataclass(frozen=True, slots=True)
class Mix:
    """The connections of each VM port: their number `flows`, and the `seed` of their hashes.

    The k-th connection carries 1/k of the first one's traffic (Zipf's law with exponent 1).
    """

    flows: int = 32
    seed: int = 0

    def shares(self) -> list[float]:
        """Return the share of each connection in a VM port's traffic; the sum is 1."""
        weights = [1 / rank for rank in range(1, self.flows + 1)]
        total = sum(weights)
        return [weight / total for weight in weights]


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
    """The uplinks on which a VM port sends: its home uplink, or the uplinks of a hash's buckets.

    `number`: the hash's number. `buckets`: shares by bucket; empty if all traffic uses `home`.
    `by_address`: upstream switches learn the port's address on the uplink of its only bucket.
    """

    home: int
    number: int = 0
    buckets: Mapping[int, float] = field(default_factory=dict)
    by_address: bool = False


@dataclass(slots=True)
class Counters(Generic[Key]):
    """Counters of sent and received traffic, with a clock.

    `rates`: bytes per second, by key. `age`: the number of ticks that were counted. `at`: the tick
    up to which counters have counted or been paused. Totals are in bytes / `TICKS_PER_S`.
    """

    rates: dict[Key, tuple[int, int]] = field(default_factory=dict)
    age: int = 0
    at: int = 0
    _totals: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def advance(self, now_s: float) -> None:
        """Count until `now_s`, at the current rates."""
        at = _ticks(now_s)
        ticks, self.at = at - self.at, at
        assert ticks >= 0, "a clock does not go back after ticks were skipped"
        self.age += ticks
        for key, (tx, rx) in self.rates.items() if ticks else ():
            sent, received = self._totals.get(key, (0, 0))
            self._totals[key] = sent + tx * ticks, received + rx * ticks

    def reading(self, key: Key) -> tuple[float, float, float]:
        """Return for how many seconds the counters have counted, and the bytes sent and received by `key`."""
        sent, received = self._totals.get(key, (0, 0))
        return self.age / TICKS_PER_S, sent / TICKS_PER_S, received / TICKS_PER_S

    def stand_still(self, until_s: float, ticks: int | None = None) -> None:
        """Pause from the last reading or load change until `until_s`, but for at most `ticks`."""
        at = _ticks(until_s)
        self.at = at if ticks is None else min(at, self.at + ticks)


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
        # The counters of ports and VM ports' flows, and the counters of buckets.
        self.counters, self.bucket_counters = Counters[int](), Counters[tuple[int, int]]()
        # Cached, because moves repeat the same shares. The cache ends with this switch.
        self._shares = functools.cache(functools.partial(in_buckets, mix, bridge))

    # ---- state and counters --------------------------------------------------------------

    def ports(self, capacity_bps: float) -> tuple[events.PortState, ...]:
        return tuple(
            events.PortState(ofport, name, True, capacity_bps if ofport in self.uplinks else 0.0)
            for ofport, name in (*self.uplinks.items(), *self.vm_ports.items())
        )

    def learned(self) -> events.LearnedRead:
        return events.LearnedRead(self.bridge, tuple((o, mac_of(o), 0) for o in self.vm_ports))

    def stats(self, buckets: bool, now_s: float) -> list[events.Event]:
        self.counters.advance(now_s)
        if buckets:
            self.bucket_counters.advance(now_s)
        counted = {o: self.counters.reading(o) for o in (*self.uplinks, *self.vm_ports)}
        ports = [events.PortCounters(o, *counted[o], 0, 0) for o in self.uplinks]
        for ofport in self.vm_ports:
            clock_s, sent, received = counted[ofport]
            # A port's counters are the switch's: it receives the traffic that a VM port sends.
            ports.append(events.PortCounters(ofport, clock_s, received, sent, 0, 0))
        units = tuple((o, events.Sample(*counted[o])) for o in self.vm_ports)
        read = self.bucket_uplinks if buckets else ()
        shared = tuple((key, events.Sample(*self.bucket_counters.reading(key))) for key in read)
        return [
            events.PortStatsRead(self.bridge, tuple(ports)),
            events.UnitCountersRead(self.bridge, units, shared),
        ]

    def commit(self, team: Team, now_s: float) -> None:
        """From now on, forward as the pipeline of `team` does with all links up."""
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
                shares = self._shares(name, buckets, by_address)
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
        of_buckets = {key: (rate, 0) for key, rate in bucket_rates.items()}
        if (rates, of_buckets) != (self.counters.rates, self.bucket_counters.rates):
            self.counters.advance(now_s)
            self.bucket_counters.advance(now_s)
            self.counters.rates, self.bucket_counters.rates = rates, of_buckets
            self.steady_s = now_s

    def carried(self, port_bps: Loads) -> dict[int, list[float]]:
        """Return the (sent, received) loads of uplinks if VM ports offered `port_bps`, in bit/s."""
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

    def seen_at(self) -> dict[int, int]:
        """Return the uplink on which upstream switches have learned each VM port's address."""
        at = {ofport: route.home for ofport, route in self.routes.items()}
        for ofport, route in self.routes.items():
            for bucket in route.buckets if route.by_address else ():
                at[ofport] = self.bucket_uplinks[route.number, bucket]
        return at


def _ticks(at_s: float) -> int:
    return math.floor(at_s * TICKS_PER_S)


def mac_of(ofport: int) -> str:
    """Return the MAC address of the VM behind a VM port."""
    return f"52:54:00:00:{ofport >> 8:02x}:{ofport & 0xFF:02x}"
