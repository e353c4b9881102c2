"""Polls: loads are those of whole frames, although tc counts frames without headers; convergence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.events import UNSUPPORTED, PortCounters, Sample, UnitCountersRead
from controller.features.polls import HEADER_BYTES, ConvergenceTimer, with_headers
from controller.load.loads import Loads
from tests.unit.controller.engine.told import offer
from tests.unit.fake_switch import World, world
from tests.unit.rows import host, with_interface

VM_PORT, KEEP_S, SECONDS = 10, 60.0, 12
SIZES = st.integers(60, 9014)


def read(sample: Sample) -> UnitCountersRead:
    return UnitCountersRead("br0", ((VM_PORT, sample),), (((1, 2), sample),), ((3, sample),))


def carried(sizes: list[int], offloaded: float) -> Loads:
    """A VM port that sends one frame of each size a second, and receives as many.

    tc forwards that part of each second's frames.
    """
    loads = Loads()
    by_tc = sizes[: round(len(sizes) * offloaded)]
    for second in range(SECONDS):
        sent, counted = second * sum(sizes), second * (sum(sizes) - HEADER_BYTES * len(by_tc))
        packets = second * len(sizes)
        loads.take_port(PortCounters(VM_PORT, second, sent, sent, 0, 0), False, KEEP_S)
        flows = Sample(second, counted, counted, packets, packets)
        loads.take_units(with_headers(read(flows)), {}, (), KEEP_S)
    return loads


@given(st.lists(SIZES, min_size=1, max_size=20))
def test_loads_are_exact_if_tc_forwards_everything(sizes: list[int]) -> None:
    loads = carried(sizes, 1.0)
    port = loads.port(VM_PORT, 5.0)
    assert port.tx_bps == pytest.approx(8 * sum(sizes))
    assert loads.unit(VM_PORT, 5.0) == port
    assert loads.live_unit(VM_PORT).tx_bps == pytest.approx(port.tx_bps)
    assert loads.at(VM_PORT).share.is_whole


@given(st.lists(SIZES, min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_what_tc_does_not_forward_counts_a_header_too_much_and_never_too_little(
    sizes: list[int], offloaded: float
) -> None:
    loads = carried(sizes, offloaded)
    true_bps, header_bps = 8 * sum(sizes), 8 * HEADER_BYTES * len(sizes)
    for bps in (loads.unit(VM_PORT, 5.0).tx_bps, loads.unit(VM_PORT, 5.0).rx_bps):
        assert true_bps - 1 <= bps <= true_bps + header_bps + 1
    # A present load is measured at the port, so it is exact.
    assert loads.live_unit(VM_PORT).tx_bps == pytest.approx(true_bps)


def test_buckets_and_addresses_are_counted_alike() -> None:
    whole = with_headers(read(Sample(7.0, 1000, 500, 10, 5)))
    expected = Sample(7.0, 1140, 570, 10, 5)
    assert [s for _, s in (*whole.units, *whole.buckets, *whole.address_units)] == [expected] * 3


@pytest.mark.parametrize("counted", [None, UNSUPPORTED])
def test_what_is_not_counted_stays_so(counted: int | None) -> None:
    (_, sample), *_ = with_headers(read(Sample(7.0, counted, 500, 10, UNSUPPORTED))).units
    assert sample[1:3] == (counted, 500)


# ---- decisions -----------------------------------------------------------------------------

SMALL_BYTES = 64


def small_frames(offload: bool) -> World:
    """eth1 is full of two VM ports that send small frames; eth2 has room for neither of them."""
    row = host(binding="eth1", vms=("vnet0", "vnet1", "vnet2"))
    row = with_interface(row, "vnet2", binding="eth2")
    here = world(replace(row, hw_offload=offload), speed_bps=100e6, frame_bytes=SMALL_BYTES)
    return offer(here, (50e6, 40e6, 38e6)).start().run_for(120)


def test_a_vm_port_is_not_moved_to_where_it_only_seems_to_fit() -> None:
    here = small_frames(offload=True)
    assert here.bindings() == {"vnet0": "eth1", "vnet1": "eth1", "vnet2": "eth2"}
    assert here.status.uplinks[0].unrelieved
    # As it would be without the headers.
    assert small_frames(offload=False).bindings()["vnet1"] == "eth2"


def test_loads_begin_anew_when_offload_is_asked_for() -> None:
    here = small_frames(offload=False)
    here.write(replace(here.rows["br0"], hw_offload=True))
    assert here.bridge.loads.at(10).flows.known_s() == 0.0
    here.run_for(20)
    assert here.bridge.loads.unit(10, 10.0).tx_bps == pytest.approx(50e6, rel=1e-4)


# ---- convergence: it ends with the last move before policies have nothing more to move ----------


def test_from_the_first_move_to_the_last_confirmation_each_time_anew() -> None:
    timer = ConvergenceTimer()
    for first_s in (10.0, 99.0):
        for moved_s in (first_s, first_s + 2.0):
            timer.start(moved_s)
            timer.confirm_moves(moved_s + 0.25)
        assert timer.stop() == 2.25
        assert timer.stop() is None, "at rest since"


def test_moves_of_operators_and_refused_ones_are_none() -> None:
    timer = ConvergenceTimer()
    timer.confirm_moves(3.0)
    assert timer.stop() is None
    timer.start(4.0)
    assert timer.stop() is None, "the switch has confirmed nothing"
