"""Which share of a VM port's present traffic crosses uplinks.

Counters of ports are live, and those of flows are up to half a second late. So the port's counters
give the present load of a VM port. The share of it that crosses uplinks is what the VM port's flows
have counted lately, divided by what the port has counted. The port's bytes are taken up to the
reading before the last, because all of these have been counted by flows, too. So traffic that rises
is not taken for traffic that stays on this host.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.load.beats import Total
from policies.model import Load

# Over how long the share is measured: much longer than flows lag.
BACK_S = 5.0
LEAST_READINGS = 3
# At least this share means that all traffic crosses uplinks. Flows are counted half a second apart,
# so the measured share is not exact.
WHOLE_RATIO = 0.8
# If the port carried less than this share of its present load before, the share is not known.
TELLING_RATIO = 0.1


@dataclass(slots=True)
class UplinkShare:
    """The share of one VM port: what its port and its flows had counted at the same readings."""

    _readings: deque[tuple[Total, Total]] = field(default_factory=deque)

    def take_totals(self, port: Total, flows: Total) -> None:
        """Take a reading. If a counter was reset, forget all earlier readings."""
        readings = self._readings
        if readings and (_is_before(port, readings[-1][0]) or _is_before(flows, readings[-1][1])):
            readings.clear()
        readings.append((port, flows))
        while len(readings) > LEAST_READINGS and readings[1][0].clock_s <= port.clock_s - BACK_S:
            readings.popleft()

    @property
    def is_whole(self) -> bool:
        """Whether all traffic crosses uplinks, as far as is known."""
        if len(self._readings) < LEAST_READINGS:
            return True
        (port, flows), (_, flows_now) = self._readings[0], self._readings[-1]
        port_now = self._readings[-1][0]
        crossed = sum(flows_now[1:]) - sum(flows[1:])
        return crossed >= WHOLE_RATIO * (sum(port_now[1:]) - sum(port[1:]))

    def share_of(self, load: Load) -> Load:
        """Return the part of the port's present load that crosses uplinks.

        It is zero until there are `LEAST_READINGS`.
        """
        readings = self._readings
        if len(readings) < LEAST_READINGS:
            return Load()
        (port, flows), (port_then, _), (_, flows_now) = readings[0], readings[-2], readings[-1]
        seconds = port_then.clock_s - port.clock_s
        tx_bps = _part(
            load.tx_bps,
            flows_now.tx_bytes - flows.tx_bytes,
            port_then.tx_bytes - port.tx_bytes,
            seconds,
        )
        rx_bps = _part(
            load.rx_bps,
            flows_now.rx_bytes - flows.rx_bytes,
            port_then.rx_bytes - port.rx_bytes,
            seconds,
        )
        # Mostly all traffic crosses uplinks.
        whole = tx_bps == load.tx_bps and rx_bps == load.rx_bps
        return load if whole else Load(tx_bps, rx_bps)


def _is_before(total: Total, last: Total) -> bool:
    return total.clock_s < last.clock_s or total.tx_bytes < last.tx_bytes


def _part(bps: float, crossed_bytes: float, all_bytes: float, seconds: float) -> float:
    if 8 * all_bytes < TELLING_RATIO * bps * seconds:
        return bps
    return bps * min(1.0, crossed_bytes / all_bytes) if all_bytes else bps
