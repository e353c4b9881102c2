"""How soon a bridge that cannot be reached is dialled again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controller.openflow.connections import (
    QUICK_RETRIES,
    RETRIES_PER_S,
    RETRY_REMOTE_S,
    SLOW_RETRY_S,
    brief_pause_s,
    retry_pause_s,
)

# A restart of Open vSwitch takes less, also on a busy machine.
RESTART_S = 4.0


def test_a_bridge_of_this_host_is_dialled_every_hundredth_of_a_second_while_the_switch_restarts() -> (
    None
):
    pauses_s = [retry_pause_s(failures) for failures in range(QUICK_RETRIES)]
    assert set(pauses_s) == {0.01}
    assert sum(pauses_s) >= RESTART_S
    assert retry_pause_s(QUICK_RETRIES) == SLOW_RETRY_S


@given(failures=st.integers(0, 10**6), bridges=st.integers(1, 1000))
def test_many_bridges_are_dialled_no_more_often_together(failures: int, bridges: int) -> None:
    pause_s = retry_pause_s(failures, bridges)
    assert bridges / pause_s <= RETRIES_PER_S * (1 + 1e-9) or pause_s == SLOW_RETRY_S
    assert retry_pause_s(failures) <= pause_s <= SLOW_RETRY_S


def test_a_bridge_elsewhere_is_dialled_less_and_less_often() -> None:
    pauses_s = [retry_pause_s(failures, None) for failures in range(10)]
    assert tuple(pauses_s[: len(RETRY_REMOTE_S)]) == RETRY_REMOTE_S
    assert all(earlier_s <= later_s for earlier_s, later_s in pairwise(pauses_s))


def test_a_switch_that_hangs_up_again_and_again_is_dialled_less_and_less_often() -> None:
    """But at once after the first time: it may be restarting."""
    pauses_s = [brief_pause_s(brief) for brief in range(10)]
    assert pauses_s[:2] == [0.0, 0.0]
    assert tuple(pauses_s[2 : 2 + len(RETRY_REMOTE_S)]) == RETRY_REMOTE_S
    assert set(pauses_s[2 + len(RETRY_REMOTE_S) :]) == {RETRY_REMOTE_S[-1]}
