"""The bench of `live_migration`: VMs migrate between hosts with their memory and ports."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence

from topologies import layouts
from topologies.benches.two_switches import survived
from topologies.compare.contenders import MANUAL
from topologies.compare.expectation import (
    Expectation,
    against_peers,
    at_least,
    at_most,
    is_ours,
    none,
    within,
)
from topologies.compare.figures import Figures, Result
from topologies.compare.plan import Options, Plan
from topologies.compare.scenario import Scenario
from topologies.graph.layout import Layout, Role
from topologies.graph.parts import STANDARD_MTU
from topologies.loads.load import Load, Stage
from topologies.loads.migration_load import MigrationLoad, Migrations
from topologies.loads.outage_load import OutageLoad
from topologies.loads.streams import equal_flows

# The contenders that reproduce the document's teams.
LACP = ("dynamic/lacp", "address-hash", "balance-tcp")
SWITCH_INDEPENDENT = ("load-based", "adaptive", "dynamic", "active-backup", "balance-slb")
# The contenders of scenarios in which policies with the same teaming do not differ.
FEW = ("dynamic", "dynamic/lacp", "balance-tcp")
AT_ONCE = (8, 4, 2, 1)
SMB_CONNECTIONS = 4
JUMBO_MTU = 9000
TCP, SMB, LARGE = "8 at once, TCP", "8 at once, SMB", "one large VM, SMB"
MULTICHANNEL = "8 at once, two NICs"
FAILURE = "an uplink fails"
STANDARD, JUMBO = "one large VM, two NICs", "one large VM, two NICs, jumbo frames"
# The VMs' total load while an uplink fails, as a share of an uplink's capacity: one uplink can carry it.
OFFERED_RATIO = 0.8
# The time to copy all memory once, as a share of the measured part of a stream.
MEMORY_RATIO = 0.5
# The rate at which all VMs write memory, as a share of the links' capacity.
DIRTY_RATIO = 0.16

LEAST_LACP_SHARE = 0.85
HALF_SHARES = (0.40, 0.52)
# Measured shares within this ratio count as equal; the document's shares differ by more.
SAME_RATIO = 0.98
MOST_BLACKOUT_MS = 1000.0


def scenarios(options: Options) -> list[Scenario]:
    """The document's scenarios: with and without teams, and one to eight migrations at once."""
    layout = layouts.live_migration()
    modes = {mode["name"]: mode["total_share"] for mode in layout.published["modes"]}
    half = _published(SWITCH_INDEPENDENT, modes["switch independent"])
    one_vm = statistics.fmean(layout.published["one_vm_tcp_share"])
    jumbo = 1 + statistics.fmean(layout.published["jumbo_gain_ratio"])
    gains = {name: {"jumbo_ratio": jumbo} for name in (MANUAL, "load-based")}
    counted_published = {
        8: half | _published(LACP, modes["LACP, TCP"]),
        2: _published(LACP, modes["LACP, TCP, two VMs"]),
        1: _published(LACP, one_vm),
    }
    counted = [
        _scenario(
            options,
            f"{at_once} at once, TCP",
            f"Eight VMs, {at_once} at a time, each by one TCP connection over the team.",
            (MANUAL, *SWITCH_INDEPENDENT, *LACP) if at_once == AT_ONCE[0] else FEW,
            at_once=at_once,
            published=counted_published.get(at_once, {}),
        )
        for at_once in AT_ONCE
    ]
    smb = _published(LACP, modes["LACP, SMB"])
    return [
        counted[0],
        _scenario(
            options,
            SMB,
            f"Eight VMs at once, each by {SMB_CONNECTIONS} connections over the team.",
            ("load-based", "adaptive", "dynamic", "balance-slb", *LACP),
            connections=SMB_CONNECTIONS,
            published=half | smb,
        ),
        _scenario(
            options,
            MULTICHANNEL,
            "Eight VMs at once, each by a connection over either of two vNICs, as SMB Multichannel "
            "does it; by hand without a team, the others over a switch-independent one.",
            (MANUAL, *SWITCH_INDEPENDENT),
            connections=2,
            networks=2,
            published=_published([MANUAL], modes["no team, SMB Multichannel"]),
        ),
        *counted[1:],
        _scenario(
            options,
            LARGE,
            f"One VM with the memory of eight, by {SMB_CONNECTIONS} connections over the team.",
            FEW,
            layout=layouts.live_migration(vms=1),
            connections=SMB_CONNECTIONS,
            published=_published(LACP, modes["LACP, SMB, one large VM"]),
        ),
        *(
            _scenario(
                options,
                name,
                f"One VM with the memory of eight, by a connection over either vNIC, MTU {mtu}.",
                (MANUAL, "load-based"),
                layout=layouts.live_migration(vms=1, mtu=mtu),
                connections=2,
                networks=2,
                published=published,
            )
            for name, mtu, published in (
                (STANDARD, STANDARD_MTU, {}),
                (JUMBO, JUMBO_MTU, gains),
            )
        ),
        Scenario(
            name=FAILURE,
            what="Nobody migrates. The VMs offer equal loads, and one uplink can carry all of them."
            " An uplink of their host fails and recovers, of a LAG or of a switch-independent team.",
            layout=layout,
            load=lambda stage: _outage(stage, options),
            contenders=(MANUAL, *SWITCH_INDEPENDENT, *LACP),
        ),
    ]


