"""Conditions on figures: the contenders that they apply to, and their limits."""

from __future__ import annotations

from collections.abc import Mapping

from topologies import layouts
from topologies.compare.contenders import BONDS, MANUAL, ORACLE, is_ours
from topologies.compare.figures import Figures, Result
from topologies.compare.plan import (
    BEST_PEER,
    EACH_PEER,
    Expectation,
    Rule,
)
from topologies.compare.run import Scenario
from topologies.reports import known_figures

OURS = ("dynamic", "dynamic/lacp", "load-based", "set")


def test_every_contender_is_a_policy_a_peer_manual_or_the_oracle() -> None:
    ours = [*OURS, "adaptive+path-check"]
    every = (MANUAL, ORACLE, *BONDS, *ours)
    assert [name for name in every if is_ours(name)] == ours
    assert [name for name in every if known_figures.is_peer(name)] == [MANUAL, *BONDS]
    assert not is_ours("balance-slbdynamic")


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
