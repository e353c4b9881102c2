"""What many connections cost the switch: by `multipath`, by `dp_hash`, and on a bond of balance-tcp.

`python -m tests.switch.connection_figures --out docs/results/connections/figures.json`
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.dataplane.pipeline import build
from controller.dataplane.specs import EMPTY
from policies.classifiers import Classifier
from tests.switch import frames
from tests.switch.bed import LACP, PLAIN, Bed, BedSpec, Upstream, upstream_ovs
from tests.switch.direct import Direct
from tests.switch.test_hashing import team_of
from tests.switch.waiting import wait_until
from tests.switch.wire import OwnNetwork, Stream, sending_socket
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.origin import origin

BOND, MULTIPATH, DP_HASH = "balance-tcp", "multipath", "dp_hash"
# Team, and who forwards.
CONTENDERS = (
    (LACP, BOND),
    (LACP, MULTIPATH),
    (LACP, DP_HASH),
    (PLAIN, MULTIPATH),
    (PLAIN, DP_HASH),
)
UPLINKS = 4
CONNECTIONS = (1000, 10_000, 30_000)
NEW_PER_S = 2000.0
# Connections that are under way when an uplink fails, and the rate of each.
WATCHED, PPS = 32, 100.0
BEFORE_S, AFTER_S = 0.5, 1.5
# So that all of them are cached when the uplink fails; Open vSwitch's default is 10 s.
MAX_IDLE_MS = 120_000
REPEAT = 3
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Measure all of them, and write what was found."""
    parser = argparse.ArgumentParser(prog="connection_figures", description=__doc__)
    parser.add_argument("--repeat", type=int, default=REPEAT, help=f"runs of each ({REPEAT})")
    parser.add_argument("--connections", type=int, nargs="+", default=list(CONNECTIONS))
    parser.add_argument("--out", type=Path, default=Path("out/connections/figures.json"))
    options = parser.parse_args()
    command = ["python", "-m", "tests.switch.connection_figures", *sys.argv[1:]]
    report: dict[str, Any] = {"origin": origin(command), "new_per_s": NEW_PER_S, "runs": []}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with OwnNetwork().entered(), upstream_ovs() as tor:
        for number in range(options.repeat):
            for count in options.connections:
                for team, by in CONTENDERS:
                    made = {"team": team, "by": by, "connections": count, "repetition": number}
                    made |= measured(tor, team, by, count)
                    report["runs"].append(made)
                    print(made, flush=True)
                    options.out.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report["runs"]))
    return 0


def measured(tor: Upstream, team: str, by: str, count: int) -> dict[str, Any]:
    """What so many connections of a VM cost, and what an uplink's failure costs then."""
    spec = BedSpec(team, UPLINKS, (None,))
    with (
        PrivateOvs(prefix="ovs-lbt-connections-") as ovs,
        Bed(ovs, tor, spec) as bed,
        forwarding(bed, by),
    ):
        return {**cost(bed, count), **failover(bed)}


@contextlib.contextmanager
def forwarding(bed: Bed, by: str) -> Iterator[None]:
    """Who forwards in this block: the bond itself, or our pipeline without the service."""
    bed.ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={MAX_IDLE_MS}")
    if by == BOND:
        bed.ovs.vsctl("set", "port", bed.bond, f"bond_mode={BOND}")
        bed.introduce_to_normal()
        yield
        return
    with contextlib.closing(Direct(bed)) as direct:
        team = team_of(bed, Classifier.TRANSPORT, on_a_lag=bed.spec.is_lag, dp_hash=by == DP_HASH)
        team = replace(team, over_normal=bed.spec.on_bond)
        if team.dp_hash:
            direct.add_select_group()
        direct.install(build(team))
        bed.revalidated()
        bed.introduce()
        bed.revalidated()
        yield
        direct.install(EMPTY)


def frame(bed: Bed, connection: int, frame_id: int) -> bytes:
    vm, host = bed.vms[0], bed.hosts[0]
    return frames.segment(
        vm.mac,
        host.mac,
        source_ip=f"192.0.2.{1 + connection // 50_000}",
        destination_ip=host.ip,
        ports=(10_000 + connection % 50_000, 443),
        protocol=frames.UDP,
        frame_id=frame_id,
    )


