"""Look and change: by the command and by `ovs-vsctl`, as an operator does."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from policies.model import Reason
from tests.switch import frames
from tests.switch.adopting import refused, state
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, Uplink
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None, None), (None,)) for team in (PLAIN, BALANCE_SLB)]
on_both_beds = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)
on_plain_uplinks = pytest.mark.parametrize("bed", BEDS[:1], ids=str, indirect=True)
OUTSIDER = "02:ee:00:00:00:01"
UPLINK_KEYS = {"name", "up", "role", "capacity_bps", "tx_bps", "rx_bps", "utilization_ratio"}
PORT_KEYS = {"name", "vm", "uplink", "tx_bps", "rx_bps", "reason", "bound_at"}
BRIDGE_KEYS = {
    "name",
    "policy",
    "teaming",
    "mode",
    "connected",
    "uplinks",
    "ports",
    "config_errors",
}


@pytest.fixture
def taken(bed: Bed, service: Service) -> Iterator[Bed]:
    """The bed, attached for one test."""
    service.attach(bed, "--policy", "originating-port")
    yield bed
    service.do("detach", bed.bridge)


# ---- show -------------------------------------------------------------------------------


@on_both_beds
def test_show_json_has_the_documented_shape(taken: Bed, service: Service) -> None:
    (shown,) = json.loads(service.do("show", taken.bridge, "--json"))["bridges"]
    assert shown.keys() >= BRIDGE_KEYS
    assert (shown["policy"], shown["teaming"], shown["mode"], shown["connected"]) == (
        "originating-port",
        "switch-independent",
        "enforce",
        True,
    )
    assert shown["config_errors"] == []
    assert [u["name"] for u in shown["uplinks"]] == [u.name for u in taken.uplinks]
    for uplink in shown["uplinks"]:
        assert uplink.keys() >= UPLINK_KEYS
        assert (uplink["up"], uplink["role"]) == (True, "active")
        assert uplink["capacity_bps"] > 0
    assert {p["name"] for p in shown["ports"]} == {s.port for s in taken.stations}
    for port in shown["ports"]:
        assert port.keys() >= PORT_KEYS
        assert port["uplink"] in {u.name for u in taken.uplinks}
        assert port["reason"] in {None, "originating-port", *Reason}


@on_both_beds
def test_show_without_json_is_for_people(taken: Bed, service: Service) -> None:
    text = service.do("show", taken.bridge)
    for name in [taken.bridge, *(u.name for u in taken.uplinks), *(s.port for s in taken.stations)]:
        assert name in text


@on_both_beds
def test_originating_port_is_ofport_modulo_uplinks(taken: Bed, service: Service) -> None:
    bindings = service.bindings(taken)
    for station in taken.stations:
        ofport = int(taken.ovs.vsctl("get", "interface", station.port, "ofport"))
        expected = taken.uplinks[ofport % len(taken.uplinks)].name
        assert bindings[station.port] == expected, f"{station.port} with ofport {ofport}"


# ---- move, pin, unpin, set --------------------------------------------------------------


@on_both_beds
def test_move_pin_and_unpin(taken: Bed, service: Service) -> None:
    bed, vm = taken, taken.vms[0]
    first, second = bed.uplinks
    for uplink in (first, second):
        service.do("move", vm.port, uplink.name)
        wait_until(functools.partial(leaves_by, bed, vm, uplink), "moving moves it there")
    assert service.port(bed, vm)["reason"] == "manual"
    service.do("pin", vm.port, first.name)
    wait_until(lambda: bed.homes()[str(vm)] == [first.name], "pinning moves it there")
    assert service.port(bed, vm)["reason"] == "pin"
    service.do("unpin", vm.port)
    service.move(vm, second)
    wait_until(lambda: bed.homes()[str(vm)] == [second.name], "free to move again")


@on_both_beds
def test_set_changes_keys_that_it_has_checked(taken: Bed, service: Service) -> None:
    bed, uplink = taken, taken.uplinks[0]
    service.do("set", "interface", uplink.name, "capacity-mbps=250")
    wait_until(lambda: uplink_shown(service, bed, 0)["capacity_bps"] == 250e6, "new capacity")
    service.do("set", "bridge", bed.bridge, "policy=explicit", "threshold=80")
    wait_until(lambda: service.show_json(bed.bridge)["policy"] == "explicit", "new policy")
    external_ids = bed.ovs.vsctl("get", "bridge", bed.bridge, "external_ids")
    assert 'ovs-lbt-threshold="80"' in external_ids
    bed.ovs.vsctl("remove", "interface", uplink.name, "external_ids", "ovs-lbt-capacity-mbps")
    bed.ovs.vsctl("remove", "bridge", bed.bridge, "external_ids", "ovs-lbt-threshold")


# ---- ovs-vsctl, without a restart -------------------------------------------------------


@on_both_beds
def test_policy_capacity_and_pin_by_vsctl(taken: Bed, service: Service) -> None:
    bed, vm = taken, taken.vms[0]
    bed.set("interface", bed.uplinks[1].name, capacity_mbps=40)
    wait_until(lambda: uplink_shown(service, bed, 1)["capacity_bps"] == 40e6, "new capacity")
    bed.ovs.vsctl("remove", "interface", bed.uplinks[1].name, "external_ids", CAPACITY)
    wait_until(lambda: uplink_shown(service, bed, 1)["capacity_bps"] != 40e6, "old capacity")
    bed.set("bridge", bed.bridge, policy="explicit")
    wait_until(lambda: service.show_json(bed.bridge)["policy"] == "explicit", "new policy")
    bed.set("interface", vm.port, pin=bed.uplinks[1].name)
    wait_until(lambda: bed.homes()[str(vm)] == [bed.uplinks[1].name], "the pin is followed")
    bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", "ovs-lbt-pin")


@on_both_beds
def test_a_bad_value_keeps_the_last_good_one(taken: Bed, service: Service) -> None:
    bed = taken
    bed.set("interface", bed.uplinks[0].name, capacity_mbps=70)
    wait_until(lambda: uplink_shown(service, bed, 0)["capacity_bps"] == 70e6, "new capacity")
    bed.set("bridge", bed.bridge, threshold="abc")
    bed.set("interface", bed.uplinks[0].name, capacity_mbps="fast")

    def errors() -> list[str]:
        return [str(e) for e in service.show_json(bed.bridge)["config_errors"]]

    wait_until(lambda: len(errors()) == 2, "both bad values are shown")
    assert uplink_shown(service, bed, 0)["capacity_bps"] == 70e6
    assert any("threshold" in e and "abc" in e for e in errors()), errors()
    assert any("capacity-mbps" in e and "fast" in e for e in errors()), errors()
    assert all("->" in error for error in errors()), errors()
    assert service.metric("ovslbt_config_errors", bridge=bed.bridge) == 2
    assert "threshold: abc ->" in service.log_tail(), "one line in the log"
    bed.ovs.vsctl("remove", "bridge", bed.bridge, "external_ids", "ovs-lbt-threshold")
    bed.ovs.vsctl("remove", "interface", bed.uplinks[0].name, "external_ids", CAPACITY)
    wait_until(lambda: not errors(), "no errors any more")
    assert service.metric("ovslbt_config_errors", bridge=bed.bridge) == 0


@on_both_beds
def test_a_bridge_whose_settings_were_cleared_goes_on_and_is_taken_back(
    taken: Bed, service: Service
) -> None:
    bed, before = taken, service.bindings(taken)
    service.move(bed.vms[0], next(u for u in bed.uplinks if u.name != before[bed.vms[0].port]))
    bed.settled()
    before, homes = service.bindings(bed), bed.homes()
    bed.ovs.vsctl("clear", "bridge", bed.bridge, "external_ids")
    told = f"Bridge {bed.bridge} ovs-lbt-policy: removed; the service continues"
    wait_until(lambda: told in service.log_tail(), "the log says it")
    assert bed.homes() == homes, "the switch goes on by what it has"
    service.attach(bed, "--policy", "originating-port")
    assert (service.bindings(bed), bed.homes()) == (before, homes)


@on_both_beds
def test_a_vm_port_that_comes_and_goes(taken: Bed, service: Service) -> None:
    bed, vm = taken, taken.vms[1]
    bed.ovs.vsctl("del-port", bed.bridge, vm.port)

    def shown() -> bool:
        return vm.port in service.bindings(bed)

    try:
        wait_until(lambda: not shown(), "the port is gone from `show`")
        (copies,) = bed.fire([from_vm(bed, 0)]).values()
        assert str(vm) not in copies.points
    finally:
        bed.ovs.vsctl("--may-exist", "add-port", bed.bridge, vm.port)
    wait_until(lambda: shown() and service.bindings(bed)[vm.port], "the port is bound again")

    def heard() -> list[str]:
        (copies,) = bed.fire([from_vm(bed, 0)]).values()
        return copies.points

    wait_until(lambda: str(vm) in heard(), "the new port hears its neighbour")
    assert heard().count(str(vm)) == 1
    wait_until(lambda: len(bed.homes()[str(vm)]) == 1, "the new port reaches the network")


@on_both_beds
def test_an_access_tag_that_changes(taken: Bed, service: Service) -> None:
    bed, vm = taken, taken.vms[1]
    end = bed.uplinks[0].upstream_end

    def hears(tag: int) -> bool:
        shots = [
            bed.shot(u.upstream_end, frames.broadcast, OUTSIDER, tag, tag, "x") for u in bed.uplinks
        ]
        return sum(c.at[str(vm), 0] for c in bed.fire(shots).values()) == 1

    with access_tag(bed, vm.port, 30):
        wait_until(lambda: hears(30) and not hears(40), "the VM hears VLAN 30 only")
        bed.revalidated()
        shot = bed.shot(vm.point, frames.broadcast, vm.mac, 30, 0, "of the VM")
        (copies,) = bed.fire([shot]).values()
        tags = {tag for (point, tag), _ in copies.at.items() if point.startswith(str(end)[:12])}
        assert tags == {30}, f"its frames leave tagged: {copies.at}"
    wait_until(lambda: hears(0), "the VM hears untagged frames again")


# ---- refusals ---------------------------------------------------------------------------


@on_plain_uplinks
@pytest.mark.parametrize(
    "words",
    [
        "show nobridge",
        "move {vm} nouplink",
        "move {vm} {other}",
        "move noport {uplink}",
        "pin {vm} {other}",
        "pin noport {uplink}",
        "set bridge {bridge} policy=fastest",
        "set interface nointerface pin={uplink}",
        "set interface {vm} pin={other}",
    ],
)
def test_refusals_say_what_was_found_and_expected(
    attached: Bed, service: Service, words: str
) -> None:
    bed = attached
    names = {
        "bridge": bed.bridge,
        "vm": bed.vms[0].port,
        "other": bed.vms[1].port,
        "uplink": bed.uplinks[0].name,
    }
    before = state(bed)
    refused(service, *words.format(**names).split())
    assert state(bed) == before


@pytest.mark.parametrize(
    "words",
    ["", "nonsense", "move onlyone", "set bridge", "set bridge br0 nokey=1", "show --nosuch"],
)
def test_wrong_usage(service: Service, words: str) -> None:
    done = service.command(*words.split())
    assert done.returncode == 2, done
    assert done.stderr.strip()
    assert not done.stdout


CAPACITY = "ovs-lbt-capacity-mbps"


def uplink_shown(service: Service, bed: Bed, number: int) -> dict[str, Any]:
    uplinks = service.show_json(bed.bridge)["uplinks"]
    (found,) = (u for u in uplinks if u["name"] == bed.uplinks[number].name)
    return dict(found)


def leaves_by(bed: Bed, vm: Station, uplink: Uplink) -> bool:
    return bed.homes()[str(vm)] == [uplink.name]


def from_vm(bed: Bed, number: int) -> Any:
    vm = bed.vms[number]
    return bed.shot(vm.point, frames.broadcast, vm.mac, 0, 0, "a broadcast")


@contextlib.contextmanager
def access_tag(bed: Bed, port: str, tag: int) -> Iterator[None]:
    bed.ovs.vsctl("set", "port", port, f"tag={tag}")
    try:
        yield
    finally:
        bed.ovs.vsctl("clear", "port", port, "tag")
