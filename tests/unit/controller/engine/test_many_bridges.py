"""Many bridges: a change of one record costs next to nothing for all the others."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

from controller.api.events import DatabaseRead
from controller.config.rows import BridgeRow, InterfaceRow
from controller.engine import Engine
from tests.unit.rows import bridge, ours, port, two_uplinks, with_interface

PORTS = 100


def a_bridge(number: int) -> BridgeRow:
    """A bridge with `PORTS` patch ports, as a host of many networks has them."""
    name = f"br{number}"

    def patch(one: InterfaceRow) -> InterfaceRow:
        return replace(one, kind="patch", peer=f"{one.name}-peer")

    ports = (port(f"{name}-vm{n}", 10 + n).with_interfaces(patch) for n in range(PORTS))
    ids = ours(policy="load-based", uplinks="eth1,eth2")
    return replace(bridge(*two_uplinks(), *ports, ids=ids), name=name)


def calls_of_a_change(bridges: int) -> int:
    """How many functions run when a binding of one bridge is written."""
    rows = [a_bridge(number) for number in range(bridges)]
    engine = Engine()
    engine.handle(DatabaseRead(tuple(rows)), 0.0)
    rows[0] = with_interface(rows[0], "br0-vm0", binding="eth1")
    calls = 0

    def count(_frame: FrameType, what: str, _argument: Any) -> None:
        nonlocal calls
        calls += what == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        engine.handle(DatabaseRead(tuple(rows)), 1.0)
    finally:
        sys.setprofile(before)
    return calls


def test_a_change_of_one_bridge_costs_the_others_less_than_a_look_at_their_ports() -> None:
    few, many = calls_of_a_change(3), calls_of_a_change(13)
    assert (many - few) / 10 < PORTS
