"""Configures Python's garbage collector so that it rarely examines all objects of the process.

Python frees most objects as soon as they are not referenced. To find unused objects that reference
each other, it regularly examines all objects, while all threads are blocked. With 300 bridges with
50 VM ports each, such a collection takes about a second, and it ran every six seconds by default.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# The minimum time between two collections that examine all objects. Objects of a lost connection that
# were in use during an earlier collection are freed only by such a collection.
COMPLETE_SEARCH_INTERVAL_S = 3600.0
OLDEST_GENERATION = 2


def search_new_objects() -> None:
    """Limit each full collection to objects created since the previous full collection.

    All objects are examined once per `COMPLETE_SEARCH_INTERVAL_S`.
    """
    gc.callbacks.append(Searches(time.monotonic()))


@dataclass(slots=True)
class Searches:
    """A `gc` callback that excludes objects from collections after they survive a full one.

    `complete_s`: the last time when all objects were examined, according to `clock_s`.
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
