"""`ovs-lbt check` on real bridges: one that can be attached, and what counters show of the network."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.switch import frames
from tests.switch.adopting import state
from tests.switch.bed import BALANCE_SLB, PLAIN, STATIC_LAG, Bed, BedSpec, Station, on_beds, run
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Point

WELL, FOUND, UNKNOWN = 0, 1, 2
ON_BOND = BedSpec(BALANCE_SLB, 2, (None, None))
ON_PLAIN = BedSpec(PLAIN, 2, (None, None))
# More than what `check` takes for chance.
BROADCASTS = 12
# More than what it takes to compare uplinks.
COMPARED = 150


def checked(service: Service, *words: str) -> tuple[int, dict[str, str]]:
    """The exit status, and by its kind each finding that asks for something."""
    done = service.command("check", *words, "--json")
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    found = {f["check"]: f["text"] for f in answer["findings"] if f["severity"] != "note"}
    assert answer["well"] is (not found)
    return done.returncode, found


def broadcast(bed: Bed, *stations: Station) -> None:
    """So many broadcasts of each, one after another."""
    for station in stations:
        for _ in range(BROADCASTS):
            bed.fire([bed.frame_of(station)])


@on_beds(ON_BOND, ON_PLAIN)
def test_a_bridge_that_is_not_attached_is_judged_and_left_as_it_is(
    bed: Bed, service: Service
) -> None:
    uplinks, before = bed.uplink_options, state(bed)
    said = service.command("check", bed.bridge, *uplinks)
    assert (said.returncode, said.stderr) == (WELL, "")
    names = ", ".join(uplink.name for uplink in bed.uplinks)
    first, *_ = said.stdout.splitlines()
    assert first == f"note: {bed.bridge}: can be attached: load-based over {names}, 3 VM ports"
    assert state(bed) == before

    bed.ofctl("add-flow", "table=3,priority=7,actions=drop")
    try:
        status, found = checked(service, bed.bridge, *uplinks)
        assert status == FOUND and "other programs have" in found["unfit"]
        refused = service.command("attach", bed.bridge, *uplinks).stderr
        assert found["unfit"].partition(": ")[2] in refused, "in the words of attach"
    finally:
        bed.ofctl("del-flows", "table=3")
    assert state(bed) == before
    with bed.cable_pulled(bed.uplinks[0]):
        status, found = checked(service, bed.bridge, *uplinks)
        assert status == FOUND and found.keys() == {"uplink-down", "no-failover"}
    if not bed.spec.on_bond:
        assert checked(service, bed.bridge)[1].keys() == {"unfit"}


@on_beds(ON_BOND)
def test_a_switch_that_does_not_run_is_named(bed: Bed, service: Service) -> None:
    cause = "ovs-vswitchd is not running or does not answer; start Open vSwitch: systemctl start"
    assert "can be attached" in service.do("check", bed.bridge)
    bed.ovs.stop("ovs-vswitchd")
    try:
        for command in ("check", "attach"):
            done = service.command(command, bed.bridge)
            assert cause in done.stdout + done.stderr
    finally:
        bed.ovs.start_switch()
        bed.local_is_new()
    with service.attached(bed):
        bed.ovs.stop("ovs-vswitchd")
        try:
            wait_until(lambda: "not-connected" in checked(service)[1], "the end is noticed")
            assert cause in checked(service)[1]["not-connected"]
        finally:
            bed.ovs.start_switch()
            bed.local_is_new()
        wait_until(lambda: checked(service) == (WELL, {}), "it is well again")


@on_beds(ON_BOND)
def test_without_a_service_or_a_bridge_nothing_is_known(bed: Bed, service: Service) -> None:
    done = service.command("check", "no-such-bridge")
    assert (done.returncode, done.stdout) == (UNKNOWN, "")
    service.kill()
    done = service.command("check", bed.bridge)
    assert (done.returncode, done.stdout) == (UNKNOWN, "")
    assert "no service is running" in done.stderr


@on_beds(BedSpec(STATIC_LAG, 2, (None, None)))
def test_uplinks_that_are_a_lag_upstream_are_found(bed: Bed, service: Service) -> None:
    with service.attached(bed, "--teaming", "switch-independent"):
        broadcast(bed, *bed.vms)
        wait_until(
            # Its hash may choose one member for the few stations that there are.
            lambda: checked(service)[1].keys() - {"receives-nothing"} == {"not-one-network"},
            "they are found to be one",
        )


@on_beds(ON_PLAIN)
def test_ports_that_are_isolated_upstream_are_not_proposed_as_a_lag(
    bed: Bed, service: Service
) -> None:
    """Whoever takes them for one receives every broadcast twice, and is told how to end that."""
    ends = [uplink.upstream_end.interface for uplink in bed.uplinks]
    for end in ends:
        bed.tor.ovs.vsctl("set", "port", end, "protected=true")
    try:
        with service.attached(bed):
            broadcast(bed, bed.vms[0])
            bed.fire([bed.frame_of(bed.hosts[0]) for _ in range(COMPARED)])
            wait_until(lambda: not checked(service)[1], "only a note is left")
            assert "upstream ports are isolated" in service.command("check").stdout
            assert copies_at_a_vm(bed) == 1
            service.do("set", "bridge", bed.bridge, "teaming=static")
            wait_until(lambda: checked(service)[1].keys() == {"no-lag"}, "it is found")
            assert copies_at_a_vm(bed) == 2
            proposed = re.search(r"ovs-lbt (set .*)", checked(service)[1]["no-lag"])
            assert proposed
            service.do(*proposed[1].split())
            wait_until(lambda: not checked(service)[1], "only a note is left again")
            assert copies_at_a_vm(bed) == 1
    finally:
        for end in ends:
            bed.tor.ovs.vsctl("set", "port", end, "protected=false")


@on_beds(ON_PLAIN)
def test_an_uplink_that_speaks_with_the_address_of_local_is_found(
    bed: Bed, service: Service
) -> None:
    """Upstream, the address is sometimes at that uplink and sometimes at the one that LOCAL uses."""
    first, second = bed.uplinks
    address, devices = "192.0.2.1/24", (first.name, bed.bridge)
    (link,) = json.loads(run("ip", "-j", "link", "show", first.name))

    def place_after(point: Point) -> str:
        bed.fire([bed.shot(point, frames.broadcast, bed.local.mac, 0, 0, "a broadcast")])
        bed.revalidated()
        known = bed.tor.ovs.run("ovs-appctl", "fdb/show", bed.upstream)
        (port,) = re.findall(rf"(\d+) +0 +{bed.local.mac}", known)
        return str(port)

    run("ip", "link", "set", first.name, "address", bed.local.mac)
    run("ip", "address", "add", address, "dev", first.name)
    try:
        with service.attached(bed):
            service.move(bed.local, second)
            assert place_after(bed.local.point) != place_after(Point("the card", first.name))
            wait_until(lambda: checked(service)[1].keys() == {"own-address"}, "it is found")
            assert (
                f"move the IP addresses to device {bed.bridge}"
                in checked(service)[1]["own-address"]
            )
            run("ip", "address", "del", address, "dev", first.name)
            run("ip", "address", "add", address, "dev", bed.bridge)
            wait_until(lambda: not checked(service)[1], "it is solved")
    finally:
        for device in devices:
            run("ip", "-4", "address", "flush", "dev", device)
        run("ip", "link", "set", first.name, "address", link["address"])


@on_beds(ON_PLAIN)
def test_a_metric_counts_broadcasts_that_arrive_twice(bed: Bed, service: Service) -> None:
    repeated = "ovslbt_bridge_repeated_packets_per_second"
    with service.attached(bed, "--teaming", "static"):

        def counted() -> float:
            bed.fire([bed.frame_of(bed.hosts[0]) for _ in range(10)])
            return service.metric(repeated, bridge=bed.bridge)

        assert counted() == 0
        wait_until(counted, "it counts them")
        service.do("set", "bridge", bed.bridge, "teaming=switch-independent")
        wait_until(lambda: not counted(), "reflections of separate uplinks are dropped")


def copies_at_a_vm(bed: Bed) -> int:
    """How many copies of a host's broadcast a VM gets."""
    bed.settled()
    return bed.comes_out(bed.frame_of(bed.hosts[0])).count(str(bed.vms[0]))


@on_beds(BedSpec(PLAIN, 2, (10, 20), (10, 20)))
def test_a_vlan_that_is_missing_on_an_uplink_is_found(bed: Bed, service: Service) -> None:
    end = bed.uplinks[1].upstream_end.interface
    bed.tor.ovs.vsctl("set", "port", end, "trunks=10")
    with service.attached(bed):
        try:
            broadcast(bed, *bed.hosts)
            wait_until(lambda: checked(service)[1].keys() == {"vlan"}, "it is found")
            text = checked(service)[1]["vlan"]
            assert text.startswith(
                f"VLAN 20 broadcasts arrive on {bed.uplinks[0]}, but never on {bed.uplinks[1]}"
            )
        finally:
            bed.tor.ovs.vsctl("clear", "port", end, "trunks")
        broadcast(bed, bed.hosts[1])
        wait_until(lambda: checked(service) == (WELL, {}), "it is well with the VLAN")
