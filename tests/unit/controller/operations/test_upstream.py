"""What counters show of the network: nothing where it is as it is meant, and each fault by itself."""

from __future__ import annotations

from typing import Any

import pytest

from controller.dataplane.tables import Register, Table
from controller.operations import upstream
from controller.operations.upstream import Counted, Port

MULTICAST = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"
PORT = Port(mtu=1500, speed_bps=10_000_000_000, rx_packets=1000)


def team(teaming: str = "switch-independent", down: str = "") -> dict[str, Any]:
    uplinks = [
        {"name": f"eth{n}", "ofport": n, "up": f"eth{n}" != down, "role": "active"} for n in (1, 2)
    ]
    return {"name": "br0", "attached": True, "teaming": teaming, "bond": False, "uplinks": uplinks}


def sent(packets: int) -> Counted:
    return Counted(Table.DESTINATION, packets, (MULTICAST,))


def came_back(packets: int) -> Counted:
    return Counted(Table.PRESENT, packets, (MULTICAST,))


def brought(uplink: int, vlan: int, packets: int) -> Counted:
    match = (f"{Register.UPLINK}={uplink:#x}", f"{Register.VLAN}={vlan:#x}")
    return Counted(Table.DELIVERY, packets, match)


def found(team: dict[str, Any], *flows: Counted, **ports: Port) -> list[tuple[str, str]]:
    given = {"eth1": PORT, "eth2": PORT, **ports}
    return [(one.check, one.text) for one in upstream.findings(team, given, flows)]


def test_separate_ports_of_one_network_are_well() -> None:
    assert found(team(), sent(500), came_back(400), brought(1, 20, 90), brought(2, 20, 90)) == []


@pytest.mark.parametrize("teaming", ["static", "lacp"])
def test_a_lag_is_well(teaming: str) -> None:
    flows = (sent(500), came_back(3), brought(1, 20, 90), brought(2, 20, 0))
    assert found(team(teaming), *flows) == []


def test_a_lag_on_which_frames_come_back_is_none() -> None:
    locked = Counted(Table.DEPARTURE, 400, (f"{Register.LOCKED}=0x1",))
    ((check, text),) = found(team("static"), sent(500), locked)
    assert check == "no-lag" and text.startswith("LAG: 400 broadcasts from local VMs returned")


def test_uplinks_by_which_nothing_comes_back_are_not_of_one_network() -> None:
    ((check, _),) = found(team(), sent(500), came_back(0))
    assert check == "not-one-network"
    assert found(team(), sent(9), came_back(0)) == [], "too few to tell"
    assert found(team(down="eth2"), sent(500), came_back(0)) == [], (
        "there is nothing to come back by"
    )


@pytest.mark.parametrize(
    ("by_1", "by_2", "severity", "proposed"),
    [(150, 149, "note", ""), (99, 99, "warning", ""), (150, 80, "warning", "teaming=static, or")],
)
def test_isolated_ports_are_not_taken_for_a_lag(
    by_1: int, by_2: int, severity: str, proposed: str
) -> None:
    flows = (sent(500), brought(1, 20, by_1), brought(2, 20, by_2))
    (one,) = upstream.findings(team(), {"eth1": PORT, "eth2": PORT}, flows)
    assert (one.severity, one.check) == (severity, "not-one-network")
    assert ("teaming=static" in one.text, proposed in one.text) == (bool(proposed), True)


@pytest.mark.parametrize(("teaming", "finds"), [("static", ["no-lag"]), ("lacp", [])])
def test_a_lag_by_which_every_frame_comes_twice_is_none(teaming: str, finds: list[str]) -> None:
    flows = (brought(1, 20, 300), brought(2, 20, 299))
    assert [check for check, _ in found(team(teaming), *flows)] == finds
    assert found(team(teaming), brought(1, 20, 300), brought(2, 20, 200)) == []


def test_a_vlan_that_comes_by_one_uplink_only() -> None:
    ((check, text),) = found(
        team(), brought(1, 20, 90), brought(2, 20, 0), brought(2, 10, 50), brought(1, 10, 7)
    )
    assert check == "vlan"
    assert (
        text
        == "VLAN 20 broadcasts arrive on eth1, but never on eth2; configure the VLAN on the switch port of every uplink"
    )
    assert found(team(down="eth2"), brought(1, 20, 90), brought(2, 20, 0)) == []


def test_an_uplink_that_never_receives() -> None:
    ((check, text),) = found(team(), eth2=Port(1500, None, 0))
    assert check == "receives-nothing" and text.startswith("uplink eth2 is up")
    assert found(team(), eth1=Port(1500, None, 5), eth2=Port(1500, None, 0)) == []
    assert found(team("static"), eth2=Port(1500, None, 0)) == [], "a hash may do that"


def test_members_that_differ() -> None:
    slow = Port(9000, 1_000_000_000, 10)
    checks = dict(found(team("static"), eth2=slow))
    assert checks.keys() == {"mtu", "speed"}
    assert checks["mtu"].startswith("uplinks differ in MTU (eth1 1500, eth2 9000)")
    (speed,) = upstream.findings(team(), {"eth1": PORT, "eth2": Port(1500, 10**9, 9)}, ())
    assert (speed.severity, speed.check) == ("note", "speed"), "loads are shares of capacity"


def test_flows_are_read_as_ovs_ofctl_prints_them() -> None:
    dumped = """\
OFPST_FLOW reply (OF1.3) (xid=0x2):
 cookie=0x6c62740000000000, duration=7.5s, table=7, n_packets=12, n_bytes=700, reset_counts priority=10,reg4=0x1,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=resubmit(,23),resubmit(,22),goto_table:8
 cookie=0x6c62740000000000, duration=7.5s, table=9, n_packets=3, n_bytes=180, priority=20,reg1=0x1,reg2=0x14 actions=group:1811939339
 cookie=0x6c62740000000000, duration=7.5s, table=15, n_packets=0, n_bytes=0, priority=1 actions=resubmit(,10)
"""
    assert upstream.parse(dumped) == [
        Counted(7, 12, ("reg4=0x1", MULTICAST)),
        Counted(9, 3, ("reg1=0x1", "reg2=0x14")),
        Counted(15, 0, ("",)),
    ]
    assert upstream.parse(dumped)[1].registers == {Register.UPLINK: 1, Register.VLAN: 20}
