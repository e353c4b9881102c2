"""The loads of ports and units, from the counters of each poll."""

from __future__ import annotations

from controller.api.events import PortCounters, Sample, UnitCountersRead
from controller.load.loads import Loads
from controller.teaming.buckets import HASHED, name_of
from policies.model import IDLE, Load

KEEP_S = 30.0
BUCKET = name_of(HASHED[0], 3)


def bucket_read(clock_s: float, tx_bytes: float) -> UnitCountersRead:
    return UnitCountersRead("br0", (), (((0, 3), Sample(clock_s, tx_bytes, 0)),))


def test_a_bucket_that_counts_again_after_all_were_forgotten_has_no_load_of_before() -> None:
    loads = Loads()
    for clock_s, tx_bytes in ((0.0, 0.0), (1.0, 1e6)):
        loads.take_units(bucket_read(clock_s, tx_bytes), {}, KEEP_S)
    assert loads.of_buckets([BUCKET], None)[0] == Load(8e6)
    loads.forget_buckets()
    assert loads.of_buckets([BUCKET], None)[0] == IDLE
    loads.take_units(bucket_read(100.0, 5e6), {}, KEEP_S)
    assert loads.of_buckets([BUCKET], None)[0] == IDLE, "one reading is no rate"
    loads.take_units(bucket_read(101.0, 6e6), {}, KEEP_S)
    assert loads.of_buckets([BUCKET], None)[0] == Load(8e6)


def test_buckets_repeat_until_one_is_read_that_may_not() -> None:
    loads = Loads()
    for tenths in range(20):
        loads.take_units(bucket_read(tenths / 10, 0.0), {}, KEEP_S)
    assert loads.buckets_repeat(), "one that has stood still carries nothing"
    loads.take_units(bucket_read(2.0, 1e6), {}, KEEP_S)
    assert not loads.buckets_repeat(), "it may have been counted late"
    loads.forget_buckets()
    assert loads.buckets_repeat()


def test_loads_that_repeat_do_not_rise_again() -> None:
    loads = Loads()
    for clock_s, tx_bytes in ((0.0, 0.0), (1.0, 1e6), (2.0, 3e6)):
        loads.take_port(PortCounters(1, clock_s, tx_bytes, 0.0, 0, 0), True, KEEP_S)
    assert loads.rise([1]).tx_bps > 7.9e6
    loads.repeat()
    assert loads.rise([1]) == IDLE
    loads.take_port(PortCounters(1, 3.0, 6e6, 0.0, 0, 0), True, KEEP_S)
    assert loads.rise([1]).tx_bps > 7.9e6
