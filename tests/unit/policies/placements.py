"""Teams with heavy-tailed loads, what a plan makes of them, and the best there is."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

from policies.model import Load, OfPort, Plan, Snapshot, Unit, Uplink

MBPS = 1e6
CAPACITIES_MBPS = (1000, 10_000, 25_000)


def instance(seed: int, uplinks: int | None = None, units: int | None = None) -> Snapshot:
    """A team of 2 to 8 uplinks, every other one of mixed speeds, with 4 to 200 VM ports."""
    rng = random.Random(seed)
    count = uplinks or rng.randint(2, 8)
    mixed = rng.random() < 0.5
    speeds = [rng.choice(CAPACITIES_MBPS) if mixed else 10_000 for _ in range(count)]
    size = units or round(4 * 50 ** rng.random())
    sent = [rng.paretovariate(1.2) * rng.random() for _ in range(size)]
    received = [rng.paretovariate(1.2) * rng.random() for _ in range(size)]
    fill = rng.uniform(0.4, 1.0) * sum(speeds) * MBPS / max(sum(sent), sum(received))
    names = [f"eth{i}" for i in range(count)]
    ports = tuple(
        Unit(f"vnet{i}", i, uplink=names[i % count], load=Load(tx * fill, rx * fill))
        for i, (tx, rx) in enumerate(zip(sent, received, strict=True))
    )
    team = tuple(
        Uplink(name, OfPort(100 + i), speed * MBPS)
        for i, (name, speed) in enumerate(zip(names, speeds, strict=True))
    )
    return loaded(Snapshot(team, ports))


def loaded(snapshot: Snapshot) -> Snapshot:
    """Uplinks with what the units carry that are on them."""
    loads = {uplink.name: Load() for uplink in snapshot.uplinks}
    for unit in snapshot.units:
        loads[str(unit.uplink)] += unit.load
    return replace(
        snapshot, uplinks=tuple(replace(u, load=loads[u.name]) for u in snapshot.uplinks)
    )


def after(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The team once the moves are made."""
    targets = {move.unit: move.target for move in plan.moves}
    units = tuple(replace(u, uplink=targets.get(u.name, u.uplink)) for u in snapshot.units)
    in_sets = tuple(replace(u, uplink=targets.get(u.name, u.uplink)) for u in snapshot.in_sets)
    return loaded(replace(snapshot, units=units, in_sets=in_sets))


def worst_ratio(snapshot: Snapshot) -> float:
    return max(uplink.utilization_ratio for uplink in snapshot.uplinks)


def best_ratio(snapshot: Snapshot) -> float:
    """The least worst utilization of all placements there are, for few units."""
    uplinks, loads = snapshot.uplinks, [(u.load.tx_bps, u.load.rx_bps) for u in snapshot.units]
    best = worst_ratio(snapshot)
    for way in itertools.product(range(len(uplinks)), repeat=len(loads)):
        carried = [[0.0, 0.0] for _ in uplinks]
        for at, (tx_bps, rx_bps) in zip(way, loads, strict=True):
            carried[at][0] += tx_bps
            carried[at][1] += rx_bps
        ratios = (max(of) / u.capacity_bps for of, u in zip(carried, uplinks, strict=True))
        best = min(best, max(ratios))
    return best
