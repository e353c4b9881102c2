"""The rate at which frames reach every VM port of a VLAN. In a loop it is thousands a second."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from controller.api.events import UNSUPPORTED, PortCounters
from controller.config.values import VmPortConfig

# More than broadcasts of a large network, and less than any loop carries.
LOOPS_PPS = 1000.0
# One busy poll proves nothing.
POLLS = 3
# Flooded frames reach all ports alike. Two VMs that are busy at the same rate are rare.
ALIKE_RATIO = 0.9


@dataclass(slots=True)
class Flooded:
    """The rates of the last polls."""

    _counted: dict[int, PortCounters] = field(default_factory=dict)
    _rates_pps: deque[float] = field(default_factory=lambda: deque(maxlen=POLLS))

    @property
    def pps(self) -> float:
        """The lowest rate of the last polls; 0 while there are too few."""
        return min(self._rates_pps) if len(self._rates_pps) == POLLS else 0.0

    def take_counters(
        self, counters: Iterable[PortCounters], ports: Collection[VmPortConfig]
    ) -> None:
        """Store the counters of a poll."""
        before = self._counted
        self._counted = {c.ofport: c for c in counters if c.tx_packets != UNSUPPORTED}
        rates = defaultdict[object, list[tuple[float, float]]](list)
        for port in ports:
            old, new = before.get(port.ofport), self._counted.get(port.ofport)
            if old is not None and new is not None and new.clock_s > old.clock_s:
                for_s = new.clock_s - old.clock_s
                sent_pps = (new.rx_packets - old.rx_packets) / for_s
                rates[port.vlans.carried].append(
                    (sent_pps, (new.tx_packets - old.tx_packets) / for_s)
                )
        # The port through which frames circulate sends most, and need not receive any.
        others = (sorted(of)[:-1] if len(of) > 2 else of for of in rates.values())
        alike = (sorted(received_pps for _, received_pps in of)[:2] for of in others if len(of) > 1)
        found = (least for least, next_ in alike if least >= ALIKE_RATIO * next_)
        self._rates_pps.append(max(found, default=0.0))

    def forget_rates(self) -> None:
        """Forget all rates, because the switch was disconnected."""
        self._counted.clear()
        self._rates_pps.clear()
