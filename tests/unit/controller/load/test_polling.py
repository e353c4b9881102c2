"""When counters are read: on time, whatever else there is to do."""

from __future__ import annotations

import pytest

from controller.load.polling import Polling
from controller.replay.skipping import round_polls


def polled(polling: Polling, now_s: float, interval_s: float = 1.0) -> float:
    """When the next poll is due, after one at this time that was answered."""
    assert polling.poll("br0", interval_s, False, False, now_s) is not None
    polling.forget_poll()
    return polling.due_s


def test_a_poll_that_is_late_does_not_make_the_next_one_late() -> None:
    polling = Polling()
    polling.begin_polling(10.0)
    assert polled(polling, 10.0) == 11.0
    assert polled(polling, 11.3) == 12.0
    assert polled(polling, 12.999) == 13.0


def test_bridges_that_were_late_together_do_not_stay_together() -> None:
    first, second = Polling(), Polling()
    first.begin_polling(10.0)
    second.begin_polling(10.2)
    assert (polled(first, 10.5), polled(second, 10.5)) == (11.0, 11.2)


@pytest.mark.parametrize(("now_s", "next_s"), [(12.0, 13.0), (14.7, 15.0), (99.5, 100.5)])
def test_what_was_missed_is_not_made_up_for(now_s: float, next_s: float) -> None:
    polling = Polling()
    polling.begin_polling(10.0)
    polled(polling, 10.0)
    assert polled(polling, now_s) == next_s


def test_what_is_read_once_a_second_is_read_so_though_polls_are_not_quite_on_time() -> None:
    polling, read = Polling(), []
    polling.begin_polling(10.0)
    for number in range(31):
        late_s = 0.004 if number % 10 == 0 else 0.0
        poll = polling.poll("br0", 0.1, True, False, polling.due_s + late_s)
        assert poll is not None
        polling.forget_poll()
        read += [number] * poll.buckets
    assert read == [0, 10, 20, 30]


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("interval_ms", [100, 130, 200, 250, 300, 500, 700, 1000, 1300, 2500])
def test_all_is_read_with_every_so_many_polls(interval_ms: int, hashed: bool) -> None:
    interval_s = interval_ms / 1000
    polling, read = Polling(), []
    polling.begin_polling(60.0)
    for number in range(60):
        poll = polling.poll("br0", interval_s, hashed, False, polling.due_s)
        assert poll is not None
        polling.forget_poll()
        read += [number] * (poll.buckets if hashed else poll.units)
    every = round_polls(interval_s, hashed)
    assert read == list(range(0, 60, every))


@pytest.mark.parametrize("missed", range(1, 60))
def test_polls_are_due_at_the_same_moments_whether_some_were_missed_or_not(missed: int) -> None:
    each, some = Polling(), Polling()
    for polling in (each, some):
        polling.begin_polling(60.0)
        polled(polling, 60.0, 0.1)
    for _ in range(missed):
        polled(each, each.due_s, 0.1)
    now_s = each.due_s
    assert polled(each, now_s, 0.1) == polled(some, now_s, 0.1)
