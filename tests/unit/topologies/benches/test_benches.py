"""The bench of every layout: its scenarios and expectations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import cast

import pytest

from tests.unit.topologies import bench_runs
from topologies import benches
from topologies.benches import PLANS, connections, failures, steering, streams
from topologies.compare import contenders
from topologies.compare.contenders import is_ours
from topologies.compare.figures import Result
from topologies.compare.plan import Expectation, Options
from topologies.compare.run import Scenario
from topologies.layouts import LAYOUTS
from topologies.loads.load import Stage
from topologies.loads.pace import ACCELERATED, FAITHFUL, QUICK, Pace
from topologies.network.private_ovs import PrivateOvs

OPTIONS = Options(ACCELERATED)
every_bench = pytest.mark.parametrize("name", PLANS)
# Figures of each contender.
Measured = Mapping[str, Mapping[str, float]]

# Figures with which a contender does well in most scenarios.
USUAL: Mapping[str, float] = {
    "throughput_bps": 92.5e6,
    "steady_share_of_limit": 0.65,
    "downloads": 4000,
    "qos_ratio": 1.0,
    "stream_cv": 0.03,
    "one_stream_share": 0.955,
    "ten_streams_share": 0.9,
    "ten_streams_ratio": 0.95,
    "probe_duplicated": 0,
    "failover_ms": 30,
    "worst_blackout_ms": 200,
    "settle_s": 0.5,
    "restored_s": 0.5,
    "loss_ratio": 0.0005,
    "duplicated": 0,
    "slowdown_p99": 10.0,
    "late_p99_ms": 2.0,
}
SLOW_JUMP = {"settle_s": 4.0, "loss_ratio": 0.0034, "moves": 3}
SLOW_RESTORES = {"balance-slb": {"restored_s": 12.0}, "balance-slb/1s": {"restored_s": 6.0}}
FAULT_FOUND = {name: {"fault_found_s": 2.0} for name in streams.WITH_PATH_CHECKS}
ONE_ENDPOINT_BOND = {"balance-slb": {"throughput_bps": 50e6, "spread_cv": 1.0}}
# What differs from the usual figures in a scenario that goes well.
GOOD: Mapping[str, Measured] = {
    streams.JUMBO: {name: {"throughput_bps": 185e6} for name in streams.CONVERGED_CONTENDERS},
    "fault: a member's MTU": FAULT_FOUND,
    "fault: a member's VLAN": FAULT_FOUND,
    steering.JUMP: {"balance-slb/1s": SLOW_JUMP},
    steering.FAILURE: SLOW_RESTORES,
    steering.EQUAL_FAILURE: SLOW_RESTORES,
    streams.ONE_WAY: ONE_ENDPOINT_BOND,
    streams.VXLAN_ONE_WAY: ONE_ENDPOINT_BOND,
    streams.ONE_ENDPOINT: ONE_ENDPOINT_BOND,
    streams.VXLAN_ONE_ENDPOINT: ONE_ENDPOINT_BOND,
}


def _scenarios(name: str, options: Options = OPTIONS) -> dict[str, Scenario]:
    return {one.name: one for one in PLANS[name].scenarios(options)}


def _result(
    scenario: Scenario,
    names: Iterable[str] | None = None,
    changed: Measured | None = None,
    shares: Mapping[str, Sequence[float]] | None = None,
) -> Result:
    """A good run of each contender: ours use the sending uplinks evenly, the others do not.

    `changed` has what differs from the usual figures instead of `GOOD`, `shares` the utilization of
    the sending uplinks.
    """
    uplinks = scenario.layout.sending_uplinks()
    differs = {**GOOD.get(scenario.name, {}), **(changed or {})}
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
            measured={**USUAL, **differs.get(name, {})},
        )
        runs.append(one)
    return bench_runs.result(scenario, runs, PLANS[scenario.layout.name].per_run)


def _team_view(name: str, results: Sequence[Result]) -> tuple[list[Expectation], list[Result]]:
    """The expectations, and the results with derived figures."""
    plan = PLANS[name]
    more = plan.derived(results)
    complete = [replace(one, derived=more.get(one.scenario.name, {})) for one in results]
    return list(plan.expectations(OPTIONS, complete)), complete


def _missed(name: str, *results: Result) -> list[str]:
    return [one.condition for one in _team_view(name, results)[0] if not one.met]


def test_list_has_every_layout_and_bench() -> None:
    directory = Path(benches.__path__[0]).parent
    layouts = {p.stem for p in directory.glob("*.py") if "\ntopos = " in p.read_text()}
    assert set(LAYOUTS) == layouts and list(PLANS) == list(LAYOUTS)


def test_connections_are_enough_to_split_a_port_of_adaptive_only() -> None:
    plan = connections.plan([30_000, 100], [400])
    for scenario in plan.scenarios(Options(QUICK)):
        made = {name: scenario.contender(name) for name in scenario.contenders}
        ours = {name: one for name, one in made.items() if isinstance(one, contenders.Ours)}
        # 30,000 frames of 500 bytes in 7 s, over 1.4.
        split = [name for name, one in ours.items() if one.capacity_mbps == 12]
        assert split == ["adaptive", "adaptive+multipath"]
        assert all(one.capacity_mbps == 0 for name, one in ours.items() if name not in split)
        assert all(one.settings["failback-delay-s"] == 0 for one in ours.values())


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


@every_bench
def test_every_contender_is_known_and_supported(name: str) -> None:
    scenarios = PLANS[name].scenarios(OPTIONS)
    for scenario in scenarios:
        assert len(set(scenario.contenders)) == len(scenario.contenders)
        for contender in map(contenders.by_name, scenario.contenders):
            assert contender.name in scenario.contenders, "two names for the same"
            assert contenders.unsupported_reason(scenario.layout, contender) == "", contender.name
        assert scenario.reachable != scenario.name.startswith("fault")
    main = scenarios[0].contenders
    assert main[0] == contenders.MANUAL
    assert any(map(is_ours, main)) and {*main} & {*contenders.BONDS}


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


# The duration of a load is known from the start, except for a migration.
@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in PLANS if one != "live_migration"])
def test_measured_part_is_within_the_load_and_quick_loads_are_short(
    name: str, tmp_path: Path
) -> None:
    for pace in (ACCELERATED, FAITHFUL, QUICK):
        for scenario in PLANS[name].scenarios(Options(pace)):
            nothing_is_up = cast(PrivateOvs, None)
            load = scenario.load(Stage(scenario.layout, "", {}, {}, nothing_is_up, tmp_path))
            for start_s, end_s in (load.measured_s, load.steady_s):
                assert 0 <= start_s < end_s <= load.load_s
            assert pace is not QUICK or load.load_s <= 22


# That of `vmware_lbt` expects phases, which an even load does not have.
@pytest.mark.parametrize("name", [one for one in PLANS if one != "vmware_lbt"])
def test_good_results_meet_every_expectation(name: str) -> None:
    assert _missed(name, *map(_result, PLANS[name].scenarios(OPTIONS))) == []


MTU_FAULT, LOOKS = "fault: a member's MTU", "dynamic+path-check"
WEB, LEAF = "web search, 70%", "a leaf switch fails"
TCP, SMB = failures.TCP, failures.SMB
# A bench, its scenario, a contender there, and one figure that is not as usual. What this misses is the
# last part of a row: parts of conditions, with " + " between them, or nothing.
DEVIATIONS = [
    # Faults are to be found by those that look for them. The third one finds nothing.
    ("converged", MTU_FAULT, "dynamic", "throughput_bps", 1e6, ""),
    ("converged", MTU_FAULT, LOOKS, "fault_found_s", 5.1, f"{LOOKS}: found within 5 s"),
    ("converged", MTU_FAULT, LOOKS, "throughput_bps", 83e6, "found within + x the best peer"),
    # Outages: only of our policies, and only where something fails.
    ("two_switches", "a switch fails", "load-based", "probe_duplicated", 1, "no duplicates"),
    ("two_switches", "a switch fails", "load-based", "failover_ms", 1001, "a failed switch"),
    ("two_switches", "a switch fails", "balance-slb", "failover_ms", 1001, ""),
    ("spine_leaf", LEAF, "load-based", "failover_ms", 1001, "a failed leaf switch"),
    ("spine_leaf", "unequal VMs", "load-based", "failover_ms", 1001, ""),
    ("live_migration", "an uplink fails", "dynamic", "failover_ms", 1001, "a failed uplink"),
    # A jump of the load, compared with the fastest bond.
    ("shift", "load jump", "adaptive", "settle_s", 1.01, "settled within 1.0 s"),
    ("shift", "load jump", "adaptive", "settle_s", 4.0, "settled within + settled sooner than"),
    ("shift", "load jump", "adaptive", "loss_ratio", 0.0011, "at most 0.1% of the packets lost"),
    ("shift", "load jump", "adaptive", "loss_ratio", 0.0034, "at most 0.1% + fewer packets lost"),
    ("shift", "load jump", "adaptive", "moves", 5, "at most 4 moves + no more moves than"),
    ("shift", steering.FAILURE, "adaptive", "restored_s", 5.5, "placed by capacity within 5.0 s"),
    (
        *("shift", steering.EQUAL_FAILURE, "adaptive", "restored_s", 12.0),
        "placed by capacity within 5.0 s + sooner than balance-slb + sooner than balance-slb/1s",
    ),
    # Slow flows, compared with peers that need no LAG.
    ("flows", WEB, "manual", "slowdown_p99", 9.9, "no higher than manual"),
    ("flows", WEB, "balance-slb", "slowdown_p99", 9.9, "no higher than balance-slb"),
    ("flows", WEB, "active-backup", "slowdown_p99", 9.9, "no higher than active-backup"),
    ("flows", WEB, "balance-tcp", "slowdown_p99", 2.0, ""),
    ("flows", WEB, "oracle", "slowdown_p99", 2.0, ""),
    ("flows", WEB, "dynamic", "late_p99_ms", 20.5, "start within 20 ms"),
    ("live_migration", TCP, "dynamic", "worst_blackout_ms", 1001, "reachable again within 1000 ms"),
    ("live_migration", SMB, "dynamic", "probe_duplicated", 1, "dynamic: no duplicates"),
    ("live_migration", TCP, "balance-slb", "worst_blackout_ms", 5000, ""),
    ("live_migration", TCP, "balance-slb", "probe_duplicated", 9, ""),
    # Tunnels, compared with a bond of one endpoint.
    (
        *("overlay", streams.ONE_ENDPOINT, "balance-slb", "throughput_bps", 52e6),
        "adaptive over balance-slb + load-based over balance-slb",
    ),
    ("overlay", streams.ONE_WAY, "dynamic", "throughput_bps", 89e6, "dynamic over balance-slb"),
    ("overlay", streams.VXLAN, "adaptive", "spread_cv", 0.11, "adaptive: uses both uplinks alike"),
]


@pytest.mark.parametrize(("name", "scenario", "contender", "figure", "value", "missed"), DEVIATIONS)
def test_deviation_misses_its_expectation(
    name: str, scenario: str, contender: str, figure: str, value: float, missed: str
) -> None:
    results = [
        _result(one, changed={contender: {figure: value}} if one.name == scenario else {})
        for one in PLANS[name].scenarios(OPTIONS)
    ]
    found = _missed(name, *results)
    parts = missed.split(" + ") if missed else []
    assert len(found) == len(parts), found
    assert all(part in condition for part, condition in zip(parts, found, strict=True)), found


def test_two_switches_judges_the_worst_of_all_runs() -> None:
    (scenario,) = _scenarios("two_switches").values()
    result = _result(scenario, ["load-based"])
    (good,) = result.figures["load-based"]
    for worse in ({"probe_duplicated": 1.0}, {"failover_ms": 1001.0}):
        runs = {"load-based": [good, good, {**good, **worse}]}
        assert len(_missed("two_switches", replace(result, figures=runs))) == 1


def test_mixed_speed_expects_even_uplinks_except_with_a_bond() -> None:
    scenario = _scenarios("mixed_speed")["equal loads"]
    for name, used, wanted in (
        ("load-based", (0.7, 0.62), "within"),
        ("dynamic", (0.62, 0.7), "within"),
        ("balance-slb", (0.7, 0.65), "not within"),
    ):
        result = _result(scenario, [name], shares={name: used})
        condition = f"equal loads, {name}: utilizations {wanted} 10% of each other"
        assert _missed("mixed_speed", result) == [condition]


def test_jumbo_frames_are_compared_under_the_same_load() -> None:
    scenarios = _scenarios("live_migration")
    standard, jumbo = scenarios[failures.STANDARD], scenarios[failures.JUMBO]
    results = [_result(standard), _result(jumbo, ["manual"], {"manual": {"throughput_bps": 111e6}})]
    (figures,) = results[1].figures["manual"]
    figures["cpu_s_per_gbit"] /= 2
    derived = PLANS["live_migration"].derived(results)[failures.JUMBO]
    assert derived == {"manual": pytest.approx({"jumbo_ratio": 1.2, "jumbo_cpu_ratio": 0.5})}
