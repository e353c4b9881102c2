"""Which part of what a VM port exchanges crosses uplinks, now.

Ports are counted as they forward, their flows up to half a second later. So what a VM port carries
at this moment is told by its port, and which part of that crosses uplinks by what its flows have
counted lately beside its port. The port is looked at up to the reading before the last: the flows
of all that it had counted then have been counted, so a load that rises is not taken for one that
stays on this host.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.load.beats import Total
from policies.model import Load

# How far is looked back: much more than flows lag.
BACK_S = 5.0
LEAST_READINGS = 3
# Looks at the flow cache are half a second apart.
WHOLE_RATIO = 0.8
# What a port carried before tells nothing of a load that is ten times as much.
TELLING_RATIO = 0.1


@dataclass(slots=True)
class Crossing:
    """Of one VM port, what its port and its flows had counted at the same readings."""

    _readings: deque[tuple[Total, Total]] = field(default_factory=deque)

    def take(self, port: Total, flows: Total) -> None:
        """Add a reading. Counters that began anew tell nothing of before."""
        readings = self._readings
        if readings and (_is_before(port, readings[-1][0]) or _is_before(flows, readings[-1][1])):
            readings.clear()
        readings.append((port, flows))
        while len(readings) > LEAST_READINGS and readings[1][0].clock_s <= port.clock_s - BACK_S:
            readings.popleft()

    @property
    def is_whole(self) -> bool:
        """Whether it all does, as far as is known: but for what was counted at another moment."""
        if len(self._readings) < LEAST_READINGS:
            return True
        (port, flows), (_, flows_now) = self._readings[0], self._readings[-1]
        port_now = self._readings[-1][0]
        crossed = sum(flows_now[1:]) - sum(flows[1:])
        return crossed >= WHOLE_RATIO * (sum(port_now[1:]) - sum(port[1:]))

    def of(self, load: Load) -> Load:
        """The part of what the port carries now; nothing before there are some readings."""
        readings = self._readings
        if len(readings) < LEAST_READINGS:
            return Load()
        (port, flows), (port_then, _), (_, flows_now) = readings[0], readings[-2], readings[-1]
        seconds = port_then.clock_s - port.clock_s
        return Load(
            _part(
                load.tx_bps,
                flows_now.tx_bytes - flows.tx_bytes,
                port_then.tx_bytes - port.tx_bytes,
                seconds,
            ),
            _part(
                load.rx_bps,
                flows_now.rx_bytes - flows.rx_bytes,
                port_then.rx_bytes - port.rx_bytes,
                seconds,
            ),
        )


def _is_before(total: Total, last: Total) -> bool:
    return total.clock_s < last.clock_s or total.tx_bytes < last.tx_bytes


def _part(bps: float, crossed_bytes: float, all_bytes: float, seconds: float) -> float:
    if 8 * all_bytes < TELLING_RATIO * bps * seconds:
        return bps
    return bps * min(1.0, crossed_bytes / all_bytes) if all_bytes else bps
