"""What a VM port with address units sends itself: the difference of flows that one poll reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controller.load.loads import OwnLoad
from controller.load.rates import Total
from policies.model import IDLE

KEEP_S = 60.0
MBIT_BYTES = 125_000


def taken(readings: Sequence[tuple[float, float]], every_s: float = 1.0) -> OwnLoad:
    """Readings of (all that the port has sent, all that its addresses have sent), in bytes."""
    own, before = OwnLoad(), 0.0
    for number, (flows_bytes, apart_bytes) in enumerate(readings):
        own.take_flows(
            Total(100.0 + number * every_s, flows_bytes, 0.0), apart_bytes - before, KEEP_S
        )
        before = apart_bytes
    return own


def test_what_it_sends_besides_its_addresses_is_its_own() -> None:
    own = taken([(3 * n * MBIT_BYTES, 2 * n * MBIT_BYTES) for n in range(6)])
    assert own.rates.latest().tx_bps == 1e6
    assert (own.rates.mean(3.0) or IDLE).tx_bps == 1e6


def test_counters_that_are_updated_while_they_are_read_are_no_load() -> None:
    """With the third reading, the port is half a second ahead of its addresses."""
    ahead = {3: MBIT_BYTES / 2}
    own = taken([(n * MBIT_BYTES + ahead.get(n, 0.0), n * MBIT_BYTES) for n in range(8)])
    assert own.rates.latest().tx_bps == 0.0
    assert (own.rates.mean(4.0) or IDLE).tx_bps == 0.0


def test_a_new_flow_of_the_port_begins_anew() -> None:
    own = taken([(5 * MBIT_BYTES, 0), (6 * MBIT_BYTES, 0), (7 * MBIT_BYTES, 0), (0, 0)])
    assert own.rates.latest().tx_bps == 0.0
    assert (own.rates.mean(2.0) or IDLE).tx_bps == 0.0


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
    counted = taken(readings).rates.total
    assert counted is not None
    assert 0 <= counted.tx_bytes <= owned
