"""What ports and units carry: the counters of each poll, and the rates they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from controller.api.events import PortCounters, Sample, UnitCountersRead
from controller.load.beats import more_bytes
from controller.load.crossing import Crossing
from controller.load.lateness import Lateness
from controller.load.rates import Rates
from controller.teaming import buckets
from policies.model import IDLE, Load

K = TypeVar("K")


@dataclass(slots=True)
class Loads:
    """Counters and rates by ofport. A *unit's* are the part that crosses uplinks.

    Those of buckets are by name: what they send. So are those of addresses behind VM ports.
    """

    counters: dict[int, PortCounters] = field(default_factory=dict)
    _ports: dict[int, Rates] = field(default_factory=dict)
    _units: dict[int, Rates] = field(default_factory=dict)
    _crossing: dict[int, Crossing] = field(default_factory=dict)
    _buckets: dict[str, Rates] = field(default_factory=dict)
    # Of buckets, whose counters are read less often than loads are looked at.
    _latest: dict[str, Load] = field(default_factory=dict)
    _stations: dict[str, Rates] = field(default_factory=dict)
    lateness: Lateness = field(default_factory=Lateness)
    # The ports that are uplinks.
    _outwards: set[int] = field(default_factory=set)

    def take_port(self, port: PortCounters, outwards: bool, keep_s: float) -> None:
        """Add what a port counted; `outwards`: what leaves by it goes to the network."""
        self.counters[port.ofport] = port
        (self._outwards.add if outwards else self._outwards.discard)(port.ofport)
        sample = Sample(
            port.clock_s,
            tx_bytes=port.tx_bytes if outwards else port.rx_bytes,
            rx_bytes=port.rx_bytes if outwards else port.tx_bytes,
        )
        _rates_of(self._ports, port.ofport, keep_s).add(sample)

    def take_units(
        self, read: UnitCountersRead, stations: Mapping[int, str], keep_s: float
    ) -> None:
        """Add what units exchanged; `stations`: the names of addresses by slot."""
        counted_bytes = sum(self._take_unit(*unit, keep_s) for unit in read.units)
        totals = {ofport: self._ports[ofport].total for ofport in self._outwards}
        self.lateness.take({of: t for of, t in totals.items() if t}, counted_bytes, keep_s)
        for (number, bucket), sample in read.buckets:
            if number in range(len(buckets.HASHED)):
                name = buckets.name_of(buckets.HASHED[number], bucket)
                _rates_of(self._buckets, name, keep_s).add(sample)
                self._latest.pop(name, None)
        for slot, sample in read.stations:
            if slot in stations:
                _rates_of(self._stations, stations[slot], keep_s).add(sample)

    def _take_unit(self, ofport: int, sample: Sample, keep_s: float) -> float:
        """How many bytes were counted since the last reading."""
        rates = _rates_of(self._units, ofport, keep_s)
        before = rates.total
        rates.add(sample)
        now = rates.total
        port = self._ports[ofport].total if ofport in self._ports else None
        if port is not None and now is not None:
            self._crossing.setdefault(ofport, Crossing()).take(port, now)
        return max(0.0, more_bytes(before, now)) if before and now else 0

    def port(self, ofport: int, window_s: float | None, lag_s: float = 0.0) -> Load:
        """The mean load of a port over a window (None: the latest); zero while unknown."""
        return _load(self._ports, ofport, window_s, lag_s)

    def rise(self, ofports: Iterable[int]) -> Load:
        """By how much more these ports carry in all, but for those that carry less."""
        known = (self._ports[ofport] for ofport in ofports if ofport in self._ports)
        return sum((rates.rise() for rates in known), Load())

    def is_late(self, ofport: int) -> bool:
        """Whether a port is counted by looks (`controller.load.beats`)."""
        found = self._ports.get(ofport)
        return found is not None and found.beats.late is True

    def has_looked(self, ofport: int) -> bool:
        """Whether the last reading of such a port has told something new."""
        found = self._ports.get(ofport)
        if found is None or found.total is None or not found.beats.late:
            return False
        return found.beats.has_looked(found.total.clock_s)

    def looked_at_s(self, ofports: Iterable[int]) -> float:
        """How long ago all that was carried since has been counted, of those that are late.

        That is the look before the last: what it left is in the last one as a whole.
        """
        ages = [0.0]
        for ofport in ofports:
            found = self._ports.get(ofport)
            if found is None or found.total is None or not found.beats.late:
                continue
            looks, clock_s = found.beats.looks, found.total.clock_s
            if len(looks) > 1 and not found.beats.is_over(clock_s):
                ages.append(clock_s - looks[-2].clock_s)
        return max(ages)

    def unsure(self, ofports: Iterable[int]) -> bool:
        """Whether it is not known of one of these ports, which counts, whether it is late."""
        known = (self._ports[ofport] for ofport in ofports if ofport in self._ports)
        return any(rates.beats.late is None and rates.has_counted for rates in known)

    def unit(
        self, ofport: int, window_s: float | None, lag_s: float = 0.0, ago_s: float = 0.0
    ) -> Load:
        """The mean over a window that ended `ago_s` ago, or `lag_s` before if that is more."""
        return _now_or_then(self._units, ofport, window_s, lag_s, ago_s)

    def live_unit(self, ofport: int) -> Load:
        """What a VM port exchanges with uplinks at this moment; zero while unknown."""
        if ofport not in self._crossing or ofport not in self._ports:
            return Load()
        return self._crossing[ofport].of(self._ports[ofport].latest())

    def crosses_whole(self, ofport: int) -> bool:
        """Whether all that a VM port exchanges crosses uplinks, as far as is known."""
        found = self._crossing.get(ofport)
        return found is None or found.is_whole

    def station(
        self, name: str, window_s: float | None, lag_s: float = 0.0, ago_s: float = 0.0
    ) -> Load:
        """The same of an address behind a VM port, which is counted by looks."""
        if window_s is None and name in self._stations:
            return self._stations[name].of_two()
        return _now_or_then(self._stations, name, window_s, lag_s, ago_s)

    def bucket(self, name: str, window_s: float | None, ago_s: float = 0.0) -> Load:
        """What is sent by a bucket, over a window that ended so long ago."""
        if window_s is not None:
            return _load(self._buckets, name, window_s, ago_s)
        load = self._latest.get(name)
        if load is None:
            load = self._latest[name] = _load(self._buckets, name, None, 0.0)
        return load

    def covers(self, ofports: Iterable[int], window_s: float, lag_s: float) -> bool:
        """Whether the loads of all these ports are known over a whole window."""
        known = (self._ports.get(ofport) for ofport in ofports)
        return all(r is not None and r.mean(window_s, lag_s) is not None for r in known)

    def known_s(self, ofport: int, lag_s: float) -> float:
        """For how long, up to `lag_s` ago, the load of a port is known."""
        return self._ports[ofport].known_s(lag_s) if ofport in self._ports else 0.0

    def unit_known_s(self, ofport: int) -> float:
        """The same of a unit that is a VM port."""
        return self._units[ofport].known_s() if ofport in self._units else 0.0

    def remove(self, ofport: int) -> None:
        """Forget a port: its number may be another's next."""
        for kept in (self.counters, self._ports, self._units, self._crossing):
            kept.pop(ofport, None)
        self._outwards.discard(ofport)

    def forget_stations(self, names: Iterable[str]) -> None:
        for name in names:
            self._stations.pop(name, None)

    def forget_rates(self) -> None:
        """The switch is another one, or was away: no rate may span the gap."""
        self._ports.clear()
        self._units.clear()
        self._crossing.clear()
        self._buckets.clear()
        self._latest.clear()
        self._stations.clear()
        self._outwards.clear()
        self.lateness = Lateness()


def _rates_of(rates: dict[K, Rates], key: K, keep_s: float) -> Rates:
    found = rates.get(key)
    if found is None:
        found = rates[key] = Rates(keep_s)
    found.keep_s = keep_s
    return found


def _now_or_then(
    rates: Mapping[K, Rates], key: K, window_s: float | None, lag_s: float, ago_s: float
) -> Load:
    now, then = _load(rates, key, window_s, ago_s), _load(rates, key, window_s, ago_s + lag_s)
    return Load(max(now.tx_bps, then.tx_bps), max(now.rx_bps, then.rx_bps))


def _load(rates: Mapping[K, Rates], key: K, window_s: float | None, lag_s: float) -> Load:
    found = rates.get(key)
    if found is None:
        return IDLE
    if window_s is None:
        return found.latest()
    return found.mean(window_s, lag_s) or Load()
