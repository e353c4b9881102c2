"""The load of flows: its plan for the programs, and its figures from what they report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from topologies import layouts
from topologies.graph.layout import Layout, Role
from topologies.loads.flow_load import FlowLoad
from topologies.loads.flow_plan import PLACES, WEB_SEARCH, client_ports
from topologies.loads.load import Stage
from topologies.network.private_ovs import PrivateOvs


def _load(directory: Path, layout: Layout, repetition: int = 1) -> FlowLoad:
    names = (*layout.nodes(Role.VM), *layout.nodes(Role.CLIENT))
    pids = {name: number for number, name in enumerate(names, start=100)}
    nothing_is_up = cast(PrivateOvs, None)
    stage = Stage(layout, "lbt-", pids, {}, nothing_is_up, directory, repetition=repetition)
    return FlowLoad(stage, WEB_SEARCH.scaled(0.1), 70e6, warm_up_s=2.0, watched_s=8.0, drain_s=3.0)


def test_flows_are_the_same_for_every_contender_and_others_in_every_run(tmp_path: Path) -> None:
    first, second = (_load(tmp_path, layouts.flows(), repetition=number).flows for number in (1, 2))
    assert _load(tmp_path, layouts.flows(uplinks=3)).flows == first
    assert {one.start_s for one in first}.isdisjoint(one.start_s for one in second)
    assert sorted(one.size_bytes for one in first) == sorted(one.size_bytes for one in second)
    by_vm = [Counter(one.vm for one in planned).most_common() for planned in (first, second)]
    assert by_vm[0][0][0] != by_vm[1][0][0], "another VM is the busiest"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, PLACES - 1)), max_size=200))
def test_port_tells_the_place_and_is_not_used_twice(drawn: list[tuple[int, int]]) -> None:
    clients, places = [client for client, _ in drawn], [place for _, place in drawn]
    found = client_ports(clients, places)
    assert [port % PLACES for port in found] == places
    assert len(set(zip(clients, found, strict=True))) == len(found)
