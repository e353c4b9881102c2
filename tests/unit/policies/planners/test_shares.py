"""Buckets by capacity: exact shares, and nobody moves who need not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policies import failover
from policies.homes import homes as placed_by_rules
from policies.model import OfPort, Role, Unit, Uplink
from policies.planners import static

BUCKETS = tuple(Unit(f"address-hash/{i}", i, "address-hash", is_bucket=True) for i in range(256))


def uplinks(*capacities: float) -> tuple[Uplink, ...]:
    return tuple(Uplink(f"eth{i}", OfPort(i), c) for i, c in enumerate(capacities, 1))


def at(homes: dict[str, str]) -> tuple[Unit, ...]:
    return tuple(replace(unit, uplink=homes.get(unit.name)) for unit in BUCKETS)


def moved(before: dict[str, str], after: dict[str, str]) -> int:
    return sum(before[name] != after[name] for name in after)


CAPACITIES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(CAPACITIES)
def test_shares_are_those_of_capacity_to_one_bucket(capacities: list[int]) -> None:
    team = uplinks(*capacities)
    count = Counter(static.by_capacity(BUCKETS, team).values())
    for uplink in team:
        exact = 256 * uplink.capacity_bps / sum(capacities)
        assert abs(count[uplink.name] - exact) < 1


@given(CAPACITIES)
def test_what_has_its_share_stays(capacities: list[int]) -> None:
    homes = static.by_capacity(BUCKETS, uplinks(*capacities))
    assert static.by_capacity(at(homes), uplinks(*capacities)) == homes


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.data())
def test_an_uplink_that_leaves_or_joins_concerns_its_own_share_only(
    capacities: list[int], data: st.DataObject
) -> None:
    whole = uplinks(*capacities)
    gone = data.draw(st.sampled_from(whole))
    rest = tuple(uplink for uplink in whole if uplink is not gone)
    before = static.by_capacity(BUCKETS, whole)
    without = static.by_capacity(at(before), rest)
    its_own = Counter(before.values())[gone.name]
    rounding = len(rest)
    assert its_own <= moved(before, without) <= its_own + rounding
    again = static.by_capacity(at(without), whole)
    assert Counter(again.values())[gone.name] == its_own
    assert moved(without, again) <= its_own + rounding


def test_after_a_failover_that_nobody_remembers_its_buckets_are_found_again() -> None:
    """Of a service that starts while an uplink is down, and reads who uses which."""
    whole = uplinks(10, 10, 10)
    homes = static.by_capacity(BUCKETS, whole)
    in_force = {}
    for unit in BUCKETS:
        order = failover.order(unit.name, homes[unit.name], whole, failover.scattered)
        in_force[unit.name] = next(u.name for u in order if u.name != "eth2")
    found = static.by_capacity(at(in_force), whole)
    assert moved(homes, found) <= 256 // 20


@given(st.lists(st.sampled_from(Role), min_size=1, max_size=5))
def test_every_bucket_has_a_home(roles: list[Role]) -> None:
    team = tuple(replace(u, role=r) for u, r in zip(uplinks(*[10] * 5), roles, strict=False))
    homes = placed_by_rules(BUCKETS, team).by_name
    assert homes.keys() == {unit.name for unit in BUCKETS}
    if Role.ACTIVE in roles:
        roles_used = {u.role for u in team if u.name in homes.values()}
        assert roles_used == {Role.ACTIVE}
