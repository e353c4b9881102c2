"""What counters show of the network: nothing where it is as it is meant, and each fault by itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from controller.dataplane.tables import Register, Table
from controller.operations import upstream
from controller.operations.upstream import Counted, Port
from tests.said import pattern

MULTICAST = "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00"
PORT = Port(mtu=1500, speed_bps=10_000_000_000, rx_packets=1000)


def team(teaming: str = "switch-independent", down: str = "") -> dict[str, Any]:
    uplinks = [
        {"name": f"eth{n}", "ofport": n, "up": f"eth{n}" != down, "role": "active"} for n in (1, 2)
    ]
    return {"name": "br0", "attached": True, "teaming": teaming, "bond": False, "uplinks": uplinks}


def flows(counts: str) -> list[Counted]:
    """Broadcasts that were `sent`, that came `back`, or `locked`, or that uplinks brought, as `1/20=90`."""
    of = {"sent": Table.DESTINATION, "back": Table.PRESENT}
    found = []
    for what, packets in (word.split("=") for word in counts.split()):
        if what in of:
            found.append(Counted(of[what], int(packets), (MULTICAST,)))
        elif what == "locked":
            found.append(Counted(Table.DEPARTURE, int(packets), (f"{Register.LOCKED}=0x1",)))
        else:
            uplink, vlan = map(int, what.split("/"))
            match = (f"{Register.UPLINK}={uplink:#x}", f"{Register.VLAN}={vlan:#x}")
            found.append(Counted(Table.DELIVERY, int(packets), match))
    return found


def found(team: dict[str, Any], counts: str = "", **ports: Port) -> list[tuple[str, str]]:
    given = {"eth1": PORT, "eth2": PORT, **ports}
    return [(one.check, one.text) for one in upstream.findings(team, given, flows(counts))]


SEPARATE, STATIC, ONE_UP = team(), team("static"), team(down="eth2")
NO_VLAN = (
    "VLAN 20 broadcasts arrive on eth1, but never on eth2; configure the VLAN on the switch port"
)
# The counts of flows, and what is found.
COUNTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "one network": (SEPARATE, "sent=500 back=400 1/20=90 2/20=90", ""),
    "a static LAG": (STATIC, "sent=500 back=3 1/20=90 2/20=0", ""),
    "a LAG of LACP": (team("lacp"), "sent=500 back=3 1/20=90 2/20=0", ""),
    "frames come back on a LAG": (
        *(STATIC, "sent=500 locked=400"),
        "no-lag: LAG: 400 broadcasts from local VMs returned…",
    ),
    "nothing comes back": (SEPARATE, "sent=500 back=0", "not-one-network: …"),
    "too few to tell": (SEPARATE, "sent=9 back=0", ""),
    "nothing to come back by": (ONE_UP, "sent=500 back=0", ""),
    "every frame twice on a LAG": (STATIC, "1/20=300 2/20=299", "no-lag: …"),
    "every frame twice with LACP": (team("lacp"), "1/20=300 2/20=299", ""),
    "some frames twice on a LAG": (STATIC, "1/20=300 2/20=200", ""),
    "a VLAN by one uplink": (
        *(SEPARATE, "1/20=90 2/20=0 2/10=50 1/10=7"),
        f"vlan: {NO_VLAN} of every uplink",
    ),
    "a VLAN by the one that is up": (ONE_UP, "1/20=90 2/20=0", ""),
}


@pytest.mark.parametrize(("team", "counts", "expected"), COUNTS.values(), ids=COUNTS)
def test_counts(team: dict[str, Any], counts: str, expected: str) -> None:
    told = "; ".join(": ".join(one) for one in found(team, counts))
    assert re.fullmatch(pattern(expected), told), told


@pytest.mark.parametrize(
    ("by_1", "by_2", "severity", "proposed"),
    [(150, 149, "note", ""), (99, 99, "warning", ""), (150, 80, "warning", "teaming=static, or")],
)
def test_isolated_ports_are_not_taken_for_a_lag(
    by_1: int, by_2: int, severity: str, proposed: str
) -> None:
    counted = flows(f"sent=500 1/20={by_1} 2/20={by_2}")
    (one,) = upstream.findings(team(), {"eth1": PORT, "eth2": PORT}, counted)
    assert (one.severity, one.check) == (severity, "not-one-network")
    assert ("teaming=static" in one.text, proposed in one.text) == (bool(proposed), True)


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
