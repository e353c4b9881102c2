"""The two published faults of the layout `converged` are found in time, and cost nothing from then on.

The bed has the second host's shape: two uplinks, four VMs in VLAN 30 with an MTU of 9000, and a vNIC each
for management (VLAN 10) and live migration (VLAN 20). The first host's part is that of hosts upstream, one
in each VLAN, which path checks ask. Each VM has two connections with the one in its VLAN, in both
directions. While they run, the switch port of the busiest uplink gets the fault, and its link stays up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from controller.api import history
from tests.switch import frames, path_faults
from tests.switch.bed import PLAIN, Bed, BedSpec, Station, Uplink, Upstream, learning_at_once, run
from tests.switch.counters import RECEIVED_BYTES, SENT_BYTES, counters
from tests.switch.judging import OUTAGE_S, at_most, few_lost, judges_time, soon
from tests.switch.service import Service
from tests.switch.waiting import HANG_S, wait_until
from topologies.network.private_ovs import PrivateOvs

UPLINKS, VMS, CONNECTIONS = 2, 4, 2
VM_VLAN, MANAGEMENT_VLAN, MIGRATION_VLAN, ODD_VLAN = 30, 10, 20, 99
VLANS = (VM_VLAN, MANAGEMENT_VLAN, MIGRATION_VLAN)
JUMBO_MTU, STANDARD_MTU = 9000, 1500
# More than an MTU of 1500 lets pass. Few frames that fill an MTU of 9000 fit in a port's socket.
FRAME_BYTES = 3000
MTU, VLAN = "MTU", "VLAN"
FAULTS = (MTU, VLAN)
# Of each flow: what is lost is known to 10 ms.
PPS = 100.0
BEFORE_S, WATCHED_S = 1.0, 6.0
# A flow of which nothing arrives in this last part of the watched time is silent until the fault is mended.
END_S = 1.0
# What the documents promise.
FOUND_WITHIN_S = 5.0
# From the finding until VM ports have left, the slowest of what both switches do for that.
LOST_AFTER_MAX = 10


@pytest.fixture(scope="module")
def team(tor: Upstream) -> Iterator[tuple[Bed, Service]]:
    vlans = (*(VM_VLAN,) * VMS, MANAGEMENT_VLAN, MIGRATION_VLAN)
    spec = BedSpec(PLAIN, UPLINKS, vlans, VLANS, JUMBO_MTU, addresses=True)
    with (
        learning_at_once(tor.ovs),
        PrivateOvs(prefix="ovs-lbt-paths-") as ovs,
        Bed(ovs, tor, spec) as bed,
        contextlib.ExitStack() as stack,
    ):
        service = Service(ovs)
        stack.callback(service.kill)
        service.start()
        bed.set("bridge", bed.bridge, failback_delay_s=1)
        service.attach(bed, "--policy", "load-based")
        # A host in each VLAN is asked, because two uplinks alone decide nothing.
        targets = ",".join(f"{host.ip}%{host.vlan}" for host in bed.hosts)
        service.do("set", "bridge", bed.bridge, "path-check=on", f"path-check-targets={targets}")
        yield bed, service
        service.do("detach", bed.bridge)


@judges_time
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_converged_layout_is_found(team: tuple[Bed, Service], fault: str) -> None:
    bed, service = team
    settle(bed, service)
    with path_faults.Talk(bed.vms[:VMS], bed.hosts[0], PPS, CONNECTIONS, frame) as talk:
        before = carried(bed)
        talk.go_on(BEFORE_S)
        now = carried(bed)
        uplink = max(bed.uplinks, key=lambda one: now[one] - before[one])
        began_at = time.time()
        with faulty(bed, uplink, fault):
            talk.go_on(WATCHED_S)
            while not is_over(told(bed, began_at, uplink)):
                assert time.time() < began_at + HANG_S, f"{fault} on {uplink}: not found"
                talk.go_on(END_S)
            talk.stop()
            entries = told(bed, began_at, uplink)
    found_at, moved_at = (
        [one["at"] for one in entries if one["event"] == what]
        for what in (history.Happened.PATH_FAULT, history.Happened.MOVED)
    )
    assert found_at and moved_at
    soon(f"another {fault} on one switch port is found", found_at[0] - began_at, FOUND_WITHIN_S)
    lost_at = [at for of in talk.lost_at for at in of if at >= began_at - 1 / PPS]
    after = [at for at in lost_at if at > found_at[0]]
    assert len(after) < len(lost_at), "the fault lost nothing, so nothing was tried"
    outage = OUTAGE_S * 2 * VMS * CONNECTIONS * PPS
    at_most("frames lost of all flows after the finding", len(after), LOST_AFTER_MAX, outage)
    # Those of all flows that were sent at the same time are as many as of one flow, at least.
    of_a_flow = len({round(at - began_at, 2) for at in after})
    few_lost([of_a_flow], LOST_AFTER_MAX, PPS, "after the finding")
    assert not talk.silent(END_S), "a flow is still lost, although VM ports have left"


@contextlib.contextmanager
def faulty(bed: Bed, uplink: Uplink, fault: str) -> Iterator[None]:
    """The switch port of an uplink has another MTU or VLAN in this block; its link stays up."""
    end, netns, tor = uplink.upstream_end.interface, uplink.upstream_end.netns, bed.tor.ovs
    with contextlib.ExitStack() as mended:
        if fault == MTU:
            set_mtu = ("ip", "link", "set", end, "mtu")
            run(*set_mtu, str(STANDARD_MTU), netns=netns)
            mended.callback(run, *set_mtu, str(JUMBO_MTU), netns=netns)
        else:
            tor.vsctl("set", "port", end, f"tag={ODD_VLAN}")
            mended.callback(tor.vsctl, "clear", "port", end, "tag")
        yield


def told(bed: Bed, since: float, uplink: Uplink) -> list[dict[str, Any]]:
    """What the history says of a fault of this uplink that concerns VMs, and of what has left it."""
    entries = path_faults.told(bed.ovs, since)
    return [entry for entry in entries if is_fault(entry, uplink) or has_left(entry, uplink)]


def is_over(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a fault was found, and what follows from it was seen in the part that is judged at the end."""
    return bool(entries) and time.time() - entries[-1]["at"] > 2 * END_S


