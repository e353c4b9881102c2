"""When each end of a link takes it for live, with LACP; nothing of ours takes part.

A member of a LACP bond of two Open vSwitches loses its cable and gets it back. From when one end takes
it for live until the other end does, what the one sends by it is lost.

`python -m tests.switch.chaos.ends --out docs/results/soak/learning/ends.json`
"""

from __future__ import annotations

import contextlib
import re
import sys
import time

from tests.switch.appctl import Appctl
from tests.switch.bed import LACP, Bed, BedSpec
from tests.switch.bench import Bench
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

RETURNS = 24
SETTLED_S = 2.0
# The cable is away a little longer each time, up to 3 s: LACP's messages come each second.
LATER_S = 0.13
LOOK_S = 0.005


def main() -> int:
    """Measure it, and write what was found."""
    bench = Bench("chaos.ends", __doc__, "out/soak/learning/ends.json", listed="live_after_ms")
    returns = f"of the cable ({RETURNS})"
    bench.parser.add_argument("--returns", type=int, default=RETURNS, help=returns)
    with (
        bench.begun() as tor,
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

        def returned(away_s: float) -> dict[str, float]:
            time.sleep(SETTLED_S)
            bed.pull_cable(cable)
            wait_until(lambda: not live(), "both ends miss the link", interval_s=LOOK_S)
            time.sleep(away_s)
            since_s, after_ms = time.monotonic(), dict[str, float]()
            bed.plug_cable(cable)

            def all_live() -> bool:
                now_ms = round((time.monotonic() - since_s) * 1000, 1)
                after_ms.update(dict.fromkeys(live() - after_ms.keys(), now_ms))
                return after_ms.keys() == ends.keys()

            wait_until(all_live, "the link returns", interval_s=LOOK_S)
            return after_ms

        for number in range(bench.options.returns):
            bench.run({"return": number}, returned, LATER_S * number)
    apart = [round(one["upstream"] - one["here"]) for one in bench.runs]
    print(f"upstream after here, ms: {apart}")
    return 0


def _is_live(asked: Appctl, bond: str, member: str) -> bool:
    shown = asked.ask("lacp/show", bond)
    found = re.search(rf"member: {member}:.*?may_enable: (\w+)", shown, re.DOTALL)
    return found is not None and found[1] == "true"


if __name__ == "__main__":
    sys.exit(main())
