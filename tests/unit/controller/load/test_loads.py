"""The loads of ports and units, from the counters of each poll."""

from __future__ import annotations

from controller.api.events import Sample, UnitCountersRead
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
        loads.take_units(bucket_read(clock_s, tx_bytes), {}, (), KEEP_S)
    assert loads.of_buckets([BUCKET], None)[0] == Load(8e6)
    loads.bucket_rates.clear()
    assert loads.of_buckets([BUCKET], None)[0] == IDLE
    loads.take_units(bucket_read(100.0, 5e6), {}, (), KEEP_S)
    assert loads.of_buckets([BUCKET], None)[0] == IDLE, "one reading is no rate"
    loads.take_units(bucket_read(101.0, 6e6), {}, (), KEEP_S)
    assert loads.of_buckets([BUCKET], None)[0] == Load(8e6)
