"""What many connections cost the switch: by `multipath`, by `dp_hash`, and on a bond of balance-tcp.

`python -m tests.switch.connection_figures --out docs/results/connections/figures.json`
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from tests.switch.bed import LACP, PLAIN, Bed, Upstream
from tests.switch.bench import Bench, table
from tests.switch.failover_figures import failover
from tests.switch.without_service import (
    DP_HASH,
    MULTIPATH,
    Contender,
    bed_of,
    cached_flows,
    connect,
    processor_s,
)

CONTENDERS = (
    Contender("balance-tcp", LACP),
    Contender(MULTIPATH, LACP, MULTIPATH),
    Contender(DP_HASH, LACP, DP_HASH),
    Contender(MULTIPATH, PLAIN, MULTIPATH),
    Contender(DP_HASH, PLAIN, DP_HASH),
)
UPLINKS = 4
CONNECTIONS = (1000, 10_000, 30_000)
NEW_PER_S = 2000.0
# Connections that are under way when an uplink fails, and the rate of each.
WATCHED, PPS = 32, 100.0
REPEAT = 3
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SHOWN = ("cached_flows", "upcalls", "lost", "cpu_s", "resident_mb", "on_the_uplink", "lost_of_one")


def main() -> int:
    """Measure all of them, and write what was found."""
    bench = Bench("connection_figures", __doc__, "out/connections/figures.json", REPEAT)
    bench.report["new_per_s"] = NEW_PER_S
    bench.parser.add_argument("--connections", type=int, nargs="+", default=list(CONNECTIONS))
    with bench.begun() as tor:
        for repetition in range(bench.options.repeat):
            for count in bench.options.connections:
                for one in CONTENDERS:
                    case = {"team": one.team, "by": one.name, "connections": count}
                    bench.run(case | {"repetition": repetition}, measured, tor, one, count)
    print(table(bench.runs, ("connections", "team", "by"), SHOWN))
    return 0


def measured(tor: Upstream, contender: Contender, count: int) -> dict[str, Any]:
    """What so many connections of a VM cost, and what an uplink's failure costs then."""
    with bed_of(tor, contender, UPLINKS) as bed:
        found = cost(bed, count)
        failed = failover(bed, WATCHED, PPS, catch_up_s=0.0)
        on_it, lost = failed["on_the_uplink"], failed["lost"]
        return found | {
            "on_the_uplink": on_it,
            "lost_at_failover": lost,
            "lost_of_one": lost / on_it,
        }


def cost(bed: Bed, count: int) -> dict[str, Any]:
    """Send a frame of each of so many new connections."""
    host, pid = bed.hosts[0], bed.ovs.pid("ovs-vswitchd")
    cpu_s, missed, cached = processor_s(bed), upcalls(bed), len(cached_flows(bed))
    with bed.ears(host.point) as ears:
        ears.forget()
        started_s = time.monotonic()
        connect(bed, 0, count, NEW_PER_S, meanwhile=ears.listen)
        took_s = time.monotonic() - started_s
        there = cached_flows(bed)
        bed.fence()
        ears.until_quiet(below_id=1 + count)
        heard = [h.frame_id for h in ears[host.point].frames() if h.frame_id and not h.outgoing]
    resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return {
        "took_s": round(took_s, 2),
        "cached_flows": len(there) - cached,
        "recirculated_flows": sum(bool(re.search(r"recirc_id\(0x[1-9a-f]", f)) for f in there),
        "upcalls": upcalls(bed) - missed,
        "lost": count - len(set(heard)),
        "doubled": len(heard) - len(set(heard)),
        "cpu_s": round(processor_s(bed) - cpu_s, 2),
        "resident_mb": round(resident_pages * PAGE_BYTES / 1e6, 1),
    }


def upcalls(bed: Bed) -> int:
    """How many look-ups in the datapath have missed all cached flows."""
    missed = re.search(r"missed:(\d+)", bed.ovs.run("ovs-appctl", "dpctl/show", "-s"))
    assert missed
    return int(missed[1])


if __name__ == "__main__":
    sys.exit(main())
