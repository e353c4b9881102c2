"""Teams with heavy-tailed loads, what a plan makes of them, and the best there is."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from policies.model import Load, OfPort, Plan, Snapshot, Unit, Uplink
from policies.optimum import least_worst_ratio
from policies.planners import splitting

MBPS = 1e6
CAPACITIES_MBPS = (1000, 10_000, 25_000)
# Where a plan is no more than that above the bound, nobody needs to ask the solver.
NEAR_RATIO = 1.005


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


def best_ratio(snapshot: Snapshot, nodes: int) -> float:
    """The least worst utilization, by HiGHS; where it does not close, its bound or ours.

    `nodes`: after how many it stops, so that the answer does not depend on how busy the machine is.
    """
    uplinks, units = snapshot.uplinks, snapshot.units
    m, n = len(uplinks), len(units)
    loads = np.array([[u.load.tx_bps for u in units], [u.load.rx_bps for u in units]])
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []

    def put(row: int, column: int, value: float) -> None:
        rows.append(row)
        columns.append(column)
        values.append(value)

    for i in range(n):
        for j in range(m):
            put(i, i * m + j, 1.0)
            for d in (0, 1):
                put(n + 2 * j + d, i * m + j, loads[d][i] / uplinks[j].capacity_bps)
    for row in range(n, n + 2 * m):
        put(row, n * m, -1.0)
    lower = np.concatenate([np.ones(n), np.full(2 * m, -np.inf)])
    upper = np.concatenate([np.ones(n), np.zeros(2 * m)])
    # Any: how exactly it is typed depends on the release of numpy, which Debian may bring.
    matrix: Any = csr_array((values, (rows, columns)), shape=(n + 2 * m, n * m + 1))
    bound = least_worst_ratio(uplinks, units)
    cost = np.zeros(n * m + 1)
    cost[-1] = 1.0
    found = milp(
        cost,
        integrality=np.concatenate([np.ones(n * m), [0]]),
        bounds=Bounds(
            np.concatenate([np.zeros(n * m), [bound]]), np.concatenate([np.ones(n * m), [np.inf]])
        ),
        constraints=LinearConstraint(matrix, lower, upper),
        options={"node_limit": nodes, "mip_rel_gap": 1e-4},
    )
    dual = getattr(found, "mip_dual_bound", None)
    return max(bound, float(dual) if dual is not None else 0.0)


def ratios(seeds: Iterable[int], nodes: int) -> Iterator[float]:
    """What plans reach, as multiples of the optimum, or of a bound of it."""
    for seed in seeds:
        snapshot = instance(seed)
        reached = worst_ratio(after(snapshot, splitting.plan(snapshot)))
        bound = least_worst_ratio(snapshot.uplinks, snapshot.units)
        yield reached / (best_ratio(snapshot, nodes) if reached > bound * NEAR_RATIO else bound)
