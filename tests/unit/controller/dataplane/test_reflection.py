"""What was learned on a VM port holds while the port is there; frames of ours that come back.

And which frames tell switches where their source address now is.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import reflection
from controller.dataplane.pipeline import build
from controller.dataplane.specs import Fields, FlowSpec, Output, Pipeline, Resubmit, SetField, flow
from controller.dataplane.tables import BROADCAST, Register, Table
from controller.dataplane.team import Team, VmPort
from policies.model import OFPORT_LOCAL, OfPort
from tests.unit.controller.dataplane.teams import UPLINKS
from tests.unit.simulator import Simulator, frame, through_table

GONE, NEIGHBOUR = OfPort(10), OfPort(11)
GONE_MAC, NEIGHBOUR_MAC, OTHER_MAC = "52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:99"
RARP, OTHER = 0x8035, 0x88B5


def installed(locked: bool = False) -> Pipeline:
    """Two VM ports, and what the switch has learned on the one."""
    built = build(Team(UPLINKS, (VmPort(GONE, UPLINKS), VmPort(NEIGHBOUR, UPLINKS))))
    local = SetField(Register.LOCAL, 1), SetField(Register.BEHIND, GONE)
    from_gone = {"eth_src": GONE_MAC}
    learned = [
        flow(Table.LOCAL_SOURCE, 10, from_gone, *local),
        flow(Table.LOCATION, 10, {"eth_dst": GONE_MAC}, SetField(Register.TARGET, GONE)),
        flow(Table.LOCK, 10, from_gone, SetField(Register.LOCKED, int(locked))),
    ]
    return Pipeline({**built.flows, **{one.key: one for one in learned}}, built.groups)


@pytest.mark.parametrize("there", [True, False])
def test_a_neighbour_sends_to_the_port_or_else_to_the_network(there: bool) -> None:
    alive = {*UPLINKS, NEIGHBOUR, *([GONE] if there else [])}
    known = {Register.VM_PORT: int(NEIGHBOUR), Register.LEARNED: 1}
    sent = frame(in_port=int(NEIGHBOUR), eth_src=NEIGHBOUR_MAC, eth_dst=GONE_MAC, **known)
    copies = through_table(installed(), Table.DESTINATION, sent, alive)
    # Flooded as NORMAL floods it: another port may have the address now.
    # The sender is among the local VM ports, and a real switch leaves it out.
    expected = [GONE] if there else [GONE, NEIGHBOUR, UPLINKS[0]]
    assert [c.port for c in copies] == expected


def test_no_bucket_watches_local() -> None:
    """ovs-ofctl, with which Open vSwitch's scripts restore groups, cannot read such a bucket."""
    built = build(Team(UPLINKS, (VmPort(GONE, UPLINKS), VmPort(OfPort(OFPORT_LOCAL), UPLINKS))))
    watched = {bucket.watch_port for group in built.groups.values() for bucket in group.buckets}
    assert GONE in watched and OFPORT_LOCAL not in watched


def test_without_a_live_uplink_it_goes_nowhere() -> None:
    sent = frame(eth_src=NEIGHBOUR_MAC, eth_dst=GONE_MAC, **{Register.VM_PORT: int(NEIGHBOUR)})
    assert not through_table(installed(), Table.DESTINATION, sent, {NEIGHBOUR})


