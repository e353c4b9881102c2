"""Metrics: the names dashboards rely on, and the switch's counters as they are."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from prometheus_client import generate_latest
from prometheus_client.core import Metric

from controller.api.events import UNSUPPORTED, PortCounters
from controller.api.status import BridgeStatus, PortStatus, UplinkStatus
from controller.config.rows import Endpoint
from controller.config.values import BadValue, BridgeConfig, VmPortConfig
from controller.dataplane.drops import Drop
from controller.host.faults import PARTS
from controller.metrics.exporter import Exporter
from policies.model import Load, OfPort, Rules, Uplink
from policies.path_faults import Fault, PathFault
from policies.rules import Rule

# Of the port of an uplink and of a VM port; and of a port that the switch does not count.
OF_UPLINK = PortCounters(1, 0.0, 2**63, 7, 1, 2, 1, 1)
OF_PORT = PortCounters(10, 0.0, 12, 11, 0, 0, 1, 1)
UNCOUNTED = PortCounters(1, 0.0, *[UNSUPPORTED] * 4)
UPLINK = Uplink("eth1", OfPort(1), 1e9, load=Load(5e8, 2.5e8))
ETH1 = UplinkStatus(UPLINK, True, OF_UPLINK, True, 5, 3)
ETH1 = replace(ETH1, decided=Load(1.2e9, 1e8))
LOST = PathFault(Fault.MTU, ("eth1",), True, 20, 9000)
CUT_OFF = PathFault(Fault.UNREACHABLE, ("eth1",))
ETH1 = replace(ETH1, path_faults=((LOST, 1700.0), (CUT_OFF, 1700.0)))
# As many as a VM port can have.
RULES = {rule.value: "" for rule in Rule} | {"pin": "on eth1 -> eth2"}
BARE = VmPortConfig("vnet0", OfPort(10), "web", "load-based", "port")
VNET0 = PortStatus(
    replace(
        BARE,
        shares=60,
        rules=Rules(reserve_bps=8e6),
        limit_bps=16e6,
        endpoint=Endpoint(("192.0.2.1", "fd00::1"), ("geneve",), ("br-int", "br-tun")),
    ),
    "eth1",
    Load(1e6, 2e6),
    "manual",
    1700.0,
    OF_PORT,
    None,
    RULES,
    shaped_drops=13,
    dropped_on_purpose=dict.fromkeys(Drop, 21),
    units={"eth1": 3, "eth2": 0},
)
WRONG = BadValue("Bridge br0", "ovs-lbt-mode", "one", "two")
CONFIG = BridgeConfig("br0", "load-based", "switch-independent", "enforce", 0.75, 30.0, 1.0, 1.0)
BR0 = BridgeStatus(
    config=replace(CONFIG, errors=(WRONG, WRONG)),
    connected=True,
    imbalance_ratio=0.5,
    optimality_ratio=1.25,
    uplinks=(ETH1,),
    ports=(VNET0,),
    not_done=(),
    flooded_pps=19.0,
    repeated_pps=18.0,
    overruling=20,
    moves_planned={"threshold": 2},
    moves_applied={"threshold": 1, "failover": 4},
    moves_refused={"threshold": 0},
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


def samples(*bridges: BridgeStatus) -> dict[str, float]:
    """By `name label=value …`, without our prefix and the bridge's name."""
    found = {}
    for family in exporter(*bridges).collect():
        for sample in family.samples:
            labels = [f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "bridge"]
            found[" ".join([sample.name.removeprefix("ovslbt_"), *labels])] = sample.value
    return found


def test_the_families_are_the_same_without_a_bridge() -> None:
    assert {n: f.type for n, f in families().items()} == {
        n: f.type for n, f in families(BR0).items()
    }


def test_every_family_has_our_prefix_and_a_help_text() -> None:
    collected = [*exporter(BR0)._registry.collect()]
    assert {f.name.removeprefix("ovslbt_") for f in collected if f.type == "histogram"} == {
        "decision_duration_seconds",
        "stats_poll_duration_seconds",
        "settling_seconds",
        "inbound_follow_seconds",
    }
    assert all(f.name.startswith("ovslbt_") and f.documentation.endswith(".") for f in collected)


