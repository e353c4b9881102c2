"""Searches for garbage that go through new objects only."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from controller.host import garbage
from controller.host.garbage import COMPLETE_SEARCH_INTERVAL_S, Searches

BEGUN_S = 100.0


class Node:
    """Refers to itself, so that only a search frees it."""

    def __init__(self) -> None:
        self.itself = self


class Clock:
    now_s = BEGUN_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Searches of this process follow this clock meanwhile."""
    clock = Clock()
    searches = Searches(BEGUN_S, clock)
    gc.callbacks.append(searches)
    yield clock
    gc.callbacks.remove(searches)
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_a_search_leaves_out_what_earlier_ones_went_through() -> None:
    kept = [[number] for number in range(1000)]
    gc.collect()
    new = Node()
    searched = {id(one) for one in gc.get_objects()}
    assert id(new) in searched
    assert not searched & {id(one) for one in kept}


@pytest.mark.usefixtures("clock")
def test_a_search_frees_new_garbage() -> None:
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_a_search_of_young_objects_leaves_out_nothing() -> None:
    gc.collect()
    before = gc.get_freeze_count()
    kept = [Node()]
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    assert any(one is kept[0] for one in gc.get_objects())


@pytest.mark.slow
def test_old_garbage_is_freed_once_an_hour(clock: Clock) -> None:
    old = Node()
    gone = weakref.ref(old)
    gc.collect()
    del old
    clock.now_s = BEGUN_S + COMPLETE_SEARCH_INTERVAL_S - 1.0
    gc.collect()
    assert gone() is not None
    clock.now_s += 1.0
    gc.collect()
    assert gone() is None

    later = Node()
    gone = weakref.ref(later)
    gc.collect()
    del later
    gc.collect()
    assert gone() is not None
    clock.now_s += COMPLETE_SEARCH_INTERVAL_S
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_the_service_searches_new_objects_once_it_asks_for_that() -> None:
    before = list(gc.callbacks)
    garbage.search_new_objects()
    (added,) = [one for one in gc.callbacks if one not in before]
    try:
        gc.collect()
        assert gc.get_freeze_count() > 0
    finally:
        gc.callbacks.remove(added)
        gc.unfreeze()
