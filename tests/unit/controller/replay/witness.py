"""A replayed host that notes what is decided, and an engine that decides it from the beginning.

Decisions are compared one by one: they must not depend on what is remembered of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from controller.api.engine_commands import Apply, Command, ReadStats, Record
from controller.api.history import Happened
from controller.load.reused import Reused
from controller.replay.host import Host, Options
from controller.replay.trace import HostTrace
from policies import gain


class Witness(Host):
    """`decided`: when, which moves for which reasons, and the changes of the switch. `polls`: how many."""

    def __init__(self, trace: HostTrace, policy: str, options: Options) -> None:
        super().__init__(trace, policy, options)
        self.polls = 0
        self.decided: list[tuple[float, Any]] = []

    def _carry_out(self, command: Command) -> None:
        at_s = round(self.now_s, 6)
        match command:
            case ReadStats():
                self.polls += 1
            case Apply(changes=changes):
                self.decided.append((at_s, changes))
            case Record(entry=entry) if entry.happened is Happened.MOVED:
                # What uplinks carried is told as a mean over seconds of which the switch counted a part.
                self.decided.append((at_s, entry.moves))
        super()._carry_out(command)


@contextmanager
def without_shortcuts() -> Iterator[None]:
    """While this is open, no engine reuses units or plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gain, "may_help_now", lambda *_judged: True)
        patch.setattr(Reused, "reuse", lambda _self, _use, _unit, make, parts: make(*parts))
        yield
