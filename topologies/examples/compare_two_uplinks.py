"""Compares two policies and a bond under one load, and draws their uplinks. Copy it and change it.

    .venv/bin/python -m topologies.examples.compare_two_uplinks two_uplinks.png

It needs root, and takes a minute or two. `topologies/layouts.py` has other layouts, `topologies/loads` has other
loads, and `topologies/benches` has the scenarios of `ovs-lbt bench`.
"""

import sys
from pathlib import Path

from topologies.compare.run import Scenario
from topologies.compare.running import compare
from topologies.graph.parts import Draft, one_server
from topologies.loads.load import Load, Stage
from topologies.loads.pace import ACCELERATED
from topologies.loads.streams import StreamLoad, flow
from topologies.reports.pictures import over_time

LAYOUT = one_server(Draft("two_uplinks"), [20, 20], vms=4, clients=1)
CONTENDERS = ("load-based", "adaptive", "balance-slb")
# The rate of each VM in Mbit/s, and when it begins to send. vm1 and vm3 start on the same uplink, which cannot
# carry both.
LOAD = {"vm1": (12, 0), "vm2": (2, 0), "vm3": (12, 5), "vm4": (2, 0)}
END_S = 20.0
MEASURED_S = (6.0, 19.0)


def load(stage: Stage) -> Load:
    """A TCP stream from each VM to the client."""
    stage.place_by_port_number()
    flows = [
        flow(LAYOUT, vm, "client1", END_S - begin_s, begin_s=begin_s, rate_bps=mbps * 10**6)
        for vm, (mbps, begin_s) in LOAD.items()
    ]
    return StreamLoad(stage, flows, MEASURED_S)


def main(picture: Path) -> None:
    """Run the contenders one after the other, and draw the uplinks of each."""
    scenario = Scenario("two uplinks", "", LAYOUT, load, CONTENDERS, undisturbed=True)
    result = compare(scenario, CONTENDERS, ACCELERATED, repeat=1)
    if result.failures:
        sys.exit(1)
    for name, found in result.medians().items():
        mbps, moves = found["throughput_bps"] / 1e6, found["moves"]
        print(f"{name}: {mbps:.1f} Mbit/s received, {moves:.0f} moves")
    over_time(result, picture.parent, picture.stem, "start of the load")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
