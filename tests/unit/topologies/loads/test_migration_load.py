"""Live migration: the figures, the handover, and the conditions of the bench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from topologies import live_migration as layouts
from topologies.benches import live_migration
from topologies.compare import pace
from topologies.compare.contenders import by_name, unsupported_reason
from topologies.compare.figures import Figures
from topologies.compare.plan import Options
from topologies.compare.result import Result
from topologies.graph.layout import Role
from topologies.loads import migration_load
from topologies.loads.handover import Handover, announcement, bridge_counterparts
from topologies.loads.probing import Flow, FlowResult

MAC = bytes.fromhex("02aabbccddee")


def test_the_announcement_is_a_broadcast_rarp_with_the_address_of_the_vm() -> None:
    frame = announcement(MAC)
    assert (frame[:6], frame[6:12], frame[12:14]) == (b"\xff" * 6, MAC, bytes.fromhex("8035"))
    # The types Ethernet and IPv4, the lengths of their addresses, and "reverse request".
    assert frame[14:22] == bytes.fromhex("0001080006040003")
    assert (frame[22:28], frame[32:38]) == (MAC, MAC)
    assert len(frame) == 60


def test_counterparts_are_the_bridges_at_the_same_index() -> None:
    bridges = {"server1": ("s11", "s12"), "server2": ("s21", "s22")}
    assert bridge_counterparts(bridges, "server1", "server2") == {"s11": "s21", "s12": "s22"}
    assert bridge_counterparts({"a": ("x",), "b": ("y",)}, "a", "b") == {"x": "y"}


def _migration(vm: str, start_s: float, copied_s: float, moved_s: float) -> dict[str, Any]:
    rounds = [
        {"copied_bytes": 900, "start_s": start_s, "end_s": copied_s - 1},
        {"copied_bytes": 100, "start_s": copied_s - 0.25, "end_s": copied_s},
    ]
    stopped_s = copied_s - 0.25
    return {
        "vm": vm,
        "start_s": start_s,
        "stopped_s": stopped_s,
        "copied_s": copied_s,
        "moved_s": moved_s,
        "rounds": rounds,
    }


def _flow(start_s: float, end_s: float, silent: tuple[float, float]) -> FlowResult:
    """A flow of a datagram every 0.1 s, which loses the datagrams of a span."""
    times_s = [start_s + n / 10 for n in range(round((end_s - start_s) * 10) + 1)]
    arrivals = [(n, at) for n, at in enumerate(times_s) if not silent[0] < at < silent[1]]
    return FlowResult(len(times_s), start_s, end_s, arrivals)


def test_figures_of_migrations() -> None:
    migrations = [_migration("vm1", 100.0, 104.0, 104.5), _migration("vm2", 101.0, 110.0, 110.5)]
    handovers = {"vm1": Handover(104.1, 104.2), "vm2": Handover(110.1, 110.2)}
    to_vm1, from_vm1 = Flow("client1", "vm1", "10.0.0.1"), Flow("vm1", "client1", "10.0.0.9")
    to_vm2, from_vm2 = Flow("client1", "vm2", "10.0.0.2"), Flow("vm2", "client1", "10.0.0.9")
    probes = {
        to_vm1: _flow(100.0, 115.0, (104.05, 104.55)),
        from_vm1: _flow(100.0, 115.0, (104.05, 104.25)),
        # This gap ends long before the handover, so it does not count.
        to_vm2: _flow(100.0, 115.0, (102.05, 104.95)),
        from_vm2: _flow(100.0, 115.0, (110.05, 110.95)),
    }
    found = migration_load.outcome(migrations, handovers, probes, start_s=99.0)
    assert found.received_bytes == 2000
    assert found.throughput_bps == pytest.approx(2000 * 8 / 10)
    assert found.figures["migration_s"] == pytest.approx((4.5 + 9.5) / 2)
    assert found.figures["total_s"] == pytest.approx(10.5)
    assert found.figures["precopy_rounds"] == 1
    assert found.figures["stopped_ms"] == pytest.approx(250)
    assert found.figures["blackout_ms"] == pytest.approx((600 + 1000) / 2)
    assert found.figures["worst_blackout_ms"] == pytest.approx(1000)
    assert found.figures["longest_gap_ms"] == pytest.approx(3000)
    first = found.details[0]
    assert (first["vm"], first["start_s"], first["port_left_s"]) == ("vm1", 1.0, 5.1)
    assert first["blackout_ms"] == {"to": pytest.approx(600), "from": pytest.approx(300)}


# ---- the bench --------------------------------------------------------------------------


SCENARIOS = live_migration.scenarios(Options(pace.ACCELERATED))


def test_every_scenario_has_a_unique_name_and_suitable_contenders() -> None:
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)
    assert SCENARIOS[0].name == live_migration.TCP
    for scenario in SCENARIOS:
        for name in scenario.contenders:
            assert by_name(name).name == name
            assert not unsupported_reason(scenario.layout, by_name(name))
        assert set(scenario.published) <= set(scenario.contenders)


def test_all_scenarios_copy_the_same_memory() -> None:
    for options in (Options(pace.ACCELERATED), Options(pace.QUICK)):
        totals = set()
        for scenario in live_migration.scenarios(options):
            if scenario.name == live_migration.FAILURE:
                continue
            migrations = scenario.load.keywords["migrations"]  # type: ignore[attr-defined]
            totals.add(migrations.memory_bytes * len(scenario.layout.nodes(Role.VM)))
        limit_bps = layouts.layout().limit_bps
        assert totals == {int(limit_bps / 8 * options.pace.streams_s[1] / 2)}


def test_published_shares_match_the_document() -> None:
    published = {one.name: one.published for one in SCENARIOS}
    assert published[live_migration.TCP]["balance-tcp"] == {"share_of_limit": 0.85}
    assert published[live_migration.TCP]["active-backup"] == {"share_of_limit": 0.5}
    assert published[live_migration.SMB]["dynamic/lacp"] == {"share_of_limit": 0.95}
    assert published[live_migration.MULTICHANNEL] == {"manual": {"share_of_limit": 1.0}}
    assert published["2 at once, TCP"]["balance-tcp"] == {"share_of_limit": 0.45}
    assert published["1 at once, TCP"]["balance-tcp"] == {"share_of_limit": pytest.approx(0.2375)}
    assert not published["4 at once, TCP"]
    assert published[live_migration.JUMBO]["manual"] == {"jumbo_ratio": pytest.approx(1.175)}


def _figures(share: float, blackout_ms: float = 50.0, twice: int = 0) -> Figures:
    return {
        "throughput_bps": share * 200e6,
        "share_of_limit": share,
        "spread_cv": 0.0,
        "cpu_s_per_gbit": 4.0,
        "worst_blackout_ms": blackout_ms,
        "probe_duplicated": twice,
    }


def _results(shares: Mapping[str, Mapping[str, Figures]]) -> list[Result]:
    return [
        Result(one, {name: [found] for name, found in shares[one.name].items()}, {})
        for one in SCENARIOS
        if one.name in shares
    ]


def _unmet(shares: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    checked = live_migration.expectations(Options(pace.ACCELERATED), _results(shares))
    assert checked
    return [one.condition for one in checked if not one.met]


GOOD = {
    live_migration.TCP: {
        "dynamic": _figures(0.47),
        "active-backup": _figures(0.47),
        "dynamic/lacp": _figures(0.75),
        "balance-tcp": _figures(0.72),
    },
    live_migration.SMB: {
        "dynamic": _figures(0.46),
        "dynamic/lacp": _figures(0.91),
        "balance-tcp": _figures(0.92),
    },
    live_migration.MULTICHANNEL: {"manual": _figures(0.91), "load-based": _figures(0.9)},
}


def test_the_published_shares_meet_every_condition() -> None:
    assert _unmet(GOOD) == []


@pytest.mark.parametrize(
    ("scenario", "contender", "found", "condition"),
    [
        ("TCP", "active-backup", _figures(0.6), "half of the team"),
        ("SMB", "dynamic", _figures(0.3), "half of the team"),
        ("SMB", "dynamic/lacp", _figures(0.84), "share of the team"),
        ("MULTICHANNEL", "manual", _figures(0.8), "in the published order"),
        ("TCP", "dynamic/lacp", _figures(0.75, blackout_ms=1001), "reachable again"),
        ("SMB", "dynamic/lacp", _figures(0.91, twice=1), "no duplicates"),
        ("TCP", "balance-tcp", _figures(0.9), "throughput of our best policy"),
    ],
)
def test_a_deviation_fails_its_condition(
    scenario: str, contender: str, found: Figures, condition: str
) -> None:
    name = getattr(live_migration, scenario)
    unmet = _unmet({**GOOD, name: {**GOOD[name], contender: found}})
    assert any(condition in one for one in unmet), unmet


def test_conditions_ignore_the_duplicates_and_blackouts_of_a_peer() -> None:
    peer = _figures(0.72, blackout_ms=5000, twice=9)
    assert (
        _unmet({**GOOD, live_migration.TCP: {**GOOD[live_migration.TCP], "balance-tcp": peer}})
        == []
    )


def test_jumbo_frames_are_compared_under_the_same_load() -> None:
    shares = {
        live_migration.STANDARD: {"manual": _figures(0.8), "load-based": _figures(0.4)},
        live_migration.JUMBO: {"manual": {**_figures(0.96), "cpu_s_per_gbit": 1.0}},
    }
    found = live_migration.derived(_results(shares))[live_migration.JUMBO]
    assert found == {
        "manual": {"jumbo_ratio": pytest.approx(1.2), "jumbo_cpu_ratio": pytest.approx(0.25)}
    }
    assert live_migration.derived(_results(GOOD)) == {live_migration.JUMBO: {}}
