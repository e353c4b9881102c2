"""Computes the loads of ports and units from the counters of each poll."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from controller.api.events import PortCounters, Sample, UnitCountersRead
from controller.load.beats import Total, more_bytes
from controller.load.lateness import Lateness
from controller.load.rates import Rates
from controller.load.uplink_share import UplinkShare
from controller.teaming import buckets
from policies.model import IDLE, Load

K = TypeVar("K")
# The rates of a counter that has not been read yet.
UNREAD = Rates(0.0)


@dataclass(slots=True)
class OwnLoad:
    """The load of a VM port without its address units, updated when these units are read.

    The switch counts all traffic from the VM port in one flow, and the traffic of each address in
    another flow. The VM port's own traffic is the difference. Other counters must not be compared: the
    live counter of the port would show a jump of load up to two seconds earlier than the flows of
    addresses, and the whole jump would seem to be the port's own traffic.

    A poll reads the flows of addresses before the flows of VM ports. If the switch updates its
    counters in between, the VM port seems to have sent more than its addresses, until the next
    reading. So each reading is added to `rates` only after the next reading, as the lower of the
    two. If the higher reading repeats, `rates` count the addresses' traffic of one update.
    """

    rates: Rates
    # The bytes that the VM port itself has sent, up to the last reading.
    _own_bytes: float = 0.0
    _flows: Total | None = None
    _counted_bytes: float = 0.0

    def take_flows(self, flows: Total, apart_bytes: float) -> None:
        """Store a reading.

        `flows`: the total that the VM port has sent. `apart_bytes`: the bytes that its address
        units have sent since the last reading.
        """
        last, self._flows = self._flows, flows
        if last is None or flows.clock_s <= last.clock_s or flows.tx_bytes < last.tx_bytes:
            # The first reading, or the switch has new flows.
            self._own_bytes = self._counted_bytes = 0.0
            self.rates = Rates(self.rates.keep_s)
            return
        before_bytes = self._own_bytes
        self._own_bytes += flows.tx_bytes - last.tx_bytes - apart_bytes
        lower_bytes = min(before_bytes, self._own_bytes)
        self._counted_bytes = max(self._counted_bytes, lower_bytes)
        self.rates.add_reading(Sample(last.clock_s, self._counted_bytes, 0))


@dataclass(slots=True)
class Loads:
    """The counters and rates of one bridge.

    Ports are stored by ofport. The rates of a VM port as a unit cover only traffic that crosses
    uplinks. Buckets, which only send, and address units are stored by name.
    """

    counters: dict[int, PortCounters] = field(default_factory=dict)
    port_rates: dict[int, Rates] = field(default_factory=dict)
    _units: dict[int, Rates] = field(default_factory=dict)
    _uplink_share: dict[int, UplinkShare] = field(default_factory=dict)
    bucket_rates: dict[str, Rates] = field(default_factory=dict)
    # The latest rates of buckets: policies need them more often than counters are read.
    _latest: dict[str, Load] = field(default_factory=dict)
    _address_units: dict[str, Rates] = field(default_factory=dict)
    _own: dict[int, OwnLoad] = field(default_factory=dict)
    lateness: Lateness = field(default_factory=Lateness)
    # The time for which no load with late counters has changed.
    steady_s: float = math.inf
    # The ports that are uplinks.
    _outwards: set[int] = field(default_factory=set)

    def take_port(self, port: PortCounters, outwards: bool, keep_s: float) -> None:
        """Store the counters of a port. `outwards`: the port is an uplink, so it sends outwards."""
        ofport = port.ofport
        self.counters[ofport] = port
        rates = _rates_of(self.port_rates, ofport, keep_s)
        if outwards:
            self._outwards.add(ofport)
            rates.add_reading(Sample(port.clock_s, port.tx_bytes, port.rx_bytes))
        else:
            self._outwards.discard(ofport)
            rates.add_reading(Sample(port.clock_s, port.rx_bytes, port.tx_bytes))

    def take_units(
        self, read: UnitCountersRead, address_units: Mapping[int, tuple[str, int]], keep_s: float
    ) -> None:
        """Store the counters of units.

        `address_units`: the names of address units, each with the ofport of its VM port, by slot.
        """
        counted_bytes = sum(self._take_unit(*unit, keep_s) for unit in read.units)
        totals = {ofport: self.port_rates[ofport].total for ofport in self._outwards}
        self.lateness.take_reading({of: t for of, t in totals.items() if t}, counted_bytes, keep_s)
        self._take_buckets(read.buckets, keep_s)
        self._take_address_units(read.address_units, address_units, keep_s)

    def _take_buckets(self, read: Sequence[tuple[tuple[int, int], Sample]], keep_s: float) -> None:
        for (number, bucket), sample in read:
            if number in range(len(buckets.HASHED)):
                name = buckets.name_of(buckets.HASHED[number], bucket)
                _rates_of(self.bucket_rates, name, keep_s).add_reading(sample)
                self._latest.pop(name, None)

    def _take_address_units(
        self,
        read: Iterable[tuple[int, Sample]],
        address_units: Mapping[int, tuple[str, int]],
        keep_s: float,
    ) -> None:
        apart_bytes = dict.fromkeys((ofport for _, ofport in address_units.values()), 0.0)
        for slot, sample in read:
            if slot in address_units:
                name, ofport = address_units[slot]
                rates = _rates_of(self._address_units, name, keep_s)
                before = rates.total
                rates.add_reading(sample)
                if before and rates.total:
                    apart_bytes[ofport] += max(0.0, rates.total.tx_bytes - before.tx_bytes)
        for ofport, sent_bytes in apart_bytes.items():
            if ofport in self._units and (flows := self._units[ofport].total):
                own = self._own.setdefault(ofport, OwnLoad(Rates(keep_s)))
                own.rates.keep_s = keep_s
                own.take_flows(flows, sent_bytes)

    def _take_unit(self, ofport: int, sample: Sample, keep_s: float) -> float:
        """Store the counters of a VM port's flows; return the bytes since the last reading."""
        rates = _rates_of(self._units, ofport, keep_s)
        before = rates.total
        rates.add_reading(sample)
        now = rates.total
        port = self._of(ofport).total
        if port is not None and now is not None:
            self._uplink_share.setdefault(ofport, UplinkShare()).take_totals(port, now)
        return max(0.0, more_bytes(before, now)) if before and now else 0.0

    def port(self, ofport: int, window_s: float | None, lag_s: float = 0.0) -> Load:
        """Return the mean load of a port over a window (None: the latest); zero while unknown."""
        if window_s is None:
            return self._of(ofport).latest(self.steady_s)
        return _load(self._of(ofport), window_s, lag_s)

    def rise(self, ofports: Iterable[int], recent_s: float = 0.0) -> Load:
        """Return the total rise of the loads of these ports. Loads that fell do not count."""
        of_ports = (self._of(ofport).rise(recent_s) for ofport in ofports)
        rises = (rise for rise in of_ports if rise is not IDLE)
        return sum(rises, Load())

    def is_late(self, ofport: int) -> bool:
        """Whether the counter of a port is late (`controller.load.beats`)."""
        return self._of(ofport).is_late

    def just_updated(self, ofport: int) -> bool:
        """Whether the counter of a port is late, and the last reading was an update."""
        rates = self._of(ofport)
        return rates.is_late and rates.beats.is_update(rates.clock_s)

    def counted_age_s(self, ofports: Iterable[int]) -> float:
        """Return the time, in seconds, since the start of the interval that late counters cover.

        This interval is the one between the last two updates of a late counter.
        """
        ages = [0.0]
        for rates in filter(lambda rates: rates.is_late, map(self._of, ofports)):
            updates = rates.beats.updates
            if len(updates) > 1 and not rates.beats.is_over(rates.clock_s):
                ages.append(rates.clock_s - updates[-2].clock_s)
        return max(ages)

    def unsure(self, ofports: Iterable[int]) -> bool:
        """Whether it is unknown if the counter of a port that carries traffic is late."""
        known = map(self._of, ofports)
        return any(rates.has_counted for rates in known if rates.beats.late is None)

    def unit(
        self, ofport: int, window_s: float | None, lag_s: float = 0.0, ago_s: float = 0.0
    ) -> Load:
        """Return the mean load of a VM port's flows, or zero while it is not known.

        It is the greater of two means: over the window that ended `ago_s` ago, and over the window
        that ended `lag_s` before that. `window_s` None: the latest load.
        """
        return _now_or_then(self._units.get(ofport, UNREAD), window_s, lag_s, ago_s)

    def live_unit(self, ofport: int) -> Load:
        """Return the current load of a VM port on uplinks; zero while the load is unknown."""
        if ofport not in self._uplink_share:
            return IDLE
        return self._uplink_share[ofport].share_of(self.port(ofport, None))

    def own(
        self, ofport: int, window_s: float | None, lag_s: float = 0.0, ago_s: float = 0.0
    ) -> Load:
        """Return the same as `unit` for a VM port, without the traffic of its address units."""
        rates = self._own[ofport].rates if ofport in self._own else UNREAD
        sent = _now_or_then(rates, window_s, lag_s, ago_s)
        # The switch counts the traffic that address units receive separately.
        return Load(sent.tx_bps, self.unit(ofport, window_s, lag_s, ago_s).rx_bps)

    def crosses_whole(self, ofport: int) -> bool:
        """Whether all traffic of a VM port crosses uplinks, as far as is known."""
        found = self._uplink_share.get(ofport)
        return found is None or found.is_whole

    def address_unit(
        self, name: str, window_s: float | None, lag_s: float = 0.0, ago_s: float = 0.0
    ) -> Load:
        """Return the same as `unit` for an address unit, whose counter is late."""
        rates = self._address_units.get(name, UNREAD)
        if window_s is None:
            return rates.last_interval()
        return _now_or_then(rates, window_s, lag_s, ago_s)

    def of_buckets(
        self, names: Sequence[str], window_s: float | None, ago_s: float = 0.0
    ) -> tuple[Load, ...]:
        """Return the loads that buckets send: the means over a window that ended `ago_s` ago."""
        if window_s is not None:
            rates = self.bucket_rates
            return tuple([_load(rates.get(name, UNREAD), window_s, ago_s) for name in names])
        latest = self._latest
        for name in set(names) - latest.keys():
            latest[name] = self.bucket_rates.get(name, UNREAD).latest()
        return tuple([latest[name] for name in names])

    def covers(self, ofports: Iterable[int], window_s: float, lag_s: float) -> bool:
        """Whether the loads of all these ports are known over a whole window."""
        return all(self._of(ofport).covers(window_s, lag_s) for ofport in ofports)

    def known_s(self, ofport: int, lag_s: float) -> float:
        """Return the time, in seconds, over which the load of a port is known, up to `lag_s` ago."""
        return self._of(ofport).known_s(lag_s)

    def unit_known_s(self, ofport: int) -> float:
        """Return the time, in seconds, over which a VM port's load on uplinks is known."""
        return self._units.get(ofport, UNREAD).known_s()

    def _of(self, ofport: int) -> Rates:
        return self.port_rates.get(ofport, UNREAD)

    def remove(self, ofport: int) -> None:
        """Forget a port, because another port may get its ofport."""
        for kept in (self.counters, self.port_rates, self._units, self._uplink_share, self._own):
            kept.pop(ofport, None)
        self._outwards.discard(ofport)

    def forget_buckets(self) -> None:
        """Forget the counters of buckets, because no policy uses buckets any more."""
        self.bucket_rates.clear()
        self._latest.clear()

    def forget_address_units(self, names: Iterable[str]) -> None:
        for name in names:
            self._address_units.pop(name, None)

    def without_rates(self) -> Loads:
        """Return a copy without rates: the switch was lost, was replaced, or counts differently."""
        return Loads(self.counters)


def _rates_of(rates: dict[K, Rates], key: K, keep_s: float) -> Rates:
    found = rates.get(key)
    if found is None:
        found = rates[key] = Rates(keep_s)
    found.keep_s = keep_s
    return found


def _now_or_then(rates: Rates, window_s: float | None, lag_s: float, ago_s: float) -> Load:
    return _load(rates, window_s, ago_s).larger(_load(rates, window_s, ago_s + lag_s))


def _load(rates: Rates, window_s: float | None, lag_s: float) -> Load:
    if window_s is None:
        return rates.latest()
    return rates.mean(window_s, lag_s) or IDLE
