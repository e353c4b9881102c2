"""Jumps of load by number: the same number is the same jump, on any machine.

2 to 4 uplinks of mixed speeds, 4 to 24 VMs that are placed by number, at most 250 Mbit/s in
all. The loads of one uplink's VMs together go to 105 to 130 % of what it carries, those of
the others to less than they carry, each at a moment of its own within 200 ms. Only jumps
that a placement of whole VMs answers, which a search has found.
"""

from __future__ import annotations

import random

from topologies.seeds.instance import FITS_RATIO, Instance, Vm
from topologies.seeds.placing import fitting

# The fast ones oftener: their queues are the shortest in time.
SPEEDS_MBPS = (25, 50, 50, 100, 100, 100, 150)
UPLINKS = (2, 4)
VMS = (4, 24)
MOST_OFFERED_BPS = 250e6
JUMP_RATIO = (1.05, 1.30)
OTHERS_RATIO = (0.05, 0.80)
SPREAD_S = 0.2
# Before the jump: an even load, of which some VMs' share falls, or nearly nothing.
EVEN_SHARE = 0.6
QUIET_BPS = 100e3
EVEN_RATIO = (0.05, 0.45)
# Every VM sends so much at least, which is seen in any counter.
LEAST_BPS = 200e3
# How unlike the loads of one uplink's VMs are: the sigma of a lognormal.
UNLIKE = (0.2, 1.2)


def generate(seed: int) -> Instance:
    """The jump of this number."""
    # A text: hashed by its bytes, not by Python's hash of the day.
    drawn = random.Random(f"ovs-lbt shift {seed}")
    while True:
        made = _draw(drawn, f"seed-{seed}")
        if made.offered_bps <= MOST_OFFERED_BPS and answered(made):
            return made


def answered(instance: Instance) -> bool:
    """Whether a search finds a placement that keeps every uplink below `FITS_RATIO`."""
    loads = [vm.after_bps for vm in instance.vms]
    return fitting(loads, instance.capacities_bps, FITS_RATIO) is not None


def _draw(drawn: random.Random, name: str) -> Instance:
    uplinks = drawn.randint(*UPLINKS)
    capacities_bps = tuple(drawn.choice(SPEEDS_MBPS) * 10**6 for _ in range(uplinks))
    count = max(drawn.randint(*VMS), uplinks)
    homes = [number % uplinks for number in range(count)]
    jumps = drawn.randrange(uplinks)
    unlike = drawn.uniform(*UNLIKE)
    even_ratio = drawn.uniform(*EVEN_RATIO) if drawn.random() < EVEN_SHARE else 0.0
    after_bps = [0.0] * count
    for uplink, capacity_bps in enumerate(capacities_bps):
        ratio = drawn.uniform(*(JUMP_RATIO if uplink == jumps else OTHERS_RATIO))
        there = [number for number, home in enumerate(homes) if home == uplink]
        weights = [drawn.lognormvariate(0.0, unlike) for _ in there]
        # What is left above the least is divided; an uplink whose VMs' least is more has that.
        spare_bps = max(0.0, ratio * capacity_bps - LEAST_BPS * len(there))
        for number, weight in zip(there, weights, strict=True):
            after_bps[number] = LEAST_BPS + spare_bps * weight / sum(weights)
    vms = tuple(
        Vm(
            home=home,
            before_bps=max(QUIET_BPS, even_ratio * capacities_bps[home] / homes.count(home)),
            after_bps=round(after_bps[number], -1),
            start_s=round(drawn.uniform(0.0, SPREAD_S), 4),
        )
        for number, home in enumerate(homes)
    )
    return Instance(name, capacities_bps, vms)
