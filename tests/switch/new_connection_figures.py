"""How many new connections a second a switch forwards before it loses frames: NORMAL on a bond, and ours on it.

`python -m tests.switch.new_connection_figures --out docs/results/connections/new_per_second.json`

Each connection is one frame. The rate rises step by step, and before each step the switch forgets its
cached flows. *As it is*: with the flows that Open vSwitch caches by default, which may serve many
connections. *Each*: every connection needs a cached flow of its own (`upcall/disable-megaflows`), so that
each is translated with every contender.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import Any

from tests.switch.bed import BALANCE_SLB, LACP, Bed, Upstream
from tests.switch.bench import SENT, Bench, Shown, counters, table
from tests.switch.wire import sending_socket
from tests.switch.without_service import BOUND, DP_HASH, MULTIPATH, Contender, bed_of, steps
from topologies.connections import sender

CONTENDERS = (
    Contender("balance-slb", BALANCE_SLB),
    Contender("load-based on balance-slb", BALANCE_SLB, BOUND),
    Contender("dynamic, multipath, on balance-slb", BALANCE_SLB, MULTIPATH),
    Contender("dynamic, dp_hash, on balance-slb", BALANCE_SLB, DP_HASH),
    Contender("balance-tcp", LACP),
    Contender("dynamic, dp_hash, on balance-tcp", LACP, DP_HASH),
)
AS_IT_IS, EACH = "as it is", "each"
FIRST_PER_S, STEP_RATIO, STEPS_MAX = 8000.0, 1.15, 17
STEP_S = 0.5
LOST_RATIO_MAX = 0.001
# A busy machine loses more now and then: a rate is too high if all of so many attempts lose.
ATTEMPTS = 3
# The sender itself is too slow, and not the switch.
REACHED_RATIO_MIN = 0.9
QUIET_S, QUIET_TIMEOUT_S = 0.1, 5.0
TICK_S = 0.0005
FRAME_BYTES = 200
REPEAT = 3
SHOWN: dict[str, Shown] = {
    **{key: key for key in ("lookups", "resubmits", "groups")},
    "as it is, connections/s": lambda run: run[AS_IT_IS]["most_per_s"],
    "each translated, connections/s": lambda run: run[EACH]["most_per_s"],
}


def main() -> int:
    """Measure all of them in turn, and write what was found."""
    bench = Bench("new_connection_figures", __doc__, "out/new_per_second.json", REPEAT)
    bench.report |= {"lost_ratio_max": LOST_RATIO_MAX, "step_ratio": STEP_RATIO}
    names = [*map(str, CONTENDERS)]
    add = bench.parser.add_argument
    add("--by", nargs="+", default=names, choices=names)
    add("--first", type=int, default=0, help="number of the first run (0); later ones are added")
    options = bench.options
    options.resume = options.resume or options.first > 0
    with bench.begun() as tor:
        for repetition in range(options.first, options.first + options.repeat):
            for one in CONTENDERS:
                if one.name in options.by:
                    bench.run({"by": one.name, "repetition": repetition}, measured, tor, one)
    print(table(bench.runs, ("by",), SHOWN))
    return 0


def measured(tor: Upstream, contender: Contender) -> dict[str, Any]:
    """One run of a contender, on a switch of its own."""
    with (
        bed_of(tor, contender) as bed,
        contextlib.closing(sending_socket(bed.vms[0].point)) as out,
    ):
        found: dict[str, Any] = {**steps(bed)}
        frames = made(bed, round(FIRST_PER_S * STEP_RATIO**STEPS_MAX * STEP_S))
        found[AS_IT_IS] = most_per_s(bed, frames, out)
        bed.ovs.run("ovs-appctl", "upcall/disable-megaflows")
        found[EACH] = most_per_s(bed, frames, out)
        return found


def made(bed: Bed, count: int) -> sender.Frames:
    """A frame of each of so many connections of a VM to a host."""
    vm, host = bed.vms[0], bed.hosts[0]
    macs = (bytes.fromhex(vm.mac.replace(":", "")), bytes.fromhex(host.mac.replace(":", "")))
    addresses = (socket.inet_aton(vm.ip), socket.inet_aton(host.ip))
    payload_bytes = FRAME_BYTES - sender.HEADERS_BYTES
    headers = [sender.header(macs, addresses, one, payload_bytes) for one in range(count)]
    return sender.Frames(headers, payload_bytes)


def most_per_s(bed: Bed, frames: sender.Frames, out: socket.socket) -> dict[str, Any]:
    """The highest rate before the first step at which frames are lost, and that step."""
    best, per_s = 0.0, FIRST_PER_S
    for _ in range(STEPS_MAX):
        reached, lost_ratio = best_of(bed, frames, out, per_s)
        if lost_ratio > LOST_RATIO_MAX:
            return {"most_per_s": round(best), "lost_at_per_s": round(reached), "lost": lost_ratio}
        best = max(best, reached)
        if reached < REACHED_RATIO_MIN * per_s:
            break
        per_s *= STEP_RATIO
    return {"most_per_s": round(best), "lost_at_per_s": None, "lost": 0.0}


def best_of(
    bed: Bed, frames: sender.Frames, out: socket.socket, per_s: float
) -> tuple[float, float]:
    """Of the attempt at a rate that lost least: the rate that it reached, and the share that it lost."""
    attempts: list[tuple[float, float]] = []
    for _ in range(ATTEMPTS):
        bed.ovs.run("ovs-appctl", "revalidator/purge")
        sent, lost, took_s = step(bed, frames, out, per_s)
        attempts.append((sent / took_s, lost / sent))
        if attempts[-1][1] <= LOST_RATIO_MAX:
            break
    return min(attempts, key=lambda attempt: attempt[1])


def step(
    bed: Bed, frames: sender.Frames, out: socket.socket, per_s: float
) -> tuple[int, int, float]:
    """Open connections at a rate: how many were opened, how many did not leave, and how long it took."""
    count = round(per_s * STEP_S)
    left_before, sent = left(bed), 0
    started_s = time.monotonic()
    while sent < count:
        due = min(count, int((time.monotonic() - started_s) * per_s) + 1)
        sent += frames.send(out, sent, due - sent) if due > sent else 0
        time.sleep(TICK_S)
    took_s = time.monotonic() - started_s
    return sent, sent - (settled(bed) - left_before), took_s


def left(bed: Bed) -> int:
    """What has left by the uplinks."""
    now = counters()
    return sum(now[uplink.name][SENT] for uplink in bed.uplinks)


def settled(bed: Bed) -> int:
    """What has left by the uplinks, when nothing more leaves."""
    deadline_s = time.monotonic() + QUIET_TIMEOUT_S
    before, since_s = left(bed), time.monotonic()
    while time.monotonic() < min(deadline_s, since_s + QUIET_S):
        time.sleep(0.01)
        if (now := left(bed)) != before:
            before, since_s = now, time.monotonic()
    return before


if __name__ == "__main__":
    sys.exit(main())
