"""Ours beside the peers: who is compared with whom, and when it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.compare.contenders import BONDS, MANUAL
from topologies.compare.expectation import (
    LEAST_THROUGHPUT_RATIO,
    MOST_CPU_RATIO,
    Expectation,
    against_peers,
    at_least,
    best,
    fastest,
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


def test_everybody_is_ours_or_a_peer_or_by_hand() -> None:
    assert [name for name in ("manual", *BONDS, *OURS) if is_ours(name)] == list(OURS)
    assert [name for name in ("manual", *BONDS, *OURS) if is_peer(name)] == list(BONDS)


def test_without_one_of_ours_or_a_peer_there_is_nothing_to_compare() -> None:
    assert against_peers("here", {}) == []
    assert against_peers("here", {"manual": _figures(90), "dynamic": _figures(90)}) == []
    assert against_peers("here", {"manual": _figures(90), "balance-slb": _figures(90)}) == []


def test_the_three_comparisons_name_scenario_contenders_and_ratios() -> None:
    checked = against_peers(
        "here",
        {
            "manual": _figures(200, 0.0, 1.0),
            "balance-slb": _figures(80, 0.5, 5.0),
            "dynamic": _figures(96, 0.1, 5.2),
        },
    )
    assert [(one.condition, one.found, one.met) for one in checked] == [
        (
            "here: throughput of the best of ours >= 0.98 x best peer",
            "dynamic 1.200 x balance-slb",
            True,
        ),
        (
            "here: spread of the best of ours better than the best peer's",
            "CV dynamic 0.100, balance-slb 0.500",
            True,
        ),
        (
            "here: CPU time per bit of the best of ours <= 1.05 x best peer",
            "dynamic 1.040 x balance-slb",
            True,
        ),
    ]


@pytest.mark.parametrize(
    ("ours", "missed"),
    [
        (_figures(97, 0.2, 5.0), "throughput"),
        (_figures(100, 0.31, 5.0), "spread"),
        (_figures(100, 0.3, 5.0), "spread"),
        (_figures(100, 0.2, 5.3), "CPU time"),
    ],
)
def test_each_miss_is_named(ours: Figures, missed: str) -> None:
    checked = against_peers("here", {"dynamic": ours, "balance-slb": _figures(100, 0.3, 5.0)})
    assert len(checked) == 3
    assert [missed in one.condition for one in checked if not one.met] == [True]


def test_where_a_peer_is_even_nothing_is_to_be_won() -> None:
    checked = against_peers(
        "here", {"dynamic": _figures(100, 0.09), "balance-slb": _figures(100, 0.08)}
    )
    assert all(one.met for one in checked)
    assert not any("spread" in one.condition for one in checked)


def test_what_was_not_measured_is_not_compared() -> None:
    bare = {"throughput_bps": 1e6}
    (only,) = against_peers("here", {"dynamic": bare, "balance-slb": bare})
    assert "throughput" in only.condition


def test_throughput_is_that_of_the_fastest_the_rest_that_of_the_most_even() -> None:
    checked = against_peers(
        "here",
        {
            "dynamic": _figures(98.5, 0.4, 9.0),
            "load-based": _figures(97, 0.1, 5.0),
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
def test_the_best_is_as_fast_as_any_but_2_percent_and_the_most_even_of_those(
    found: dict[str, Figures],
) -> None:
    most_bps = max(one["throughput_bps"] for one in found.values())
    assert found[fastest(found)]["throughput_bps"] == most_bps
    chosen = found[best(found)]
    assert chosen["throughput_bps"] >= LEAST_THROUGHPUT_RATIO * most_bps
    for one in found.values():
        as_fast = one["throughput_bps"] >= LEAST_THROUGHPUT_RATIO * most_bps
        assert not as_fast or one["spread_cv"] >= chosen["spread_cv"]


@given(contenders)
def test_the_order_in_which_they_ran_changes_nothing(found: dict[str, Figures]) -> None:
    other_way = dict(reversed(found.items()))
    assert best(found) == best(other_way)
    assert against_peers("here", found) == against_peers("here", other_way)


@given(contenders)
def test_ours_hold_in_throughput_where_no_peer_is_2_percent_faster(
    found: dict[str, Figures],
) -> None:
    ours = [one["throughput_bps"] for name, one in found.items() if is_ours(name)]
    peers = [one["throughput_bps"] for name, one in found.items() if is_peer(name)]
    checked = against_peers("here", found)
    assert bool(checked) == bool(ours and peers)
    if checked:
        holds = max(ours) / max(1.0, *peers) >= LEAST_THROUGHPUT_RATIO
        assert _of(checked, "throughput").met == holds


@given(contenders, st.floats(1.0, 100))
def test_more_cpu_time_for_all_of_ours_never_helps(
    found: dict[str, Figures], factor: float
) -> None:
    dearer = {
        name: {**one, "cpu_s_per_gbit": one["cpu_s_per_gbit"] * (factor if is_ours(name) else 1)}
        for name, one in found.items()
    }
    before, after = (
        [one for one in against_peers("here", each) if "CPU" in one.condition]
        for each in (found, dearer)
    )
    for cheap, dear in zip(before, after, strict=True):
        assert cheap.met or not dear.met
        assert f"{MOST_CPU_RATIO} x best peer" in dear.condition


def test_nobody_is_the_best_of_nobody() -> None:
    assert best({}) == ""
    assert fastest({}) == ""


def test_edges_belong_to_a_range() -> None:
    for value, met in ((0.87, False), (0.88, True), (0.97, True), (0.971, False)):
        found = within("a share", value, 0.88, 0.97)
        assert (found.condition, found.found) == ("a share: 0.880 to 0.970", f"{value:.3f}")
        assert found.met == met
    for value, met in ((0.849, False), (0.85, True), (1.2, True)):
        assert at_least("a share", value, 0.85).met == met
    assert at_least("a share", 0.9, 0.85).condition == "a share: at least 0.850"
