"""`check` and metrics find loops."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None, None)) for team in (PLAIN, BALANCE_SLB)]
FLOODED = "ovslbt_bridge_flooded_packets_per_second"


@on_beds(*BEDS)
def test_a_port_that_leads_to_the_network_is_a_loop_and_found(bed: Bed, service: Service) -> None:
    service.attach(bed)
    bed.set("bridge", bed.bridge, poll_interval_ms=200)
    assert "loop" not in found(bed, service)
    with joined_by_another_cable(bed):
        shot = bed.frame_of(bed.hosts[0])

        def is_found() -> bool:
            bed.send(shot.point, shot.frame)
            return "loop" in found(bed, service)

        wait_until(is_found, "`check` finds the loop", 20)
        assert service.metric(FLOODED, bridge=bed.bridge) > 1000
    wait_until(lambda: "loop" not in found(bed, service), "it is over")
    service.do("detach", bed.bridge)


def found(bed: Bed, service: Service) -> set[str]:
    """The kinds of what `check` finds, besides notes."""
    answer = json.loads(service.command("check", bed.bridge, "--json").stdout)
    return {one["check"] for one in answer["findings"] if one["severity"] != "note"}


@contextlib.contextmanager
def joined_by_another_cable(bed: Bed) -> Iterator[None]:
    """In this block, a port that seems to be a VM's leads to the upstream switch."""
    here, there = f"{bed.prefix}x", f"{bed.prefix}y"
    run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", bed.tor.netns)
    run("ip", "link", "set", here, "up")
    run("ip", "-n", bed.tor.netns, "link", "set", there, "up")
    bed.tor.ovs.vsctl("add-port", bed.upstream, there)
    bed.ovs.vsctl("add-port", bed.bridge, here)
    try:
        yield
    finally:
        bed.ovs.vsctl("del-port", bed.bridge, here)
        bed.tor.ovs.vsctl("del-port", bed.upstream, there)
        run("ip", "link", "del", here)
