"""What VMs behind tunnel endpoints lose when an uplink fails or returns and when an endpoint moves.

`python -m tests.switch.overlay_figures --out docs/results/overlay/events.json`
"""

from __future__ import annotations

import sys
from dataclasses import asdict

from tests.switch.bed import BALANCE_SLB, Uplink
from tests.switch.bench import Bench, Run, Shown, table
from tests.switch.ovn import events, rescue
from tests.switch.ovn.cloud import Cloud
from tests.switch.ovn.overlays import VMS, Way, overlay

WAYS = (
    Way(bond="active-backup"),
    Way(bond=BALANCE_SLB),
    Way(policy="dynamic"),
    Way(policy="load-based"),
    Way(bond=BALANCE_SLB, endpoints=2),
    Way(policy="adaptive", endpoints=2),
)
RESCUED = (Way(policy="dynamic"), Way(policy="dynamic", ipv6=True))
REPEAT = 5


SHOWN: dict[str, Shown] = {
    **{key: key for key in ("lost", "twice", "tcp_pause_s")},
    "TCP": lambda run: "unbroken" if run["tcp_unbroken"] else "broken",
}


def main() -> int:
    """Measure all of them, and write what was found."""
    bench = Bench("overlay_figures", __doc__, "out/overlay/events.json", REPEAT, adds=True)
    bench.report |= {"pps": events.PPS, "flows": 2 * VMS}
    add = bench.parser.add_argument
    add("--ways", type=int, nargs="+", default=range(len(WAYS)), help="by number")
    add("--rescue", action="store_true", help="only how soon peers reach a rescued host")
    cached = "leave the switch upstream what it has cached of the last event"
    add("--soon-again", action="store_true", help=cached)
    options = bench.options
    with bench.begun() as tor:
        for way in RESCUED if options.rescue else [WAYS[number] for number in options.ways]:
            with overlay(tor, way) as cloud:
                if not options.rescue:
                    measure(bench, cloud, way)
                    continue
                for repetition in range(options.repeat):
                    bench.run({"way": str(way), "repetition": repetition}, rescued, cloud)
    if not options.rescue:
        print(table(bench.runs, ("way", "service", "event"), SHOWN))
    return 0


def rescued(cloud: Cloud) -> Run:
    """How soon a peer that only sends reaches a rescued host."""
    took_s = round(rescue.reached_after_s(cloud), 3)
    cloud.hosts[0].start_service()
    return {"reached_after_s": took_s}


def measure(bench: Bench, cloud: Cloud, way: Way) -> None:
    """Each event, some times; with the service alive, and then dead."""
    for service in ("none",) if way.bond else ("alive", "dead"):
        if service == "dead":
            cloud.hosts[0].service.kill()
        happening = events.FAILURE if service == "dead" else events.ALL
        for repetition in range(bench.options.repeat):
            case = {"way": str(way), "service": service, "repetition": repetition}
            # What returns is what has failed before: all of them are made, or none.
            if bench.had(case | {"event": happening[-1].name}):
                continue
            failed: Uplink | None = None
            for event in happening:
                to = failed if event is events.RETURNS else None
                found = events.happen(cloud, event, to, soon_again=bench.options.soon_again)
                failed = found.uplink
                named = {"event": event.name, **asdict(found), "uplink": found.uplink.name}
                bench.add(case | named)


if __name__ == "__main__":
    sys.exit(main())
