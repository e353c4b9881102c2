"""Which frames tell switches where their source address now is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.dataplane import announcements
from controller.dataplane.specs import FlowSpec, Output, Pipeline, Resubmit, match
from controller.dataplane.tables import BROADCAST, Register, Table
from controller.dataplane.team import Team
from tests.unit.forwarding import frame, through_table

ASK, SAY, YES = 100, 101, 1
FLOWS = (
    *announcements.flows(Team((), ())),
    FlowSpec(ASK, 1, (), (Resubmit(Table.ANNOUNCEMENT),), SAY),
    FlowSpec(SAY, 1, match(**{Register.ANNOUNCES: 1}), (Output(YES),)),
)
INSTALLED = Pipeline({flow.key: flow for flow in FLOWS}, {})


def announces(**fields: int | str) -> bool:
    return bool(through_table(INSTALLED, ASK, frame(**fields), ()))


ADDRESS = st.integers(0, 2**32 - 1)


@given(ADDRESS, st.integers(0, 31))
def test_arp_announces_if_it_is_about_the_senders_own_address(address: int, bit: int) -> None:
    arp: dict[str, int | str] = {"eth_type": 0x0806, "eth_dst": BROADCAST, "arp_spa": address}
    assert announces(**arp, arp_tpa=address)
    assert not announces(**arp, arp_tpa=address ^ 1 << bit)


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        (True, {"eth_type": 0x8035, "eth_dst": BROADCAST}),
        (False, {"eth_type": 0x8035, "eth_dst": "52:54:00:00:00:01"}),
        (False, {"eth_type": 0x0800, "eth_dst": BROADCAST}),
    ],
)
def test_rarp_to_all_announces_and_other_frames_do_not(
    expected: bool, fields: dict[str, int | str]
) -> None:
    assert announces(**fields) is expected


@pytest.mark.parametrize(("kind", "expected"), [(136, True), (135, False)])
def test_a_neighbor_advertisement_to_a_group_announces(kind: int, expected: bool) -> None:
    to_all: dict[str, int | str] = {
        "eth_type": 0x86DD,
        "ip_proto": 58,
        "eth_dst": "33:33:00:00:00:01",
    }
    assert announces(**to_all, icmpv6_type=kind) is expected
    assert not announces(**{**to_all, "eth_dst": "52:54:00:00:00:01"}, icmpv6_type=kind)
