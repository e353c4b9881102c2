"""A replayed host whose engine takes no shortcut: each decision is made from the beginning.

The decisions must be those of an engine that remembers what the last decision came to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controller.load.reused import Reused
from controller.load.team_view import TeamView
from policies import gain
from policies.damping import Damping


def _in_cooldown(damping: Damping, now_s: float) -> frozenset[str]:
    return frozenset(u for u in damping._moves if now_s < damping.until_s(u, now_s))


@contextmanager
def without_shortcuts() -> Iterator[None]:
    """While this is open, no engine reuses units, teams, plans or decisions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TeamView, "shows_same", lambda _self, _other: False)
        patch.setattr(gain, "may_help_now", lambda *_judged: True)
        patch.setattr(Reused, "reuse", lambda _self, _use, _unit, make, parts: make(*parts))
        patch.setattr(Damping, "in_cooldown", _in_cooldown)
        yield
