"""Computes the loads of ports and units from the counters of each poll."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.api.events import PortCounters, Sample, UnitCountersRead
from controller.load.lateness import Lateness
from controller.load.rates import Rates, Total
from controller.load.uplink_share import UplinkShare
from controller.teaming import buckets
from policies.model import IDLE, Load

# Flow counters are up to half a second behind port counters, so policies use the loads that uplinks
# had one second ago. Otherwise the measured share of a VM port in an uplink that fills up would be
# too small, and a VM port too big for any uplink would be moved. For the same reason, the load of a
# VM port is the greater of two means: the current one, and the one of a second ago.
UPLINK_LAG_S = 1.0


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
    two. If two readings in a row are too high, `rates` include an update of the addresses' traffic.
    """

    rates: Rates = field(default_factory=Rates)
    # The bytes that the VM port itself has sent, up to the last reading.
    _own_bytes: float = 0.0
    _flows: Total | None = None
    _counted_bytes: float = 0.0

    def take_flows(self, flows: Total, apart_bytes: float, keep_s: float) -> None:
        """Store a reading.

        `flows`: the total that the VM port has sent. `apart_bytes`: the bytes that its address
        units have sent since the last reading. `keep_s`: as in `Rates`.
        """
        last, self._flows = self._flows, flows
        if last is None or flows.clock_s <= last.clock_s or flows.tx_bytes < last.tx_bytes:
            # The first reading, or the switch has new flows.
            self._own_bytes = self._counted_bytes = 0.0
            self.rates = Rates()
            return
        before_bytes = self._own_bytes
        self._own_bytes += flows.tx_bytes - last.tx_bytes - apart_bytes
        lower_bytes = min(before_bytes, self._own_bytes)
        self._counted_bytes = max(self._counted_bytes, lower_bytes)
        self.rates.add_reading(Sample(last.clock_s, self._counted_bytes, 0), keep_s)


@dataclass(slots=True)
class PortHistory:
    """The counters of one port: `rates` of all its traffic.

    For a VM port, also `flows`: the rates of the traffic that crosses uplinks, and `share`: the
    share of all traffic that crosses them. `own`: the load without address units, if there are any.
    """

    rates: Rates = field(default_factory=Rates)
    flows: Rates = field(default_factory=Rates)
    share: UplinkShare = field(default_factory=UplinkShare)
    own: OwnLoad | None = None


# The history of a counter that has not been read yet.
UNREAD, UNREAD_PORT = Rates(), PortHistory()


