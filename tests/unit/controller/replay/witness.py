"""A replayed host that notes what is decided, to compare replays decision by decision."""

from __future__ import annotations

from typing import Any

from controller.api.engine_commands import Apply, Command, ReadStats, Record
from controller.api.history import Happened
from controller.replay.host import Host, Options
from controller.replay.trace import HostTrace


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