def cost(bed: Bed, count: int) -> dict[str, Any]:
    """Send a frame of each of so many new connections."""
    host, pid = bed.hosts[0], bed.ovs.pid("ovs-vswitchd")
    cpu_s, missed, cached = cpu_seconds(pid), lookups(bed)["missed"], len(flows(bed))
    with bed.ears(host.point) as ears, contextlib.closing(sending_socket(bed.vms[0].point)) as out:
        ears.forget()
        started_s = time.monotonic()
        for number in range(count):
            due_s = started_s + number / NEW_PER_S
            if (wait_s := due_s - time.monotonic()) > 0:
                time.sleep(wait_s)
            out.send(frame(bed, number, 1 + number))
            if number % 32 == 0:
                ears.listen(within_s=0)
        took_s = time.monotonic() - started_s
        there = flows(bed)
        bed.fence()
        ears.until_quiet(below_id=1 + count)
        heard = [h.frame_id for h in ears[host.point].frames() if h.frame_id and not h.outgoing]
    after = lookups(bed)
    return {
        "took_s": round(took_s, 2),
        "cached_flows": len(there) - cached,
        "recirculated_flows": sum(bool(re.search(r"recirc_id\(0x[1-9a-f]", f)) for f in there),
        "upcalls": after["missed"] - missed,
        "lost": count - len(set(heard)),
        "doubled": len(heard) - len(set(heard)),
        "cpu_s": round(cpu_seconds(pid) - cpu_s, 2),
        "resident_mb": round(resident_bytes(pid) / 1e6, 1),
    }


def failover(bed: Bed) -> dict[str, Any]:
    """Frames of some connections that are lost when an uplink loses its carrier, with all cached."""
    host = bed.hosts[0]
    watched = [(bed.vms[0].point, frame(bed, number, 0)) for number in range(WATCHED)]
    fails = bed.uplinks[1]
    with (
        bed.ears(host.point, fails.upstream_end) as ears,
        Stream(watched, PPS, catch_up_s=0.0) as stream,
    ):
        ear, at_uplink = ears[host.point], ears[fails.upstream_end]
        wait_until(lambda: len(stream.received(ear, 0)) > PPS * BEFORE_S, "they arrive")
        used_by = [n for n in range(WATCHED) if stream.received(at_uplink, n)]
        bed.pull_cable(fails)
        enough = len(stream.received(ear, 0)) + PPS * AFTER_S
        wait_until(lambda: len(stream.received(ear, 0)) > enough, "they arrive again")
        stream.stop()
        ears.until_quiet()
        lost = [stream.lost(ear, number) for number in range(WATCHED)]
    bed.plug_cable(fails)
    return {
        "on_the_uplink": len(used_by),
        "lost_at_failover": sum(lost),
        "lost_of_one": sum(lost) / max(1, len(used_by)),
    }


def flows(bed: Bed) -> list[str]:
    return bed.ovs.run("ovs-appctl", "dpctl/dump-flows", timeout_s=120).splitlines()


def lookups(bed: Bed) -> dict[str, int]:
    """How many look-ups in the datapath have hit a cached flow, or missed: those are upcalls."""
    shown = bed.ovs.run("ovs-appctl", "dpctl/show", "-s")
    return {name: int(number) for name, number in re.findall(r"(hit|missed):(\d+)", shown)}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


SHOWN = ("cached_flows", "upcalls", "lost", "cpu_s", "resident_mb", "on_the_uplink", "lost_of_one")


def table(runs: list[dict[str, Any]]) -> str:
    """Medians, as a table in Markdown."""
    lines = [
        f"| connections | team | by | {' | '.join(SHOWN)} |",
        "|---|---|---|" + "---|" * len(SHOWN),
    ]
    for count in sorted({run["connections"] for run in runs}):
        for team, by in CONTENDERS:
            of_one = [
                r for r in runs if (r["connections"], r["team"], r["by"]) == (count, team, by)
            ]
            if of_one:
                medians = [f"{statistics.median(r[key] for r in of_one):g}" for key in SHOWN]
                lines.append(f"| {count:,} | {team} | {by} | {' | '.join(medians)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
