"""Comparison of our policies with the peers: the pairs, and the limits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import layouts
from topologies.compare.contenders import BONDS, MANUAL, ORACLE, is_ours
from topologies.compare.expectation import (
    BEST_PEER,
    EACH_PEER,
    LEAST_THROUGHPUT_RATIO,
    Expectation,
    Rule,
    against_peers,
    is_peer,
)
from topologies.compare.figures import Figures, Result
from topologies.compare.scenario import Scenario

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


def _checked(rule: Rule, *runs: Mapping[str, Figures]) -> list[Expectation]:
    names = list(runs[0])
    layout = layouts.shift()
    scenario = Scenario("here", "", layout, lambda _: NotImplemented, tuple(names))
    return rule.check([Result(scenario, {n: [run[n] for run in runs] for n in names}, {})])


def test_range_includes_its_ends() -> None:
    rule = Rule("a share", "share", (), least=0.88, most=0.97)
    for value, met in ((0.87, False), (0.88, True), (0.97, True), (0.971, False)):
        (found,) = _checked(rule, {"dynamic": {"share": value}})
        assert found == Expectation("here, dynamic: a share", f"{value:.3f}", met)
    assert _checked(Rule("a share", "share", (), ["there"]), {"dynamic": {"share": 1}}) == []


def test_contenders_are_those_that_ran_and_measured_the_figure() -> None:
    both = {"dynamic": {"lost": 2.0}, "balance-slb": {"lost": 1.0}, "manual": {}}
    assert [one.condition for one in _checked(Rule("x", "lost"), both)] == ["here, dynamic: x"]
    assert len(_checked(Rule("x", "lost", ()), both)) == 2
    assert len(_checked(Rule("x", "lost", (), missing=3.0), both)) == 3
    (found,) = _checked(Rule("fewer lost", "lost", than=EACH_PEER), both)
    assert found == Expectation(
        "here, dynamic: fewer lost than balance-slb", "2.000 and 1.000", False
    )


def test_worst_run_counts_if_the_rule_says_so() -> None:
    runs = [{"dynamic": {"lost": lost}} for lost in (0.0, 0.0, 4.0)]
    for worst, met in ((False, True), (True, False)):
        (found,) = _checked(Rule("x", "lost", most=1.0, worst_run=worst), *runs)
        assert found.met == met


def test_ratio_is_to_the_contender_or_to_the_fastest_peer() -> None:
    bps = {"set": 90.0, "balance-slb": 100.0, "active-backup": 50.0}
    runs = {name: {"throughput_bps": 1e6 * mbps} for name, mbps in bps.items()}
    for over, ratio in ((BEST_PEER, "0.900"), ("active-backup", "1.800"), ("manual", None)):
        found = _checked(Rule("x", "throughput_bps", ["set"], over=over, least=0.95), runs)
        assert [one.found for one in found] == ([ratio] if ratio else [])
