"""Operators' rules for VM ports on a real bridge: where packets leave, and where they never do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Shot, Station
from tests.switch.service import Service
from tests.switch.waiting import holds, wait_until
from tests.switch.wire import CATCH_UP_S, Stream

CAPACITY_MBPS = 100
POLL_INTERVAL_MS = 200
WINDOW_S = 1
# Whoever moves does so after a window, a poll and the lag of flow counters: 2.2 s.
QUIET_S = 3.0
FLOW_PPS = 700
FRAME_BYTES_MAX = 9000
SPEC = BedSpec(PLAIN, 3, (None,) * 4, mtu_bytes=FRAME_BYTES_MAX)

pytestmark = pytest.mark.parametrize("bed", [SPEC], ids=str, indirect=True)


@pytest.fixture(scope="module")
def team(bed: Bed, session_service: Service) -> Iterator[Bed]:
    session_service.start()
    bed.set("bridge", bed.bridge, window_s=WINDOW_S, poll_interval_ms=POLL_INTERVAL_MS)
    bed.set("bridge", bed.bridge, failback_delay_s=1)
    for uplink in bed.uplinks:
        bed.set("interface", uplink.name, capacity_mbps=CAPACITY_MBPS)
    session_service.attach(bed, "--policy", "load-based")
    yield bed
    session_service.do("detach", bed.bridge)


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
            cut_off(bed, service, confined)
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
        assert f"rule broken  {confined.port} allow: on no uplink" in service.do("show", bed.bridge)
        story = service.do("explain", confined.port)
        assert "none of its allowed uplinks carries traffic" in " ".join(story.split())

        bed.plug_cable(only)
        wait_until(lambda: service.bindings(bed)[confined.port] == only.name, "it is back")
        wait_until(lambda: leaves(bed, confined) == [only.name], "it leaves by what is allowed")
        wait_until(lambda: called(bed, confined), "and the outside reaches it")
        assert service.metric("ovslbt_rule_broken", port=confined.port, rule="allow") == 0

        with service.dead():
            bed.pull_cable(only)
            wait_until(lambda: leaves(bed, neighbour) != [only.name], "the neighbour has left it")
            assert leaves(bed, confined) == []
            assert copies_at(bed, confined) == 0
            bed.plug_cable(only)
            wait_until(lambda: leaves(bed, confined) == [only.name], "the switch has it back")
        service.wait_ready(bed)
    told = json_lines(service.do("history", bed.bridge, "--port", confined.port, "--json"))
    assert [e["event"] for e in told if e["event"].startswith("rule")][:2] == [
        "rule-broken",
        "rule-kept",
    ]


def test_two_vms_are_kept_apart_whatever_the_load_is(team: Bed, service: Service) -> None:
    bed, (one, other, heavy, light) = team, team.vms
    service.place(bed, 0, 0, 1, 2, 2)
    with rules(
        service, (one, "anti-affinity=web"), (other, "anti-affinity=web"), (heavy, "exclude=true")
    ):
        wait_until(lambda: leaves(bed, one) != leaves(bed, other), "their frames part")
        apart = service.bindings(bed)
        mine, theirs = apart[one.port], apart[other.port]
        third = next(u.name for u in bed.uplinks if u.name not in (mine, theirs))
        # Of the two on the full uplink one could go to the emptiest, where the other is.
        service.do("move", heavy.port, mine)
        service.do("move", light.port, third)

        def carries(uplink: str, ratio: float) -> bool:
            shown = service.show_json(bed.bridge)["uplinks"][by(bed, uplink)]
            return bool(shown["utilization_ratio"] > ratio)

        # One process sends all of it: if it has no core, there is less by all uplinks.
        with load(bed, {light: 49, heavy: 44, one: 38}):
            wait_until(lambda: carries(third, 0.47), "there is no room for it by the third")
            wait_until(lambda: carries(mine, 0.78), "the uplink is over the threshold")
            bindings = service.bindings(bed)
            assert bindings[one.port] == mine
            holds(lambda: service.bindings(bed) == bindings, "nothing moves", QUIET_S)
            # With room where no member is, it goes there.
            service.do("move", light.port, theirs)
            wait_until(lambda: service.bindings(bed)[one.port] == third, "it moves")
        assert service.port(bed, one)["reason"] == "threshold"
        wait_until(lambda: leaves(bed, one) == [third], "its frames leave by the third")
        assert leaves(bed, other) != [third]
        assert service.show_json(bed.bridge)["rules_broken"] == []


def test_a_vm_follows_its_preferences_and_returns(team: Bed, service: Service) -> None:
    bed, vm, (first, second, third) = team, team.vms[0], team.uplinks
    with rules(service, (vm, f"prefer={third},{first}")):
        wait_until(lambda: leaves(bed, vm) == [third.name], "it is where it prefers to be")
        with service.dead(), bed.cable_pulled(third):
            wait_until(lambda: leaves(bed, vm) == [first.name], "the switch knows the second best")
        service.wait_ready(bed)
        wait_until(lambda: leaves(bed, vm) == [third.name], "back at the best")
        with bed.cable_pulled(third):
            wait_until(lambda: leaves(bed, vm) == [first.name], "it is at the second best")
            shown = service.show_json(bed.bridge)["rules_broken"]
            assert [(r["port"], r["rule"]) for r in shown] == [(vm.port, "prefer")]
            with bed.cable_pulled(first):
                wait_until(lambda: leaves(bed, vm) == [second.name], "what is left")
        wait_until(lambda: leaves(bed, vm) == [third.name], "it has returned")
        assert service.port(bed, vm)["reason"] == "failback"
        assert service.show_json(bed.bridge)["rules_broken"] == []


def test_what_cannot_be_is_shown_and_what_must_not_be_is_refused(
    team: Bed, service: Service
) -> None:
    bed, (first, second, _) = team, team.uplinks
    with rules(service, *((vm, "anti-affinity=all") for vm in bed.vms)):
        wait_until(lambda: len({service.bindings(bed)[vm.port] for vm in bed.vms}) == 3, "spread")

        def broken() -> set[str]:
            return {r["port"] for r in service.show_json(bed.bridge)["rules_broken"]}

        wait_until(lambda: len(broken()) == 2, "four on three uplinks: two of them share one")
        assert (
            sum(v for k, v in service.metrics().items() if k.startswith("ovslbt_rule_broken")) == 2
        )
        assert "rule broken" in service.do("show", bed.bridge)
        told = json.loads(service.do("explain", min(broken()), "--json"))
        assert set(told["rules_broken"]) == {"anti-affinity"}
    vm = bed.vms[0]
    bed.set("interface", vm.port, allow="!nowhere")
    wait_until(lambda: service.show_json(bed.bridge)["config_errors"], "an uplink nobody knows")
    bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", "ovs-lbt-allow")
    refused = service.command("set", "interface", vm.port, "allow=nowhere")
    assert refused.returncode == 1 and "nowhere -> some of" in refused.stderr
    with rules(service, (vm, f"allow=!{first}")):
        wait_until(lambda: leaves(bed, vm) != [first.name], "it has left")
        moved = service.command("move", vm.port, first.name)
        assert (moved.returncode, moved.stdout) == (1, "")
        assert f"uplink {first}: not allowed for {vm.port}" in moved.stderr
        service.move(vm, second)
        wait_until(lambda: leaves(bed, vm) == [second.name], "it leaves by what is allowed")


def test_rules_of_a_vm_outlive_its_port(team: Bed, service: Service) -> None:
    """Libvirt deletes the port and adds it anew; its rules are kept on the bridge."""
    bed, vm, third = team, team.vms[3], team.uplinks[2]
    identity = ["set", "interface", vm.port, "external_ids:iface-id=db-1"]
    bed.ovs.vsctl(*identity)
    wait_until(lambda: service.port(bed, vm)["vm"] == "db-1", "the VM is known")
    with rules(service, (vm, f"allow={third}")):
        ids = bed.ovs.vsctl("get", "bridge", bed.bridge, "external_ids")
        assert f'ovs-lbt-vm-db-1-allow="{third}"' in ids or f"ovs-lbt-vm-db-1-allow={third}" in ids
        assert "allow" not in bed.ovs.vsctl("get", "interface", vm.port, "external_ids")
        bed.unplug(vm)
        bed.plug_in(vm)
        bed.ovs.vsctl(*identity)
        wait_until(lambda: service.port(bed, vm)["vm"] == "db-1", "the VM is back")
        wait_until(lambda: leaves(bed, vm) == [third.name], "its rule holds again")
    ids = bed.ovs.vsctl("get", "bridge", bed.bridge, "external_ids")
    assert "vm-db-1" not in ids


# ---- what is seen ----------------------------------------------------------------------


def leaves(bed: Bed, station: Station) -> list[str]:
    """The uplinks by which a broadcast of a station leaves."""
    return bed.homes()[str(station)]


def shot_of(bed: Bed, source: Station, destination: str, story: str) -> Shot:
    def build(mac: str, tag: int, frame_id: int) -> bytes:
        return frames.plain(mac, destination, tag, frame_id)

    return bed.shot(source.point, build, source.mac, 0, 0, story)


def hears(bed: Bed, source: Station) -> set[str]:
    """The stations of the bridge that hear a broadcast of one of them."""
    shot = bed.shot(source.point, frames.broadcast, source.mac, 0, 0, "a broadcast")
    heard = bed.fire([shot])[shot.frame_id].points
    names = {str(station) for station in bed.stations}
    assert len(set(heard)) == len(heard), f"a copy too many: {heard}"
    return set(heard) & names


def reaches(bed: Bed, source: Station, destination: Station) -> bool:
    shot = shot_of(bed, source, destination.mac, "a frame to a neighbour")
    return bed.fire([shot])[shot.frame_id].points == [str(destination)]


def called(bed: Bed, vm: Station) -> bool:
    """Whether a host upstream reaches a VM, with one copy."""
    return copies_at(bed, vm) == 1


def copies_at(bed: Bed, vm: Station) -> int:
    """How many copies of one frame a VM gets from a host upstream."""
    shot = shot_of(bed, bed.hosts[0], vm.mac, "a frame to a VM")
    return bed.fire([shot])[shot.frame_id].points.count(str(vm))


def cut_off(bed: Bed, service: Service, vm: Station) -> None:
    wait_until(lambda: service.bindings(bed)[vm.port] is None, f"{vm} has no uplink")


def by(bed: Bed, uplink: str) -> int:
    return [u.name for u in bed.uplinks].index(uplink)


def json_lines(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]


def load(bed: Bed, rates_mbps: dict[Station, float]) -> Stream:
    """UDP of these rates to the outside."""
    flows = []
    for vm, rate_mbps in rates_mbps.items():
        size = round(rate_mbps * 1e6 / 8 / FLOW_PPS)
        assert size < FRAME_BYTES_MAX
        flows.append((vm.point, frames.udp(vm.mac, bed.hosts[0].mac, frame_bytes=size)))
    return Stream(flows, FLOW_PPS, catch_up_s=CATCH_UP_S)
