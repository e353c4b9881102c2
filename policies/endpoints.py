"""Assigns VMs to tunnel endpoints by load.

A host with several endpoints carries each VM's tunnel traffic on one of them. Placing VMs
on endpoints is the same problem as placing units on uplinks: the planner of `adaptive` solves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.model import Load, OfPort, Role, Snapshot, Unit, Uplink
from policies.planners import minmax


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM's port, its load, and the endpoint that it uses; None: the endpoint is not known."""

    name: str
    load: Load
    endpoint: str | None = None


def assign(vms: Sequence[Vm], capacities_bps: Mapping[str, float]) -> dict[str, str]:
    """Return the endpoint for every VM, so that as few VMs as possible change their endpoint.

    `capacities_bps`: the capacity of each endpoint per direction. A VM whose endpoint is unknown or
    not in `capacities_bps` is assigned an endpoint. Other VMs move only if that is worthwhile.
    """
    placed: dict[str, str] = {}
    used = dict.fromkeys(capacities_bps, Load())
    for vm in vms:
        if vm.endpoint in used:
            placed[vm.name] = vm.endpoint
            used[vm.endpoint] += vm.load
    unplaced = [vm for vm in vms if vm.name not in placed]
    for vm in sorted(unplaced, key=lambda vm: (-max(vm.load.tx_bps, vm.load.rx_bps), vm.name)):
        # The largest first, each to the endpoint that is emptiest with it. Idle VMs spread, too.
        counts = Counter(placed.values())
        ratios = {
            name: (used[name] + vm.load).utilization_ratio(capacity_bps)
            for name, capacity_bps in capacities_bps.items()
        }
        best = min(ratios, key=lambda name: (ratios[name], counts[name], name))
        placed[vm.name] = best
        used[best] += vm.load
    uplinks = [
        Uplink(name, OfPort(number), capacity_bps, Role.ACTIVE, load=used[name])
        for number, (name, capacity_bps) in enumerate(sorted(capacities_bps.items()), 1)
    ]
    units = [
        Unit(vm.name, number, uplink=placed[vm.name], load=vm.load)
        for number, vm in enumerate(vms, 1)
    ]
    for move in minmax.plan(Snapshot(tuple(uplinks), tuple(units))).moves:
        placed[move.unit] = move.target
    return placed
