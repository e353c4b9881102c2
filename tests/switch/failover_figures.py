"""What an uplink that fails costs with many connections cached: a bond's, and ours without the service.

`python -m tests.switch.failover_figures --out docs/results/causes/failover_userspace.json`; with
OVS_LBT_DATAPATH=kernel on the kernel's datapath. `ovs-lbt bench connections` has the same with the service,
whose upstream switch is a bridge of the same Open vSwitch. Here it is another one.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

from tests.switch import datapath
from tests.switch.bed import BALANCE_SLB, LACP, Bed
from tests.switch.bench import Bench, Shown, table
from tests.switch.test_failover import place_in_bond
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream
from tests.switch.without_service import (
    BOUND,
    DP_HASH,
    MULTIPATH,
    Contender,
    bed_of,
    cached_flows,
    connect,
)
from tests.switch.without_service import frame as frame_of_first

CONTENDERS = (
    Contender("balance-slb", BALANCE_SLB),
    Contender("load-based on balance-slb", BALANCE_SLB, BOUND),
    Contender("dynamic, dp_hash, on balance-slb", BALANCE_SLB, DP_HASH),
    Contender("dynamic, multipath, on balance-slb", BALANCE_SLB, MULTIPATH),
    Contender("balance-tcp", LACP),
    Contender("dynamic, dp_hash, on balance-tcp", LACP, DP_HASH),
)
CACHED = (100, 10_000)
CUTS = 9
# Connections of each VM that are watched, and the rate of each: silence is known to 2 ms.
WATCHED, PPS = 1, 500.0
BEFORE, AFTER = 100, 200
SENT_PER_S = 3000.0
# Why Open vSwitch translates all cached flows again, as its coverage counters name it.
REASONS = ("reconfigure", "port_toggled", "bond", "flow_table", "mac_learning")
SHOWN: dict[str, Shown] = {
    "cached flows": "flows",
    "silent, ms": "silent_ms",
    "revalidations": lambda run: " ".join(sorted(run["revalidations"])) or "none",
}


def main() -> int:
    """Measure all of them, and write what was found."""
    names = [*map(str, CONTENDERS)]
    bench = Bench("failover_figures", __doc__, "out/failover.json")
    bench.report |= {"datapath": datapath.NAME, "watched": 2 * WATCHED, "pps": PPS}
    add = bench.parser.add_argument
    add("--cuts", type=int, default=CUTS, help=f"failures of each ({CUTS})")
    add("--cached", type=int, nargs="+", default=list(CACHED))
    add("--by", nargs="+", default=names, choices=names)
    with bench.begun() as tor:
        for one in CONTENDERS:
            if one.name not in bench.options.by:
                continue
            with bed_of(tor, one, vms=2) as bed:
                for before, count in itertools.pairwise([0, *sorted(bench.options.cached)]):
                    fill(bed, before, count)
                    for number in range(bench.options.cuts):
                        case = {"by": one.name, "connections": count, "cut": number}
                        bench.run(case, cut, bed, one)
    print(table(bench.runs, ("connections", "by"), SHOWN))
    return 0


def cut(bed: Bed, contender: Contender) -> dict[str, Any]:
    """What a failure costs a contender; a bond that does not place VMs as we do is told to."""
    if contender.pipeline is None and contender.team != LACP:
        place_in_bond(bed)
    return failover(bed)


def fill(bed: Bed, first: int, end: int) -> None:
    """Send a frame of each new connection."""
    connect(bed, first, end, SENT_PER_S)
    bed.fence()


def failover(
    bed: Bed, of_each_vm: int = WATCHED, pps: float = PPS, catch_up_s: float = math.inf
) -> dict[str, Any]:
    """What is lost of the watched connections when the uplink of most of them loses its carrier."""
    host, ends = bed.hosts[0], {uplink: uplink.upstream_end for uplink in bed.uplinks}
    watched = [
        (vm.point, frame(bed, vm_at, number))
        for vm_at, vm in enumerate(bed.vms)
        for number in range(of_each_vm)
    ]
    bed.revalidated()
    flows, before = len(cached_flows(bed)), revalidations(bed)
    with (
        bed.ears(host.point, *ends.values()) as ears,
        Stream(watched, pps, catch_up_s=catch_up_s) as stream,
    ):
        ear = ears[host.point]

        def newest() -> int:
            return min(max(stream.received(ear, n), default=0) for n in range(len(watched)))

        wait_until(lambda: newest() >= BEFORE, "they arrive")
        used = {
            uplink: sum(bool(stream.received(ears[end], n)) for n in range(len(watched)))
            for uplink, end in ends.items()
        }
        fails = max(used, key=lambda uplink: used[uplink])
        on_it = used[fails]
        bed.pull_cable(fails)
        failed_at = newest()
        wait_until(lambda: newest() >= failed_at + AFTER, "they arrive again")
        stream.stop()
        ears.until_quiet()
        lost = sum(stream.lost(ear, n) for n in range(len(watched)))
    asked = {name: now - before[name] for name, now in revalidations(bed).items()}
    bed.plug_cable(fails)
    wait_until(lambda: bed.carrier(fails), f"{fails} has its carrier again")
    if bed.spec.team == LACP:
        wait_until(bed.lacp_is_negotiated, "LACP negotiated again")
    return {
        "flows": flows,
        "on_the_uplink": on_it,
        "lost": lost,
        "silent_ms": round(1000 * lost / (pps * on_it), 1),
        "revalidations": {name: count for name, count in asked.items() if count},
    }


def frame(bed: Bed, vm_at: int, number: int) -> bytes:
    """The first frame of a watched connection of a VM; those of the first VM are among the cached ones."""
    data = frame_of_first(bed, number, 0)
    return data[:6] + bytes.fromhex(bed.vms[vm_at].mac.replace(":", "")) + data[12:]


def revalidations(bed: Bed) -> dict[str, int]:
    """How often all cached flows had to be translated again since the switch started, by reason."""
    asked = ("ovs-appctl", "coverage/read-counter")
    return {name: int(bed.ovs.run(*asked, f"rev_{name}")) for name in REASONS}


if __name__ == "__main__":
    sys.exit(main())
