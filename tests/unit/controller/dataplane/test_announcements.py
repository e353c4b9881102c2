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
