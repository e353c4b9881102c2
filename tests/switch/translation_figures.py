"""What it costs Open vSwitch to translate a cached flow again, through our tables and through NORMAL.

`python -m tests.switch.translation_figures --out docs/results/causes/translation.json`

Every connection has a cached flow of its own here (`upcall/disable-megaflows`), so that as many flows
are translated with each contender. The figure is the processor time of the threads that revalidate, over
what they translated. It depends less than durations on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.dataplane.pipeline import build
from controller.dataplane.specs import EMPTY
from policies.classifiers import Classifier
from tests.switch import connection_figures as connections
from tests.switch.bed import BALANCE_SLB, LACP, PLAIN, Bed, BedSpec, Upstream, upstream_ovs
from tests.switch.datapath_figures import team
from tests.switch.direct import Direct
from tests.switch.test_hashing import team_of
from tests.switch.wire import OwnNetwork, sending_socket
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.origin import origin

UPLINKS = 2
CONNECTIONS = 5000
SENT_PER_S = 4000.0
REVALIDATIONS = 10
REPEAT = 5
# A flow in a table that no contender uses. To add it makes Open vSwitch revalidate everything.
UNUSED = "table=200,priority=1,cookie=0x1,actions=drop"
REVALIDATORS = "revalidator"


@dataclass(frozen=True, slots=True)
class Contender:
    """Who forwards: a bond by itself, or our pipeline without the service."""

    name: str
    team: str
    pipeline: str | None = None


CONTENDERS = (
    Contender("balance-slb", BALANCE_SLB),
    Contender("load-based on balance-slb", BALANCE_SLB, "bound"),
    Contender("load-based", PLAIN, "bound"),
    Contender("dynamic, multipath, on balance-slb", BALANCE_SLB, "multipath"),
    Contender("dynamic, multipath", PLAIN, "multipath"),
    Contender("balance-tcp", LACP),
    Contender("dynamic, multipath, on balance-tcp", LACP, "multipath"),
    Contender("dynamic, dp_hash, on balance-tcp", LACP, "dp_hash"),
)


def main() -> int:
    """Measure all of them, and write what was found."""
    parser = argparse.ArgumentParser(prog="translation_figures", description=__doc__)
    parser.add_argument("--repeat", type=int, default=REPEAT, help=f"runs of each ({REPEAT})")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--out", type=Path, default=Path("out/translation.json"))
    options = parser.parse_args()
    report: dict[str, Any] = {
        "origin": origin(["python", "-m", "tests.switch.translation_figures", *sys.argv[1:]]),
        "connections": options.connections,
        "runs": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with OwnNetwork().entered(), upstream_ovs() as tor:
        for number in range(options.repeat):
            for contender in CONTENDERS:
                found = measured(tor, contender, options.connections)
                report["runs"].append({"by": contender.name, "repetition": number, **found})
                print(report["runs"][-1], flush=True)
                options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report["runs"]))
    return 0


def measured(tor: Upstream, contender: Contender, count: int) -> dict[str, Any]:
    """One run of a contender, on a switch of its own."""
    spec = BedSpec(contender.team, UPLINKS, (None,))
    with (
        PrivateOvs(prefix="ovs-lbt-translation-") as ovs,
        Bed(ovs, tor, spec) as bed,
        forwarding(bed, contender),
    ):
        ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={connections.MAX_IDLE_MS}")
        seen = steps(bed)
        ovs.run("ovs-appctl", "upcall/disable-megaflows")
        send(bed, count)
        flows = len(connections.flows(bed))
        return {
            **seen,
            "cached_flows": flows,
            "revalidated_us": round(revalidated_s(bed) * 1e6, 2),
        }


@contextlib.contextmanager
def forwarding(bed: Bed, contender: Contender) -> Iterator[None]:
    """Who forwards in this block."""
    if contender.pipeline is None:
        mode = (
            [f"bond_mode={contender.team}"] if contender.team != LACP else ["bond_mode=balance-tcp"]
        )
        bed.ovs.vsctl("set", "port", bed.bond, *mode, "other_config:bond-rebalance-interval=0")
        bed.introduce_to_normal()
        yield
        return
    with contextlib.closing(Direct(bed)) as direct:
        if contender.pipeline == "bound":
            made = team(bed)
        else:
            by_dp_hash = contender.pipeline == "dp_hash"
            made = team_of(bed, Classifier.TRANSPORT, on_a_lag=bed.spec.is_lag, dp_hash=by_dp_hash)
            if by_dp_hash:
                direct.add_select_group()
        direct.install(build(replace(made, over_normal=bed.spec.on_bond)))
        bed.introduce()
        bed.revalidated()
        yield
        direct.install(EMPTY)


def steps(bed: Bed) -> dict[str, int]:
    """What a frame of a new connection passes: look-ups in tables, groups, and learn actions."""
    vm, host = bed.vms[0], bed.hosts[0]
    frame = f"in_port={vm.port},udp,dl_src={vm.mac},dl_dst={host.mac},nw_src=192.0.2.1"
    frame += f",nw_dst={host.ip},nw_ttl=64,udp_src=10000,udp_dst=443"
    traced = bed.ovs.run("ovs-appctl", "ofproto/trace", bed.bridge, frame)
    return {
        "lookups": len(re.findall(r"^ *\d+\. ", traced, re.MULTILINE)),
        "resubmits": len(re.findall(r"^ *resubmit\(", traced, re.MULTILINE)),
        "groups": len(re.findall(r"^ *group:", traced, re.MULTILINE)),
        "learns": len(re.findall(r"^ *learn\(", traced, re.MULTILINE)),
    }


def send(bed: Bed, count: int) -> None:
    """Send a frame of each of so many connections."""
    with contextlib.closing(sending_socket(bed.vms[0].point)) as out:
        started_s = time.monotonic()
        for number in range(count):
            while started_s + number / SENT_PER_S > time.monotonic():
                time.sleep(0.0005)
            out.send(connections.frame(bed, number, 1 + number))
        bed.fence()


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


def processor_s(bed: Bed, name: str) -> float:
    """The processor time of the threads of ovs-vswitchd whose names begin so."""
    threads = Path(f"/proc/{bed.ovs.pid('ovs-vswitchd')}/task").iterdir()
    spent_ns = (
        int((thread / "schedstat").read_text().split()[0])
        for thread in threads
        if (thread / "comm").read_text().startswith(name)
    )
    return sum(spent_ns) / 1e9


SHOWN = ("lookups", "resubmits", "groups", "learns", "revalidated_us")


def table(runs: list[dict[str, Any]]) -> str:
    """Medians, as a table in Markdown."""
    lines = [f"| by | {' | '.join(SHOWN)} |", "|---|" + "---|" * len(SHOWN)]
    for contender in CONTENDERS:
        of_one = [run for run in runs if run["by"] == contender.name]
        if of_one:
            medians = [f"{statistics.median(r[key] for r in of_one):g}" for key in SHOWN]
            lines.append(f"| {contender.name} | {' | '.join(medians)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