@dataclass(slots=True)
class Loads:
    """The counters and rates of one bridge.

    Ports are stored by ofport. Buckets, which only send, and address units are stored by name.
    """

    counters: dict[int, PortCounters] = field(default_factory=dict)
    ports: dict[int, PortHistory] = field(default_factory=lambda: defaultdict(PortHistory))
    bucket_rates: dict[str, Rates] = field(default_factory=lambda: defaultdict(Rates))
    _address_units: dict[str, Rates] = field(default_factory=lambda: defaultdict(Rates))
    lateness: Lateness = field(default_factory=Lateness)
    # The time for which no load with late counters has changed.
    steady_s: float = math.inf

    def take_port(self, port: PortCounters, outwards: bool, keep_s: float) -> None:
        """Store the counters of a port. `outwards`: whether the port is an uplink."""
        self.counters[port.ofport] = port
        sent, received = port.tx_bytes, port.rx_bytes
        if not outwards:
            sent, received = received, sent
        self.ports[port.ofport].rates.add_reading(Sample(port.clock_s, sent, received), keep_s)

    def take_units(
        self,
        read: UnitCountersRead,
        address_units: Mapping[int, tuple[str, int]],
        uplinks: Collection[int],
        keep_s: float,
    ) -> None:
        """Store the counters of units.

        `address_units`: the names of address units, each with the ofport of its VM port, by slot.
        `uplinks`: the ofports of uplinks.
        """
        counted_bytes = 0.0
        for ofport, sample in read.units:
            port = self.ports[ofport]
            counted_bytes += sum(port.flows.add_reading(sample, keep_s))
            if port.rates.total and port.flows.total:
                port.share.take_totals(port.rates.total, port.flows.total)
        totals = {of: total for of in uplinks if (total := self.at(of).rates.total)}
        self.lateness.take_reading(totals, counted_bytes, keep_s)
        for (number, bucket), sample in read.buckets:
            if number in range(len(buckets.HASHED)):
                name = buckets.name_of(buckets.HASHED[number], bucket)
                self.bucket_rates[name].add_reading(sample, keep_s)
        apart_bytes = dict.fromkeys((ofport for _, ofport in address_units.values()), 0.0)
        for slot, sample in read.address_units:
            if slot in address_units:
                name, ofport = address_units[slot]
                sent_bytes, _ = self._address_units[name].add_reading(sample, keep_s)
                apart_bytes[ofport] += sent_bytes
        for ofport, sent_bytes in apart_bytes.items():
            if flows := self.at(ofport).flows.total:
                port = self.ports[ofport]
                port.own = port.own or OwnLoad()
                port.own.take_flows(flows, sent_bytes, keep_s)

    def at(self, ofport: int) -> PortHistory:
        """Return the history of a port; an empty history before the first reading."""
        return self.ports.get(ofport, UNREAD_PORT)

    def port(self, ofport: int, window_s: float | None, lag_s: float = 0.0) -> Load:
        """Return the mean load of a port over a window (None: the latest); zero while unknown."""
        if window_s is None:
            return self.at(ofport).rates.latest(self.steady_s)
        return _load(self.at(ofport).rates, window_s, lag_s)

    def rise(self, ofports: Iterable[int], recent_s: float = 0.0) -> Load:
        """Return the sum of the results of `Rates.rise` for the ports `ofports`."""
        rises = [self.at(ofport).rates.rise(recent_s) for ofport in ofports]
        return sum([rise for rise in rises if rise is not IDLE], Load())

    def late_ports(self) -> set[int]:
        """Return the ofports of ports whose counters the switch updates only about twice a second."""
        return {ofport for ofport, port in self.ports.items() if port.rates.late}

    def counted_age_s(self, ofports: Iterable[int]) -> float:
        """Return how long ago, in seconds, the last full interval of a lagging counter began.

        An interval is the time between two updates. For several counters: the longest time; for none: 0.
        """
        late = [rates for ofport in ofports if (rates := self.at(ofport).rates).late]
        known = [of for of in late if len(of.updates) > 1 and not of.is_over(of.clock_s)]
        return max([of.clock_s - of.updates[-2].clock_s for of in known], default=0.0)

    def unsure(self, ofports: Iterable[int]) -> bool:
        """Whether one of these ports carries traffic, but it is unknown whether its counter lags."""
        known = [self.at(ofport).rates for ofport in ofports]
        return any(rates.has_counted for rates in known if rates.late is None)

    def unit(self, ofport: int, window_s: float | None, ago_s: float = 0.0) -> Load:
        """Return the mean load of a VM port's flows; zero while the load is unknown.

        It is the greater of two means: over the window that ended `ago_s` ago, and over the window
        that ended `UPLINK_LAG_S` before that. `window_s` None: the latest load.
        """
        return _now_or_then(self.at(ofport).flows, window_s, ago_s)

    def live_unit(self, ofport: int) -> Load:
        """Return the current load of a VM port on uplinks; zero while the load is unknown."""
        return self.at(ofport).share.share_of(self.port(ofport, None))

    def own(self, ofport: int, window_s: float | None, ago_s: float = 0.0) -> Load:
        """Return the load of a VM port as `unit` does, but without the traffic of its address units."""
        own = self.at(ofport).own
        sent = _now_or_then(own.rates if own else UNREAD, window_s, ago_s)
        # The switch counts the traffic that address units receive separately.
        return Load(sent.tx_bps, self.unit(ofport, window_s, ago_s).rx_bps)

    def address_unit(self, name: str, window_s: float | None, ago_s: float = 0.0) -> Load:
        """Return the load of an address unit, as `unit` does for a VM port. `window_s` None: the latest."""
        rates = self._address_units.get(name, UNREAD)
        if window_s is None:
            return rates.last_interval()
        return _now_or_then(rates, window_s, ago_s)

    def of_buckets(
        self, names: Sequence[str], window_s: float | None, ago_s: float = 0.0
    ) -> tuple[Load, ...]:
        """Return the loads that buckets send: the means over a window that ended `ago_s` ago."""
        rates = self.bucket_rates
        return tuple([_load(rates.get(name, UNREAD), window_s, ago_s) for name in names])

    def covers(self, ofports: Iterable[int], window_s: float, lag_s: float) -> bool:
        """Whether the loads of all these ports are known over a whole window."""
        return all(self.at(ofport).rates.covers(window_s, lag_s) for ofport in ofports)

    def remove(self, ofport: int) -> None:
        """Forget a port, because another port may get its ofport."""
        self.counters.pop(ofport, None)
        self.ports.pop(ofport, None)

    def forget_address_units(self, names: Iterable[str]) -> None:
        for name in names:
            self._address_units.pop(name, None)

    def without_rates(self) -> Loads:
        """Return a copy without rates, after a disconnect or a change in how the switch counts."""
        return Loads(self.counters)


def _now_or_then(rates: Rates, window_s: float | None, ago_s: float) -> Load:
    return _load(rates, window_s, ago_s).larger(_load(rates, window_s, ago_s + UPLINK_LAG_S))


def _load(rates: Rates, window_s: float | None, lag_s: float) -> Load:
    if window_s is None:
        return rates.latest()
    return rates.mean(window_s, lag_s) or IDLE
