"""The loads of ports and units, from the counters of each poll."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.events import Sample, UnitCountersRead
from controller.load.loads import Loads, OwnLoad
from controller.load.rates import Rates, Total
from controller.teaming.buckets import HASHED, name_of
from policies.model import IDLE, Load

KEEP_S = 60.0
MBIT_BYTES = 125_000
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


# ---- what a VM port with address units sends itself: a difference of flows that one poll reads ----


def taken(readings: Sequence[tuple[float, float]]) -> Rates:
    """A reading per second of (all that the port has sent, all that its addresses have sent), in bytes."""
    own, before = OwnLoad(), 0.0
    for number, (flows_bytes, apart_bytes) in enumerate(readings):
        own.take_flows(Total(100.0 + number, flows_bytes, 0.0), apart_bytes - before, KEEP_S)
        before = apart_bytes
    return own.rates


# What is read, in Mbit.
OWN: dict[str, tuple[list[tuple[float, float]], float]] = {
    "besides its addresses": ([(3 * n, 2 * n) for n in range(6)], 1e6),
    # With the third reading, the port is half a second ahead of its addresses.
    "counted while it is read": ([(n + 0.5 * (n == 3), n) for n in range(8)], 0.0),
    "a new flow of the port": ([*((n, 0) for n in range(5, 10)), (0, 0)], 0.0),
}


@pytest.mark.parametrize(("readings", "own_bps"), OWN.values(), ids=list(OWN))
def test_what_a_port_sends_besides_its_addresses_is_its_own(
    readings: list[tuple[float, float]], own_bps: float
) -> None:
    rates = taken([(flows * MBIT_BYTES, apart * MBIT_BYTES) for flows, apart in readings])
    assert rates.latest().tx_bps == (rates.mean(4.0) or IDLE).tx_bps == own_bps


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.booleans()),
        min_size=3,
        max_size=30,
    )
)
def test_what_addresses_send_is_never_taken_for_its_own(
    steps: list[tuple[int, int, bool]],
) -> None:
    """A reading has what addresses send next, or it has not; two in a row never have.

    What is counted is never more than the port has sent itself.
    """
    owned = apart = 0
    readings, was_ahead = [], False
    for (own, other, is_ahead), (_, after, _) in pairwise([*steps, (0, 0, False)]):
        owned, apart = owned + own, apart + other
        was_ahead = is_ahead and not was_ahead
        readings.append((owned + apart + (after if was_ahead else 0), apart))
    counted = taken(readings).total
    assert counted is not None
    assert 0 <= counted.tx_bytes <= owned
