"""Comparison of our policies with the peers: the pairs, and the limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.compare.contenders import BONDS, MANUAL, ORACLE
from topologies.compare.expectation import (
    LEAST_THROUGHPUT_RATIO,
    Expectation,
    against_peers,
    at_least,
    is_ours,
    is_peer,
    within,
)
from topologies.compare.figures import Figures

OURS = ("dynamic", "dynamic/lacp", "load-based", "set")


def _figures(mbps: float, spread_cv: float = 0.01, cpu_s_per_gbit: float = 5.0) -> Figures:
    return {
        "throughput_bps": mbps * 1e6,
        "spread_cv": spread_cv,
        "cpu_s_per_gbit": cpu_s_per_gbit,
    }


def _of(checked: list[Expectation], what: str) -> Expectation:
    (found,) = (one for one in checked if what in one.condition)
    return found


def test_every_contender_is_a_policy_a_peer_manual_or_the_oracle() -> None:
    every = (MANUAL, ORACLE, *BONDS, *OURS)
    assert [name for name in every if is_ours(name)] == list(OURS)
    assert [name for name in every if is_peer(name)] == list(BONDS)


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (_figures(98, 0.2, 5.2), None),
        (_figures(97, 0.2, 5.0), "throughput"),
        (_figures(100, 0.31, 5.0), "spread"),
        (_figures(100, 0.3, 5.0), "spread"),
        (_figures(100, 0.2, 5.3), "CPU time"),
    ],
)
def test_each_unmet_condition_is_named(ours: Figures, missed: str | None) -> None:
    peer = _figures(100, 0.3, 5.0)
    checked = against_peers("here", {"manual": peer, "dynamic": ours, "balance-slb": peer})
    assert [one.condition.partition(":")[0] for one in checked] == ["here"] * 3
    unmet = [one.condition for one in checked if not one.met]
    assert len(unmet) == (missed is not None)
    assert all(missed in one for one in unmet if missed)


def test_throughput_is_of_the_fastest_and_the_rest_of_the_most_even() -> None:
    checked = against_peers(
        "here",
        {
            "dynamic": _figures(98.5, 0.4, 9.0),
            "load-based": _figures(97, 0.1, 5.0),
            "set": _figures(96, 0.05, 1.0),  # not within 2 % of the fastest
            "balance-tcp": _figures(100, 0.6, 9.0),
            "balance-slb": _figures(98.1, 0.2, 5.0),
        },
    )
    assert _of(checked, "throughput").found == "dynamic 0.985 x balance-tcp"
    assert _of(checked, "spread").found == "CV load-based 0.100, balance-slb 0.200"
    assert _of(checked, "CPU time").found == "load-based 1.000 x balance-slb"


some = st.floats(0, 1000)
contenders = st.dictionaries(
    st.sampled_from([MANUAL, *BONDS, *OURS]),
    st.builds(_figures, some, st.floats(0, 3), st.floats(0.1, 100)),
    min_size=1,
)


@given(contenders)
def test_throughput_condition_is_met_unless_a_peer_is_2_percent_faster(
    found: dict[str, Figures],
) -> None:
    ours = [one["throughput_bps"] for name, one in found.items() if is_ours(name)]
    peers = [one["throughput_bps"] for name, one in found.items() if is_peer(name)]
    checked = against_peers("here", found)
    assert bool(checked) == bool(ours and peers)
    if checked:
        holds = max(ours) / max(1.0, *peers) >= LEAST_THROUGHPUT_RATIO
        assert _of(checked, "throughput").met == holds


def test_range_includes_its_ends() -> None:
    for value, met in ((0.87, False), (0.88, True), (0.97, True), (0.971, False)):
        found = within("a share", value, 0.88, 0.97)
        assert (found.condition, found.found) == ("a share: 0.880 to 0.970", f"{value:.3f}")
        assert found.met == met
    for value, met in ((0.849, False), (0.85, True), (1.2, True)):
        assert at_least("a share", value, 0.85).met == met
    assert at_least("a share", 0.9, 0.85).condition == "a share: at least 0.850"
