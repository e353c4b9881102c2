"""`plan --endpoints`: what it measures, what it says, and the commands that it prints."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.config.rows import BridgeRow, Ovn, PortRow
from controller.operations import endpoint_plan
from controller.operations.endpoint_plan import Host
from controller.text.show_view import JsonObject
from controller.text.wording import Refused
from tests.unit.rows import bridge, host, interface, marked, ours, port, tunnel

ADDRESSES = {"vnet0": ("192.0.2.1",), "vnet1": ("192.0.2.2", "fd00::2")}
OVN = Ovn(("192.0.2.1", "192.0.2.2"))


def below() -> BridgeRow:
    """An attached bridge with two uplinks of 100 Mbit/s, and two endpoints."""
    return host(vms=("vnet0", "vnet1"))


def vif(name: str, encap_ip: str = "") -> PortRow:
    ids = {"iface-id": f"vm-{name}", **({"encap-ip": encap_ip} if encap_ip else {})}
    return port(name, 9, ids)


def integration(*ports: PortRow) -> BridgeRow:
    tunnels = tunnel("g1", local_ip="192.0.2.1"), tunnel("g2", local_ip="192.0.2.2")
    return BridgeRow("br-int", (*tunnels, *ports))


def survey(*ports: PortRow, ovn: Ovn | None = OVN, attached: BridgeRow | None = None) -> Host:
    rows = [attached or below(), integration(*ports)]
    return endpoint_plan.survey(rows, ovn, marked(rows, ovn, ADDRESSES).endpoints)


# Of each interface in Mbit/s over 10 s: received and sent, as the switch sees it.
RATES = {"a1": (40, 2), "a2": (30, 2), "b1": (1, 1), "g1": (5, 70), "g2": (1, 1)}


def answered(found: Host, rates: Mapping[str, tuple[int, int]] = RATES) -> JsonObject:
    megabits = 10 * 1_000_000 // 8
    before = dict.fromkeys(rates, (7, 9))
    after = {name: (7 + rx * megabits, 9 + tx * megabits) for name, (rx, tx) in rates.items()}
    return endpoint_plan.answer(found, before, after, 10.0)


def full() -> Host:
    return survey(vif("a1", "192.0.2.1"), vif("a2", "192.0.2.1"), vif("b1", "192.0.2.2"))


def test_the_plan_as_text() -> None:
    told = [line.split() for line in endpoint_plan.as_text(full(), answered(full())).splitlines()]
    assert told[0][:6] == ["br-int:", "1", "of", "3", "VMs", "should"]
    assert ["192.0.2.2", "vnet1", "1.00", "1.00", "31.00", "3.00"] in told
    assert ["a2", "vm-a2", "192.0.2.1", "192.0.2.2", "30.00", "2.00"] in told
    assert answered(full())["commands"] == [" ".join(told[-3])]


def test_the_plan_as_json() -> None:
    shown = answered(full())
    assert shown["bridges"] == ["br-int"]
    assert shown["endpoints"][1] == {
        "address": "192.0.2.2",
        "port": "vnet1",
        "capacity_bps": None,
        "tx_bps": 1e6,
        "rx_bps": 1e6,
        "planned_tx_bps": 31e6,
        "planned_rx_bps": 3e6,
    }
    assert shown["vms"][1] == {
        "port": "a2",
        "vm": "vm-a2",
        "endpoint": "192.0.2.1",
        "planned_endpoint": "192.0.2.2",
        "tx_bps": 30e6,
        "rx_bps": 2e6,
    }
    assert shown["commands"] == ["ovs-vsctl set interface a2 external_ids:encap-ip=192.0.2.2"]


def test_tunnels_of_others_are_theirs_to_change() -> None:
    there = survey(vif("a1"), vif("a2"), ovn=None)
    found = answered(there)
    assert found["commands"] == []
    assert "the flows on br-int" in endpoint_plan.as_text(there, found)


def by_receiver(tunnels_say: bool, in_userspace: bool) -> Host:
    """Two VMs that receive are on one endpoint, where OVN's tunnels have a `local_ip` or none."""
    own = (tunnel("g1", local_ip=OVN.addresses[0] if tunnels_say else None),)
    guests = vif("a1", "192.0.2.1"), vif("a2", "192.0.2.1"), vif("b1", "192.0.2.2")
    rows = [below(), BridgeRow("br-int", (*own, *guests), in_userspace=in_userspace)]
    return endpoint_plan.survey(rows, OVN, marked(rows, OVN, ADDRESSES).endpoints)


