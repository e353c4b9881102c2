"""Frames between switches, such as LLDP, where the bridge forwards them: with NORMAL, and with ovs-lbt the same."""

from __future__ import annotations

import pytest

from tests.switch import frames
from tests.switch.bed import BALANCE_SLB, LACP, NETWORK, PLAIN, Bed, BedSpec, Upstream
from tests.switch.service import Service
from tests.switch.waiting import wait_until
from topologies.network.private_ovs import PrivateOvs

BETWEEN_SWITCHES = {
    "STP": "01:80:c2:00:00:00",
    "LACP": "01:80:c2:00:00:02",
    "EAPOL": "01:80:c2:00:00:03",
    "LLDP, PTP": "01:80:c2:00:00:0e",
    "CDP": "01:00:0c:cc:cc:cc",
}
OF_THE_BOND = ("STP", "LACP")


def forward(switch: PrivateOvs, bridge: str, value: str) -> None:
    switch.vsctl("set", "bridge", bridge, f"other_config:forward-bpdu={value}")


def arrives_at(bed: Bed) -> dict[str, list[str]]:
    """Where one frame of each protocol arrives that a VM sends, and one that a host sends."""
    (host,), vm = bed.hosts, bed.vms[0]
    shots = {
        f"{name} of {sender}": bed.frame_of(sender, frames.to(to))
        for name, to in BETWEEN_SWITCHES.items()
        for sender in (vm, host)
    }
    came = bed.came_out(list(shots.values()))
    # What comes down to the bridge by the cables is none of its doing.
    return {
        name: sorted(point for point, _ in at.elements())
        for name, at in zip(shots, came, strict=True)
    }


@pytest.mark.parametrize("team", [BALANCE_SLB, LACP, PLAIN])
def test_they_arrive_as_with_normal(
    ovs: PrivateOvs, tor: Upstream, service: Service, team: str
) -> None:
    with Bed(ovs, tor, BedSpec(team, 2)) as bed:
        forward(tor.ovs, bed.upstream, "true")
        forward(ovs, bed.bridge, "true")
        expected = {
            f"{name} of {sender}": at
            for name in BETWEEN_SWITCHES
            for sender, at in (
                ("vm0", ["LOCAL", NETWORK, "vm1"]),
                ("host0", ["LOCAL", "vm0", "vm1"]),
            )
        }
        if team != PLAIN:
            bed.introduce_to_normal()
            assert arrives_at(bed) == expected
        if team == LACP:
            for name in OF_THE_BOND:
                expected[f"{name} of vm0"] = ["LOCAL", "vm1"]
        service.attach(bed, "--policy", "originating-port")
        service.place(bed, 0, 1)
        assert arrives_at(bed) == expected
        forward(ovs, bed.bridge, "false")
        nowhere: dict[str, list[str]] = {key: [] for key in expected}
        wait_until(lambda: arrives_at(bed) == nowhere, "they arrive nowhere without the setting")
        service.do("detach", bed.bridge)
