"""When each end of a link takes it for live, with LACP; nothing of ours takes part.

A member of a LACP bond of two Open vSwitches loses its cable and gets it back. From when one end takes
it for live until the other end does, what the one sends by it is lost.

`python -m tests.switch.chaos.ends --out docs/results/soak/learning/ends.json`
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from tests.switch.appctl import Appctl
from tests.switch.bed import LACP, Bed, BedSpec, upstream_ovs
from tests.switch.waiting import HANG_S
from tests.switch.wire import OwnNetwork
from topologies.network.private_ovs import PrivateOvs
from topologies.reports.origin import origin

RETURNS = 24
SETTLED_S = 2.0
# The cable is away a little longer each time, up to 3 s: LACP's messages come each second.
LATER_S = 0.13
LOOK_S = 0.005


def main() -> int:
    """Measure it, and write what was found."""
    parser = argparse.ArgumentParser(prog="ends", description=__doc__)
    parser.add_argument("--returns", type=int, default=RETURNS, help=f"of the cable ({RETURNS})")
    parser.add_argument("--out", type=Path, default=Path("out/soak/learning/ends.json"))
    options = parser.parse_args()
    command = ["python", "-m", "tests.switch.chaos.ends", *sys.argv[1:]]
    report: dict[str, Any] = {"origin": origin(command)}
    with (
        OwnNetwork().entered(),
        upstream_ovs() as tor,
        PrivateOvs(prefix="ovs-lbt-ends-") as ovs,
        Bed(ovs, tor, BedSpec(LACP, 2, (None,))) as bed,
        contextlib.closing(Appctl(ovs)) as here,
        contextlib.closing(Appctl(tor.ovs)) as upstream,
    ):
        cable = bed.uplinks[0]
        ends = {
            "here": (here, cable.name),
            "upstream": (upstream, cable.upstream_end.interface),
        }

        def live() -> set[str]:
            return {end for end, (asked, name) in ends.items() if _is_live(asked, bed.bond, name)}

        report["live_after_ms"] = []
        for number in range(options.returns):
            time.sleep(SETTLED_S)
            bed.pull_cable(cable)
            while live():
                time.sleep(LOOK_S)
            time.sleep(LATER_S * number)
            since_s, after_ms = time.monotonic(), dict[str, float]()
            bed.plug_cable(cable)
            while after_ms.keys() != ends.keys():
                assert time.monotonic() < since_s + HANG_S, "the link does not return"
                now_ms = (time.monotonic() - since_s) * 1000
                after_ms |= {end: round(now_ms, 1) for end in live() - after_ms.keys()}
                time.sleep(LOOK_S)
            report["live_after_ms"].append(after_ms)
    apart = [round(one["upstream"] - one["here"]) for one in report["live_after_ms"]]
    print(f"upstream after here, ms: {apart}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _is_live(asked: Appctl, bond: str, member: str) -> bool:
    shown = asked.ask("lacp/show", bond)
    found = re.search(rf"member: {member}:.*?may_enable: (\w+)", shown, re.DOTALL)
    return found is not None and found[1] == "true"


if __name__ == "__main__":
    sys.exit(main())
