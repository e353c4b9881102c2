"""The own traffic of a VM port: the traffic that it sends without that of its address units.

The switch counts all traffic from the VM port in one flow, and the traffic of each address in
another flow. The VM port's own traffic is the difference. Other counters must not be compared: the
live counter of the port would show a jump of load up to two seconds earlier than the flows of
addresses, and the whole jump would seem to be the port's own traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.events import Sample
from controller.load.beats import Total
from controller.load.rates import Rates


@dataclass(slots=True)
class OwnLoad:
    """The load of a VM port without its address units, updated when its address units are read.

    A poll reads the flows of addresses before the flows of VM ports. If the switch updates its
    counters in between, the VM port seems to have sent more than its addresses, until the next
    reading. So a reading is added to `rates` after the next one, as the lower of the two. If the
    higher reading repeats, the addresses' traffic during one counter update is included, once.
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
