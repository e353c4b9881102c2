"""Ports of flows: the place of each is in its port, and none is used again soon."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topologies.loads.flow_ports import FIRST_CLIENT_PORT, PLACES, client_ports

flows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, PLACES - 1)), max_size=200)


@given(flows)
def test_port_tells_the_place_and_is_not_used_twice(drawn: list[tuple[int, int]]) -> None:
    clients, places = [client for client, _ in drawn], [place for _, place in drawn]
    found = client_ports(clients, places)
    assert [port % PLACES for port in found] == places
    assert len(set(zip(clients, found, strict=True))) == len(found)


def test_ports_begin_again_when_all_were_used() -> None:
    found = client_ports([0] * 12_501, [2] * 12_501)
    assert found[0] == FIRST_CLIENT_PORT + 2 == found[-1]
    assert len(set(found)) == 12_500
    assert max(found) < 60_000
