"""The benches of failures and migrations: `two_switches`, `spine_leaf` and `live_migration`."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from topologies import layouts
from topologies.compare.contenders import MANUAL, USUAL
from topologies.compare.figures import Figures, jumbo_ratios
from topologies.compare.plan import Options, Plan, Rule
from topologies.compare.run import Scenario
from topologies.graph.layout import Layout, Role
from topologies.loads.migration_load import MigrationLoad, Migrations
from topologies.loads.streams import OutageLoad, settled_streams

MOST_FAILOVER_MS = 1000.0


def _survived(where: str, failed: str) -> list[Rule]:
    """No duplicates and a short failover with our policies. The worst run counts, not the median."""
    return [
        Rule(
            *("no duplicates", "probe_duplicated", None, (where,)),
            most=0.0,
            shown="{:.0f}",
            worst_run=True,
        ),
        Rule(
            f"a failed {failed} interrupts no VM for more than {MOST_FAILOVER_MS:.0f} ms",
            *("failover_ms", None, (where,)),
            most=MOST_FAILOVER_MS,
            shown="at most {:.0f} ms",
            worst_run=True,
        ),
    ]


# two_switches
SWITCH_FAILS = "a switch fails"
# The total load as a share of a server's uplinks. One uplink can carry it.
OFFERED_RATIO = 0.4


def _two_switches(options: Options) -> list[Scenario]:
    layout = layouts.two_switches()
    failing = layout.far_end(layout.nodes(Role.UPLINK)[0])
    return [
        Scenario(
            name=SWITCH_FAILS,
            what="Every VM offers the same load, and one uplink can carry all of it. A switch"
            " fails and recovers.",
            layout=layout,
            load=lambda stage: OutageLoad(stage, OFFERED_RATIO, failing, options.pace),
            contenders=USUAL,
        )
    ]


TWO_SWITCHES = Plan(_two_switches, _survived(SWITCH_FAILS, "switch"), campaign_runs=5)

# spine_leaf
UNEQUAL, LEAF_FAILS = "unequal VMs", "a leaf switch fails"
UNEQUAL_RATIO = 0.7
# The loads of the VMs relative to each other. Manual placement puts two of them on each uplink.
WEIGHTS = (4.0, 3.0, 2.0, 1.0)


def _spine_leaf(options: Options) -> list[Scenario]:
    layout = layouts.spine_leaf()
    # From each VM of the first rack to the VM of the second that has the same place.
    pairs = list(zip(layout.senders, layout.receivers, strict=True))
    failing = layout.far_end(layout.sending_uplinks()[0])
    return [
        Scenario(
            name=UNEQUAL,
            what="Each VM of the first rack sends to one of the second, in proportion to"
            f" {', '.join(f'{one:g}' for one in WEIGHTS)}, in total {UNEQUAL_RATIO:.0%} of a"
            " server's uplinks.",
            layout=layout,
            load=lambda stage: settled_streams(stage, options.pace, UNEQUAL_RATIO, WEIGHTS, pairs),
            contenders=USUAL,
        ),
        Scenario(
            name=LEAF_FAILS,
            what="Each VM of the first rack sends the same load to one of the second, and one uplink can"
            " carry all of it. A leaf switch of the first rack fails and recovers.",
            layout=layout,
            load=lambda stage: OutageLoad(stage, OFFERED_RATIO, failing, options.pace, pairs),
            contenders=USUAL,
        ),
    ]


SPINE_LEAF = Plan(_spine_leaf, _survived(LEAF_FAILS, "leaf switch"), campaign_runs=5)

# live_migration. The contenders that reproduce the document's teams:
LACP = ("dynamic/lacp", "address-hash", "balance-tcp")
SWITCH_INDEPENDENT = ("load-based", "adaptive", "dynamic", "active-backup", "balance-slb")
# The contenders of scenarios in which policies with the same teaming do not differ.
FEW = ("dynamic", "dynamic/lacp", "balance-tcp")
TCP, SMB, LARGE = "8 at once, TCP", "8 at once, SMB", "one large VM, SMB"
MULTICHANNEL = "8 at once, two NICs"
FEWER_AT_ONCE = {at_once: f"{at_once} at once, TCP" for at_once in (4, 2, 1)}
UPLINK_FAILS = "an uplink fails"
STANDARD, JUMBO = "one large VM, two NICs", "one large VM, two NICs, jumbo frames"
MIGRATIONS = (TCP, SMB, LARGE, MULTICHANNEL, *FEWER_AT_ONCE.values(), STANDARD, JUMBO)
SMB_CONNECTIONS, JUMBO_MTU = 4, 9000
# The VMs' total load while an uplink fails, as a share of an uplink's capacity: one uplink can carry it.
VMS_RATIO = 0.8
# The time to copy all memory once, as a share of the measured part of a stream.
MEMORY_RATIO = 0.5
# The rate at which all VMs write memory, as a share of the links' capacity.
DIRTY_RATIO = 0.16
MOST_BLACKOUT_MS = 1000.0


def _migrations(options: Options) -> Iterator[Scenario]:
    """The document's scenarios: with and without teams, and one to eight migrations at once."""
    make = functools.partial(_migration, options)
    published = layouts.live_migration().published
    modes = {mode["name"]: mode["total_share"] for mode in published["modes"]}
    half = _shares(SWITCH_INDEPENDENT, modes["switch independent"])
    jumbo = {"jumbo_ratio": 1 + statistics.fmean(published["jumbo_gain_ratio"])}
    tcp = "Eight VMs, {} at a time, each by one TCP connection over the team."
    yield make(
        *(TCP, tcp.format(8), (MANUAL, *SWITCH_INDEPENDENT, *LACP)),
        published=half | _shares(LACP, modes["LACP, TCP"]),
    )
    yield make(
        *(SMB, f"Eight VMs at once, each by {SMB_CONNECTIONS} connections over the team."),
        ("load-based", "adaptive", "dynamic", "balance-slb", *LACP),
        connections=SMB_CONNECTIONS,
        published=half | _shares(LACP, modes["LACP, SMB"]),
    )
    yield make(
        MULTICHANNEL,
        "Eight VMs at once, each by a connection over either of two vNICs, as SMB Multichannel "
        "does it; by hand without a team, the others over a switch-independent one.",
        (MANUAL, *SWITCH_INDEPENDENT),
        connections=2,
        networks=2,
        published=_shares([MANUAL], modes["no team, SMB Multichannel"]),
    )
    two, one = modes["LACP, TCP, two VMs"], statistics.fmean(published["one_vm_tcp_share"])
    few = {4: {}, 2: _shares(LACP, two), 1: _shares(LACP, one)}
    for at_once, name in FEWER_AT_ONCE.items():
        yield make(name, tcp.format(at_once), FEW, at_once=at_once, published=few[at_once])
    yield make(
        LARGE,
        f"One VM with the memory of eight, by {SMB_CONNECTIONS} connections over the team.",
        FEW,
        layout=layouts.live_migration(vms=1),
        connections=SMB_CONNECTIONS,
        published=_shares(LACP, modes["LACP, SMB, one large VM"]),
    )
    for name, mtu in ((STANDARD, 1500), (JUMBO, JUMBO_MTU)):
        yield make(
            name,
            f"One VM with the memory of eight, by a connection over either vNIC, MTU {mtu}.",
            (MANUAL, "load-based"),
            layout=layouts.live_migration(vms=1, mtu=mtu),
            connections=2,
            networks=2,
            published=dict.fromkeys((MANUAL, "load-based"), jumbo) if name == JUMBO else {},
        )
    layout = layouts.live_migration()
    # All VMs are on the first host.
    uplinks = layout.uplinks_of(layout.nodes(Role.SERVER_BRIDGE)[0])
    offered_ratio = VMS_RATIO / len(uplinks)
    yield Scenario(
        name=UPLINK_FAILS,
        what="Nobody migrates. The VMs offer equal loads, and one uplink can carry all of them."
        " An uplink of their host fails and recovers, of a LAG or of a switch-independent team.",
        layout=layout,
        load=lambda stage: OutageLoad(stage, offered_ratio, uplinks[0], options.pace),
        contenders=(MANUAL, *SWITCH_INDEPENDENT, *LACP),
    )