def is_fault(entry: Mapping[str, Any], uplink: Uplink) -> bool:
    """Whether it is a fault of this uplink that is decided, and of no other VLAN than that of the VMs."""
    others = (f"VLAN {vlan} " in entry["why"] for vlan in (MANAGEMENT_VLAN, MIGRATION_VLAN))
    found = entry["event"] == history.Happened.PATH_FAULT
    return found and entry.get("uplink") == uplink.name and not any(others)


def has_left(entry: Mapping[str, Any], uplink: Uplink) -> bool:
    moved = entry["event"] == history.Happened.MOVED
    return moved and any(move.get("source") == uplink.name for move in entry.get("moves", ()))


def settle(bed: Bed, service: Service) -> None:
    """Nothing is in force of the last fault, and both uplinks carry VMs."""
    wait_until(lambda: is_well(bed, service), "no fault is in force, and both uplinks are up")
    service.place(bed, *(number % UPLINKS for number in range(VMS)))
    bed.introduce()
    bed.revalidated()


def is_well(bed: Bed, service: Service) -> bool:
    uplinks = service.show_json(bed.bridge)["uplinks"]
    return all(one["up"] and not one.get("path_faults") for one in uplinks)


def carried(bed: Bed) -> dict[Uplink, int]:
    """How many bytes have passed each uplink, both ways."""
    now = counters()
    return {one: now[one.name][RECEIVED_BYTES] + now[one.name][SENT_BYTES] for one in bed.uplinks}


def frame(a: Station, b: Station, number: int) -> bytes:
    """A frame of a connection of its own. Nobody answers it."""
    return frames.udp(
        a.mac,
        b.mac,
        source_ip=f"192.0.2.{number + 1}",
        destination_ip=f"198.51.100.{number + 1}",
        frame_bytes=FRAME_BYTES,
    )
