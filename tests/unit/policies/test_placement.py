"""Permitted moves, and large sets; test_reservations_oracle.py compares placements with the best one."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from policies import homes, placement, rules
from policies.model import Rules
from policies.seating import Candidate
from tests.unit.policies.test_reservations_oracle import SHARDS, cases

NAMES = ("eth0", "eth1", "eth2")


@pytest.mark.slow
def test_no_permitted_move_breaks_another_rule() -> None:
    for seed, team in cases(SHARDS + 1, 150):
        at_home = homes.homes(team.units, team.uplinks).by_name
        there = [replace(u, uplink=at_home[u.name]) for u in team.units if u.name in at_home]
        before = rules.broken(rules.found(there))
        for unit, target in itertools.product(there, (uplink.name for uplink in team.uplinks)):
            if rules.permits(unit, target, there):
                moved = [replace(u, uplink=target) if u is unit else u for u in there]
                after = rules.broken(rules.found(moved))
                its_own = {key for key in after if key[0] == unit.name and key[1] != "pin"}
                assert its_own <= before.keys(), seed


def test_hundreds_in_sets_are_all_placed_with_few_pairs() -> None:
    many = [
        Candidate(
            f"vm{i}",
            NAMES,
            (0, 0, 0),
            NAMES[i * 7 % 3],
            Rules(affinity=f"X{i % 30}" if i < 120 else None, anti_affinity=f"A{i * i % 23}"),
        )
        for i in range(400)
    ]
    found = placement.place(many)
    assert found.keys() == {c.name for c in many}
    together = {(c.rules.affinity, found[c.name]) for c in many if c.rules.affinity}
    assert len(together) == len({affinity for affinity, _ in together}), "each on one uplink"
    apart = Counter((c.rules.anti_affinity, found[c.name]) for c in many)
    assert sum(map(pairs, apart.values())) <= 1.1 * _fewest_pairs(many)


def test_an_affinity_set_of_thousands_that_cannot_be_together_is_placed() -> None:
    ways = (NAMES[2:], NAMES[:2])
    many = [
        Candidate(
            f"vm{i:04}",
            ways[i % 2],
            (0,) * len(ways[i % 2]),
            rules=Rules(affinity="X", anti_affinity=f"A{i % 7}"),
        )
        for i in range(1500)
    ]
    assert placement.place(many).keys() == {c.name for c in many}


def pairs(count: int) -> int:
    return count * (count - 1) // 2


def _fewest_pairs(many: Sequence[Candidate]) -> int:
    """A bound: each anti-affinity set spread evenly by itself."""
    sizes = [len([c for c in many if c.rules.anti_affinity == f"A{i}"]) for i in range(23)]
    evenly = [[size // 3 + (i < size % 3) for i in range(3)] for size in sizes]
    return sum(pairs(n) for of_set in evenly for n in of_set)
