"""Generates load jumps from seeds: a seed gives the same jump on any machine.

A jump has 2 to 4 uplinks of mixed speeds and 4 to 24 VMs that are placed by number. The VMs send at
most 250 Mbit/s in total. The loads of one uplink's VMs rise to 105 to 130 % of its capacity, and
those of every other uplink to less than its capacity. Each VM's load changes at a random time
within 200 ms. Only feasible jumps are generated: a search has found a placement of whole VMs.
"""

from __future__ import annotations

import random

from topologies.seeds.instance import FEASIBLE_RATIO, Instance, Vm
from topologies.seeds.placement_search import find_below

# Fast uplinks are more frequent, because their queues fill in the shortest time.
SPEEDS_MBPS = (25, 50, 50, 100, 100, 100, 150)
UPLINKS = (2, 4)
VMS = (4, 24)
MOST_OFFERED_BPS = 250e6
JUMP_RATIO = (1.05, 1.30)
OTHERS_RATIO = (0.05, 0.80)
SPREAD_S = 0.2
# Before the jump, the load is even with this probability; otherwise there is almost none.
EVEN_PROBABILITY = 0.6
QUIET_BPS = 100e3
EVEN_RATIO = (0.05, 0.45)
# Every VM sends at least this much, so that its counters always change.
LEAST_BPS = 200e3
# The range of the lognormal sigma that the loads of one uplink's VMs differ by.
SIGMA = (0.2, 1.2)


def generate(seed: int) -> Instance:
    """Generate the jump of a seed."""
    # Python seeds from a string by its bytes, independent of the hash seed of the process.
    rng = random.Random(f"ovs-lbt shift {seed}")
    while True:
        made = _draw(rng, f"seed-{seed}")
        if made.offered_bps <= MOST_OFFERED_BPS and is_feasible(made):
            return made


def is_feasible(instance: Instance) -> bool:
    """Whether a search finds a placement that keeps every uplink below `FEASIBLE_RATIO`."""
    loads = [vm.after_bps for vm in instance.vms]
    return find_below(loads, instance.capacities_bps, FEASIBLE_RATIO) is not None


def _draw(rng: random.Random, name: str) -> Instance:
    uplinks = rng.randint(*UPLINKS)
    capacities_bps = tuple(rng.choice(SPEEDS_MBPS) * 10**6 for _ in range(uplinks))
    count = max(rng.randint(*VMS), uplinks)
    homes = [number % uplinks for number in range(count)]
    hot_uplink = rng.randrange(uplinks)
    sigma = rng.uniform(*SIGMA)
    even_ratio = rng.uniform(*EVEN_RATIO) if rng.random() < EVEN_PROBABILITY else 0.0
    after_bps = [0.0] * count
    for uplink, capacity_bps in enumerate(capacities_bps):
        ratio = rng.uniform(*(JUMP_RATIO if uplink == hot_uplink else OTHERS_RATIO))
        members = [number for number, home in enumerate(homes) if home == uplink]
        weights = [rng.lognormvariate(0.0, sigma) for _ in members]
        # The weights divide what is left above every VM's minimum, if anything is.
        spare_bps = max(0.0, ratio * capacity_bps - LEAST_BPS * len(members))
        for number, weight in zip(members, weights, strict=True):
            after_bps[number] = LEAST_BPS + spare_bps * weight / sum(weights)
    vms = tuple(
        Vm(
            home=home,
            before_bps=max(QUIET_BPS, even_ratio * capacities_bps[home] / homes.count(home)),
            after_bps=round(after_bps[number], -1),
            start_s=round(rng.uniform(0.0, SPREAD_S), 4),
        )
        for number, home in enumerate(homes)
    )
    return Instance(name, capacities_bps, vms)
