"""The traffic that a VM port with address units sends besides them.

The switch counts all traffic from the VM port in one flow, and that of each address in another. The
VM port's own traffic is the difference. Other counters must not be compared: the live counter of the
port would show a jump of load up to two seconds earlier than the flows of addresses, and all of it
would seem to be the port's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.api.events import Sample
from controller.load.beats import Total
from controller.load.rates import Rates


@dataclass(slots=True)
class OwnLoad:
    """The own load of one VM port, taken whenever its address units are read.

    A poll reads the flows of addresses before those of VM ports. If the switch updates its counters
    between the two, the VM port seems to have sent more than its addresses. The next reading has
    the rest. So a reading counts in `rates` once the next one is there, as the lower of both. Only
    if this happens twice in a row, what addresses send within one update is counted here, once.
    """

    rates: Rates
    # All that the VM port has sent itself, up to the last reading.
    _own_bytes: float = 0.0
    _flows: Total | None = None
    _counted_bytes: float = 0.0

    def take_flows(self, flows: Total, apart_bytes: float) -> None:
        """Take a reading.

        `flows`: what the VM port has sent in all. `apart_bytes`: what its address units have sent
        since the last reading.
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
