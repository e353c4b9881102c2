"""Corrects the current loads of units, so that uplinks carry what their units seem to carry.

The counters of uplinks are live. Flow counters and late counters (`controller.load.rates`) show the
traffic of units some time later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from policies.model import IDLE, Load, Unit, Uplink
from policies.presets import PRESETS

# The rates of late counters are corrected by at most this factor: they are never further off.
MOST_OFF = 1.5
# An uplink that carries this share of its capacity may be dropping frames.
FULL_RATIO = 0.9
# Factors by which loads are multiplied, for sent and for received traffic.
Factors = tuple[float, float]


def as_carried(units: list[Unit], uplinks: Iterable[Uplink], late: Collection[str]) -> list[Unit]:
    """Scale the current loads of units to the load of their uplink.

    If the sum of loads is too high, the excess is traffic that stays on this host, which flow
    counters show only later. The loads of units with late counters (`late`, by name) are also
    scaled up: these counters give the share of each unit reliably, but not the time of its traffic.
    Loads on a full uplink are not scaled, because that uplink drops the excess.
    """
    in_all = by_uplink(units)
    in_late = by_uplink(unit for unit in units if unit.name in late) if late else {}
    of_late: dict[str | None, Factors] = {}
    of_live: dict[str | None, Factors] = {}
    for uplink in uplinks:
        name, carried, full_bps = uplink.name, uplink.load, FULL_RATIO * uplink.capacity_bps
        seems = in_all.get(name, IDLE)
        if name in in_late:
            others = seems - in_late[name]
            tx = _factor(carried.tx_bps, others.tx_bps, in_late[name].tx_bps, full_bps)
            rx = _factor(carried.rx_bps, others.rx_bps, in_late[name].rx_bps, full_bps)
            of_late[name] = tx, rx
            seems = others + Load(in_late[name].tx_bps * tx, in_late[name].rx_bps * rx)
        factors = down_to(carried, seems, full_bps)
        if min(factors) < 1.0:
            of_live[name] = factors
    units = _scaled_on(units, of_late, lambda unit: unit.name in late)
    return _scaled_on(units, of_live, is_live)


def _scaled_on(
    units: list[Unit], factors: Mapping[str | None, Factors], which: Callable[[Unit], bool]
) -> list[Unit]:
    """Return the units with the loads of some units scaled by the factors of their uplink."""
    if not factors:
        return units
    return [
        scaled(unit, *factors[unit.uplink]) if unit.uplink in factors and which(unit) else unit
        for unit in units
    ]


def is_live(unit: Unit) -> bool:
    """Whether a unit is not a bucket, and its policy uses current loads."""
    return not unit.is_bucket and PRESETS[unit.policy].at_once


def scaled(unit: Unit, tx: float, rx: float) -> Unit:
    """Return a unit with a scaled load. Traffic that it sends through buckets is not scaled."""
    load = Load(unit.load.tx_bps * (1.0 if unit.spread else tx), unit.load.rx_bps * rx)
    return unit.as_judged(load, unit.spread_bps, unit.excluded)


def down_to(carried: Load, seems: Load, full_bps: float = math.inf) -> Factors:
    """Return the factors that scale an apparent load down to the carried load; at most 1.

    They are 1 if an uplink carries `full_bps` or more.
    """
    tx_limit_bps, rx_limit_bps = min(seems.tx_bps, full_bps), min(seems.rx_bps, full_bps)
    tx = carried.tx_bps / seems.tx_bps if carried.tx_bps < tx_limit_bps else 1.0
    return tx, carried.rx_bps / seems.rx_bps if carried.rx_bps < rx_limit_bps else 1.0


def _factor(carried_bps: float, others_bps: float, seems_bps: float, full_bps: float) -> float:
    """Return the factor that corrects the apparent load of late units; 1 if it is unknown."""
    if carried_bps >= full_bps or not seems_bps:
        return 1.0
    factor = max(0.0, carried_bps - others_bps) / seems_bps
    return factor if 1.0 / MOST_OFF <= factor <= MOST_OFF else 1.0


def by_uplink(units: Iterable[Unit]) -> dict[str | None, Load]:
    """Return the sums of the loads that move with units, by uplink."""
    return sums([(unit.uplink, unit.own_load) for unit in units if unit.load is not IDLE])


def sums(loads: Iterable[tuple[str | None, Load]]) -> dict[str | None, Load]:
    """Return the sum of the loads with each name. Names with only idle loads may be omitted."""
    found: dict[str | None, list[float]] = {}
    for name, load in loads:
        if load is not IDLE:
            tx_and_rx = found.setdefault(name, [0.0, 0.0])
            tx_and_rx[0] += load.tx_bps
            tx_and_rx[1] += load.rx_bps
    return {name: Load(*tx_and_rx) for name, tx_and_rx in found.items()}
