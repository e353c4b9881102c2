"""The inbound check: checks whether inbound traffic follows VM ports that have moved.

Upstream switches learn the new uplink of a VM port's addresses from a learning packet. A switch that
lost the packet, or treated it as a loop, still sends to the old uplink. All frames arrive, but the
move did not relieve the old uplink. The service detects this with counters of the frames from each
uplink to a VM port, and announces the VM port again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from controller.api.engine_commands import Command, Observe, ReadInbound, Report
from controller.api.events import InboundRead
from controller.features.feature import Feature, Timer
from controller.teaming.buckets import hashed_by
from policies.model import Move
from policies.presets import PRESETS

# The switch updates flow counters twice a second.
READ_INTERVAL_S = 0.5
# For this long after learning packets, inbound traffic may still arrive on another uplink, because
# the upstream switch forwards from its cache. Counters are updated up to half a second later.
ANSWERED_AFTER_S = 1.5
COUNTED_AFTER_S = 0.5
# How often a VM port is announced again before the service reports that inbound traffic does not follow.
MOST_AGAIN = 3
# If a VM port receives nothing for this long, no host sends to it, and the check ends.
SILENT_S = 10.0
# Inbound traffic follows if at least this share of a VM port's inbound bytes arrives on its uplink.
FOLLOWED_RATIO = 0.9


@dataclass(slots=True)
class _Watched:
    """A VM port that has moved to `uplink`, an ofport.

    `again`: the number of repeated announcements. `counted`: received bytes by the uplink's ofport at
    `read_s`. `came_s`: the time from which all readings show new bytes on `uplink`.
    """

    name: str
    uplink: int
    moved_s: float
    announced_s: float
    again: int = 0
    counted: dict[int, int] | None = None
    read_s: float = 0.0
    came_s: float | None = None


@dataclass(eq=False)
class InboundCheck(Feature[InboundRead]):
    """The inbound checks of one bridge."""

    # How often VM ports were announced again because inbound traffic did not follow.
    reannounced: int = 0
    # The number of moves that inbound traffic never followed, and when the last of these was reported.
    not_followed: int = 0
    not_followed_s: float | None = None
    # The VM ports that have recently moved, by ofport.
    _watched: dict[int, _Watched] = field(default_factory=dict)
    # When to read counters next, in seconds of engine time.
    _due_s: float = 0.0

    def watch_moves(self, moves: Iterable[Move], now_s: float) -> None:
        """Start to check inbound traffic of the VM ports in these moves, which the switch has made.

        VM ports whose addresses use different uplinks are not checked, because their inbound traffic also
        uses these uplinks. On a LAG, no VM port is checked, because the upstream switch chooses the member.
        """
        config = self.config
        if config.on_a_lag:
            return
        uplinks = {uplink.name: int(uplink.ofport) for uplink in config.uplinks}
        for move in moves:
            port = config.port_named.get(move.unit)
            if port is None or port.per_address or not move.source or move.source == move.target:
                continue
            by = hashed_by(port, self.bridge.placing.split)
            if move.target in uplinks and not (by and PRESETS[by].classifier.by_address):
                watched = _Watched(port.name, uplinks[move.target], now_s, announced_s=now_s)
                self._watched[int(port.ofport)] = watched
                self._due_s = min(self._due_s, now_s)

    def keep_watching(self, ofports: Collection[int]) -> None:
        """Forget all VM ports that are not in `ofports`."""
        self._watched = {number: w for number, w in self._watched.items() if number in ofports}

    def forget_switch(self) -> None:
        self._watched.clear()

    def next_s(self) -> float:
        """Return the time to read counters next; infinity if no VM port is checked."""
        return self._due_s if self._watched else math.inf

    def timers(self) -> Iterable[Timer]:
        return ((self.next_s(), self._read),)

    def _read(self, now_s: float) -> list[Command]:
        self._due_s = now_s + READ_INTERVAL_S
        return [ReadInbound(self.config.name, tuple(sorted(self._watched)))]

    def heard(self, event: InboundRead, now_s: float) -> list[Command]:
        """Evaluate a reading. Announce VM ports again if their inbound traffic has not followed them."""
        name, commands, again = self.config.name, list[Command](), set[int]()
        read: dict[int, dict[int, int]] = {}
        for ofport, uplink, count in event.counted:
            read.setdefault(ofport, {})[uplink] = count
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
                commands.append(Observe(name, "inbound_follow", came_s - watched.moved_s))
                del self._watched[ofport]
            elif before_s - watched.announced_s < ANSWERED_AFTER_S + COUNTED_AFTER_S:
                continue
            elif watched.again < MOST_AGAIN:
                watched.again += 1
                watched.announced_s = now_s
                again.add(ofport)
            else:
                self.not_followed += 1
                self.not_followed_s = now_s
                commands.append(Report("warning", f"{name}: {self._astray(watched, came)}"))
                del self._watched[ofport]
        self.reannounced += len(again)
        return commands + (self.bridge.announcer.announce_once(again) if again else [])

    def _astray(self, watched: _Watched, came: Mapping[int, int]) -> str:
        """Return a text that names the uplinks on which the traffic still arrives."""
        bound, port = self.bridge.placing.bound, watched.name
        uplinks = self.config.uplink_at
        others = sorted(n for n, count in came.items() if count and n != watched.uplink)
        found = ", ".join(uplinks[n].name if n in uplinks else str(n) for n in others)
        still = f"still arrives on {found} after repeated learning packets"
        home = bound[port].uplink if port in bound else "-"
        return f"inbound traffic of {port} {still}; expected on {home}"


def _since(watched: _Watched, now: dict[int, int]) -> dict[int, int]:
    """Return the bytes received on each uplink since the last reading; empty if not known."""
    before = watched.counted
    if not before or any(now.get(uplink, 0) < count for uplink, count in before.items()):
        return {}
    return {uplink: count - before.get(uplink, 0) for uplink, count in now.items()}
