"""A VM port of an attached bridge is moved, pinned and unpinned, and its frames follow."""

from __future__ import annotations

import functools

from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, Uplink, on_beds
from tests.switch.service import Service
from tests.switch.waiting import wait_until


@on_beds(*[BedSpec(team, 2, (None, None), (None,)) for team in (PLAIN, BALANCE_SLB)])
def test_move_pin_and_unpin(bed: Bed, service: Service) -> None:
    vm, (first, second) = bed.vms[0], bed.uplinks
    service.attach(bed, "--policy", "originating-port")
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
    service.do("detach", bed.bridge)


def leaves_by(bed: Bed, station: Station, uplink: Uplink) -> bool:
    return bed.homes()[str(station)] == [uplink.name]