def _migration(
    options: Options,
    name: str,
    what: str,
    contenders: Sequence[str],
    *,
    layout: Layout | None = None,
    published: Mapping[str, Figures],
    **settings: int,
) -> Scenario:
    """Migrations with these settings, such that copying all memory once takes a share of the measured time."""
    layout = layout or layouts.live_migration()
    vms = len(layout.nodes(Role.VM))
    copied_s = MEMORY_RATIO * options.pace.streams_s[1]
    migrations = Migrations(
        **settings,
        memory_bytes=int(layout.limit_bps / 8 * copied_s / vms),
        dirty_bps=DIRTY_RATIO * layout.limit_bps / vms,
    )
    return Scenario(
        name=name,
        what=what,
        layout=layout,
        load=functools.partial(MigrationLoad, migrations=migrations),
        contenders=tuple(contenders),
        published={one: found for one, found in published.items() if one in contenders},
    )


def _shares(contenders: Iterable[str], share: float) -> dict[str, Figures]:
    return {name: {"share_of_limit": share} for name in contenders}


LIVE_MIGRATION = Plan(
    lambda options: [*_migrations(options)],
    [
        Rule(
            f"every VM reachable again within {MOST_BLACKOUT_MS:.0f} ms",
            *("worst_blackout_ms", None, MIGRATIONS),
            most=MOST_BLACKOUT_MS,
            shown="{:.0f} ms",
        ),
        Rule("no duplicates", "probe_duplicated", None, MIGRATIONS, most=0.0, shown="{:.0f}"),
        *_survived(UPLINK_FAILS, "uplink"),
    ],
    derived=functools.partial(jumbo_ratios, standard_of={JUMBO: STANDARD}),
)
