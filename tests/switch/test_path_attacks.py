"""Path checks while a host upstream forges frames: floods, stolen addresses, and probes that it has captured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Uplink, on_beds
from tests.switch.bed import learning_at_once as upstream_learning_at_once
from tests.switch.judging import at_most, judges_time, soon
from tests.switch.path_faults import blocked, checking, faults, flows
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import Stream

ETH_PROBE = 0x88B6
# Open vSwitch upstream does not learn from each frame that it floods nowhere, so more of them are needed.
FORGED_PPS, UNSEEN_PPS = 20.0, 200.0
# An uplink that probes do not reach would be given up within this time.
GIVEN_UP_S = 3.5
FLOOD_PPS, FLOOD_S = 2000.0, 3.0
# What the documents promise: detection, and a second more after a flood.
FOUND_WITHIN_S, AFTER_FLOOD_S = 3.0, 1.0

pytestmark = on_beds(BedSpec(PLAIN, 3, (None, None)))


@pytest.fixture
def checked(attached: Bed, service: Service) -> Iterator[Bed]:
    """The bed, whose uplinks probe each other, and whose upstream switch learns as one of hardware."""
    attached.introduce()
    with upstream_learning_at_once(attached.tor.ovs), checking(service, attached):
        wait_until(
            lambda: all(u["up"] for u in service.show_json(attached.bridge)["uplinks"]), "up"
        )
        yield attached


def address(bed: Bed, uplink: Uplink) -> str:
    """The address of an uplink's probes."""
    ofport = bed.ofport(uplink.name)
    (flow,) = (f for f in flows(bed) if f"in_port={ofport}," in f or f"in_port={uplink.name}," in f)
    return flow.partition("dl_dst=")[2].partition(",")[0].split()[0]


def hindered(service: Service, bed: Bed) -> dict[tuple[str, str], list[str]]:
    """What hinders path checks by `show`: for each uplink and kind, the uplinks that it was seen on."""
    return {
        (uplink["name"], one["kind"]): one["seen_on"]
        for uplink in service.show_json(bed.bridge)["uplinks"]
        for one in uplink.get("path_hindered", ())
    }


def unmoved(service: Service, bed: Bed) -> Callable[[], bool]:
    """Whether path checks find nothing, and each VM is where it was when this was called."""
    bindings = service.bindings(bed)
    return lambda: not faults(service, bed) and service.bindings(bed) == bindings


def test_an_address_that_is_stolen_by_frames_that_no_uplink_sees_moves_nothing(
    checked: Bed, service: Service
) -> None:
    """They are sent to their own source, so the upstream switch sends them nowhere."""
    uplink, host = checked.uplinks[2], checked.hosts[0]
    stolen, stays = address(checked, uplink), unmoved(service, checked)
    forged = frames.plain(stolen, stolen, ethertype=ETH_PROBE)
    with (
        checked.ears(*(vm.point for vm in checked.vms)) as ears,
        Stream([(host.point, forged)], UNSEEN_PPS),
    ):
        # Before it, upstream may not have learned any of them at the moment of a probe.
        wait_until(
            lambda: service.metric(
                "ovslbt_path_frames_total", bridge=checked.bridge, result="astray"
            ),
            "only a copy of a probe arrives",
        )
        holds(stays, "no fault, no move", GIVEN_UP_S)
        ears.listen(0.1)
        heard = [frame for vm in checked.vms for frame in ears[vm.point].frames()]
    assert not [f for f in heard if f.ethertype == ETH_PROBE], "no VM receives a copy"


@judges_time
def test_a_flood_hides_a_fault_for_a_second_longer_than_it_lasts(
    checked: Bed, service: Service
) -> None:
    """It goes to all uplinks. What is cut off sends nothing, but would receive: the flood hides that."""
    uplink, host = checked.uplinks[1], checked.hosts[0]
    to = [address(checked, one) for one in checked.uplinks]
    flood = [(host.point, frames.plain(host.mac, mac, ethertype=ETH_PROBE)) for mac in to]
    stays = unmoved(service, checked)
    with Stream(flood, FLOOD_PPS) as stream:
        begun_s = time.monotonic()
        flooded = {(one.name, "flooded"): list[str]() for one in checked.uplinks}
        wait_until(lambda: hindered(service, checked) == flooded, "it is reported")
        assert "disturb path checks" in service.do("show", checked.bridge)
        with blocked(checked, uplink, "receive"):
            holds(stays, "nothing is found", max(0.1, begun_s + FLOOD_S - time.monotonic()))
            assert stream.stop().count >= FLOOD_PPS * FLOOD_S / 2
            ended_s, cut_off = time.monotonic(), {(uplink.name, "unreachable", True, None)}
            wait_until(lambda: faults(service, checked) == cut_off, "the fault is found")
            took_s = time.monotonic() - ended_s
            soon("a fault is found after a flood", took_s, FOUND_WITHIN_S + AFTER_FLOOD_S)
            wait_until(lambda: not hindered(service, checked), "the report ends")


@judges_time
def test_a_dead_uplink_is_found_whatever_another_host_sends(checked: Bed, service: Service) -> None:
    """A flood to the others, frames from its address, and what was captured of its own probes."""
    dead, host = checked.uplinks[0], checked.hosts[0]
    stolen, other = address(checked, dead), address(checked, checked.uplinks[1])
    # Probes that go astray come to the thief, and copies come to all.
    unseen = (host.point, frames.plain(stolen, stolen, ethertype=ETH_PROBE))
    with checked.ears(host.point) as ears, Stream([unseen], UNSEEN_PPS):

        def captured() -> list[bytes]:
            ears.listen(0.1)
            heard = (f for f in ears[host.point].frames() if not f.outgoing)
            return [f.data for f in heard if f.ethertype == ETH_PROBE]

        wait_until(lambda: len(captured()) > 1, "probes are captured")
        replayed = captured()
    flood = (host.point, frames.plain(host.mac, other, ethertype=ETH_PROBE))
    thief = (host.point, frames.plain(stolen, frames.BROADCAST, ethertype=ETH_PROBE))
    with Stream([flood], FLOOD_PPS), Stream([thief], FORGED_PPS, number=2):
        wait_until(lambda: hindered(service, checked), "it is reported")
        with blocked(checked, dead, "receive", "forward"):
            begun_s = time.monotonic()
            expected = {(dead.name, "unreachable", True, None)}

            def found() -> bool:
                for frame in replayed:
                    checked.send(host.point, frame)
                return faults(service, checked) == expected

            wait_until(found, "the fault is found")
            took_s = time.monotonic() - begun_s
            at_most(
                "a dead uplink is found during attacks, s",
                took_s,
                FOUND_WITHIN_S + AFTER_FLOOD_S,
                30.0,
            )
            holds(found, "it stays found", 0.5)
            assert dead.name not in service.bindings(checked).values()
