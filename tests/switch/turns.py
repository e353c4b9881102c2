"""The uplinks that groups prefer, one after another: what has moved, and what has gone back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.switch.bed import Bed


@dataclass(slots=True)
class Turns:
    """The first uplink of each group, in turn; "" while the group is not there.

    There is a group for what each VM port sends, and for each bucket of a hash.
    """

    uplinks: dict[str, list[str]] = field(default_factory=dict)

    def look(self, now: Mapping[str, str]) -> None:
        """Take the first uplink of each group, by the group."""
        for group in self.uplinks.keys() | now.keys():
            turns, uplink = self.uplinks.setdefault(group, []), now.get(group, "")
            if not turns or turns[-1] != uplink:
                turns.append(uplink)

    @property
    def flapped(self) -> dict[str, Sequence[str]]:
        """The groups that went back to an uplink, with their uplinks."""
        return {g: turns for g, turns in self.uplinks.items() if len(set(turns)) < len(turns)}

    @property
    def moved(self) -> int:
        """How many groups went from one uplink to another."""
        return sum(len(set(turns) - {""}) > 1 for turns in self.uplinks.values())


def first_uplinks(bed: Bed) -> dict[str, str]:
    """The uplink that each group prefers, as its port number, by the group."""
    shown = bed.ofctl("dump-groups")
    return dict(re.findall(r"group_id=(\d+),type=ff,bucket=watch_port:([^,]+)", shown))
