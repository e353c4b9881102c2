"""The trace in docs/examples: made up, and the same whenever it is made.

Write it anew with `python -m tests.unit.controller.replay.synthetic_trace docs/examples/replay-trace.csv.gz`.
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Iterator
from pathlib import Path

SEED = 8
HOSTS, PORTS, SAMPLES, SAMPLE_S = 2, 8, 96, 300
CAPACITY_BPS = 1_000_000_000


def lines(hosts: int = HOSTS, ports: int = PORTS, samples: int = SAMPLES) -> Iterator[str]:
    """VM ports that are quiet most of the time, and heavy-tailed when they are not.

    `ports`: of each host. A burst lasts some samples; what a VM receives has bursts of its own.
    """
    chance = random.Random(SEED)
    yield "time_s,host,port,tx_bps,rx_bps,uplink_capacity_bps"
    for host in range(hosts):
        bursts = {(port, direction): [0, 0.0] for port in range(ports) for direction in range(2)}
        for sample in range(samples):
            for port in range(ports):
                loads = []
                for direction in range(2):
                    burst = bursts[port, direction]
                    if burst[0] == 0 and chance.random() < 0.06:
                        burst[:] = [chance.randint(2, 8), min(1.4e9, 1e8 * chance.paretovariate(1))]
                    elif burst[0] > 0:
                        burst[0] -= 1
                    bps = burst[1] if burst[0] else 0.0
                    loads.append(round((bps + 5e7) * chance.uniform(0.8, 1.2)))
                at_s = sample * SAMPLE_S
                yield f"{at_s},host{host},vm{port:02},{loads[0]},{loads[1]},{CAPACITY_BPS}"


def text() -> str:
    return "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(gzip.compress(text().encode(), mtime=0))
