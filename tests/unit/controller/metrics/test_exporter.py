"""Metrics: the names dashboards rely on, and the switch's counters as they are."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.core import Metric

from controller.api.status import BridgeStatus, PathFaultStatus, PortStatus, UplinkStatus
from controller.config.rows import Endpoint
from controller.host.faults import PARTS
from controller.metrics.exporter import Exporter
from policies.model import Load
from policies.rules import Rule

COUNTERS = {
    "uplink_transmit_bytes",
    "uplink_receive_bytes",
    "uplink_drops",
    "port_transmit_bytes",
    "port_receive_bytes",
    "port_drops",
    "port_shaped_drops",
    "moves_planned",
    "moves_applied",
    "moves_refused",
    "failovers",
    "uplink_link_changes",
    "inbound_reannounced",
    "inbound_not_followed",
    "faults",
    "path_rounds",
    "path_frames",
}
GAUGES = {
    "uplink_capacity_bytes_per_second",
    "uplink_decided_utilization_ratio",
    "uplink_path_fault",
    "uplink_silent",
    "uplink_up",
    "uplink_info",
    "uplink_unrelieved",
    "uplink_utilization_ratio",
    "port_binding",
    "port_info",
    "rule_broken",
    "port_shares",
    "port_reserved_bytes_per_second",
    "port_limit_bytes_per_second",
    "port_bound_timestamp_seconds",
    "port_units",
    "endpoint_info",
    "endpoint_transmit_bytes_per_second",
    "endpoint_receive_bytes_per_second",
    "uplink_units",
    "bridge_info",
    "bridge_optimality_ratio",
    "bridge_imbalance_ratio",
    "bridge_threshold_ratio",
    "bridge_connected",
    "bridge_flooded_packets_per_second",
    "bridge_repeated_packets_per_second",
    "bridge_overruling_flows",
    "last_decision_timestamp_seconds",
    "config_errors",
    "move_budget_exhausted",
    "build_info",
    "leader",
}
HISTOGRAMS = {
    "decision_duration_seconds",
    "stats_poll_duration_seconds",
    "settling_seconds",
    "inbound_follow_seconds",
}

ETH1 = UplinkStatus("eth1", True, "active", 1e9, Load(5e8, 2.5e8), 2**63, 7, 3, True, 5, 3)
ETH1 = replace(ETH1, decided=Load(1.2e9, 1e8))
LOST = PathFaultStatus("mtu", True, 20, 9000, 1700.0, "frames are lost", "a larger MTU")
ETH1 = replace(ETH1, path_faults=(LOST, replace(LOST, kind="unreachable", vlan=None, mtu=None)))
# As many as a VM port can have.
RULES = {rule.value: "" for rule in Rule} | {"pin": "on eth1 -> eth2"}
VNET0 = PortStatus(
    "vnet0",
    "web",
    "load-based",
    "eth1",
    Load(1e6, 2e6),
    "manual",
    1700.0,
    11,
    12,
    0,
    None,
    RULES,
    shares=60,
    reserve_bps=8e6,
    limit_bps=16e6,
    shaped_drops=13,
    units={"eth1": 3, "eth2": 0},
    endpoint=Endpoint(("192.0.2.1", "fd00::1"), ("geneve",), ("br-int", "br-tun")),
)
BR0 = BridgeStatus(
    name="br0",
    policy="load-based",
    teaming="switch-independent",
    mode="enforce",
    connected=True,
    threshold_ratio=0.75,
    imbalance_ratio=0.5,
    optimality_ratio=1.25,
    uplinks=(ETH1,),
    ports=(VNET0,),
    not_done=(),
    config_errors=("one", "two"),
    flooded_pps=19.0,
    repeated_pps=18.0,
    overruling=20,
    moves_planned={"threshold": 2},
    moves_applied={"threshold": 1},
    moves_refused={"threshold": 0},
    failovers=4,
    last_decision_at=1712.5,
    budgets_spent=2,
    reannounced=6,
    not_followed=1,
    path_rounds={"judged": 14, "void": 15},
    path_frames={"arrived": 16, "lost": 17, "full": 18},
)


def exporter(*bridges: BridgeStatus) -> Exporter:
    return Exporter(lambda: bridges, "1.2.3", faults=lambda: dict.fromkeys(PARTS, 0))


def families(*bridges: BridgeStatus) -> dict[str, Metric]:
    return {f.name.removeprefix("ovslbt_"): f for f in exporter(*bridges).collect()}


def samples(*bridges: BridgeStatus) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name.removeprefix("ovslbt_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in exporter(*bridges).collect()
        for sample in family.samples
    }


def value(name: str, **labels: str) -> float | None:
    return samples(BR0).get((name, tuple(sorted({"bridge": "br0", **labels}.items()))))


def test_the_families_are_those_documented_also_without_a_bridge() -> None:
    for found in (families(), families(BR0)):
        assert {name for name, f in found.items() if f.type == "counter"} == COUNTERS
        assert {name for name, f in found.items() if f.type == "gauge"} == GAUGES


def test_every_family_has_our_prefix_and_a_help_text() -> None:
    collected = [*exporter(BR0)._registry.collect()]
    assert {f.name.removeprefix("ovslbt_") for f in collected} == COUNTERS | GAUGES | HISTOGRAMS
    assert all(f.name.startswith("ovslbt_") and f.documentation.endswith(".") for f in collected)


def test_counters_are_the_switchs_own_to_the_byte() -> None:
    assert value("uplink_transmit_bytes_total", uplink="eth1") == 2**63
    assert value("uplink_receive_bytes_total", uplink="eth1") == 7
    assert value("uplink_drops_total", uplink="eth1") == 3
    assert value("port_transmit_bytes_total", port="vnet0") == 11
    assert value("port_receive_bytes_total", port="vnet0") == 12
    assert value("port_drops_total", port="vnet0") == 0
    assert value("port_shaped_drops_total", port="vnet0") == 13


def test_units_are_bytes_seconds_and_ratios() -> None:
    assert value("uplink_capacity_bytes_per_second", uplink="eth1") == 125e6
    assert value("uplink_utilization_ratio", uplink="eth1", direction="transmit") == 0.5
    assert value("uplink_utilization_ratio", uplink="eth1", direction="receive") == 0.25
    assert value("bridge_threshold_ratio") == 0.75
    assert value("port_reserved_bytes_per_second", port="vnet0") == 1e6
    assert value("port_limit_bytes_per_second", port="vnet0") == 2e6
    assert value("port_shares", port="vnet0") == 60
    assert value("bridge_imbalance_ratio") == 0.5
    assert value("last_decision_timestamp_seconds") == 1712.5


def test_states_and_moves() -> None:
    assert value("uplink_up", uplink="eth1") == value("bridge_connected") == 1
    assert value("port_binding", port="vnet0", uplink="eth1") == 1
    assert value("port_info", port="vnet0", vm="web") == 1
    assert value("config_errors") == 2
    assert value("bridge_flooded_packets_per_second") == 19
    assert value("bridge_repeated_packets_per_second") == 18
    assert value("bridge_overruling_flows") == 20
    assert value("bridge_optimality_ratio") == 1.25
    assert value("uplink_unrelieved", uplink="eth1") == 1
    assert value("uplink_link_changes_total", uplink="eth1") == 5
    assert value("uplink_info", uplink="eth1", role="active") == 1
    how = {"policy": "load-based", "teaming": "switch-independent", "mode": "enforce"}
    assert value("bridge_info", **how) == 1
    bound = {"port": "vnet0", "uplink": "eth1", "reason": "manual"}
    assert value("port_bound_timestamp_seconds", **bound) == 1700.0
    assert value("port_units", port="vnet0") == value("uplink_units", uplink="eth1") == 3
    assert samples()[("leader", ())] == 1
    assert value("failovers_total") == 4
    assert value("move_budget_exhausted") == 2
    assert value("inbound_reannounced_total") == 6
    assert value("inbound_not_followed_total") == 1
    assert value("moves_planned_total", reason="threshold") == 2
    assert value("moves_applied_total", reason="threshold") == 1
    assert value("moves_refused_total", reason="threshold") == 0
    assert value("path_rounds_total", result="judged") == 14
    assert value("path_rounds_total", result="void") == 15
    assert value("path_frames_total", result="arrived") == 16
    assert value("path_frames_total", result="lost") == 17
    assert value("path_frames_total", result="full") == 18
    assert samples()[("build_info", (("version", "1.2.3"),))] == 1


def test_what_is_not_known_is_absent_and_never_zero() -> None:
    uncounted = replace(
        BR0,
        uplinks=(replace(ETH1, tx_bytes=None, rx_bytes=None, drops=None),),
        ports=(
            PortStatus("vnet0", "web", "load-based", None, Load(), None, None, None, None, None),
        ),
        last_decision_at=None,
    )
    names = {name for name, _ in samples(uncounted)}
    counted_by_the_switch = COUNTERS - {"uplink_link_changes"}
    by_port = {name for name in counted_by_the_switch if name.startswith(("uplink", "port"))}
    counters = {f"{name}_total" for name in by_port}
    unset = {"port_shares", "port_reserved_bytes_per_second", "port_limit_bytes_per_second"}
    absent = counters | unset | {"port_binding", "last_decision_timestamp_seconds"}
    assert not names & absent
    assert "uplink_up" in names


def test_durations_are_observed_by_bridge() -> None:
    made = exporter(BR0)
    made.observe("br0", "decision_duration", 0.002)
    made.observe("br0", "stats_poll_duration", 0.02)
    registry = made._registry
    labels = {"bridge": "br0"}
    for name, seconds in (("decision_duration", 0.002), ("stats_poll_duration", 0.02)):
        assert registry.get_sample_value(f"ovslbt_{name}_seconds_count", labels) == 1
        assert registry.get_sample_value(f"ovslbt_{name}_seconds_sum", labels) == seconds


def test_what_happens_now_and_then_is_counted_from_zero_on() -> None:
    """Prometheus sees no increase in a series that begins with one."""
    made = exporter(BR0)
    count = "ovslbt_settling_seconds_count"
    before = [*made._registry.collect()]
    assert {s.value for f in before for s in f.samples if s.name == count} == {0}
    made.observe("br0", "settling", 0.25)
    made.observe("br0", "inbound_follow", 1.25)
    for name, seconds in (("settling", 0.25), ("inbound_follow", 1.25)):
        observed = made._registry.get_sample_value(f"ovslbt_{name}_seconds_sum", {"bridge": "br0"})
        assert observed == seconds


def test_a_rule_is_broken_or_kept_and_one_that_a_port_has_not_is_absent() -> None:
    assert value("rule_broken", port="vnet0", rule="pin") == 1
    assert value("rule_broken", port="vnet0", rule="allow") == 0
    without = replace(BR0, ports=(replace(VNET0, rules={}),))
    assert not any(name == "rule_broken" for name, _ in samples(without))


def test_a_tunnel_endpoint_has_what_its_flows_count() -> None:
    of = {"address": "192.0.2.1,fd00::1", "kind": "geneve", "of": "br-int,br-tun"}
    assert value("endpoint_info", port="vnet0", **of) == 1
    assert value("endpoint_transmit_bytes_per_second", port="vnet0") == 1e6 / 8
    assert value("endpoint_receive_bytes_per_second", port="vnet0") == 2e6 / 8
    without = replace(BR0, ports=(replace(VNET0, endpoint=None),))
    assert not any(name.startswith("endpoint") for name, _ in samples(without))


def test_faults_are_counted_by_part_from_the_start() -> None:
    found = families(BR0)["faults"].samples
    assert {(s.name, s.labels["part"], s.value) for s in found} == {
        ("ovslbt_faults_total", part, 0.0) for part in PARTS
    }
