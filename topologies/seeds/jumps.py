"""Generates load jumps from seeds: a seed gives the same jump on any machine.

A jump has 2 to 4 uplinks of mixed speeds and 4 to 24 VMs that are placed by number. The VMs send at
most 250 Mbit/s in total. The loads of one uplink's VMs rise to 105 to 130 % of its capacity, and
those of every other uplink to less than its capacity. Each VM's load changes at a random time
within 200 ms. Only feasible jumps are generated: a search has found a placement of whole VMs.

The search is a branch and bound over all placements, with the largest loads placed first. Uplinks of equal
capacity and load are one branch. A branch that cannot improve on the best placement so far is cut. The number
of steps is limited.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from topologies.graph.layout import Layout, Role
from topologies.graph.parts import Draft

NAME = "shift_seeds"
# Fast uplinks are more frequent, because their queues fill in the shortest time.
SPEEDS_MBPS = (25, 50, 50, 100, 100, 100, 150)
UPLINKS = (2, 4)
VMS = (4, 24)
MOST_OFFERED_BPS = 250e6
JUMP_RATIO = (1.05, 1.30)
OTHERS_RATIO = (0.05, 0.80)
SPREAD_S = 0.2
# A jump is feasible if a placement keeps every uplink below this share of its capacity.
FEASIBLE_RATIO = 0.85
# Before the jump, the load is even with this probability; otherwise there is almost none.
EVEN_PROBABILITY = 0.6
QUIET_BPS = 100e3
EVEN_RATIO = (0.05, 0.45)
# Every VM sends at least this much, so that its counters always change.
LEAST_BPS = 200e3
# The range of the lognormal sigma that the loads of one uplink's VMs differ by.
SIGMA = (0.2, 1.2)
# The search for the best placement ends within this ratio of the lower bound.
TOLERANCE_RATIO = 0.01
# Each step places one load. A few hundred steps nearly always decide whether loads fit. The best
# placement can take exponentially many steps, so its search accepts a good one.
MOST_STEPS = 300_000
MOST_STEPS_FOR_BEST = 50_000

Placement = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM's load, which changes `start_s` after the beginning of the jump.

    `home` is the index of its uplink before the jump. Rates include Ethernet headers.
    """

    home: int
    before_bps: float
    after_bps: float
    start_s: float