# As `RATES`: a2 and b1 receive, and all send what would have to be parted.
RECEIVERS = {"a1": (40, 0), "a2": (30, 20), "b1": (1, 20)}


@pytest.mark.parametrize(("says", "userspace"), [(False, False), (True, True), (False, True)])
def test_what_vms_send_is_not_placed_where_the_receiver_decides(
    says: bool, userspace: bool
) -> None:
    there = by_receiver(says, userspace)
    found = answered(there, RECEIVERS)
    assert found["commands"] == []
    shown = found["endpoints"]
    assert [place["planned_rx_bps"] for place in shown] == [20e6, 20e6]
    assert not any("planned_tx_bps" in place for place in shown)
    assert endpoint_plan.BY_RECEIVER in endpoint_plan.as_text(there, found)


def test_what_vms_send_is_placed_where_tunnels_have_local_addresses() -> None:
    there = by_receiver(tunnels_say=True, in_userspace=False)
    found = answered(there, RECEIVERS)
    assert found["commands"] != []
    assert endpoint_plan.BY_RECEIVER not in endpoint_plan.as_text(there, found)


def test_addresses_of_ipv6_and_odd_names_are_quoted() -> None:
    ovn = Ovn(("192.0.2.1", "fd00::2"))
    found = survey(vif("a1", "192.0.2.1"), vif("a2 $(x)"), ovn=ovn)
    after = {"a1": (10**9, 0), "a2 $(x)": (10**9, 0)}
    told = endpoint_plan.answer(found, dict.fromkeys(after, (0, 0)), after, 10.0)
    assert told["commands"] == [
        "ovs-vsctl set interface 'a2 $(x)' external_ids:encap-ip='\"fd00::2\"'"
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"a1": (0, 0)}, {"a2": (10**9, 0)}, id="one goes, another one comes"),
        pytest.param({"a1": (10**9, 5)}, {"a1": (0, 0)}, id="counters start anew"),
    ],
)
def test_what_was_not_counted_all_the_time_has_no_load(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]
) -> None:
    found = survey(vif("a1", "192.0.2.1"), vif("a2", "192.0.2.2"))
    told = endpoint_plan.answer(found, before, after, 10.0)
    assert {vm["tx_bps"] for vm in told["vms"]} == {0.0}


def test_an_endpoint_can_carry_its_part_of_the_uplinks() -> None:
    members = tuple(interface(f"eth{n}", n, link_speed_bps=1e8) for n in (1, 2))
    ports = [PortRow("bond0", members), port("vnet0", 10), port("vnet1", 11)]
    row = bridge(*ports, ids=ours(policy="load-based"))
    found = survey(vif("a1"), attached=row)
    assert [place.capacity_bps for place in found.places] == [1e8, 1e8]


def test_an_address_that_is_not_ovns_is_no_choice() -> None:
    with pytest.raises(Refused) as refused:
        survey(vif("a1"), ovn=Ovn(("192.0.2.1",)))
    # The tunnel from the other address is not OVN's.
    assert str(refused.value).startswith(
        "tunnel endpoints: 192.0.2.1 on vnet0; expected two or more"
    )


def test_a_host_without_vms() -> None:
    with pytest.raises(
        Refused, match="no VM was found on br-int; expected interfaces with iface-id"
    ):
        survey()
