"""Operators' rules for VM ports on a real bridge: where packets leave, and where they never do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Station, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from tests.switch.wire import Stream

CAPACITY_MBPS = 100
POLL_INTERVAL_MS = 200
WINDOW_S = 1
FLOW_PPS = 700
FRAME_BYTES_MAX = 9000

pytestmark = on_beds(BedSpec(PLAIN, 3, (None,) * 4, mtu_bytes=FRAME_BYTES_MAX))


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=POLL_INTERVAL_MS)
    bed.set("bridge", bed.bridge, failback_delay_s=1)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    with session_service.attached(bed, "--policy", "load-based"):
        yield bed


@contextlib.contextmanager
def rules(service: Service, *given: tuple[Station, str]) -> Iterator[None]:
    """VMs have these rules in this block, as an operator gives and takes them."""
    try:
        for vm, rule in given:
            service.do("set", "interface", vm.port, rule)
        yield
    finally:
        for vm, rule in given:
            service.do("set", "interface", vm.port, rule.partition("=")[0] + "=")


def test_rather_no_frame_at_all_than_by_an_uplink_that_is_not_allowed(
    team: Bed, service: Service
) -> None:
    bed, (confined, neighbour, *_), (only, *others) = team, team.vms, team.uplinks
    host = bed.hosts[0]
    with rules(service, (confined, f"allow={only}")):
        wait_until(lambda: leaves(bed, confined) == [only.name], "it leaves by what is allowed")
        ends = [uplink.upstream_end for uplink in bed.uplinks]
        flow = (confined.point, frames.udp(confined.mac, host.mac))
        with bed.ears(*ends) as ears, Stream([flow], FLOW_PPS) as stream:
            ear = ears[only.upstream_end]
            wait_until(lambda: len(stream.received(ear, 0)) > 100, "it sends")
            bed.pull_cable(only)
            wait_until(lambda: service.bindings(bed)[confined.port] is None, "it has no uplink")
            sent = stream.stop()
            ears.until_quiet()
            assert not any(sent.refused)
            strays = {str(u): len(stream.received(ears[u.upstream_end], 0)) for u in others}
            assert strays == dict.fromkeys(map(str, others), 0), "frames by what is not allowed"
        assert hears(bed, confined) == {str(vm) for vm in bed.stations if vm != confined}
        assert reaches(bed, neighbour, confined), "its neighbours reach it"
        # Switches upstream flood it: they have forgotten the VM with the link.
        assert copies_at(bed, confined) == 0, "what comes by what is not allowed"
        assert service.metric("ovslbt_rule_broken", port=confined.port, rule="allow") == 1
        assert f"rule broken  {confined.port} allow: has no" in service.do("show", bed.bridge)
        story = service.do("explain", confined.port)
        assert "allowed uplinks carries traffic" in " ".join(story.split())

        bed.plug_cable(only)
        wait_until(lambda: service.bindings(bed)[confined.port] == only.name, "it is back")
        wait_until(lambda: leaves(bed, confined) == [only.name], "it leaves by what is allowed")
        wait_until(lambda: copies_at(bed, confined) == 1, "and the outside reaches it, once")
        assert service.metric("ovslbt_rule_broken", port=confined.port, rule="allow") == 0

        with service.dead():
            bed.pull_cable(only)
            wait_until(lambda: leaves(bed, neighbour) != [only.name], "the neighbour has left it")
            assert leaves(bed, confined) == []
            assert copies_at(bed, confined) == 0
            bed.plug_cable(only)
            wait_until(lambda: leaves(bed, confined) == [only.name], "the switch has it back")
        service.wait_ready(bed)
    told = service.do("history", bed.bridge, "--port", confined.port, "--json").splitlines()
    events = [event for line in told if (event := json.loads(line)["event"]).startswith("rule")]
    assert events[:2] == ["rule-broken", "rule-kept"]


# ---- what is seen ----------------------------------------------------------------------


def leaves(bed: Bed, station: Station) -> list[str]:
    """The uplinks by which a broadcast of a station leaves."""
    return bed.homes()[str(station)]


def hears(bed: Bed, source: Station) -> set[str]:
    """The stations of the bridge that hear a broadcast of one of them."""
    heard = bed.comes_out(bed.frame_of(source))
    assert len(set(heard)) == len(heard), f"a copy too many: {heard}"
    return set(heard) & {str(station) for station in bed.stations}


def reaches(bed: Bed, source: Station, destination: Station) -> bool:
    return bed.comes_out(bed.frame_of(source, frames.to(destination.mac))) == [str(destination)]


def copies_at(bed: Bed, vm: Station) -> int:
    """How many copies of one frame a VM gets from a host upstream."""
    return bed.comes_out(bed.frame_of(bed.hosts[0], frames.to(vm.mac))).count(str(vm))
