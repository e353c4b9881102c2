"""Whether inbound follows VM ports that have moved; while it does not, they are announced again.

Switches upstream learn from a learning packet by which uplink a VM port's addresses are reached now.
One that lost it, or took it for a loop, goes on by the old uplink: everything still arrives, but the
move relieved nothing. Only counters tell: those of what each uplink brings for a VM port.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

# The switch renews what flows have counted twice a second.
READ_INTERVAL_S = 0.5
# For so long after learning packets inbound may come by another uplink: the switch upstream
# forwards by its cache. That is counted half a second later at worst.
ANSWERED_AFTER_S = 1.5
COUNTED_AFTER_S = 0.5
# How often a VM port is announced again, before it is said that inbound does not follow.
MOST_AGAIN = 3
# Nothing came for so long: nobody sends to it, and there is nothing to be seen.
SILENT_S = 10.0
# Of what comes for a VM port this much has to come by its uplink.
FOLLOWED_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Seen:
    """What readings have told.

    `followed`: the names of VM ports, and how long after their moves what comes was first seen by
    their uplinks, in seconds.
    `again`: the ofports of those to be announced again. `astray`: those given up, with the
    ofports of the uplinks by which inbound comes instead.
    """

    followed: tuple[tuple[str, float], ...] = ()
    again: frozenset[int] = frozenset()
    astray: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(slots=True)
class _Watched:
    """A VM port that has moved to `uplink`; `counted`: bytes by uplink at `read_s`.

    `came_s`: since when something came by its uplink with each reading.
    """

    name: str
    uplink: int
    moved_s: float
    announced_s: float
    again: int = 0
    counted: dict[int, int] | None = None
    read_s: float = 0.0
    came_s: float | None = None


@dataclass(slots=True)
class Following:
    """The VM ports of one bridge that have moved lately, by ofport."""

    _watched: dict[int, _Watched] = field(default_factory=dict)
    _due_s: float = 0.0

    def watch(self, name: str, ofport: int, uplink: int, now_s: float) -> None:
        """A VM port has moved to an uplink, and its learning packets are on their way."""
        self._watched[ofport] = _Watched(name, uplink, moved_s=now_s, announced_s=now_s)
        self._due_s = min(self._due_s, now_s)

    def keep(self, ofports: Collection[int]) -> None:
        """Forget all others."""
        self._watched = {number: w for number, w in self._watched.items() if number in ofports}

    def forget(self) -> None:
        self._watched.clear()

    def deadline_s(self) -> float:
        """When counters are to be read next; infinity where nothing is watched."""
        return self._due_s if self._watched else float("inf")

    def due(self, now_s: float) -> tuple[int, ...]:
        """The ofports whose counters are to be read now."""
        if not self._watched or now_s < self._due_s:
            return ()
        self._due_s = now_s + READ_INTERVAL_S
        return tuple(sorted(self._watched))

    def take(self, counted: Iterable[tuple[int, int, int]], now_s: float) -> Seen:
        """Judge what has come since the last reading, as (ofport, the uplink's, bytes)."""
        read: dict[int, dict[int, int]] = {}
        for ofport, uplink, count in counted:
            read.setdefault(ofport, {})[uplink] = count
        followed, again, astray = [], set(), []
        for ofport, watched in sorted(self._watched.items()):
            came = _since(watched, read.get(ofport, {}))
            before_s, watched.read_s = watched.read_s, now_s
            watched.counted = read.get(ofport)
            total, by_uplink = sum(came.values()), came.get(watched.uplink, 0)
            if total:
                came_s = now_s if watched.came_s is None else watched.came_s
                watched.came_s = came_s if by_uplink else None
            if not total:
                if now_s - watched.announced_s >= SILENT_S:
                    del self._watched[ofport]
            elif by_uplink >= FOLLOWED_RATIO * total:
                followed.append((watched.name, came_s - watched.moved_s))
                del self._watched[ofport]
            elif before_s - watched.announced_s < ANSWERED_AFTER_S + COUNTED_AFTER_S:
                continue
            elif watched.again < MOST_AGAIN:
                watched.again += 1
                watched.announced_s = now_s
                again.add(ofport)
            else:
                others = (n for n, count in came.items() if count and n != watched.uplink)
                astray.append((watched.name, tuple(sorted(others))))
                del self._watched[ofport]
        return Seen(tuple(followed), frozenset(again), tuple(astray))


def _since(watched: _Watched, now: dict[int, int]) -> dict[int, int]:
    """What came by each uplink since the last reading; nothing where that is not known."""
    before = watched.counted
    if not before or any(now.get(uplink, 0) < count for uplink, count in before.items()):
        return {}
    return {uplink: count - before.get(uplink, 0) for uplink, count in now.items()}
