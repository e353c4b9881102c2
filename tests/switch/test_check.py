"""`ovs-lbt check` on real bridges: one that can be attached, and what counters show of the network."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.switch.adopting import state
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until

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
