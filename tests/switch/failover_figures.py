"""What an uplink that fails costs with many connections cached: a bond's, and ours without the service.

`python -m tests.switch.failover_figures --out docs/results/causes/failover_userspace.json`; with
OVS_LBT_DATAPATH=kernel on the kernel's datapath. `ovs-lbt bench connections` has the same with the service,
whose upstream switch is a bridge of the same Open vSwitch. Here it is another one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tests.switch import connection_figures as connections
from tests.switch import datapath
from tests.switch.bed import BALANCE_SLB, LACP, Bed, BedSpec, Upstream, upstream_ovs
from tests.switch.test_failover import place_in_bond
from tests.switch.translation_figures import UPLINKS, Contender, forwarding
from tests.switch.waiting import wait_until
from tests.switch.wire import OwnNetwork, Stream, sending_socket
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.origin import origin

CONTENDERS = (
    Contender("balance-slb", BALANCE_SLB),
    Contender("load-based on balance-slb", BALANCE_SLB, "bound"),
    Contender("dynamic, dp_hash, on balance-slb", BALANCE_SLB, "dp_hash"),
    Contender("dynamic, multipath, on balance-slb", BALANCE_SLB, "multipath"),
    Contender("balance-tcp", LACP),
    Contender("dynamic, dp_hash, on balance-tcp", LACP, "dp_hash"),
)
CACHED = (100, 10_000)
CUTS = 9
# Connections of each VM that are watched, and the rate of each: silence is known to 2 ms.
WATCHED, PPS = 1, 500.0
BEFORE, AFTER = 100, 200
SENT_PER_S = 3000.0
# Why Open vSwitch translates all cached flows again, as its coverage counters name it.
REASONS = ("reconfigure", "port_toggled", "bond", "flow_table", "mac_learning")


def main() -> int:
    """Measure all of them, and write what was found."""
    parser = argparse.ArgumentParser(prog="failover_figures", description=__doc__)
    parser.add_argument("--cuts", type=int, default=CUTS, help=f"failures of each ({CUTS})")
    parser.add_argument("--cached", type=int, nargs="+", default=list(CACHED))
    parser.add_argument("--by", nargs="+", default=[one.name for one in CONTENDERS])
    parser.add_argument("--out", type=Path, default=Path("out/failover.json"))
    options = parser.parse_args()
    report: dict[str, Any] = {
        "origin": origin(["python", "-m", "tests.switch.failover_figures", *sys.argv[1:]]),
        "datapath": datapath.NAME,
        "watched": 2 * WATCHED,
        "pps": PPS,
        "runs": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with OwnNetwork().entered(), upstream_ovs() as tor:
        for contender in CONTENDERS:
            if contender.name not in options.by:
                continue
            for found in measured(tor, contender, options.cached, options.cuts):
                report["runs"].append({"by": contender.name, **found})
                print(json.dumps(report["runs"][-1]), flush=True)
                options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report["runs"]))
    return 0


def measured(tor: Upstream, contender: Contender, cached: list[int], cuts: int) -> Any:
    """What each failure cost a contender, with so many connections cached."""
    with (
        PrivateOvs(prefix="ovs-lbt-failover-") as ovs,
        Bed(ovs, tor, BedSpec(contender.team, UPLINKS, (None,) * 2)) as bed,
        forwarding(bed, contender),
    ):
        ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={connections.MAX_IDLE_MS}")
        before = 0
        for count in sorted(cached):
            fill(bed, before, count)
            before = count
            for cut in range(cuts):
                if contender.pipeline is None and contender.team != LACP:
                    place_in_bond(bed)
                yield {"connections": count, "cut": cut, **failover(bed)}


def fill(bed: Bed, first: int, end: int) -> None:
    """Send a frame of each new connection."""
    with contextlib.closing(sending_socket(bed.vms[0].point)) as out:
        started_s = time.monotonic()
        for number in range(first, end):
            while started_s + (number - first) / SENT_PER_S > time.monotonic():
                time.sleep(0.001)
            out.send(connections.frame(bed, number, 1 + number))
    bed.fence()


def failover(bed: Bed) -> dict[str, Any]:
    """What is lost of the watched connections when the uplink of most of them loses its carrier."""
    host, ends = bed.hosts[0], {uplink: uplink.upstream_end for uplink in bed.uplinks}
    watched = [
        (vm.point, frame(bed, vm_at, n)) for vm_at, vm in enumerate(bed.vms) for n in range(WATCHED)
    ]
    bed.revalidated()
    flows, before = len(connections.flows(bed)), revalidations(bed)
    with bed.ears(host.point, *ends.values()) as ears, Stream(watched, PPS) as stream:
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
        "silent_ms": round(1000 * lost / (PPS * on_it), 1),
        "revalidations": {name: count for name, count in asked.items() if count},
        "load_average": round(os.getloadavg()[0], 1),
    }


def frame(bed: Bed, vm_at: int, number: int) -> bytes:
    """The first frame of a watched connection of a VM; those of the first VM are among the cached ones."""
    data = connections.frame(bed, number, 0)
    return data[:6] + bytes.fromhex(bed.vms[vm_at].mac.replace(":", "")) + data[12:]


def revalidations(bed: Bed) -> dict[str, int]:
    """How often all cached flows had to be translated again since the switch started, by reason."""
    asked = ("ovs-appctl", "coverage/read-counter")
    return {name: int(bed.ovs.run(*asked, f"rev_{name}")) for name in REASONS}


def table(runs: list[dict[str, Any]]) -> str:
    """Medians, as a table in Markdown."""
    lines = [
        "| connections | by | n | cached flows | silent, ms: median (range) | revalidations |",
        "|---:|---|---:|---:|---:|---|",
    ]
    for count in sorted({run["connections"] for run in runs}):
        for contender in CONTENDERS:
            of_one = [
                run for run in runs if (run["connections"], run["by"]) == (count, contender.name)
            ]
            if not of_one:
                continue
            silent = [run["silent_ms"] for run in of_one]
            why = sorted({" ".join(sorted(run["revalidations"])) for run in of_one})
            lines.append(
                f"| {count:,} | {contender.name} | {len(of_one)}"
                f" | {statistics.median(run['flows'] for run in of_one):.0f}"
                f" | {statistics.median(silent):g} ({min(silent):g} to {max(silent):g}) | {'; '.join(why)} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
