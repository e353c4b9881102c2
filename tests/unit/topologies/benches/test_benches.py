"""The bench of every layout: its scenarios and expectations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import cast

import pytest

from tests.unit.topologies import bench_runs
from topologies import LAYOUT_NAMES, benches
from topologies.benches import converged, mixed_speed, quad_gbe_team, shift
from topologies.benches.plans import PLANS
from topologies.compare import contenders
from topologies.compare.expectation import Expectation, is_ours, is_peer
from topologies.compare.figures import Figures
from topologies.compare.pace import ACCELERATED, FAITHFUL, QUICK, Pace
from topologies.compare.plan import Options
from topologies.compare.result import Result
from topologies.compare.run import Observed
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Role
from topologies.loads.flow_arrivals import Span, offered_bps
from topologies.loads.flow_load import FlowLoad
from topologies.loads.load import Stage
from topologies.network.private_ovs import PrivateOvs

OPTIONS = Options(ACCELERATED)
every_bench = pytest.mark.parametrize("name", PLANS)
# The duration of a load is known from the start, except for a migration.
OPEN_ENDED = ("live_migration",)

# Additional figures of loads, with values that meet the expectations of every bench.
MEASURED: Mapping[str, float] = {
    "steady_throughput_bps": 130e6,
    "steady_share_of_limit": 0.65,
    "downloads": 4000,
    "qos_ratio": 1.0,
    "stream_cv": 0.03,
    "one_stream_share": 0.955,
    "ten_streams_share": 0.9,
    "ten_streams_ratio": 0.95,
    "members_hashed": 4,
    "predicted_share": 0.91,
    "probe_duplicated": 0,
    "failover_ms": 30,
    "failback_ms": 20,
    "blackout_ms": 100,
    "worst_blackout_ms": 200,
    "settle_s": 0.5,
    "lossless_s": 0.1,
    "placed_s": 0.5,
    "restored_s": 0.5,
    "fault_found_s": 2.0,
    "loss_ratio": 0.0005,
    "retransmissions_per_move": 0,
    "duplicated": 0,
    "slowdown_p99": 10.0,
    "late_p99_ms": 2.0,
}


def _scenarios(name: str, options: Options = OPTIONS) -> dict[str, Scenario]:
    return {one.name: one for one in PLANS[name].scenarios(options)}


def _result(
    scenario: Scenario,
    names: Iterable[str] | None = None,
    changed: Mapping[str, Mapping[str, float]] | None = None,
    throughput_bps: Mapping[str, float] | None = None,
    shares: Mapping[str, Sequence[float]] | None = None,
) -> Result:
    """A run of each contender: ours use the sending uplinks evenly, the others do not.

    `changed` replaces figures of the load, `shares` the sending uplinks' utilization.
    """
    uplinks = scenario.layout.sending_uplinks()
    runs = []
    for name in scenario.contenders if names is None else names:
        used = (shares or {}).get(name) or (
            [0.7] * len(uplinks) if is_ours(name) else [0.9, *[0.3] * (len(uplinks) - 1)]
        )
        one = bench_runs.observed(
            scenario.layout,
            name,
            dict(zip(uplinks, used, strict=True)),
            scenario=scenario.name,
            throughput_bps=(throughput_bps or {}).get(name, 92.5e6),
            measured={**MEASURED, **(changed or {}).get(name, {})},
        )
        runs.append(one)
    return bench_runs.result(scenario, runs)


def _team_view(name: str, results: Sequence[Result]) -> tuple[list[Expectation], list[Result]]:
    """The expectations, and the results with derived figures."""
    plan = PLANS[name]
    more = plan.derived(results)
    complete = [replace(one, derived=more.get(one.scenario.name, {})) for one in results]
    return list(plan.expectations(OPTIONS, complete)), complete


def _missed(name: str, *results: Result) -> list[str]:
    return [one.condition for one in _team_view(name, results)[0] if not one.met]


def test_list_has_every_layout_and_bench() -> None:
    directory = Path(benches.__path__[0])
    found = {path.stem for path in directory.glob("*.py")} - {"__init__", "plans"}
    layouts = {p.stem for p in directory.parent.glob("*.py") if "\ntopos = " in p.read_text()}
    assert set(LAYOUT_NAMES) == found == layouts
    assert len(set(LAYOUT_NAMES)) == len(LAYOUT_NAMES)


@every_bench
@pytest.mark.parametrize("pace", [ACCELERATED, FAITHFUL, QUICK])
def test_scenarios_have_unique_names_and_the_layout(name: str, pace: Pace) -> None:
    scenarios = PLANS[name].scenarios(Options(pace))
    names = [one.name for one in scenarios]
    assert names and all(names)
    assert len(set(names)) == len(names)
    for one in scenarios:
        assert one.layout.name == name
        assert one.what.endswith("."), "a sentence"
        assert one.layout.limit_bps > 0


@every_bench
def test_every_contender_is_known_and_supported(name: str) -> None:
    for scenario in PLANS[name].scenarios(OPTIONS):
        assert len(set(scenario.contenders)) == len(scenario.contenders)
        for contender in map(contenders.by_name, scenario.contenders):
            assert contender.name in scenario.contenders, "two names for the same"
            assert contenders.unsupported_reason(scenario.layout, contender) == "", contender.name


@every_bench
def test_main_scenario_has_baseline_policies_and_peers(name: str) -> None:
    main = PLANS[name].scenarios(OPTIONS)[0]
    assert main.contenders[0] == contenders.MANUAL
    assert any(map(is_ours, main.contenders))
    assert any(map(is_peer, main.contenders))


@every_bench
def test_published_figures_are_of_contenders_and_measured_figures(name: str) -> None:
    results = [_result(one) for one in PLANS[name].scenarios(OPTIONS)]
    _, complete = _team_view(name, results)
    for result in complete:
        medians = result.medians()
        for contender, published in result.scenario.published.items():
            assert contender in result.scenario.contenders
            assert set(published) <= set(medians[contender]), f"{result.scenario.name}, {contender}"


@pytest.mark.slow
@every_bench
def test_any_part_of_a_bench_can_be_left_out(name: str) -> None:
    """`--scenario`, `--policy` and `--against` can leave out any part of a bench."""
    for scenario in PLANS[name].scenarios(OPTIONS):
        for few in (1, 2):
            for names in combinations(scenario.contenders, few):
                checked, (complete,) = _team_view(name, [_result(scenario, names)])
                assert set(complete.medians()) == set(names)
                assert all(one.condition and one.found for one in checked)
                compared = any("best peer" in one.condition for one in checked)
                both = {*map(is_ours, names)} == {*map(is_peer, names)} == {True, False}
                assert not compared or both


@pytest.mark.slow
@every_bench
def test_measured_part_is_within_the_load_and_quick_loads_are_short(
    name: str, tmp_path: Path
) -> None:
    if name in OPEN_ENDED:
        return
    for pace in (ACCELERATED, FAITHFUL, QUICK):
        for scenario in PLANS[name].scenarios(Options(pace)):
            nothing_is_up = cast(PrivateOvs, None)
            load = scenario.load(Stage(scenario.layout, "", {}, {}, nothing_is_up, tmp_path))
            for start_s, end_s in (load.measured_s, load.steady_s):
                assert 0 <= start_s < end_s <= load.load_s
            assert pace is not QUICK or load.load_s <= 22


def test_set_vs_lbfo_expects_the_published_totals_within_5_percent() -> None:
    (scenario,) = _scenarios("set_vs_lbfo").values()
    assert _missed("set_vs_lbfo", _result(scenario)) == []
    for name in ("dynamic/lacp", "balance-tcp", "dynamic", "set"):
        # One is below and one above, and no peer is faster.
        for mbps in (86.0, 99.0):
            (missed,) = _missed("set_vs_lbfo", _result(scenario, [name], None, {name: mbps * 1e6}))
            assert missed.startswith(f"{name}: total as a share of a link, within 5 %")
    (checked, (complete,)) = _team_view("set_vs_lbfo", [_result(scenario, ["set"])])
    assert complete.medians()["set"]["share_of_link"] == 0.925
    assert checked[0].found == "0.925"


def test_quad_gbe_team_judges_streams_and_hashes_in_the_main_scenario() -> None:
    scenarios = _scenarios("quad_gbe_team")
    main, sender, both = scenarios.values()
    assert _missed("quad_gbe_team", *map(_result, scenarios.values())) == []
    where = "from team to team"
    for changed, names, missed in (
        ({"one_stream_share": 0.87}, ["manual"], f"{where}: manual: one stream"),
        ({"one_stream_share": 0.98}, ["ip-hash"], f"{where}: ip-hash: one stream"),
        ({"ten_streams_share": 0.84}, ["dynamic/lacp"], f"{where}: dynamic/lacp: ten streams"),
        ({"ten_streams_share": 0.86}, ["address-hash"], f"{where}: address-hash: ten streams"),
        ({"ten_streams_share": 0.96}, ["address-hash"], f"{where}: address-hash: ten streams"),
    ):
        worse = dict.fromkeys(names, changed)
        (found,) = _missed("quad_gbe_team", _result(main, names, worse))
        assert found.startswith(missed)
        for elsewhere in (sender, both):
            assert _missed("quad_gbe_team", _result(elsewhere, names, worse)) == []


def test_hash_is_judged_by_the_median_ratio_to_each_runs_prediction() -> None:
    """Ten streams miss a member in one run of five. Such a run is judged without that member."""
    (main, *_) = _scenarios("quad_gbe_team").values()
    (name,) = quad_gbe_team.PREDICTABLE
    result = _result(main, [name])
    (good,) = result.figures[name]
    missing: Figures = {**good, "ten_streams_share": 0.68, "predicted_share": 0.6825}
    bad: Figures = {**good, "ten_streams_share": 0.2}
    runs = [missing, bad, good]
    assert _missed("quad_gbe_team", replace(result, figures={name: runs})) == []
    assert len(_missed("quad_gbe_team", replace(result, figures={name: [bad, *runs]}))) == 1


def test_converged_compares_jumbo_with_standard_frames() -> None:
    scenarios = _scenarios("converged")
    standard = _result(scenarios[converged.STANDARD])
    names = scenarios[converged.JUMBO].contenders
    twice = _result(scenarios[converged.JUMBO], throughput_bps=dict.fromkeys(names, 185e6))
    assert _missed("converged", standard, twice) == []
    _, complete = _team_view("converged", [standard, twice])
    assert {one["jumbo_ratio"] for one in complete[1].medians().values()} == {2.0}
    assert "jumbo_ratio" not in complete[0].medians()["manual"]
    less = _result(scenarios[converged.JUMBO], throughput_bps=dict.fromkeys(names, 184e6))
    assert _missed("converged", standard, less) == [
        f"{name}: jumbo over standard frames: at least 2.000" for name in names
    ]


def test_converged_expects_nothing_of_contenders_with_a_fault() -> None:
    for name, scenario in _scenarios("converged").items():
        slow = _result(
            scenario, throughput_bps=dict.fromkeys(("load-based", "adaptive", "dynamic"), 1e6)
        )
        checked, _ = _team_view("converged", [slow])
        assert scenario.reachable == (not name.startswith("fault"))
        assert any(not one.met for one in checked) == scenario.reachable
        assert scenario.reachable or all(
            contenders.PATH_CHECK in one.condition for one in checked
        ), "only of those that look for it"


def test_converged_expects_path_checks_to_find_a_fault_and_then_to_carry_as_much_as_peers() -> None:
    scenario = _scenarios("converged")["fault: a member's MTU"]
    assert _missed("converged", _result(scenario)) == []
    found_late, carries_less = converged.WITH_PATH_CHECKS[:2]
    late = _result(
        scenario,
        changed={found_late: {"fault_found_s": 5.1}},
        throughput_bps={"balance-tcp": 100e6, carries_less: 89e6},
    )
    assert _missed("converged", late) == [
        f"fault: a member's MTU, {found_late}: found within 5 s",
        f"fault: a member's MTU, {carries_less} over the best peer: at least 0.900",
    ]
    figures = {
        name: [dict(one) for one in runs] for name, runs in _result(scenario).figures.items()
    }
    del figures[found_late][0]["fault_found_s"]
    assert _missed("converged", replace(_result(scenario), figures=figures)) == [
        f"fault: a member's MTU, {found_late}: found within 5 s"
    ]


def test_two_switches_judges_the_worst_of_all_runs() -> None:
    (scenario,) = _scenarios("two_switches").values()
    assert _missed("two_switches", _result(scenario)) == []
    result = _result(scenario, ["manual", "load-based"])
    (good,) = result.figures["load-based"]
    for worse, missed in (
        ({"probe_duplicated": 1.0}, "load-based: no duplicates"),
        ({"failover_ms": 1001.0}, "load-based: a failed switch interrupts no VM for more than"),
    ):
        runs = {"manual": [{**good, **worse}], "load-based": [good, good, {**good, **worse}]}
        (found,) = _missed("two_switches", replace(result, figures=runs))
        assert found.startswith(missed)


def test_spine_leaf_judges_the_failure_of_a_leaf_switch() -> None:
    unequal, failure = _scenarios("spine_leaf").values()
    for scenario in (unequal, failure):
        assert _missed("spine_leaf", _result(scenario)) == []
    slow = {"load-based": {"failover_ms": 1001.0}}
    (found,) = _missed("spine_leaf", _result(failure, ["load-based"], slow))
    assert found.startswith("a leaf switch fails, load-based: a failed leaf switch interrupts")


def test_mixed_speed_expects_even_uplinks_except_with_a_bond() -> None:
    scenario = _scenarios("mixed_speed")["equal loads"]
    assert _missed("mixed_speed", _result(scenario)) == []
    apart = _result(scenario, ["load-based"], shares={"load-based": (0.7, 0.62)})
    assert _missed("mixed_speed", apart) == [
        "load-based: utilizations within 10% of each other",
    ]
    other_way = _result(scenario, ["dynamic"], shares={"dynamic": (0.62, 0.7)})
    assert _missed("mixed_speed", other_way) == ["dynamic: utilizations within 10% of each other"]
    alike = _result(scenario, ["balance-slb"], shares={"balance-slb": (0.7, 0.65)})
    assert _missed("mixed_speed", alike) == [
        "balance-slb: utilizations not within 10% of each other"
    ]


def test_skewed_loads_are_drawn_and_fit_the_fast_uplink() -> None:
    skewed = _scenarios("mixed_speed")["skewed loads"]
    weights = mixed_speed.drawn_weights(11)
    assert weights == mixed_speed.drawn_weights(11), "every run has the same loads"
    shares = sorted(weight / sum(weights) for weight in weights)
    assert shares[-1] > 5 * shares[0], "hardly skewed"
    assert mixed_speed.OFFERED_RATIO * skewed.layout.limit_bps < 100e6
    even = _result(skewed, ["adaptive"], shares={"adaptive": (0.7, 0.2)})
    assert _missed("mixed_speed", even) == [], "no placement makes such loads even"


def test_placement_by_hand_knows_the_speeds() -> None:
    layout = _scenarios("mixed_speed")["equal loads"].layout
    homes = [layout.graph.nodes[vnic]["home"] for vnic in layout.nodes(Role.VNIC) if "vm" in vnic]
    assert (homes.count("uplink1"), homes.count("uplink2")) == (10, 1)


def test_uplink_difference_is_a_share_of_the_busier_uplink() -> None:
    scenario = _scenarios("mixed_speed")["equal loads"]
    for shares, apart in (((0.8, 0.6), 0.25), ((0.6, 0.8), 0.25), ((0.5, 0), 1), ((0, 0), 1)):
        result = _result(scenario, ["manual"], shares={"manual": shares})
        found = mixed_speed.difference(scenario.layout, result, "manual")
        assert found == pytest.approx(apart, abs=1e-4)


def test_shift_expects_to_settle_sooner_than_the_fastest_bond() -> None:
    jump = _scenarios("shift")["load jump"]
    slow: Mapping[str, float] = {"settle_s": 4.0, "loss_ratio": 0.0034, "moves": 3}
    slower = {"balance-slb/1s": slow}
    assert _missed("shift", _result(jump, changed=slower)) == []
    for changed, missed in (
        ({"settle_s": 1.01}, ["adaptive: settled within 1.0 s"]),
        ({"loss_ratio": 0.0011}, ["adaptive: at most 0.1% of the packets lost"]),
        (
            {"moves": 5},
            ["adaptive: at most 4 moves", "adaptive: no more moves than balance-slb/1s"],
        ),
        (
            slow,
            [
                "adaptive: settled within 1.0 s",
                "adaptive: at most 0.1% of the packets lost",
                "adaptive: settled sooner than balance-slb/1s",
                "adaptive: fewer packets lost than balance-slb/1s",
            ],
        ),
    ):
        assert _missed("shift", _result(jump, changed={**slower, "adaptive": changed})) == missed


@pytest.mark.parametrize(
    ("name", "speeds_bps"),
    [
        ("an uplink fails", [50e6, 50e6, 100e6]),
        ("one of equal uplinks fails", [75e6, 75e6, 75e6]),
    ],
)
def test_shift_expects_to_restore_sooner_than_any_bond(name: str, speeds_bps: list[float]) -> None:
    failure = _scenarios("shift")[name]
    uplinks = failure.layout.sending_uplinks()
    assert sorted(map(failure.layout.capacity_bps, uplinks)) == speeds_bps
    offered_bps = 1e6 * sum(shift.FAILURE_RATES_MBPS)
    assert offered_bps / (sum(speeds_bps) - speeds_bps[0]) == pytest.approx(0.7)
    slow = {"balance-slb": {"restored_s": 12.0}, "balance-slb/1s": {"restored_s": 6.0}}
    assert _missed("shift", _result(failure, changed=slow)) == []
    for restored_s, missed in (
        (5.5, ["nothing lost and placed by capacity within 5.0 s"]),
        (
            12.0,
            [
                "nothing lost and placed by capacity within 5.0 s",
                "sooner than balance-slb",
                "sooner than balance-slb/1s",
            ],
        ),
    ):
        found = _missed(
            "shift", _result(failure, changed={**slow, "adaptive": {"restored_s": restored_s}})
        )
        assert found == [f"{name}, adaptive: {one}" for one in missed]


def test_shift_expects_moves_to_cost_tcp_no_more_than_a_bonds() -> None:
    moves = _scenarios("shift")["moves"]
    assert _missed("shift", _result(moves)) == []
    worse = _result(moves, changed={"originating-port": {"retransmissions_per_move": 0.5}})
    assert _missed("shift", worse) == [
        "moves, originating-port: no more retransmissions per move than balance-slb"
    ]
    twice = _result(moves, ["originating-port"], {"originating-port": {"duplicated": 1}})
    assert _missed("shift", twice) == ["moves, originating-port: no duplicates"]


def test_flows_expects_no_peer_without_a_lag_to_be_faster_and_flows_in_time() -> None:
    main = next(iter(_scenarios("flows").values()))
    assert _missed("flows", _result(main)) == []
    for peer in ("manual", "active-backup", "balance-slb"):
        faster = _result(main, changed={peer: {"slowdown_p99": 9.9}})
        assert _missed("flows", faster) == [
            f"web search, 70%, adaptive: p99 of the slowdown not above that of {peer}"
        ]
    for other in ("balance-tcp", "oracle", "load-based"):
        assert _missed("flows", _result(main, changed={other: {"slowdown_p99": 2.0}})) == []
    late = _result(main, changed={"dynamic": {"late_p99_ms": 20.5}})
    assert _missed("flows", late) == ["web search, 70%: 99 % of the flows start within 20 ms"]


@pytest.mark.slow
def test_flows_fails_an_uplink_in_one_scenario_only(tmp_path: Path) -> None:
    scenarios = _scenarios("flows")
    failure = "web search, an uplink fails"
    assert list(scenarios) == ["web search, 70%", "web search, 90%", "data mining, 70%", failure]
    faithful = _scenarios("flows", Options(FAITHFUL))
    assert list(faithful) == [*list(scenarios)[:3], "data mining, 90%", failure]
    nothing_is_up = cast(PrivateOvs, None)
    for name, scenario in {**scenarios, **faithful}.items():
        pids = dict.fromkeys(
            (*scenario.layout.nodes(Role.VM), *scenario.layout.nodes(Role.CLIENT)), 1
        )
        load = scenario.load(Stage(scenario.layout, "", pids, {}, nothing_is_up, tmp_path))
        assert isinstance(load, FlowLoad)
        ratio = 0.9 if "90%" in name else 0.7
        span = Span(*load.measured_s)
        # A third uplink is added, and the load is that of two.
        assert offered_bps(load.flows, span) == pytest.approx(ratio * 100e6, rel=0.01)


def test_flows_has_percentiles_of_all_runs_where_single_runs_have_too_few_flows() -> None:
    main = next(iter(_scenarios("flows").values()))
    once = _result(main, ["adaptive"], {"adaptive": {"fct_large_p50_ms": 2000.0}})
    (found,), (seen,) = once.figures["adaptive"], once.observed["adaptive"]

    def run(number: int) -> Observed:
        flows = {
            "start_s": [0.0] * 40,
            "late_s": [0.0] * 40,
            "size_bytes": [2_000_000] * 40,
            "duration_s": [float(number)] * 40,
            "unfinished": [],
        }
        return replace(seen, outcome=replace(seen.outcome, details=flows))

    runs = [run(number) for number in (1, 2, 3)]
    result = replace(once, figures={"adaptive": [found] * 3}, observed={"adaptive": runs})
    derived = PLANS["flows"].derived([result])[main.name]["adaptive"]
    assert derived["fct_large_p95_ms"] == derived["fct_large_p99_ms"] == 3000
    assert "fct_large_p50_ms" not in derived, "every run has it"
    assert "fct_small_p50_ms" not in derived, "no run has such a flow"
    assert PLANS["flows"].derived([once]) == {main.name: {"adaptive": {}}}


@every_bench
def test_peer_that_beats_our_policies_is_named(name: str) -> None:
    main = PLANS[name].scenarios(OPTIONS)[0]
    peers = [one for one in main.contenders if is_peer(one)]
    faster = _result(main, throughput_bps=dict.fromkeys(peers, 97e6))
    checked, _ = _team_view(name, [faster])
    missed = [one for one in checked if not one.met and "best peer" in one.condition]
    assert [one.condition for one in missed] == [
        f"{main.name}: throughput of our best policy >= 0.98 x best peer"
    ]
    assert any(peer in missed[0].found for peer in peers)
