"""A VM port of an attached bridge is moved, pinned and unpinned, and its frames follow."""

from __future__ import annotations

import functools
import threading
import time

from tests.switch import datapath
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec, Station, Uplink, on_beds
from tests.switch.service import Service
from tests.switch.waiting import stopped, wait_until


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


@on_beds(BedSpec())
def test_a_command_follows_all_earlier_changes_of_the_database(bed: Bed, service: Service) -> None:
    """The change and the command reach the service at the same time."""
    for number in range(5):
        name, answers = f"{bed.prefix}n{number}", list[str]()

        def ask(name: str = name, answers: list[str] = answers) -> None:
            answers.append(service.command("show", name).stderr)

        asking = threading.Thread(target=ask)
        with stopped(service.pid):
            bed.ovs.vsctl("add-br", name, "--", "set", "bridge", name, datapath.SETTING)
            asking.start()
            time.sleep(0.5)  # a command needs this time to begin
        asking.join()
        bed.ovs.vsctl("del-br", name)
        assert "not attached" in answers[0]


def leaves_by(bed: Bed, station: Station, uplink: Uplink) -> bool:
    return bed.homes()[str(station)] == [uplink.name]
