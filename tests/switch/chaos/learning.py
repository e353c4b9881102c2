"""How late an Open vSwitch learns that an address has moved; nothing of ours takes part.

A VM that speaks moves to and fro between two ports of a bridge with NORMAL. What a host sends to it
comes by the old port until the bridge has learned that it has moved. Compared: Open vSwitch as it
is, and one that caches no flow, as the switch upstream in chaos.

`python -m tests.switch.chaos.learning --out docs/results/soak/learning/moves.json`
"""

from __future__ import annotations

import sys
import time

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Upstream, learning_at_once
from tests.switch.bench import Bench
from tests.switch.wire import Point, Stream
from topologies.network.private_ovs import PrivateOvs

MOVES = 24
VM_PPS, HOST_PPS = 50.0, 500.0
# After that long, the VM moves again: cached flows of the port it was on are still there.
STAYS_S = 1.2
VM_MAC = "02:00:00:00:00:01"


def main() -> int:
    """Measure both, and write what was found."""
    bench = Bench("chaos.learning", __doc__, "out/soak/learning/moves.json")
    bench.parser.add_argument("--moves", type=int, default=MOVES, help=f"moves of the VM ({MOVES})")
    moves = bench.options.moves
    with bench.begun() as tor, PrivateOvs(prefix="ovs-lbt-learning-") as ovs:
        found = {"as it is": found_after_ms(ovs, tor, moves)}
        with learning_at_once(tor.ovs):
            found["no cached flows"] = found_after_ms(ovs, tor, moves)
    bench.report |= {"vm_pps": VM_PPS, "found_after_ms": found}
    bench.write()
    print(found)
    return 0


def found_after_ms(ovs: PrivateOvs, tor: Upstream, moves: int) -> list[float]:
    """For each move of a VM, how long until what a host sends to it comes by its new port.

    Frames are put on cables between the switches. The bridge at their other end has no service.
    """
    found = []
    with Bed(ovs, tor, BedSpec(PLAIN, 2, ())) as bed:
        host, ends = bed.hosts[0], [Point(u.name, u.name) for u in bed.uplinks]
        to_vm, from_vm = frames.udp(host.mac, VM_MAC), frames.udp(VM_MAC, host.mac)
        with bed.ears(*ends) as ears, Stream([(host.point, to_vm)], HOST_PPS):
            for number in range(moves):
                here, since_s = ends[number % 2], time.time()
                while time.time() < since_s + STAYS_S:
                    bed.send(here, from_vm)
                    time.sleep(1 / VM_PPS)
                came = [h.at_s for h in ears[here].frames() if h.destination == VM_MAC]
                found.append(round((min(t for t in came if t > since_s) - since_s) * 1000, 1))
    return found


if __name__ == "__main__":
    sys.exit(main())
