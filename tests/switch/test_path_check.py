"""Path checks: faults that keep the links up are found, and what is lost on an uplink leaves it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.switch import frames
from tests.switch.bed import PLAIN, Bed, BedSpec, Station, Uplink, on_beds, run
from tests.switch.judging import judges_time, soon
from tests.switch.path_faults import (
    ask,
    blocked,
    checking,
    faults,
    flows,
    found_after_s,
    probes,
)
from tests.switch.service import Service
from tests.switch.waiting import wait_until

OF_THREE = BedSpec(PLAIN, 3, (None, None))
OF_TWO = BedSpec(PLAIN, 2, (None, None), addresses=True)
JUMBO = BedSpec(PLAIN, 3, (None, None), mtu_bytes=3000)
ETH_PROBE = 0x88B6
# What the documents promise with three uplinks, or with two and a host that is asked.
FOUND_WITHIN_S = 3.0
# What they promise of a wrong VLAN or MTU.
VLAN_OR_MTU_FOUND_WITHIN_S = 5.0
IPV6_HOST = "2001:db8::fe"


# A blocked port, and a link that carries frames in one direction only.
in_any_direction = pytest.mark.parametrize(
    "ways",
    [("receive", "forward"), ("forward",), ("receive",)],
    ids=["both-ways", "to-the-bridge", "from-the-bridge"],
)


@pytest.fixture
def checked(attached: Bed, service: Service) -> Iterator[Bed]:
    """The bed, whose uplinks probe each other."""
    attached.introduce()
    with checking(service, attached):
        yield attached


@judges_time
@on_beds(OF_THREE)
@in_any_direction
def test_a_port_that_is_blocked_in_any_direction_is_left(
    checked: Bed, service: Service, ways: tuple[str, ...]
) -> None:
    uplink = checked.uplinks[1]
    vm = checked.vms[0]
    service.move(vm, uplink)
    with blocked(checked, uplink, *ways):
        took_s = found_after_s(service, checked, (uplink.name, "unreachable", True, None))
        soon("a blocked port is found", took_s, FOUND_WITHIN_S)
        has_left(service, checked, vm, uplink)
        assert service.port(checked, vm)["reason"] == "failover"
        checked.introduce()
        done = service.command("check", checked.bridge, "--json")
        kinds = {finding["check"] for finding in json.loads(done.stdout)["findings"]}
        assert "path" in kinds and done.returncode == 1
        assert "unreachable" in service.do("show", checked.bridge)
    wait_until(lambda: not faults(service, checked), "the fault is over")
    wait_until(lambda: service.port(checked, vm)["uplink"] == uplink.name, "the VM port returns")
    assert "path-mended" in service.do("history", "--last", "20")


@judges_time
@on_beds(OF_TWO)
@in_any_direction
def test_of_two_uplinks_a_host_decides_as_soon(
    checked: Bed, service: Service, ways: tuple[str, ...]
) -> None:
    uplink, vm = checked.uplinks[1], checked.vms[0]
    wait_until(lambda: can_move(service, vm, uplink), "the uplink's failback delay is over")
    ask(service, checked, checked.hosts[0].ip)
    assert not faults(service, checked)
    with blocked(checked, uplink, *ways):
        took_s = found_after_s(service, checked, (uplink.name, "unreachable", True, None))
        soon("of two uplinks, the one that is cut off is found", took_s, FOUND_WITHIN_S)
        has_left(service, checked, vm, uplink)


def has_left(service: Service, bed: Bed, vm: Station, uplink: Uplink) -> None:
    wait_until(lambda: service.port(bed, vm)["uplink"] != uplink.name, f"{vm} has left {uplink}")


def can_move(service: Service, vm: Station, uplink: Uplink) -> bool:
    """Move it, if that is possible now."""
    try:
        service.move(vm, uplink)
    except ValueError:
        return False
    return True


@on_beds(OF_TWO)
def test_a_host_that_is_asked_by_ipv6_decides(checked: Bed, service: Service) -> None:
    uplink, host = checked.uplinks[1], checked.hosts[0]
    netns = host.point.netns
    run("sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0", netns=netns)
    run("ip", "addr", "add", f"{IPV6_HOST}/64", "dev", "eth0", "nodad", netns=netns)
    try:
        service.do("set", "bridge", checked.bridge, f"path-check-targets={IPV6_HOST}")
        with blocked(checked, uplink, "receive", "forward"):
            found_after_s(service, checked, (uplink.name, "unreachable", True, None))
    finally:
        run("sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=1", netns=netns)


@judges_time
@on_beds(BedSpec(PLAIN, 3, (10, 20), (10, 20)))
def test_a_vlan_that_one_uplink_lacks_is_left_by_the_vm_ports_that_use_it(
    checked: Bed, service: Service
) -> None:
    uplink = checked.uplinks[1]
    of_10, of_20 = checked.vms
    service.move(of_10, uplink)
    service.move(of_20, uplink)
    end = uplink.upstream_end.interface
    checked.tor.ovs.vsctl("set", "port", end, "trunks=10")
    try:
        took_s = found_after_s(service, checked, (uplink.name, "vlan", True, 20))
        soon("a VLAN that a switch port lacks is found", took_s, VLAN_OR_MTU_FOUND_WITHIN_S)
        has_left(service, checked, of_20, uplink)
        assert service.port(checked, of_20)["reason"] == "rule"
        assert service.port(checked, of_10)["uplink"] == uplink.name
        told = {"uplink": uplink.name, "kind": "vlan", "vlan": "20", "mtu": "", "decided": "true"}
        assert service.metric("ovslbt_uplink_path_fault", **told) == 1
        why = json.loads(service.do("explain", of_20.port, "--json"))
        assert why["kept_off"] == {uplink.name: "VLAN 20"}
        assert json.loads(service.do("explain", of_10.port, "--json"))["kept_off"] == {}
        refused = service.command("move", of_20.port, uplink.name)
        assert refused.returncode == 1 and "path check" in refused.stderr
    finally:
        checked.tor.ovs.vsctl("clear", "port", end, "trunks")
    wait_until(lambda: service.port(checked, of_20)["uplink"] == uplink.name, "VLAN 20 returns")


@judges_time
@on_beds(JUMBO)
def test_an_mtu_that_one_switch_port_lacks_is_found(checked: Bed, service: Service) -> None:
    uplink = checked.uplinks[2]
    end, netns = uplink.upstream_end.interface, uplink.upstream_end.netns
    vm = checked.vms[0]
    service.move(vm, uplink)
    run("ip", "link", "set", end, "mtu", "1500", netns=netns)
    try:
        took_s = found_after_s(service, checked, (uplink.name, "mtu", True, 0))
        soon("an MTU that a switch port lacks is found", took_s, VLAN_OR_MTU_FOUND_WITHIN_S)
        has_left(service, checked, vm, uplink)
    finally:
        run("ip", "link", "set", end, "mtu", str(JUMBO.mtu_bytes), netns=netns)


@on_beds(OF_THREE)
def test_no_probe_reaches_a_vm_and_no_vm_can_make_one(checked: Bed, service: Service) -> None:
    vm, before = checked.vms[0], probes(checked)
    target = flows(checked)[0].partition("dl_dst=")[2].partition(",")[0]
    forged = frames.ethernet(vm.mac, target, ETH_PROBE, bytes(60))
    stolen = frames.plain(target, vm.mac, 0, 0)
    with checked.ears(*(one.point for one in checked.vms)) as ears:
        for _ in range(50):
            checked.send(vm.point, forged)
            checked.send(vm.point, stolen)
        wait_until(lambda: probes(checked) > before + 12, "probes go on")
        ears.listen(0.2)
        # A VM's ear also hears what the VM sends.
        heard = [f for one in checked.vms for f in ears[one.point].frames() if not f.outgoing]
    assert not [f for f in heard if f.ethertype == ETH_PROBE]
    assert not faults(service, checked), "nobody upstream takes a VM's frames for those of a probe"
