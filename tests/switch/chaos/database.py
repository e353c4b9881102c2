"""What a restart of ovsdb-server costs: our pipeline, and Open vSwitch's own bonds beside it.

`python -m tests.switch.chaos.database --out docs/results/database/restart.json`
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

from tests.switch import frames
from tests.switch.bed import ACTIVE_BACKUP, BALANCE_SLB, PLAIN, STATIC_LAG, Bed, BedSpec, Upstream
from tests.switch.bench import Bench, table
from tests.switch.service import Service
from tests.switch.wire import STREAM_SHIFT, Ear, Stream
from topologies.network.private_ovs import PrivateOvs

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
SHOWN = ("away_s", "silent_s", "lost_before_or_behind")


def main() -> int:
    """Measure all of them, and write what was found."""
    bench = Bench(
        "chaos.database", __doc__, "out/database/restart.json", REPEAT, listed="contenders"
    )
    bench.report["pps"] = PPS
    bench.tell = lambda run: print(run["team"], run["service"], flush=True)
    with bench.begun() as tor:
        for team, service in CONTENDERS:
            case = {"team": team, "service": service}
            bench.run(case, measured, tor, team, service, bench.options.repeat)
    restarts = [{**one, **run} for one in bench.runs for run in one["runs"]]
    print(table(restarts, ("team", "service"), SHOWN))
    return 0


def measured(tor: Upstream, team: str, state: str, repeat: int) -> dict[str, Any]:
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
            return {"runs": [_one(bed) for _ in range(repeat)]}
        finally:
            service.kill()


def _one(bed: Bed) -> dict[str, Any]:
    host = bed.hosts[0]
    ways = [(host, vm) for vm in bed.vms] + [(vm, host) for vm in bed.vms]
    sent = [(a.point, frames.udp(a.mac, b.mac, vlan=b.vlan or 0)) for a, b in ways]
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
        for index, (sender, receiver) in enumerate(ways):
            out = _times(ears[sender.point], stream.first_id(index), outgoing=True)
            came = _times(ears[receiver.point], stream.first_id(index), outgoing=False)
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


def _times(ear: Ear, first_id: int, outgoing: bool) -> dict[int, float]:
    """When each frame of a flow passed."""
    return {
        one.frame_id: one.at_s
        for one in ear.frames()
        if one.outgoing is outgoing
        and one.frame_id is not None
        and one.frame_id >> STREAM_SHIFT == first_id >> STREAM_SHIFT
    }


if __name__ == "__main__":
    sys.exit(main())
