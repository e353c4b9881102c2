"""`ovs-lbt history`: what was decided on a real bridge, with the service and without it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,) * 2, (None,)))


@pytest.fixture
def here(attached: Bed, service: Service) -> Iterator[Bed]:
    service.place(attached, 0, 1)
    yield attached
    service.start()


def entries(service: Service, bed: Bed, *words: str) -> list[dict[str, Any]]:
    told = service.do("history", bed.bridge, "--json", "--last", "1000", *words)
    return [json.loads(line) for line in told.splitlines()]


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