def _outage(stage: Stage, options: Options) -> Load:
    layout = stage.layout
    fails_s, returns_s, end_s = options.pace.outage_s
    # All VMs are on the first host.
    uplinks = layout.uplinks_of(layout.nodes(Role.SERVER_BRIDGE)[0])
    flows = equal_flows(layout, OFFERED_RATIO / len(uplinks), end_s)
    return OutageLoad(stage, flows, uplinks[0], fails_s=fails_s, returns_s=returns_s)


def _scenario(
    options: Options,
    name: str,
    what: str,
    contenders: Sequence[str],
    *,
    layout: Layout | None = None,
    at_once: int = AT_ONCE[0],
    connections: int = 1,
    networks: int = 1,
    published: Mapping[str, Mapping[str, float]] | None = None,
) -> Scenario:
    layout = layout or layouts.live_migration()
    vms = len(layout.nodes(Role.VM))
    copied_s = MEMORY_RATIO * options.pace.streams_s[1]
    migrations = Migrations(
        at_once=at_once,
        connections=connections,
        networks=networks,
        memory_bytes=int(layout.limit_bps / 8 * copied_s / vms),
        dirty_bps=DIRTY_RATIO * layout.limit_bps / vms,
    )
    return Scenario(
        name=name,
        what=what,
        layout=layout,
        load=functools.partial(MigrationLoad, migrations=migrations),
        contenders=tuple(contenders),
        published={one: found for one, found in (published or {}).items() if one in contenders},
    )


def _published(contenders: Iterable[str], share: float) -> dict[str, dict[str, float]]:
    return {name: {"share_of_limit": share} for name in contenders}


def derived(results: Sequence[Result]) -> dict[str, dict[str, Figures]]:
    """The gain of jumbo frames in throughput and in CPU time."""
    by_name = {one.scenario.name: one.medians() for one in results}
    standard, jumbo = by_name.get(STANDARD, {}), by_name.get(JUMBO, {})
    return {
        JUMBO: {
            name: {
                "jumbo_ratio": one["throughput_bps"] / standard[name]["throughput_bps"],
                "jumbo_cpu_ratio": one["cpu_s_per_gbit"] / standard[name]["cpu_s_per_gbit"],
            }
            for name, one in jumbo.items()
            if name in standard
        }
    }


def expectations(_options: Options, results: Sequence[Result]) -> list[Expectation]:
    """The published shares of the team, and their order."""
    by_name = {one.scenario.name: one.medians() for one in results}
    found: list[Expectation] = []
    for scenario in (TCP, SMB):
        found += [
            within(
                f"{scenario}, {name}: received by one member, half of the team",
                one["share_of_limit"],
                *HALF_SHARES,
            )
            for name, one in by_name.get(scenario, {}).items()
            if name in SWITCH_INDEPENDENT
        ]
    found += [
        at_least(f"{SMB}, {name}: share of the team", one["share_of_limit"], LEAST_LACP_SHARE)
        for name, one in by_name.get(SMB, {}).items()
        if name in LACP
    ]
    found += _in_published_order(by_name)
    for result in results:
        scenario, contenders = result.scenario.name, result.medians()
        if scenario == FAILURE:
            found += survived(f"{scenario}, ", "uplink", result)
        else:
            found += _handed_over(scenario, contenders)
        found += against_peers(scenario, contenders)
    return found


def _in_published_order(by_name: Mapping[str, Mapping[str, Figures]]) -> list[Expectation]:
    """Expect each of the document's modes to be at least as good as the one before it."""
    places = {
        "switch independent": (TCP, SWITCH_INDEPENDENT),
        "LACP, TCP": (TCP, LACP),
        "LACP, SMB": (SMB, LACP),
        "no team, SMB Multichannel": (MULTICHANNEL, (MANUAL,)),
    }
    shares = {
        place: statistics.median(ran)
        for place, (scenario, names) in places.items()
        if (
            ran := [
                one["share_of_limit"] for n, one in by_name.get(scenario, {}).items() if n in names
            ]
        )
    }
    if len(shares) < len(places):
        return []
    ordered = list(shares.values())
    in_order = all(b >= SAME_RATIO * a for a, b in itertools.pairwise(ordered))
    return [
        Expectation(
            f"in the published order: {', '.join(shares)}",
            ", ".join(f"{share:.3f}" for share in ordered),
            in_order and ordered[0] < SAME_RATIO * ordered[1],
        )
    ]


def _handed_over(scenario: str, contenders: Mapping[str, Figures]) -> list[Expectation]:
    """Expect our policies to serve VMs at their new host soon, without duplicates."""
    ours = {name: one for name, one in contenders.items() if is_ours(name)}
    if not ours:
        return []
    slowest = max(ours, key=lambda name: (ours[name]["worst_blackout_ms"], name))
    worst_ms = ours[slowest]["worst_blackout_ms"]
    condition = (
        f"{scenario}: with our policies, every VM reachable again within {MOST_BLACKOUT_MS:.0f} ms"
    )
    return [
        at_most(condition, worst_ms, MOST_BLACKOUT_MS, f"{slowest} {{:.0f}} ms"),
        none(
            f"{scenario}: our policies deliver no duplicates",
            {name: one["probe_duplicated"] for name, one in ours.items()},
        ),
    ]


PLAN = Plan(scenarios, expectations, derived)
