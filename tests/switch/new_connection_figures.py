"""How many new connections a second a switch forwards before it loses frames: NORMAL on a bond, and ours on it.

`python -m tests.switch.new_connection_figures --out docs/results/connections/new_per_second.json`

Each connection is one frame. The rate rises step by step, and before each step the switch forgets its
cached flows. *As it is*: with the flows that Open vSwitch caches by default, which may serve many
connections. *Each*: every connection needs a cached flow of its own (`upcall/disable-megaflows`), so that
each is translated with every contender.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tests.switch.bed import BALANCE_SLB, LACP, Bed, BedSpec, Upstream, upstream_ovs
from tests.switch.translation_figures import UPLINKS, Contender, forwarding, steps
from tests.switch.wire import OwnNetwork, sending_socket
from topologies.connections import sender
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.origin import origin

CONTENDERS = (
    Contender("balance-slb", BALANCE_SLB),
    Contender("load-based on balance-slb", BALANCE_SLB, "bound"),
    Contender("dynamic, multipath, on balance-slb", BALANCE_SLB, "multipath"),
    Contender("dynamic, dp_hash, on balance-slb", BALANCE_SLB, "dp_hash"),
    Contender("balance-tcp", LACP),
    Contender("dynamic, dp_hash, on balance-tcp", LACP, "dp_hash"),
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
# Of the network that this thread is in: /sys may show another one.
DEVICES, SENT_AT = Path("/proc/thread-self/net/dev"), 9
REPEAT = 3


def main() -> int:
    """Measure all of them in turn, and write what was found."""
    parser = argparse.ArgumentParser(prog="new_connection_figures", description=__doc__)
    parser.add_argument("--repeat", type=int, default=REPEAT, help=f"runs of each ({REPEAT})")
    parser.add_argument("--by", nargs="+", default=[one.name for one in CONTENDERS])
    parser.add_argument("--first", type=int, default=0, help="number of the first run (0)")
    parser.add_argument("--out", type=Path, default=Path("out/new_per_second.json"))
    options = parser.parse_args()
    report: dict[str, Any] = {
        "lost_ratio_max": LOST_RATIO_MAX,
        "step_ratio": STEP_RATIO,
        "runs": [],
    }
    if options.first and options.out.exists():
        report = json.loads(options.out.read_text())
    made_by = origin(["python", "-m", "tests.switch.new_connection_figures", *sys.argv[1:]])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with OwnNetwork().entered(), upstream_ovs() as tor:
        for number in range(options.first, options.first + options.repeat):
            for contender in (one for one in CONTENDERS if one.name in options.by):
                found = measured(tor, contender)
                run = {"by": contender.name, "repetition": number, **found, "origin": made_by}
                report["runs"].append(run)
                print({key: run[key] for key in run if key != "origin"}, flush=True)
                options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report["runs"]))
    return 0


def measured(tor: Upstream, contender: Contender) -> dict[str, Any]:
    """One run of a contender, on a switch of its own."""
    with (
        PrivateOvs(prefix="ovs-lbt-new-") as ovs,
        Bed(ovs, tor, BedSpec(contender.team, UPLINKS, (None,))) as bed,
        forwarding(bed, contender),
        contextlib.closing(sending_socket(bed.vms[0].point)) as out,
    ):
        found: dict[str, Any] = {"load_average": os.getloadavg()[0], **steps(bed)}
        frames = made(bed, round(FIRST_PER_S * STEP_RATIO**STEPS_MAX * STEP_S))
        found[AS_IT_IS] = most_per_s(bed, frames, out)
        ovs.run("ovs-appctl", "upcall/disable-megaflows")
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
    names = {uplink.name for uplink in bed.uplinks}
    lines = (line.split(":") for line in DEVICES.read_text().splitlines() if ":" in line)
    return sum(int(counted.split()[SENT_AT]) for name, counted in lines if name.strip() in names)


def settled(bed: Bed) -> int:
    """What has left by the uplinks, when nothing more leaves."""
    deadline_s = time.monotonic() + QUIET_TIMEOUT_S
    before, since_s = left(bed), time.monotonic()
    while time.monotonic() < min(deadline_s, since_s + QUIET_S):
        time.sleep(0.01)
        if (now := left(bed)) != before:
            before, since_s = now, time.monotonic()
    return before


def table(runs: list[dict[str, Any]]) -> str:
    """Medians, as a table in Markdown."""
    lines = [
        "| by | n | look-ups | resubmits | groups | as it is, connections/s | each translated, connections/s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for contender in CONTENDERS:
        of_one = [run for run in runs if run["by"] == contender.name]
        if of_one:
            cells = [str(of_one[0][key]) for key in ("lookups", "resubmits", "groups")]
            for how in (AS_IT_IS, EACH):
                values = sorted(run[how]["most_per_s"] for run in of_one)
                cells.append(f"{statistics.median(values):,.0f} ({values[0]:,} to {values[-1]:,})")
            lines.append(f"| {contender.name} | {len(of_one)} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