@pytest.mark.system
def test_prometheus_finds_nothing_wrong_with_names_and_help_texts() -> None:
    page = generate_latest(exporter(BR0)._registry)
    command = ["promtool", "check", "metrics"]
    checked = subprocess.run(command, input=page, capture_output=True, timeout=60)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_samples_have_the_values_of_the_status_in_bytes_seconds_and_ratios() -> None:
    """All there are: a counter has `_total` in its name, and what the switch counts is exact."""
    assert samples(BR0) == {
        "uplink_info role=active uplink=eth1": 1,
        "uplink_transmit_bytes_total uplink=eth1": 2**63,
        "uplink_receive_bytes_total uplink=eth1": 7,
        "uplink_drops_total uplink=eth1": 3,
        "uplink_capacity_bytes_per_second uplink=eth1": 125e6,
        "uplink_up uplink=eth1": 1,
        "uplink_link_changes_total uplink=eth1": 5,
        "uplink_utilization_ratio direction=transmit uplink=eth1": 0.5,
        "uplink_utilization_ratio direction=receive uplink=eth1": 0.25,
        "uplink_unrelieved uplink=eth1": 1,
        "uplink_units uplink=eth1": 3,
        "uplink_silent uplink=eth1": 0,
        "uplink_capacity_guessed uplink=eth1": 0,
        "uplink_decided_utilization_ratio direction=transmit uplink=eth1": 1.2,
        "uplink_decided_utilization_ratio direction=receive uplink=eth1": 0.1,
        "uplink_path_fault decided=true kind=mtu mtu=9000 uplink=eth1 vlan=20": 1,
        "uplink_path_fault decided=true kind=unreachable mtu= uplink=eth1 vlan=": 1,
        "port_transmit_bytes_total port=vnet0": 11,
        "port_receive_bytes_total port=vnet0": 12,
        "port_drops_total port=vnet0": 0,
        "port_binding port=vnet0 uplink=eth1": 1,
        "port_bound_timestamp_seconds port=vnet0 reason=manual uplink=eth1": 1700,
        "port_units port=vnet0": 3,
        "port_info port=vnet0 vm=web": 1,
        **{f"rule_broken port=vnet0 rule={rule}": rule == "pin" for rule in RULES},
        "port_shares port=vnet0": 60,
        "port_reserved_bytes_per_second port=vnet0": 1e6,
        "port_limit_bytes_per_second port=vnet0": 2e6,
        "port_shaped_drops_total port=vnet0": 13,
        **{f"port_dropped_on_purpose_total port=vnet0 reason={reason}": 21 for reason in Drop},
        "endpoint_info address=192.0.2.1,fd00::1 kind=geneve of=br-int,br-tun port=vnet0": 1,
        "endpoint_transmit_bytes_per_second port=vnet0": 1e6 / 8,
        "endpoint_receive_bytes_per_second port=vnet0": 2e6 / 8,
        "bridge_info mode=enforce policy=load-based teaming=switch-independent": 1,
        "bridge_connected": 1,
        "bridge_threshold_ratio": 0.75,
        "bridge_imbalance_ratio": 0.5,
        "bridge_optimality_ratio": 1.25,
        "config_errors": 2,
        "last_decision_timestamp_seconds": 1712.5,
        "failovers_total": 4,
        "moves_planned_total reason=threshold": 2,
        "moves_applied_total reason=threshold": 1,
        "moves_applied_total reason=failover": 4,
        "moves_refused_total reason=threshold": 0,
        "move_budget_exhausted": 2,
        "inbound_reannounced_total": 6,
        "inbound_not_followed_total": 1,
        "path_rounds_total result=judged": 14,
        "path_rounds_total result=void": 15,
        "path_frames_total result=arrived": 16,
        "path_frames_total result=lost": 17,
        "path_frames_total result=full": 18,
        "bridge_flooded_packets_per_second": 19,
        "bridge_repeated_packets_per_second": 18,
        "bridge_overruling_flows": 20,
        "build_info version=1.2.3": 1,
        "leader": 1,
        **{f"faults_total part={part}": 0 for part in PARTS},
    }
    assert all(sample.labels["bridge"] == "br0" for sample in families(BR0)["failovers"].samples)


def test_what_is_not_known_is_absent_and_never_zero() -> None:
    uncounted = replace(
        BR0,
        uplinks=(replace(ETH1, counters=UNCOUNTED),),
        ports=(PortStatus(BARE, None, Load(), None, None, UNCOUNTED),),
        last_decision_at=None,
    )
    gone = {name.split()[0] for name in samples(BR0).keys() - samples(uncounted).keys()}
    assert {name for name in gone if not name.startswith(("port", "endpoint"))} == {
        "uplink_transmit_bytes_total",
        "uplink_receive_bytes_total",
        "uplink_drops_total",
        "rule_broken",
        "last_decision_timestamp_seconds",
    }
    left = {name for name in samples(uncounted) if name.startswith(("port", "endpoint"))}
    assert left == {"port_info port=vnet0 vm=web"}


def test_durations_are_observed_and_what_happens_now_and_then_is_counted_from_zero_on() -> None:
    """Prometheus sees no increase in a series that begins with one."""
    made, labels = exporter(BR0), {"bridge": "br0"}
    before = [*made._registry.collect()]
    assert {
        s.value for f in before for s in f.samples if s.name == "ovslbt_settling_seconds_count"
    } == {0}
    for name, seconds in (
        ("decision_duration", 0.002),
        ("stats_poll_duration", 0.02),
        ("settling", 0.25),
        ("inbound_follow", 1.25),
    ):
        made.observe("br0", name, seconds)
        value = made._registry.get_sample_value
        assert value(f"ovslbt_{name}_seconds_count", labels) == 1
        assert value(f"ovslbt_{name}_seconds_sum", labels) == seconds
