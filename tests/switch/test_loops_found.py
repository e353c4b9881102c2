"""`check` and metrics find loops."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from dataclasses import replace

from tests.said import says
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, on_beds, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

BEDS = [BedSpec(team, 2, (None, None)) for team in (PLAIN, BALANCE_SLB)]
FLOODED = "ovslbt_bridge_flooded_packets_per_second"
# The userspace datapath forwards each circulating frame once in an iteration of ovs-vswitchd's main loop.
# On a busy machine, one frame alone may be slower than a loop is said to be.
CIRCULATING = 20


@on_beds(*BEDS)
def test_a_port_that_leads_to_the_network_is_a_loop_and_found(bed: Bed, service: Service) -> None:
    service.attach(bed)
    bed.set("bridge", bed.bridge, poll_interval_ms=200)
    assert "loop" not in found(bed, service)
    with joined_by_another_cable(bed):

        def is_found() -> bool:
            broadcast(bed)
            return "loop" in found(bed, service)

        wait_until(is_found, "`check` finds the loop", 20)
        assert service.metric(FLOODED, bridge=bed.bridge) > 1000
    wait_until(lambda: "loop" not in found(bed, service), "it is over")
    service.do("detach", bed.bridge)


@on_beds(*BEDS)
def test_bridges_that_a_patch_port_joins_are_a_loop_and_found(bed: Bed, service: Service) -> None:
    """The counters of a patch port are late, which hides no loop. Before there is one, a note names it."""
    with contextlib.ExitStack() as built:
        other = built.enter_context(Bed(bed.ovs, bed.tor, replace(bed.spec, vm_vlans=(None,))))
        built.enter_context(patched(bed.tor.ovs, bed.upstream, other.upstream))
        for one in (bed, other):
            built.enter_context(service.attached(one))
            one.set("bridge", one.bridge, poll_interval_ms=200)
        with patched(bed.ovs, bed.bridge, other.bridge) as patch:
            for one, joined in ((bed, other), (other, bed)):
                told = wait_until(functools.partial(notes, one, service), "a note names the port")
                assert says(told, patch[one is other], joined.bridge, *joined.ends.values())

            def is_found() -> bool:
                broadcast(bed)
                return all("loop" in found(one, service) for one in (bed, other))

            wait_until(is_found, "`check` finds the loop on both", 20)
            for _ in range(5):
                assert is_found(), "it stays found"
        wait_until(lambda: "loop" not in found(bed, service), "it is over")


def broadcast(bed: Bed) -> None:
    shot = bed.frame_of(bed.hosts[0])
    for _ in range(CIRCULATING):
        bed.send(shot.point, shot.frame)


def notes(bed: Bed, service: Service) -> str:
    """What `check` says of patch ports."""
    answer = json.loads(service.command("check", bed.bridge, "--json").stdout)
    return "".join(one["text"] for one in answer["findings"] if one["check"] == "patch-port")


@contextlib.contextmanager
def patched(ovs: PrivateOvs, *bridges: str) -> Iterator[tuple[str, ...]]:
    """In this block, a pair of patch ports joins two bridges; the names of these ports."""
    ports = tuple(f"{bridge}p" for bridge in bridges)
    for bridge, port, peer in zip(bridges, ports, reversed(ports), strict=True):
        options = ["type=patch", f"options:peer={peer}"]
        ovs.vsctl("add-port", bridge, port, "--", "set", "interface", port, *options)
    try:
        yield ports
    finally:
        for port in ports:
            ovs.vsctl("del-port", port)


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
