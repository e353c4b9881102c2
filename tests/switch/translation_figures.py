"""What it costs Open vSwitch to translate a cached flow again, through our tables and through NORMAL.

`python -m tests.switch.translation_figures --out docs/results/causes/translation.json`

Every connection has a cached flow of its own here (`upcall/disable-megaflows`), so that as many flows
are translated with each contender. The figure is the processor time of the threads that revalidate, over
what they translated. It depends less than durations on what else the machine does.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.switch.bed import BALANCE_SLB, LACP, PLAIN, Bed, Upstream
from tests.switch.bench import Bench, table
from tests.switch.without_service import (
    BOUND,
    DP_HASH,
    MULTIPATH,
    Contender,
    bed_of,
    cached_flows,
    connect,
    processor_s,
    steps,
)

CONNECTIONS = 5000
SENT_PER_S = 4000.0
REVALIDATIONS = 10
REPEAT = 5
# A flow in a table that no contender uses. To add it makes Open vSwitch revalidate everything.
UNUSED = "table=200,priority=1,cookie=0x1,actions=drop"
REVALIDATORS = "revalidator"
SHOWN = ("lookups", "resubmits", "groups", "learns", "revalidated_us")
CONTENDERS = (
    Contender("balance-slb", BALANCE_SLB),
    Contender("load-based on balance-slb", BALANCE_SLB, BOUND),
    Contender("load-based", PLAIN, BOUND),
    Contender("dynamic, multipath, on balance-slb", BALANCE_SLB, MULTIPATH),
    Contender("dynamic, multipath", PLAIN, MULTIPATH),
    Contender("balance-tcp", LACP),
    Contender("dynamic, multipath, on balance-tcp", LACP, MULTIPATH),
    Contender("dynamic, dp_hash, on balance-tcp", LACP, DP_HASH),
)


def main() -> int:
    """Measure all of them, and write what was found."""
    bench = Bench("translation_figures", __doc__, "out/translation.json", REPEAT)
    bench.parser.add_argument("--connections", type=int, default=CONNECTIONS)
    count = bench.report["connections"] = bench.options.connections
    with bench.begun() as tor:
        for repetition in range(bench.options.repeat):
            for one in CONTENDERS:
                case = {"by": one.name, "repetition": repetition}
                bench.run(case, measured, tor, one, count)
    print(table(bench.runs, ("by",), SHOWN))
    return 0


def measured(tor: Upstream, contender: Contender, count: int) -> dict[str, Any]:
    """One run of a contender, on a switch of its own."""
    with bed_of(tor, contender) as bed:
        seen = steps(bed)
        bed.ovs.run("ovs-appctl", "upcall/disable-megaflows")
        connect(bed, 0, count, SENT_PER_S)
        bed.fence()
        flows = len(cached_flows(bed))
        revalidated_us = round(revalidated_s(bed) * 1e6, 2)
        return {**seen, "cached_flows": flows, "revalidated_us": revalidated_us}


def revalidated_s(bed: Bed) -> float:
    """The revalidators' processor time for a translation: all cached flows are translated again."""
    bed.revalidated()
    before_s, before = processor_s(bed, REVALIDATORS), translations(bed)
    for _ in range(REVALIDATIONS):
        bed.ovs.run("ovs-ofctl", "add-flow", bed.bridge, UNUSED)
        bed.revalidated()
    made = translations(bed) - before
    return (processor_s(bed, REVALIDATORS) - before_s) / made


def translations(bed: Bed) -> int:
    """How often ovs-vswitchd has translated a flow since it started."""
    return int(bed.ovs.run("ovs-appctl", "coverage/read-counter", "xlate_actions"))


if __name__ == "__main__":
    sys.exit(main())
