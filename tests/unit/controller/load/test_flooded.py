"""The rate at which frames reach every VM port of a VLAN."""

from __future__ import annotations

import pytest

from controller.api.events import UNSUPPORTED, PortCounters
from controller.config.reader import read_bridge
from controller.load.flooded import LOOPS_PPS, Flooded
from tests.unit.rows import bridge, port, two_uplinks

ROW = bridge(*two_uplinks(), *(port(f"vnet{i}", 10 + i, tag=i // 3 + 1) for i in range(6)))
PORTS = read_bridge(ROW).vm_ports


def polled(rates_pps: list[float], polls: int = 4) -> float:
    found = Flooded()
    for second in range(polls):
        counters = [
            PortCounters(10 + i, second, 0, 0, 0, 0, int(second * rate), second * (i % 3))
            for i, rate in enumerate(rates_pps)
        ]
        found.take_counters(counters, PORTS)
    return found.pps


@pytest.mark.parametrize(
    ("rates_pps", "expected"),
    [
        ([5000, 5100, 90000, 0, 0, 0], 5000),
        ([5000, 9000, 90000, 0, 0, 0], 0),
        ([5000, 5000, 0, 0, 0, 0], 5000),
        ([5000, 0, 5000, 5000, 0, 5000], 0),
        ([20, 20, 20, 4000, 4000, 4000], 4000),
    ],
)
def test_it_is_what_all_ports_of_one_vlan_receive_alike(
    rates_pps: list[float], expected: float
) -> None:
    assert polled(rates_pps) == expected
    assert LOOPS_PPS < 4000


def test_one_busy_poll_proves_nothing() -> None:
    assert polled([5000] * 6, polls=3) == 0
    found = Flooded()
    found.take_counters([PortCounters(10, 0, 0, 0, 0, 0, UNSUPPORTED)], PORTS)
    assert found.pps == 0
