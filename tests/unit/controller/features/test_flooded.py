"""The rate at which frames reach every VM port of a VLAN, or come by all members of a LAG."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.api.events import UNSUPPORTED, PortCounters
from controller.config.reader import read_bridge
from controller.config.values import VmPortConfig
from controller.features.flooded import LOOPS_PPS, Flooded, Repeated
from tests.unit.rows import bridge, port, two_uplinks

ROW = bridge(*two_uplinks(), *(port(f"vnet{i}", 10 + i, tag=i // 3 + 1) for i in range(6)))
PORTS = read_bridge(ROW).vm_ports


def polled(rates_pps: list[float], polls: int = 4, ports: Sequence[VmPortConfig] = PORTS) -> float:
    found = Flooded()
    for second in range(polls):
        counters = [
            PortCounters(10 + i, second, 0, 0, 0, 0, int(second * rate), second * (i % 3))
            for i, rate in enumerate(rates_pps)
        ]
        found.take_counters(counters, ports)
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


@pytest.mark.parametrize(("of_patch_pps", "expected"), [(0, 5000), (2500, 5000), (90000, 5000)])
def test_a_patch_port_that_is_counted_late_hides_no_loop(
    of_patch_pps: float, expected: float
) -> None:
    others = (port(f"vnet{i}", 11 + i) for i in range(2))
    row = bridge(*two_uplinks(), port("to-ex", 10, kind="patch", peer="to-int"), *others)
    assert polled([of_patch_pps, 5000, 5000], ports=read_bridge(row).vm_ports) == expected


Reading = dict[int, int]
READINGS: dict[str, tuple[Sequence[Reading], float]] = {
    "the same": ([{1: 7, 2: 900}, {1: 207, 2: 1100}], 20.0),
    "one less": ([{1: 7, 2: 900}, {1: 207, 2: 1099}], 19.9),
    "more by one": ([{1: 7, 2: 900}, {1: 207, 2: 1090}], 0.0),
    "few at a time": ([{1: 7, 2: 900}, {1: 67, 2: 960}, {1: 127, 2: 1020}], 6.0),
    "too few": ([{1: 7, 2: 900}, {1: 67, 2: 960}], 0.0),
    "no more": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 500, 2: 200}], 0.0),
    "too few since": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 201, 2: 202}], 20.0),
    "counted anew": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {1: 5, 2: 5}], 0.0),
    "no lag": ([{1: 0, 2: 0}, {1: 200, 2: 200}, {}], 0.0),
    "one member": ([{1: 0}, {1: 200}], 0.0),
}


@pytest.mark.parametrize(("readings", "expected"), READINGS.values(), ids=list(READINGS))
def test_repeated_is_what_all_members_of_a_lag_bring_alike(
    readings: Sequence[Reading], expected: float
) -> None:
    found = Repeated()
    for number, reading in enumerate(readings):
        found.take_flooded(reading, 10.0 * number)
    assert found.pps == expected
