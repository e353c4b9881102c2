"""The bench of many connections of one VM: cached connections, uplink failures among them, and new ones."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from topologies import layouts
from topologies.compare.contenders import Contender, Ours, by_name
from topologies.compare.plan import Options, Plan
from topologies.compare.run import Scenario
from topologies.graph.layout import Layout
from topologies.loads.connections import FEW, FRAME_BYTES, PROBE_PPS, ConnectionsLoad
from topologies.network.shaping import UNSHAPED_BPS

NAME = "connections"
SIZES = (1_000, 10_000, 30_000, 100_000)
RATES = (1_000, 10_000)
CONTENDERS = (
    *("active-backup", "balance-slb", "balance-tcp", "load-based", "dynamic", "dynamic/lacp"),
    *("dynamic/lacp+multipath", "adaptive", "adaptive+multipath"),
)
# Each cached connection gets a frame in this time. Open vSwitch forgets flows after 10 s (max-idle).
REFRESH_S = 7.0
LEAST_FRAMES_PER_S = 2000.0
# The load of the VM, relative to the capacity of an uplink that `adaptive` has configured: too much for one
# uplink, so that it splits the VM's port, but not for two.
LOAD_RATIO = 1.4


def plan(sizes: Sequence[int] | None = None, rates: Sequence[int] | None = None) -> Plan:
    """The bench with these numbers of cached connections, and of new ones per second; None: the usual ones."""
    cached, new = SIZES if sizes is None else sizes, RATES if rates is None else rates
    return Plan(
        lambda options: [*_scenarios(sorted({*cached}), sorted({*new}), options)],
        real_time=True,
        campaign_runs=9,
    )


def _scenarios(sizes: Sequence[int], rates: Sequence[int], options: Options) -> Iterator[Scenario]:
    # The same with every number of connections.
    frames_per_s = max(LEAST_FRAMES_PER_S, max(sizes, default=0) / REFRESH_S)
    sent = f"{frames_per_s:.0f} frames of {FRAME_BYTES} bytes a second"
    # Links without a limit, because the bench measures the switches' limits, not those of queues.
    unshaped = layouts.shift(vms=1, clients=2, uplink_mbps=UNSHAPED_BPS // 10**6)
    described = [
        (
            f"{size:,} connections",
            f"One VM behind two uplinks sends {sent} on {size:,} connections. Its port is split by"
            f" `adaptive`. The uplink of a probe of {PROBE_PPS:.0f} frames a second loses its carrier.",
            (size, 0),
        )
        for size in sizes
    ]
    described += [
        (
            f"{rate:,} new connections a second",
            f"The VM opens new connections for {options.pace.connections_s[1]:g} s, in addition to"
            f" {FEW} cached ones.",
            (FEW, rate),
        )
        for rate in rates
    ]
    for name, what, (size, rate) in described:
        yield Scenario(
            name=name,
            what=what,
            layout=Layout(NAME, unshaped.graph),
            load=functools.partial(
                ConnectionsLoad,
                size=size,
                frames_per_s=frames_per_s,
                pace=options.pace,
                new_per_s=rate,
            ),
            contenders=CONTENDERS,
            contender=functools.partial(_contender, frames_per_s * FRAME_BYTES * 8),
        )


def _contender(load_bps: float, name: str) -> Contender:
    """A contender that uses a link again when it returns, as a bond without `bond_updelay` does."""
    found = by_name(name)
    if isinstance(found, Ours):
        found.settings["failback-delay-s"] = 0
        if found.policy == "adaptive":
            found.capacity_mbps = max(1, round(load_bps / LOAD_RATIO / 1e6))
    return found
