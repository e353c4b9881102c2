"""A bridge may allow only versions of OpenFlow that the service does not speak."""

from __future__ import annotations

import pytest

from tests.switch.adopting import refused, state
from tests.switch.bed import BALANCE_SLB, PLAIN, Bed, BedSpec
from tests.switch.service import Service
from tests.switch.waiting import wait_until

BEDS = [BedSpec(team, 2, (None, None)) for team in (PLAIN, BALANCE_SLB)]
on_both_beds = pytest.mark.parametrize("bed", BEDS, ids=str, indirect=True)


@on_both_beds
def test_a_bridge_that_does_not_allow_our_openflow_is_refused_and_told(
    bed: Bed, service: Service
) -> None:
    before = state(bed)
    bed.ovs.vsctl("set", "bridge", bed.bridge, "protocols=OpenFlow10,OpenFlow14")
    advice = f"ovs-vsctl add bridge {bed.bridge} protocols OpenFlow13"
    assert refused(service, "attach", bed.bridge, *bed.uplink_options).endswith(advice)
    bed.ovs.run(*advice.split())
    service.attach(bed)
    bed.ovs.vsctl("remove", "bridge", bed.bridge, "protocols", "OpenFlow13")
    wait_until(lambda: not is_connected(service, bed), "the switch has ended the connection")

    def is_told() -> bool:
        told = service.show_json(bed.bridge)["not_done"]
        return any("cannot connect without OpenFlow13" in text for text in told)

    wait_until(is_told, "it is told why")
    for vm in bed.vms:
        assert len(bed.homes()[str(vm)]) == 1, "what is installed forwards"
    bed.ovs.vsctl("clear", "bridge", bed.bridge, "protocols")
    wait_until(lambda: is_connected(service, bed), "the service is back")
    service.do("detach", bed.bridge)
    assert state(bed) == before


def is_connected(service: Service, bed: Bed) -> bool:
    return bool(service.show_json(bed.bridge)["connected"])
