"""`ovs-lbt history`: what was decided on a real bridge, with the service and without it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.switch.bed import PLAIN, Bed, BedSpec
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(PLAIN, 2, (None,) * 2, (None,))]
pytestmark = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)


@pytest.fixture
def here(attached: Bed, service: Service) -> Iterator[Bed]:
    service.place(attached, 0, 1)
    yield attached
    service.start()


def entries(service: Service, bed: Bed, *words: str) -> list[dict[str, Any]]:
    told = service.do("history", bed.bridge, "--json", "--last", "1000", *words)
    return [json.loads(line) for line in told.splitlines()]


def test_a_move_a_refusal_and_a_failover_are_told_in_order(here: Bed, service: Service) -> None:
    vm, (up0, up1) = here.vms[0], here.uplinks
    before = len(entries(service, here))
    service.move(vm, up1)
    service.move(vm, up0)
    with here.cable_pulled(up0):
        wait_until(
            lambda: service.bindings(here)[vm.port] == up1.name, "the VM port is on the other"
        )
        refused = service.command("move", vm.port, up0.name)
    assert refused.returncode == 1
    wait_until(lambda: service.bindings(here)[vm.port] == up0.name, "it has returned")

    told = [e for e in entries(service, here)[before:] if e["event"] != "outcome"]
    moved = [
        (e["event"], m["source"], m["target"], m["reason"])
        for e in told
        for m in e.get("moves", [])
        if m["port"] == vm.port
    ]
    assert moved[:4] == [
        ("moved", up0.name, up1.name, "manual"),
        ("moved", up1.name, up0.name, "manual"),
        ("moved", up0.name, up1.name, "failover"),
        ("refused", up1.name, up0.name, "manual"),
    ]
    (refusal,) = [e for e in told if e["event"] == "refused"]
    assert refusal["why"] in refused.stderr
    assert [e["uplink"] for e in told if e["event"] == "link-down"] == [up0.name]
    assert service.metric("ovslbt_moves_refused_total", bridge=here.bridge, reason="manual") >= 1
    assert all(set(e["before"]) == {up0.name, up1.name} for e in told if e["event"] == "moved")


def test_without_the_service_it_is_read_from_its_file(here: Bed, service: Service) -> None:
    service.move(here.vms[0], here.uplinks[1])
    alive = service.do("history", here.bridge, "--port", here.vms[0].port, "--last", "1")
    assert f"{here.vms[0].port}: {here.uplinks[0].name} -> {here.uplinks[1].name}" in alive
    with service.dead():
        assert (
            service.do("history", here.bridge, "--port", here.vms[0].port, "--last", "1") == alive
        )


def test_the_history_is_for_people_only(here: Bed, service: Service) -> None:
    """A service finds its bindings without it, and writes another."""
    before = service.bindings(here)
    file = here.ovs.rundir / "ovs-lbt-history.jsonl"
    with service.dead():
        os.replace(file, file.with_suffix(".aside"))
    service.wait_ready(here)
    assert service.bindings(here) == before
    service.move(here.vms[0], here.uplinks[1])
    assert [e["event"] for e in entries(service, here, "--port", here.vms[0].port)] == ["moved"]
