"""The vendors' policies: what hashes to where, and the teams that each works on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.classifiers import Classifier
from policies.model import Load, OfPort, Role, Snapshot, Unit, Uplink
from policies.presets import PRESETS
from tests.unit.examples import examples

LBFO_PRESETS, SET_PRESETS = ("address-hash", "dynamic"), ("set", "set-port")
ANY = ("switch-independent", "static", "lacp")


def uplinks(count: int, *, role: Role = Role.ACTIVE, mbps: float = 1000) -> list[Uplink]:
    team = [Uplink(f"eth{i}", OfPort(i), 1e9) for i in range(1, count + 1)]
    last = team[-1]
    return [*team[:-1], Uplink(last.name, last.ofport, mbps * 1e6, role)]


@pytest.mark.parametrize("policy", PRESETS)
def test_ip_hash_alone_needs_one_link_upstream_and_set_alone_forbids_it(policy: str) -> None:
    limits = PRESETS[policy].limits
    works_in = {t for t in ANY if not list(limits.violations(t, uplinks(2)))}
    if policy == "ip-hash":
        assert works_in == {"static", "lacp"}
    elif policy in SET_PRESETS:
        assert works_in == {"switch-independent"}
    else:
        assert works_in == set(ANY)


@pytest.mark.parametrize("policy", SET_PRESETS)
def test_each_violation_of_set_is_named(policy: str) -> None:
    limits = PRESETS[policy].limits
    assert list(limits.violations("lacp", uplinks(9, role=Role.STANDBY, mbps=100))) == [
        ("teaming lacp", "teaming switch-independent"),
        ("9 uplinks", "at most 8"),
        ("uplinks of 100, 1000 Mbit/s", "uplinks of one speed"),
        ("standby uplinks (eth9)", "no standby uplink"),
    ]
    assert list(limits.violations("switch-independent", uplinks(8))) == []
    assert list(limits.violations("switch-independent", uplinks(2, mbps=0))) == []


@pytest.mark.parametrize("policy", LBFO_PRESETS)
def test_lbfo_takes_32_uplinks(policy: str) -> None:
    limits = PRESETS[policy].limits
    assert list(limits.violations("lacp", uplinks(32))) == []
    assert list(limits.violations("lacp", uplinks(33))) == [("33 uplinks", "at most 32")]


def test_ip_hash_has_a_bucket_for_each_uplink_and_others_have_256() -> None:
    assert Classifier.IP_PAIR.buckets(3) == 3
    assert {c.buckets(3) for c in Classifier if c.hashed} == {3, 256}
    assert Classifier.VM_PORT.buckets(3) == 0


@pytest.mark.parametrize("policy", [name for name, preset in PRESETS.items() if preset.is_calm])
@settings(max_examples=examples(60))
@given(
    fill=st.floats(0, 0.7),
    more=st.lists(st.tuples(*[st.floats(0, 0.05)] * 2), min_size=2, max_size=4),
    carried=st.lists(st.tuples(*[st.floats(0, 2e9)] * 2), min_size=1, max_size=6),
    part=st.floats(0, 1),
)
def test_what_is_calm_moves_nothing_whatever_units_carry_nor_do_means_of_it(
    policy: str,
    fill: float,
    more: list[tuple[float, float]],
    carried: list[tuple[float, float]],
    part: float,
) -> None:
    preset, count = PRESETS[policy], len(more)
    units = tuple(
        Unit(f"unit{n}", n, policy, uplink=f"eth{n % count + 1}", load=Load(tx, rx))
        for n, (tx, rx) in enumerate(carried)
    )

    def team(ratios: Iterable[float], units: tuple[Unit, ...] = ()) -> Snapshot:
        loads = [Load(1e9 * ratio, 1e9 * ratio) for ratio in ratios]
        made = (replace(u, load=load) for u, load in zip(uplinks(count), loads, strict=True))
        return Snapshot(tuple(made), units)

    one, other = ([fill + of[i] for of in more] for i in (0, 1))
    assert preset.is_calm is not None
    assume(preset.is_calm(team(one)) and preset.is_calm(team(other)))
    mean = [part * a + (1 - part) * b for a, b in zip(one, other, strict=True)]
    for ratios in (one, other, mean):
        assert not preset.rebalance(team(ratios, units)).moves