@dataclass(frozen=True, slots=True)
class Jump:
    """A load jump: the uplinks, and each VM's home, rates and start time."""

    name: str
    capacities_bps: tuple[int, ...]
    vms: tuple[Vm, ...]

    @property
    def last_start_s(self) -> float:
        """When the last load starts, since the beginning of the jump."""
        return max(vm.start_s for vm in self.vms)

    @property
    def offered_bps(self) -> float:
        """The total rate after all loads have started."""
        return sum(vm.after_bps for vm in self.vms)

    @property
    def homes(self) -> tuple[int, ...]:
        """The placement before the jump: each VM's home."""
        return tuple(vm.home for vm in self.vms)

    def home_utilizations(self) -> list[float]:
        """Each uplink's offered load over its capacity after the jump, if no VM moves."""
        offered = [0.0] * len(self.capacities_bps)
        for vm in self.vms:
            offered[vm.home] += vm.after_bps
        return [bps / most for bps, most in zip(offered, self.capacities_bps, strict=True)]

    def layout(self) -> Layout:
        """The network of the jump. Placement by port number puts each VM on its home."""
        draft = Draft(NAME)
        draft.switches("server", role=Role.SERVER_BRIDGE)
        draft.switches("upstream")
        draft.uplinks("server", ["upstream"], [bps // 10**6 for bps in self.capacities_bps])
        for number, home in enumerate(self.homes):
            draft.vnic(
                f"vm{number + 1}",
                "server",
                address=f"10.1.0.{number + 1}/16",
                ofport=len(self.capacities_bps) * (10 + number) + home,
                home=f"uplink{home + 1}",
            )
        draft.clients("upstream", 2, network="10.1.1")
        return draft.layout()


def generate(seed: int) -> Jump:
    """Generate the jump of a seed."""
    # Python seeds from a string by its bytes, independent of the hash seed of the process.
    rng = random.Random(f"ovs-lbt shift {seed}")
    while True:
        made = _draw(rng, f"seed-{seed}")
        loads = [vm.after_bps for vm in made.vms]
        if made.offered_bps <= MOST_OFFERED_BPS and find_below(
            loads, made.capacities_bps, FEASIBLE_RATIO
        ):
            return made


def _draw(rng: random.Random, name: str) -> Jump:
    uplinks = rng.randint(*UPLINKS)
    capacities_bps = tuple(rng.choice(SPEEDS_MBPS) * 10**6 for _ in range(uplinks))
    count = max(rng.randint(*VMS), uplinks)
    homes = [number % uplinks for number in range(count)]
    hot_uplink = rng.randrange(uplinks)
    sigma = rng.uniform(*SIGMA)
    even_ratio = rng.uniform(*EVEN_RATIO) if rng.random() < EVEN_PROBABILITY else 0.0
    after_bps = _loads_after(rng, capacities_bps, homes, hot_uplink, sigma)
    vms = tuple(
        Vm(
            home=home,
            before_bps=max(QUIET_BPS, even_ratio * capacities_bps[home] / homes.count(home)),
            after_bps=round(after_bps[number], -1),
            start_s=round(rng.uniform(0.0, SPREAD_S), 4),
        )
        for number, home in enumerate(homes)
    )
    return Jump(name, capacities_bps, vms)


def _loads_after(
    rng: random.Random,
    capacities_bps: Sequence[int],
    homes: Sequence[int],
    hot_uplink: int,
    sigma: float,
) -> list[float]:
    """Each VM's rate after the jump."""
    after_bps = [0.0] * len(homes)
    for uplink, capacity_bps in enumerate(capacities_bps):
        ratio = rng.uniform(*(JUMP_RATIO if uplink == hot_uplink else OTHERS_RATIO))
        members = [number for number, home in enumerate(homes) if home == uplink]
        weights = [rng.lognormvariate(0.0, sigma) for _ in members]
        # The weights divide what is left above every VM's minimum, if anything is.
        spare_bps = max(0.0, ratio * capacity_bps - LEAST_BPS * len(members))
        for number, weight in zip(members, weights, strict=True):
            after_bps[number] = LEAST_BPS + spare_bps * weight / sum(weights)
    return after_bps


def worst_ratio(
    loads: Sequence[float], capacities: Sequence[float], placement: Sequence[int]
) -> float:
    """The load of the most utilized uplink as a share of its capacity."""
    sums = [0.0] * len(capacities)
    for load, uplink in zip(loads, placement, strict=True):
        sums[uplink] += load
    return max(total / capacity for total, capacity in zip(sums, capacities, strict=True))


def find_below(
    loads: Sequence[float], capacities: Sequence[float], below_ratio: float
) -> Placement | None:
    """Find a placement that keeps every uplink below this share of its capacity.

    Returns None if no such placement exists, or if the search did not find one in `MOST_STEPS`.
    """
    return _search(loads, capacities, below_ratio, below_ratio, MOST_STEPS)


def find_best(
    loads: Sequence[float], capacities: Sequence[float], homes: Sequence[int] | None = None
) -> Placement:
    """Find the placement with the lowest worst utilization, within `TOLERANCE_RATIO`.

    Among equally utilized uplinks the search tries a load's home first, so it prefers placements
    near `homes`. After `MOST_STEPS_FOR_BEST` steps it returns the best placement so far.
    """
    target_ratio = lower_bound_ratio(loads, capacities) * (1 + TOLERANCE_RATIO)
    found = _search(loads, capacities, float("inf"), target_ratio, MOST_STEPS_FOR_BEST, homes)
    assert found is not None, "without a limit, every placement qualifies"
    return found


def lower_bound_ratio(loads: Sequence[float], capacities: Sequence[float]) -> float:
    """A lower bound on the worst utilization: divisible loads, or the largest load alone."""
    return max(sum(loads) / sum(capacities), max(loads, default=0.0) / max(capacities))


def _search(
    loads: Sequence[float],
    capacities: Sequence[float],
    below_ratio: float,
    target_ratio: float,
    most_steps: int,
    homes: Sequence[int] | None = None,
) -> Placement | None:
    """The last placement that a search has found; each one is below the one before it."""
    order = sorted(range(len(loads)), key=lambda number: (-loads[number], number))
    # By the number of placed loads: the sum of the others.
    remaining = [*accumulate((loads[number] for number in reversed(order)), initial=0.0)][::-1]
    sums, placed = [0.0] * len(capacities), [0] * len(loads)
    found: Placement | None = None
    steps = 0

    def branches(number: int) -> list[int]:
        """The uplinks to try, the least utilized first, and one of those that are interchangeable."""

        def rank(uplink: int) -> tuple[float, bool]:
            used = (sums[uplink] + loads[number]) / capacities[uplink]
            return used, homes is not None and homes[number] != uplink

        kinds: dict[tuple[float, float], int] = {}
        for uplink in sorted(range(len(capacities)), key=rank):
            kinds.setdefault((sums[uplink], capacities[uplink]), uplink)
        return [*kinds.values()]

    def remaining_fit(place: int) -> bool:
        """Whether the remaining loads would fit if they were divisible."""
        rooms = (below_ratio * most - used for used, most in zip(sums, capacities, strict=True))
        return below_ratio == float("inf") or remaining[place] < sum(rooms)

    def extend(place: int) -> bool:
        """Place the loads from `place` on. Returns whether the search is over."""
        nonlocal below_ratio, found, steps
        if place == len(order):
            found = tuple(placed)
            below_ratio = worst_ratio(loads, capacities, placed)
            return below_ratio <= target_ratio
        if not remaining_fit(place):
            return False
        number = order[place]
        for uplink in branches(number):
            steps += 1
            if steps > most_steps:
                return True
            before = sums[uplink]
            if (before + loads[number]) / capacities[uplink] >= below_ratio:
                continue
            sums[uplink], placed[number] = before + loads[number], uplink
            over = extend(place + 1)
            sums[uplink] = before
            if over:
                return True
        return False

    extend(0)
    return found
