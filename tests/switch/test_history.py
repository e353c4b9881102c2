"""`ovs-lbt history`: what was decided on a real bridge, with the service and without it."""

from __future__ import annotations

import json
from typing import Any

from tests.switch.bed import PLAIN, Bed, BedSpec, on_beds
from tests.switch.service import Service

pytestmark = on_beds(BedSpec(PLAIN, 2, (None,) * 2, (None,)))


def entries(service: Service, bed: Bed, *words: str) -> list[dict[str, Any]]:
    told = service.do("history", bed.bridge, "--json", "--last", "1000", *words)
    return [json.loads(line) for line in told.splitlines()]


def test_without_the_service_it_is_read_from_its_file(attached: Bed, service: Service) -> None:
    (vm, *_), (first, second) = attached.vms, attached.uplinks
    asked = "history", attached.bridge, "--port", vm.port, "--last", "1"
    service.place(attached, 0, 1)
    service.move(vm, second)
    alive = service.do(*asked)
    assert f"{vm.port}: {first} -> {second}" in alive
    with service.dead():
        assert service.do(*asked) == alive
