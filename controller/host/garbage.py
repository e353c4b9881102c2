"""Python's search for garbage: objects that refer to each other, and that nothing else refers to.

Python frees most objects as soon as nothing refers to them. For the rest it searches, now and then,
all objects of the process, while every thread stands still. With 300 bridges of 50 VM ports, such a
search takes about a second, and one came every six seconds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# How often a search may go through all objects again. What garbage a lost connection leaves waits so
# long, if it was in use during a search.
COMPLETE_SEARCH_INTERVAL_S = 3600.0
OLDEST_GENERATION = 2


def search_new_objects() -> None:
    """From now on, search only the objects that are new since the last search.

    All objects are searched once per `COMPLETE_SEARCH_INTERVAL_S`.
    """
    gc.callbacks.append(Searches(time.monotonic()))


@dataclass(slots=True)
class Searches:
    """Excludes objects that survive a search of the oldest generation from later ones. A callback of `gc`.

    `complete_s`: when all objects were searched last, by `clock_s`.
    """

    complete_s: float
    clock_s: Callable[[], float] = time.monotonic

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != OLDEST_GENERATION:
            return
        if phase == "stop":
            gc.freeze()
            return
        now_s = self.clock_s()
        if now_s - self.complete_s >= COMPLETE_SEARCH_INTERVAL_S:
            gc.unfreeze()
            self.complete_s = now_s
