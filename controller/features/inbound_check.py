"""The inbound check: checks whether inbound traffic follows VM ports that have moved.

Upstream switches learn the new uplink of a VM port's addresses from a learning packet. A switch that
lost the packet, or took it for a sign of a loop, still sends to the old uplink. All frames arrive, but the
move did not relieve the old uplink. The service detects this with counters of the frames from each
uplink to a VM port, and announces the VM port again.

If inbound traffic follows, or there is none, upstream switches know the VM port on its uplink. On an
active-backup bond, unicast that arrives on other uplinks is then dropped, as the bond itself would do.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import Command, Observe, ReadInbound, Report
from controller.api.events import InboundRead
from controller.dataplane import unicast
from controller.dataplane.team import VmPort
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
# On an active-backup bond, copies are dropped only this long after a move, because some flows follow late.
KNOWN_AFTER_S = 5.0


@dataclass(slots=True)
class _Watched:
    """A VM port on `uplink`, an ofport. `moved_s`: when the port moved there; None: upstream switches may
    not know the port for another reason. `astray`: whether the last bytes arrived on another uplink.

    `again`: the number of repeated announcements. `counted`: received bytes by the uplink's ofport at
    `read_s`. `came_s`: the time from which all readings show new bytes on `uplink`.
    """

    name: str
    uplink: int
    moved_s: float | None
    announced_s: float
    again: int = 0
    counted: dict[int, int] | None = None
    read_s: float = 0.0
    came_s: float | None = None
    astray: bool = False


@dataclass(eq=False)
class InboundCheck(Feature[InboundRead]):
    """Checks whether inbound traffic follows moved VM ports of one bridge."""

    # How often VM ports were announced again because inbound traffic did not follow.
    reannounced: int = 0
    # The number of moves that inbound traffic never followed, and when the last of these was reported.
    not_followed: int = 0
    not_followed_s: float | None = None
    # The VM ports that have recently moved, by ofport.
    _watched: dict[int, _Watched] = field(default_factory=dict)
    # When to read counters next, in seconds of engine time.
    _due_s: float = 0.0
    # By ofport: the uplink of a VM port, and whether inbound traffic arrives there. If it does, upstream
    # switches know the VM port on this uplink, and the entry lasts until the switch drops copies.
    _found: dict[int, tuple[int, bool]] = field(default_factory=dict)

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
            self._found.pop(int(port.ofport), None)
            by = hashed_by(port, self.bridge.placing.split)
            if move.target in uplinks and not (by and PRESETS[by].classifier.by_address):
                watched = _Watched(port.name, uplinks[move.target], now_s, announced_s=now_s)
                self._watch(int(port.ofport), watched)

    def _watch(self, ofport: int, watched: _Watched) -> None:
        self._watched[ofport] = watched
        self._due_s = min(self._due_s, watched.announced_s)

    def keep_watching(self, ofports: Collection[int]) -> None:
        """Forget all VM ports that are not in `ofports`."""
        self._watched = {number: w for number, w in self._watched.items() if number in ofports}
        self._found = {number: f for number, f in self._found.items() if number in ofports}

    def forget_switch(self) -> None:
        self._watched.clear()
        self._found.clear()

    def next_s(self) -> float:
        """Return when to read counters next; infinity if no VM port is checked."""
        return self._due_s if self._watched else math.inf

    def timers(self) -> Iterable[Timer]:
        return ((self.next_s(), self._read),)

    @property
    def _drops_copies(self) -> bool:
        """Whether the bond alone would accept frames on one uplink only."""
        config = self.config
        has_one_active = config.bond_mode == "active-backup" and not config.on_a_lag
        return has_one_active and self.bridge.announces

    def known(self, port: VmPort) -> VmPort:
        """Return `port` with `known_on` set if upstream switches know the VM port on its uplink.

        The installed pipeline still shows this after the service restarts, but not after the switch does.
        """
        installed = self.bridge.installation.installed
        if not self._drops_copies or installed is None or port.hashed is not None or not port.order:
            return port
        home, opens = port.order[0], unicast.opens(port.ofport, port.order[0])
        is_open = installed.flows.get(opens.key) == opens
        is_known = is_open or self._found.get(port.ofport) == (home, True)
        return replace(port, known_on=home) if is_known else port

    def want(self, now_s: float) -> list[Command]:
        """Check inbound traffic of VM ports that upstream switches may not know on their uplinks."""
        self._found = {ofport: found for ofport, found in self._found.items() if not found[1]}
        team = self.bridge.installation.team if self._drops_copies else None
        for port in team.vm_ports if team else ():
            if port.hashed is not None or not port.order or port.known_on is not None:
                continue
            watched, home = self._watched.get(port.ofport), port.order[0]
            is_watched = watched is not None and watched.uplink == home
            if not is_watched and self._found.get(port.ofport) != (home, False):
                name = self.config.port_at[port.ofport].name
                self._watch(port.ofport, _Watched(name, home, None, announced_s=now_s))
        return []

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
                watched.astray = by_uplink < FOLLOWED_RATIO * total
            after_s = now_s - watched.announced_s
            if not total:
                if after_s >= SILENT_S:
                    self._end(ofport)
            elif not watched.astray:
                if self._drops_copies and after_s < KNOWN_AFTER_S:
                    continue
                if watched.moved_s is not None:
                    commands.append(Observe(name, "inbound_follow", came_s - watched.moved_s))
                self._end(ofport)
            elif before_s - watched.announced_s < ANSWERED_AFTER_S + COUNTED_AFTER_S:
                continue
            elif watched.again < MOST_AGAIN:
                watched.again += 1
                watched.announced_s = now_s
                again.add(ofport)
            else:
                self.not_followed += 1
                self.not_followed_s = now_s
                commands.append(Report("warning", f"{name}: {self._where(watched, came)}"))
                self._end(ofport)
        self.reannounced += len(again)
        commands += self.bridge.announcer.announce_once(again) if again else []
        is_known = any(arrives for _, arrives in self._found.values())
        return commands + (self.bridge.reconcile(now_s) if is_known else [])

    def _end(self, ofport: int) -> None:
        watched = self._watched.pop(ofport)
        if watched.astray or self._drops_copies:
            self._found[ofport] = watched.uplink, not watched.astray

    def _where(self, watched: _Watched, came: Mapping[int, int]) -> str:
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