@pytest.mark.parametrize(
    ("source", "destination", "eth_type", "locked", "delivered"),
    [
        (OTHER_MAC, BROADCAST, OTHER, False, True),
        (GONE_MAC, BROADCAST, OTHER, False, True),
        (GONE_MAC, BROADCAST, OTHER, True, True),
        # The address has moved away, and says so.
        (GONE_MAC, BROADCAST, RARP, False, True),
        # It announced itself a moment before it left. This may still come back.
        (GONE_MAC, BROADCAST, RARP, True, False),
        (GONE_MAC, OTHER_MAC, OTHER, False, True),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_a_frame_of_ours_that_comes_back_is_dropped_unless_its_address_or_its_port_has_left(
    there: bool, source: str, destination: str, eth_type: int, locked: bool, delivered: bool
) -> None:
    alive = {*UPLINKS, NEIGHBOUR, *([GONE] if there else [])}
    came_in = {Register.UPLINK: int(UPLINKS[0])}
    sent = frame(eth_src=source, eth_dst=destination, eth_type=eth_type, **came_in)
    copies = through_table(installed(locked), Table.FROM_UPLINK, sent, alive)
    reflected = there and (source, eth_type) == (GONE_MAC, OTHER)
    assert (NEIGHBOUR in {copy.port for copy in copies}) == (delivered and not reflected)
    # Nobody is at the port that is gone, and a frame for it is dropped.
    assert {copy.port for copy in copies} <= {GONE, NEIGHBOUR}


ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
ASKS: dict[str, int | str] = {
    "eth_type": ARP,
    "eth_dst": BROADCAST,
    "arp_spa": 0xC0000201,
    "arp_tpa": 0xC0000263,
}
VRRP = {"eth_type": IPV4, "eth_dst": "01:00:5e:00:00:12", "ipv4_src": 0xC0000201}
SOLICITS = {"eth_type": IPV6, "eth_dst": "33:33:ff:00:00:63", "ipv6_src": "fe80::1"}


@pytest.mark.parametrize(
    ("flooded", "parts", "change"),
    [
        (ASKS, 0x026301FF, {"arp_tpa": 0xC0000264}),
        (ASKS, 0x026301FF, {"arp_spa": 0xC0000202}),
        (VRRP, 0x02010012, {"ipv4_src": 0xC0000202}),
        (SOLICITS, 0x00010063, {"eth_dst": "33:33:ff:00:00:64"}),
        (SOLICITS, 0x00010063, {"ipv6_src": "fe80::2"}),
        ({"eth_type": OTHER, "eth_dst": BROADCAST}, 0xFF, {"eth_dst": OTHER_MAC}),
    ],
)
def test_on_a_lag_a_frame_comes_back_only_if_a_similar_one_was_flooded(
    flooded: dict[str, int | str], parts: int, change: dict[str, int | str]
) -> None:
    """Routers on two hosts may share an address."""
    here, there = VmPort(GONE, UPLINKS), VmPort(NEIGHBOUR, UPLINKS)
    built = build(Team(UPLINKS, (here, there), hears_everywhere=True))
    local = SetField(Register.LOCAL, 1), SetField(Register.BEHIND, GONE)
    locked: Fields = {"eth_src": GONE_MAC, Register.NIBBLES: parts}
    learned = (
        flow(Table.LOCAL_SOURCE, 10, {"eth_src": GONE_MAC}, *local),
        flow(Table.LOCK, 10, locked, SetField(Register.LOCKED, 1)),
    )
    installed = Pipeline({**built.flows, **{one.key: one for one in learned}}, built.groups)

    def delivered(fields: dict[str, int | str]) -> bool:
        sent = frame(eth_src=GONE_MAC, **fields, **{Register.UPLINK: int(UPLINKS[0])})
        copies = through_table(installed, Table.FROM_UPLINK, sent, {*UPLINKS, GONE, NEIGHBOUR})
        return NEIGHBOUR in {copy.port for copy in copies}

    assert not delivered(flooded) and delivered(flooded | change)


def test_on_a_lag_frames_that_come_back_are_dropped_unicast_after_a_broadcast_as_well() -> None:
    built = build(Team(UPLINKS, (VmPort(GONE, UPLINKS), VmPort(NEIGHBOUR, UPLINKS)), True))
    switch = Simulator(built, {*UPLINKS, GONE, NEIGHBOUR})
    asks = frame(eth_src=GONE_MAC, **ASKS)
    switch.receive(UPLINKS[0], frame(eth_src=OTHER_MAC, eth_dst=BROADCAST))
    for sent in (asks, frame(eth_src=GONE_MAC, eth_dst=OTHER_MAC), asks):
        assert switch.receive(GONE, sent)
        assert not switch.receive(UPLINKS[1], sent), "it comes back"
    other = frame(eth_src=GONE_MAC, **{**ASKS, "arp_tpa": 0xC0000264})
    assert [copy.port for copy in switch.receive(UPLINKS[1], other)] == [GONE, NEIGHBOUR]


ASK, SAY, YES = 100, 101, 1
FLOWS = (
    *reflection.flows(Team((), ())),
    FlowSpec(ASK, 1, (), (Resubmit(Table.ANNOUNCEMENT),), SAY),
    flow(SAY, 1, {Register.ANNOUNCES: 1}, Output(YES)),
)
INSTALLED = Pipeline({one.key: one for one in FLOWS}, {})


def announces(**fields: int | str) -> bool:
    return bool(through_table(INSTALLED, ASK, frame(**fields), ()))


ADDRESS = st.integers(0, 2**32 - 1)


@given(ADDRESS, st.integers(0, 31))
def test_arp_announces_if_it_is_about_the_senders_own_address(address: int, bit: int) -> None:
    arp: dict[str, int | str] = {"eth_type": 0x0806, "eth_dst": BROADCAST, "arp_spa": address}
    assert announces(**arp, arp_tpa=address)
    assert not announces(**arp, arp_tpa=address ^ 1 << bit)


ONE, GROUP = "52:54:00:00:00:01", "33:33:00:00:00:01"


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        (True, {"eth_type": 0x8035, "eth_dst": BROADCAST}),
        (False, {"eth_type": 0x8035, "eth_dst": ONE}),
        (False, {"eth_type": 0x0800, "eth_dst": BROADCAST}),
        *(
            (
                (kind, to) == (136, GROUP),
                {"eth_type": 0x86DD, "ip_proto": 58, "eth_dst": to, "icmpv6_type": kind},
            )
            for kind in (135, 136)
            for to in (GROUP, ONE)
        ),
    ],
)
def test_rarp_and_neighbour_advertisements_to_all_announce_and_other_frames_do_not(
    expected: bool, fields: dict[str, int | str]
) -> None:
    assert announces(**fields) is expected
