"""Computes a lower bound on the worst utilization of a team in any placement of its units."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import accumulate

from policies import failover
from policies.model import IDLE, Load, Unit, Uplink


def least_worst_ratio(uplinks: Sequence[Uplink], units: Sequence[Unit]) -> float:
    """Return a lower bound on the worst utilization in any placement of the units.

    It is the largest of three bounds, each computed for both directions: the whole load divided
    like a fluid; the largest unit on the fastest uplink that it can use; and, for each k, the sum
    of the smallest k + 1 of the largest k * m + 1 units on the fastest uplink, because k + 1 or
    more of any k * m + 1 units share one of m uplinks. O(n log n). Zero: no uplink is in service.
    """
    serving = failover.in_service(uplinks)
    if not serving:
        return 0.0
    total_load = sum((uplink.load for uplink in uplinks), Load())
    fluid_ratio = total_load.utilization_ratio(sum(uplink.capacity_bps for uplink in serving))
    if all(unit.load is IDLE for unit in units):
        return fluid_ratio
    fastest_bps = max(uplink.capacity_bps for uplink in serving)

    @functools.cache
    def able_bps(allowed: frozenset[str] | None) -> float:
        able = failover.only(allowed, serving)
        return max((uplink.capacity_bps for uplink in able), default=math.inf)

    alone = [unit.load.utilization_ratio(able_bps(unit.allowed)) for unit in units]
    together = Load(
        _shared_bps([unit.load.tx_bps for unit in units], len(serving)),
        _shared_bps([unit.load.rx_bps for unit in units], len(serving)),
    )
    return max([fluid_ratio, *alone, together.utilization_ratio(fastest_bps)])


def optimality_ratio(uplinks: Sequence[Uplink], units: Sequence[Unit]) -> float:
    """Return the worst utilization divided by the lowest one that any placement could reach.

    1 is perfect, and also the result without load. Counters of units and of uplinks are not read at
    the same moment, so the bound is computed for the load that the uplinks carry.
    """
    worst_ratio = max((uplink.utilization_ratio for uplink in uplinks), default=0.0)
    bound_ratio = min(worst_ratio, least_worst_ratio(uplinks, units))
    return worst_ratio / bound_ratio if bound_ratio > 0.0 else 1.0


def _shared_bps(loads_bps: Sequence[float], uplinks: int) -> float:
    """Return a lower bound on the highest uplink load, given that units cannot be divided."""
    largest = sorted(loads_bps, reverse=True)
    summed = [0.0, *accumulate(largest)]
    sharing = range(1, (len(largest) - 1) // uplinks + 1)
    return max((summed[k * uplinks + 1] - summed[k * uplinks - k] for k in sharing), default=0.0)
