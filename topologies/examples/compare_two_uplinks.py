"""An example experiment: compares a policy with an Open vSwitch bond under one load.

    .venv/bin/python -m topologies.examples.compare_two_uplinks --seconds 30 --out out/two_uplinks

The command needs root, because it creates a Mininet network and a private Open vSwitch for each
contender. It removes them at the end. It prints the throughput and the moves of each contender, and
writes `uplinks.png` and `uplinks.svg`. For your own experiment, copy the file and change `layout`
(`topologies/graph/parts.py` has more parts), `load` (see `topologies/loads/`) or `CONTENDERS` (see
`ovs-lbt bench --help`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import networkx

from topologies.compare import figures, pace, running
from topologies.compare.contenders import THRESHOLD_PERCENT
from topologies.compare.samples import move_times_s
from topologies.compare.scenario import Scenario
from topologies.graph import parts
from topologies.graph.layout import Layout, Role
from topologies.loads.load import Stage
from topologies.loads.stream_load import StreamLoad
from topologies.loads.streams import Flow
from topologies.reports.picture import draw

CONTENDERS = ("load-based", "balance-slb")
UPLINK_MBPS = 100
# Port numbers place VMs 1 and 3 on the same uplink. Together they exceed its threshold.
RATES_BPS = {"vm1": 45_000_000, "vm2": 10_000_000, "vm3": 45_000_000, "vm4": 10_000_000}
# The measured part excludes the start and the end of the TCP streams.
MARGIN_S = 1.0


def layout() -> Layout:
    """A server with four VMs and two uplinks to a switch, which has a client."""
    graph = networkx.Graph()
    graph.add_node("server", role=Role.SERVER_BRIDGE)
    graph.add_node("switch", role=Role.UPSTREAM_SWITCH)
    parts.add_uplinks(graph, "server", ["switch"], [UPLINK_MBPS] * 2)
    parts.add_vms(graph, "server", len(RATES_BPS), network="10.1.0", first_ofport=20)
    parts.add_clients(graph, "switch", 1, network="10.1.1")
    return Layout("two_uplinks", graph)


def load(stage: Stage, seconds: float) -> StreamLoad:
    """One TCP stream from each VM to the client, at the VM's rate."""
    address = stage.layout.address("client1")
    flows = [
        Flow(vm, "client1", address, seconds, rate_bps=rate_bps, buffer_bytes=8 * 1024)
        for vm, rate_bps in RATES_BPS.items()
    ]
    return StreamLoad(stage, flows, (MARGIN_S, seconds - MARGIN_S))


def main(argv: Sequence[str]) -> int:
    """Run both contenders, print their throughput, and draw the load of their uplinks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the load lasts")
    parser.add_argument("--out", type=Path, default=Path("out/two_uplinks"), help="a directory")
    options = parser.parse_args(argv)
    if options.seconds <= 2 * MARGIN_S:
        parser.error(f"--seconds {options.seconds:g} -> more than {2 * MARGIN_S:g}")

    scenario = Scenario(
        name="two uplinks",
        what="Two busy VMs share an uplink.",
        layout=layout(),
        load=lambda stage: load(stage, options.seconds),
        contenders=CONTENDERS,
    )
    result = running.compare(scenario, CONTENDERS, pace.ACCELERATED, repeat=1)
    if result.failures:
        return 1  # `compare` has printed them
    for name, found in result.medians().items():
        print(f"{name}: {found['throughput_bps'] / 1e6:.1f} Mbit/s, {found['moves']:.0f} moves")
    runs = {name: runs[0] for name, runs in result.observed.items()}
    paths = draw(
        runs={name: figures.intervals(scenario.layout, run) for name, run in runs.items()},
        phases=(),
        moves_s=move_times_s(runs["load-based"].samples),
        threshold_ratio=THRESHOLD_PERCENT / 100,
        capacity_bps=UPLINK_MBPS * 10**6,
        title=scenario.what,
        directory=options.out,
    )
    print(*paths, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
