"""Look and change: by the command and by `ovs-vsctl`, as an operator does."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

import pytest

from policies.model import Reason
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, Uplink
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None, None), (None,)) for team in (PLAIN, BALANCE_SLB)]
on_both_beds = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)
UPLINK_KEYS = {"name", "up", "role", "capacity_bps", "tx_bps", "rx_bps", "utilization_ratio"}
PORT_KEYS = {"name", "vm", "uplink", "tx_bps", "rx_bps", "reason", "bound_at"}


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
    assert (shown["name"], shown["connected"], shown["config_errors"]) == (taken.bridge, True, [])
    found = (shown["policy"], shown["teaming"], shown["mode"])
    assert found == ("originating-port", "switch-independent", "enforce")
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


# ---- move, pin, unpin -------------------------------------------------------------------


@on_both_beds
def test_move_pin_and_unpin(taken: Bed, service: Service) -> None:
    bed, vm = taken, taken.vms[0]
    first, second = bed.uplinks
    for command, uplink, reason in (
        ("move", first, None),
        ("move", second, "manual"),
        ("pin", first, "pin"),
        ("unpin", first, None),
        ("move", second, "manual"),
    ):
        service.do(command, vm.port, *([uplink.name] if command != "unpin" else []))
        wait_until(functools.partial(leaves_by, bed, vm, uplink), f"it is there after {command}")
        assert reason in (None, service.port(bed, vm)["reason"])


# ---- ovs-vsctl, without a restart -------------------------------------------------------


@on_both_beds
def test_policy_capacity_and_pin_by_vsctl(taken: Bed, service: Service) -> None:
    bed, vm = taken, taken.vms[0]
    second, key = bed.uplinks[1], "ovs-lbt-capacity-mbps"
    bed.set("interface", second.name, capacity_mbps=40)
    wait_until(lambda: service.uplink(bed, second)["capacity_bps"] == 40e6, "new capacity")
    bed.ovs.vsctl("remove", "interface", second.name, "external_ids", key)
    wait_until(lambda: service.uplink(bed, second)["capacity_bps"] != 40e6, "old capacity")
    bed.set("bridge", bed.bridge, policy="explicit")
    wait_until(lambda: service.show_json(bed.bridge)["policy"] == "explicit", "new policy")
    bed.set("interface", vm.port, pin=second.name)
    wait_until(lambda: leaves_by(bed, vm, second), "the pin is followed")
    bed.ovs.vsctl("remove", "interface", vm.port, "external_ids", "ovs-lbt-pin")


@on_both_beds
def test_a_bridge_whose_settings_were_cleared_goes_on_and_is_taken_back(
    taken: Bed, service: Service
) -> None:
    bed, before = taken, service.bindings(taken)
    service.move(bed.vms[0], next(u for u in bed.uplinks if u.name != before[bed.vms[0].port]))
    bed.settled()
    before, homes = service.bindings(bed), bed.homes()
    bed.ovs.vsctl("clear", "bridge", bed.bridge, "external_ids")
    told = f"Bridge {bed.bridge} ovs-lbt-policy: the key was removed from the database"
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

    def heard() -> list[str]:
        return bed.comes_out(bed.frame_of(bed.vms[0]))

    try:
        wait_until(lambda: not shown(), "the port is gone from `show`")
        assert str(vm) not in heard()
    finally:
        bed.ovs.vsctl("--may-exist", "add-port", bed.bridge, vm.port)
    wait_until(lambda: shown() and service.bindings(bed)[vm.port], "the port is bound again")
    wait_until(lambda: str(vm) in heard(), "the new port hears its neighbour")
    assert heard().count(str(vm)) == 1
    wait_until(lambda: len(bed.homes()[str(vm)]) == 1, "the new port reaches the network")


def leaves_by(bed: Bed, vm: Station, uplink: Uplink) -> bool:
    return bed.homes()[str(vm)] == [uplink.name]
