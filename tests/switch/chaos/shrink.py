"""The fewest events that still fail, by leaving out as many as can be: delta debugging."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest(failing: Sequence[T], fails: Callable[[list[T]], bool], tries: int) -> list[T]:
    """A shorter sequence that `fails` as well, after at most so many tries.

    The last one is what failed, and stays. Parts are left out, large ones first.
    """
    kept, last = list(failing[:-1]), list(failing[-1:])
    part = max(1, len(kept) // 2)
    while kept and tries > 0:
        shorter = None
        for start in range(0, len(kept), part):
            if tries == 0:
                break
            tries -= 1
            candidate = kept[:start] + kept[start + part :]
            if fails(candidate + last):
                shorter = candidate
                break
        if shorter is not None:
            kept = shorter
            part = max(1, min(part, len(kept) // 2))
        elif part == 1:
            break
        else:
            part = max(1, part // 2)
    return kept + last
