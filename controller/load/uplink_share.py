"""Measures the share of a VM port's current traffic that crosses uplinks.

Port counters are live, and flow counters are up to half a second late. So the port's counters give
the current load of a VM port. The share that crosses uplinks is the recent bytes in the VM port's
flow counters divided by the recent bytes in the port counters. Port bytes count only up to the
reading before the last, because flow counters already include all these bytes. So rising traffic is
not mistaken for traffic that stays on this host.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.load.rates import Total, more_bytes
from policies.model import IDLE, Load

# The time over which the share is measured: much longer than the lag of flow counters.
BACK_S = 5.0
LEAST_READINGS = 3
# At least this share means that all traffic crosses uplinks. Flows are counted half a second apart,
# so the measured share is not exact.
WHOLE_RATIO = 0.8
# If the port carried less than this share of its current load before, the share is not known.
TELLING_RATIO = 0.1


@dataclass(slots=True)
class UplinkShare:
    """The share of one VM port's traffic that crosses uplinks, from its recent readings."""

    _readings: deque[tuple[Total, Total]] = field(default_factory=deque)
    # For sent and received traffic: the share, and the rate of the port in the same time.
    _sent: tuple[float, float] = (0.0, 0.0)
    _received: tuple[float, float] = (0.0, 0.0)

    def take_totals(self, port: Total, flows: Total) -> None:
        """Store a reading. If a counter was reset, forget all earlier readings."""
        readings = self._readings
        if readings and (_is_before(port, readings[-1][0]) or _is_before(flows, readings[-1][1])):
            readings.clear()
        readings.append((port, flows))
        while len(readings) > LEAST_READINGS and readings[1][0].clock_s <= port.clock_s - BACK_S:
            readings.popleft()
        if len(readings) >= LEAST_READINGS:
            first, first_flows = readings[0]
            then, seconds = readings[-2][0], readings[-2][0].clock_s - first.clock_s
            self._sent = _part(
                flows.tx_bytes - first_flows.tx_bytes, then.tx_bytes - first.tx_bytes, seconds
            )
            self._received = _part(
                flows.rx_bytes - first_flows.rx_bytes, then.rx_bytes - first.rx_bytes, seconds
            )

    @property
    def is_whole(self) -> bool:
        """Whether all traffic crosses uplinks, as far as is known."""
        if len(self._readings) < LEAST_READINGS:
            return True
        (port, flows), (port_now, flows_now) = self._readings[0], self._readings[-1]
        return more_bytes(flows, flows_now) >= WHOLE_RATIO * more_bytes(port, port_now)

    def share_of(self, load: Load) -> Load:
        """Return the part of the port's current load that crosses uplinks.

        The result is zero before the `LEAST_READINGS`-th reading.
        """
        if len(self._readings) < LEAST_READINGS:
            return IDLE
        (sent, sent_bps), (received, received_bps) = self._sent, self._received
        # Usually, all traffic crosses uplinks.
        if sent == received == 1.0:
            return load
        return Load(
            load.tx_bps * (1.0 if sent_bps < TELLING_RATIO * load.tx_bps else sent),
            load.rx_bps * (1.0 if received_bps < TELLING_RATIO * load.rx_bps else received),
        )


def _is_before(total: Total, last: Total) -> bool:
    return total.clock_s < last.clock_s or total.tx_bytes < last.tx_bytes


def _part(crossed_bytes: float, all_bytes: float, seconds: float) -> tuple[float, float]:
    if not all_bytes or seconds <= 0.0:
        return 1.0, 0.0
    return min(1.0, crossed_bytes / all_bytes), 8 * all_bytes / seconds
