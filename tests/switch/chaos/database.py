"""What a restart of ovsdb-server costs: our pipeline, and Open vSwitch's own bonds beside it.

`python -m tests.switch.chaos.database --out docs/results/database/restart.json`
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.switch import frames
from tests.switch.bed import (
    ACTIVE_BACKUP,
    BALANCE_SLB,
    PLAIN,
    STATIC_LAG,
    Bed,
    BedSpec,
    Upstream,
    upstream_ovs,
)
from tests.switch.service import Service
from tests.switch.wire import OwnNetwork, Stream
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.origin import origin

ALONE, DEAD, ALIVE = "never attached", "dead", "alive"
CONTENDERS = (
    (BALANCE_SLB, ALONE),
    (ACTIVE_BACKUP, ALONE),
    (BALANCE_SLB, ALIVE),
    (BALANCE_SLB, DEAD),
    (PLAIN, ALIVE),
    (PLAIN, DEAD),
    (STATIC_LAG, ALIVE),
    (STATIC_LAG, DEAD),
)
VM_VLANS = (None, None, 10, 10, 20)
# A busy host: a port of the switch has room for about 90 frames.
PPS = 200.0
BEFORE_S, AFTER_S = 1.0, 1.0
REPEAT = 3


def main() -> int:
    """Measure all of them, and write what was found."""
    parser = argparse.ArgumentParser(prog="database", description=__doc__)
    parser.add_argument("--repeat", type=int, default=REPEAT, help=f"restarts of each ({REPEAT})")
    parser.add_argument("--out", type=Path, default=Path("out/database/restart.json"))
    options = parser.parse_args()
    command = ["python", "-m", "tests.switch.chaos.database", *sys.argv[1:]]
    report: dict[str, Any] = {"origin": origin(command), "pps": PPS, "contenders": []}
    with OwnNetwork().entered(), upstream_ovs() as tor:
        for team, service in CONTENDERS:
            runs = measured(tor, team, service, options.repeat)
            report["contenders"].append({"team": team, "service": service, "runs": runs})
            print(team, service, [{k: run[k] for k in SHOWN} for run in runs], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0


SHOWN = ("away_s", "silent_s", "lost_before_or_behind")


def measured(tor: Upstream, team: str, state: str, repeat: int) -> list[dict[str, Any]]:
    """What flows lose of each of some restarts."""
    spec = BedSpec(team, 2, VM_VLANS)
    with PrivateOvs(prefix="ovs-lbt-database-") as ovs, Bed(ovs, tor, spec) as bed:
        service = Service(ovs)
        try:
            if state == ALONE:
                bed.introduce_to_normal()
            else:
                service.start()
                service.attach(bed, "--policy", "originating-port")
            if state == DEAD:
                service.kill()
            return [_one(bed) for _ in range(repeat)]
        finally:
            service.kill()


def _one(bed: Bed) -> dict[str, Any]:
    host = bed.hosts[0]
    sent = [(host.point, frames.udp(host.mac, vm.mac, vlan=vm.vlan or 0)) for vm in bed.vms]
    sent += [(vm.point, frames.udp(vm.mac, host.mac)) for vm in bed.vms]
    receivers = [*bed.vms, *(host for _ in bed.vms)]
    bed.revalidated()
    with bed.ears() as ears, Stream(sent, PPS, catch_up_s=0.0) as stream:
        time.sleep(BEFORE_S)
        begun_s = time.time()
        bed.restart_database()
        away_s = time.time() - begun_s
        time.sleep(AFTER_S)
        stream.stop()
        ears.until_quiet(quiet_s=0.3)
        flows: list[dict[str, Any]] = []
        for index, receiver in enumerate(receivers):
            sender = [*(host for _ in bed.vms), *bed.vms][index]
            out = _times(ears[sender.point].frames(), stream.first_id(index), outgoing=True)
            came = _times(ears[receiver.point].frames(), stream.first_id(index), outgoing=False)
            missing = sorted(out.keys() - came.keys())
            cut = [n for n in missing if begun_s <= out[n] <= begun_s + away_s]
            at_s = sorted(came.values())
            flows.append(
                {
                    "flow": f"{sender} to {receiver}",
                    "sent": len(out),
                    "lost_while_away": len(cut),
                    "lost_before_or_behind": len(missing) - len(cut),
                    "silent_s": round(max(b - a for a, b in itertools.pairwise(at_s)), 3),
                }
            )
    return {
        "away_s": round(away_s, 3),
        "silent_s": max(flow["silent_s"] for flow in flows),
        "lost_before_or_behind": max(flow["lost_before_or_behind"] for flow in flows),
        "flows": flows,
    }


def _times(heard: Any, first: int, outgoing: bool) -> dict[int, float]:
    """When each frame of a flow passed."""
    return {
        one.frame_id - first: one.at_s
        for one in heard
        if one.outgoing is outgoing
        and one.frame_id is not None
        and first <= one.frame_id < first + (1 << 40)
    }


if __name__ == "__main__":
    sys.exit(main())
