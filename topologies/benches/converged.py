"""The bench of `converged`: vNIC to vNIC with standard and jumbo frames, and two faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from topologies import layouts
from topologies.compare.expectation import (
    Expectation,
    against_peers,
    at_least,
    at_most,
    fastest,
    is_peer,
)
from topologies.compare.figures import Figures, Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.parts import STANDARD_MTU
from topologies.loads.load import Load, Stage
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import flow

CONTENDERS = (
    "manual",
    "load-based",
    "adaptive",
    "dynamic",
    "active-backup",
    "balance-slb",
    "balance-tcp",
)
# All links stay up during these faults, so only contenders with path checks detect them.
WITH_PATH_CHECKS = ("load-based+path-check", "adaptive+path-check", "dynamic+path-check")
FOUND_WITHIN_S = 5.0
# The share of the best peer's throughput after the fault is found.
LEAST_FAULT_RATIO = 0.9
# Drivers call it 9014, the size of the frame with its header.
JUMBO_MTU = 9000
# The number of IOmeter's workers. A team that spreads them sends some to the faulty member.
STREAMS = 4
LEAST_JUMBO_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario of the bench."""

    name: str
    what: str
    mtu: int
    both_ways: bool = False
    odd_mtu: int = 0
    odd_vlan: int = 0

    @property
    def fault(self) -> bool:
        """Whether the scenario has a fault that the documents describe."""
        return bool(self.odd_mtu or self.odd_vlan)


STANDARD, JUMBO = "one way, standard frames", "one way, jumbo frames"
STANDARD_BOTH, JUMBO_BOTH = "both ways, standard frames", "both ways, jumbo frames"
CASES = (
    Case(STANDARD, "A VM sends to a VM on the other host, with an MTU of 1500.", STANDARD_MTU),
    Case(JUMBO, "A VM sends to a VM on the other host, with an MTU of 9000.", JUMBO_MTU),
    Case(STANDARD_BOTH, "Both VMs send, with an MTU of 1500.", STANDARD_MTU, True),
    Case(JUMBO_BOTH, "Both VMs send, with an MTU of 9000.", JUMBO_MTU, True),
    Case(
        "fault: a member's MTU",
        "Jumbo frames, but one switch port of the receiving team has an MTU of 1500.",
        JUMBO_MTU,
        odd_mtu=STANDARD_MTU,
    ),
    Case(
        "fault: a member's VLAN",
        "One switch port of the receiving team is in another VLAN.",
        STANDARD_MTU,
        odd_vlan=99,
    ),
)


def scenarios(options: Options) -> list[Scenario]:
    """One way and both ways with both MTUs, and the two faults."""
    return [
        Scenario(
            name=case.name,
            what=case.what,
            layout=layouts.converged(mtu=case.mtu, odd_mtu=case.odd_mtu, odd_vlan=case.odd_vlan),
            load=_load(case, options),
            contenders=(*CONTENDERS, *WITH_PATH_CHECKS) if case.fault else CONTENDERS,
            published=_published(case),
            reachable=not case.fault,
        )
        for case in CASES
    ]


def _load(case: Case, options: Options) -> Callable[[Stage], Load]:
    def load(stage: Stage) -> Load:
        layout = stage.layout
        (sender,), (receiver,) = layout.senders, layout.receivers
        ways = [(sender, receiver), (receiver, sender)][: 2 if case.both_ways else 1]
        warm_up_s, measured_s, cool_down_s = options.pace.bulk_s
        duration_s = warm_up_s + measured_s + cool_down_s
        flows = [flow(layout, *ends, duration_s, streams=STREAMS) for ends in ways]
        measured = (warm_up_s, warm_up_s + measured_s)
        return StreamLoad(stage, flows, measured, may_fail=case.fault)

    return load


def _published(case: Case) -> dict[str, dict[str, float]]:
    if case.name != JUMBO:
        return {}
    ratio = layouts.converged().published["jumbo_ratio"]
    return {name: {"jumbo_ratio": ratio} for name in CONTENDERS}


def derived(results: Sequence[Result]) -> dict[str, dict[str, Figures]]:
    """The throughput of jumbo frames relative to standard frames."""
    by_name = {result.scenario.name: result for result in results}
    found: dict[str, dict[str, Figures]] = {}
    for standard, jumbo in ((STANDARD, JUMBO), (STANDARD_BOTH, JUMBO_BOTH)):
        if standard in by_name and jumbo in by_name:
            small = by_name[standard].medians()
            found[jumbo] = {
                name: {"jumbo_ratio": one["throughput_bps"] / small[name]["throughput_bps"]}
                for name, one in by_name[jumbo].medians().items()
                if name in small
            }
    return found


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """Jumbo frames raise the throughput, path checks find faults, and ovs-lbt matches the peers."""
    found = []
    faults = {case.name for case in CASES if case.fault}
    for result in results:
        where, contenders = result.scenario.name, result.medians()
        if where == JUMBO:
            found += [
                at_least(
                    f"{name}: jumbo over standard frames", one["jumbo_ratio"], LEAST_JUMBO_RATIO
                )
                for name, one in contenders.items()
                if "jumbo_ratio" in one
            ]
        found += (
            _of_faults(where, contenders) if where in faults else against_peers(where, contenders)
        )
    return found


def _of_faults(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """Path checks find the fault in time, and the throughput then equals the best peer's."""
    peers = {name: one for name, one in contenders.items() if is_peer(name)}
    most_bps = peers[fastest(peers)]["throughput_bps"] if peers else 0.0
    found = []
    for name in WITH_PATH_CHECKS:
        if name not in contenders:
            continue
        found_s = contenders[name].get("fault_found_s", math.inf)
        condition = f"{scenario}, {name}: found within {FOUND_WITHIN_S:g} s"
        found.append(at_most(condition, found_s, FOUND_WITHIN_S, "{:.1f} s"))
        if most_bps:
            ratio = contenders[name]["throughput_bps"] / most_bps
            found.append(
                at_least(f"{scenario}, {name} over the best peer", ratio, LEAST_FAULT_RATIO)
            )
    return found


PLAN = Plan(scenarios, expectations, derived)
