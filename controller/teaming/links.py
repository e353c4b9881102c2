"""The state of a bridge's links, with LACP, BFD and CFM, and the uplinks that carry traffic."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from controller.api.events import PortState
from controller.config.values import BridgeConfig, UplinkConfig, VmPortConfig
from policies.model import Role

# The end of the failback delay of an uplink that is still down.
NEVER_S = float("inf")
NOTHING_RECEIVED = (
    "its link is up again, but unlike other uplinks, it has not received any frames yet"
)
# OpenFlow reports only this many characters of a port's name.
PORT_NAME_CHARACTERS = 15
# A link flaps if it changed this often within this time, as in the alert OvsLbtLinkFlapping.
FLAPPING_CHANGES, FLAPPING_S = 6, 900.0
# How long after a member's link is up the database shows its LACP state; usually about 0.1 s.
LACP_KNOWN_AFTER_S = 1.0
# How often to send a broadcast while an uplink still has to prove that it receives frames.
ASK_EVERY_S = 2.0
# Links that come up within this time of each other had one cause of failure, such as a switch restart.
TOGETHER_S = 3.0


class Proof(Enum):
    """Whether an uplink whose link is up again must receive a frame, as proof that it works."""

    NEEDED = auto()
    # It has received no frame since its link came up, and neither has another uplink.
    OTHERS_IDLE = auto()
    # It is not known yet whether another uplink has received a frame since its link came up.
    OTHERS_UNKNOWN = auto()


@dataclass(slots=True)
class Link:
    """The link of one uplink. Times are in seconds of engine time."""

    # Whether the switch last reported the link as up; None before the first report.
    up: bool | None = None
    # How often the link went up or down, and the times of the latest changes.
    changes: int = 0
    changed_s: deque[float] = field(default_factory=lambda: deque(maxlen=FLAPPING_CHANGES))
    # Whether the link failed, and its failback delay is not over.
    failed: bool = False
    # When the link came up again, and its failback delay began; None if no delay runs.
    returned_s: float | None = None
    # Whether the uplink must receive a frame before it carries traffic again; None: it need not.
    proof: Proof | None = None
    # When the LACP state of the link will be known; None if it is known.
    lacp_known_s: float | None = None
    # How many frames the uplink has received; None before the first poll.
    received: int | None = None
    # The speed that the switch reported last; None if it never reported one. Most interfaces report none
    # while their link is down. If the capacity changed as well, units that have nothing to do with the
    # failure would move.
    speed_bps: float | None = None

    @property
    def waits_for_frame(self) -> bool:
        """Whether the uplink must receive a frame before it carries traffic again."""
        return self.proof in (Proof.NEEDED, Proof.OTHERS_UNKNOWN)

    def fail(self) -> None:
        """Record a failure: the link carries no traffic until its failback delay has ended."""
        self.failed, self.returned_s, self.proof = True, None, None

    def carry_again(self) -> None:
        """Record that the link carries traffic again, because its failback delay has ended."""
        self.failed, self.returned_s, self.proof = False, None, None


@dataclass(slots=True)
class Links:
    """Ports by ofport, and the links of uplinks.

    Until the switch is connected, an uplink that was not reported counts as up. If LACP, BFD or
    CFM monitors a link and receives no answer, the link counts as down.
    """

    # The failback delay.
    delay_s: float
    # The team.
    uplinks: tuple[UplinkConfig, ...]
    connected: bool = False
    # By ofport.
    ports: dict[int, PortState] = field(default_factory=dict)
    # The links of all uplinks since the start, by name.
    by_name: defaultdict[str, Link] = field(default_factory=lambda: defaultdict(Link))
    # The uplinks that probes do not reach, or that spanning tree blocks, although their links are up.
    unreachable: frozenset[str] = frozenset()
    # The uplinks whose link went up (True) or down since `take_changes`.
    _changed: list[tuple[str, bool]] = field(default_factory=list)
    # When to send the next broadcast for uplinks that must receive a frame.
    _ask_s: float = 0.0

    def connect(self, ports: Iterable[PortState], now_s: float) -> None:
        """Replace all port states. An uplink that is not on the switch is recorded as down."""
        self.connected = True
        self.ports = {}
        for port in ports:
            self.note_port(port, now_s)
        for link in self.by_name.values():
            link.lacp_known_s = None
        for uplink in self.uplinks:
            if uplink.ofport not in self.ports:
                self._note(uplink.name, False, now_s)
                self.by_name[uplink.name].fail()

    def note_port(self, port: PortState, now_s: float) -> None:
        """Note a port's state. A link that is up again carries nothing during its failback delay."""
        before = self.ports.get(port.ofport)
        was_up = before is not None and before.up
        self.ports[port.ofport] = port
        uplink = next((u for u in self.uplinks if _is_named(port, u.name)), None)
        if uplink is None:
            return
        link = self.by_name[uplink.name]
        self._note(uplink.name, port.up, now_s)
        if uplink.watched_by and before and before.silent and not (port.up or port.silent):
            # The answer was missing because the link went down.
            self._changed.append((uplink.name, False))
        if port.speed_bps:
            link.speed_bps = port.speed_bps
        if port.up and not was_up:
            link.lacp_known_s = now_s + LACP_KNOWN_AFTER_S
        if not port.up:
            self._fail(uplink.name)
        elif not was_up and link.failed and self._usable_from_s(link) == NEVER_S:
            self._return(uplink.name, now_s)

    def remove(self, ofport: int, now_s: float) -> None:
        """Remove a port, and record its link as down."""
        if port := self.ports.get(ofport):
            self.note_port(replace(port, up=False), now_s)
            del self.ports[ofport]

    def _fail(self, uplink: str) -> None:
        """Record a failed link. With failback-delay-s=never, waiting uplinks are then used again."""
        link = self.by_name[uplink]
        was_away = link.failed and link.returned_s is None
        link.fail()
        if self.delay_s == NEVER_S and not was_away:
            for other in self.by_name.values():
                if other.returned_s is not None:
                    other.carry_again()

    def _return(self, uplink: str, now_s: float) -> None:
        """Begin the failback delay of an uplink that could carry traffic again."""
        link = self.by_name[uplink]
        link.failed, link.returned_s = True, now_s
        if link.received is not None and uplink not in self.unreachable:
            link.proof = Proof.OTHERS_UNKNOWN
            self._ask_s = now_s + self.delay_s

    def _usable_from_s(self, link: Link) -> float:
        """Return when the failback delay of a link ends, in seconds of engine time."""
        assert link.failed or link.returned_s is None, "only failed links have a running delay"
        return NEVER_S if link.returned_s is None else link.returned_s + self.delay_s

    def forget_received(self) -> None:
        """Stop waiting for frames on uplinks, because the uplinks are now a LAG."""
        for link in self.by_name.values():
            link.proof = link.received = None

    def receive(self, received: Mapping[str, int], probed: bool) -> None:
        """Store the numbers of received frames. A new frame proves that an uplink works again.

        `probed`: whether uplinks are probed. If not, an uplink needs no new frame while no other uplink
        receives frames.
        """
        grown = set()
        for name, count in received.items():
            link = self.by_name[name]
            # The counters of a device that was created again begin at zero.
            if link.received is not None and count > link.received:
                grown.add(name)
            link.received = count
        for name, link in self.by_name.items():
            if name in grown:
                link.proof = None
            elif link.proof and (probed or grown):
                link.proof = Proof.NEEDED
            elif link.proof is Proof.OTHERS_UNKNOWN:
                link.proof = Proof.OTHERS_IDLE

    def note_asked(self, now_s: float) -> None:
        """Record that the service sent a frame that reaches all uplinks of one network."""
        self._ask_s = now_s + ASK_EVERY_S

    @property
    def asks_s(self) -> float:
        """The next time to send a frame that reaches all uplinks; infinity if none is needed."""
        waiting = [link for link in self.by_name.values() if link.failed and link.waits_for_frame]
        asks = any(self._usable_from_s(link) <= self._ask_s for link in waiting)
        return self._ask_s if asks else NEVER_S

    def follow_paths(self, unreachable: frozenset[str], now_s: float) -> None:
        """Record `unreachable` uplinks as failed. Once reachable, they return like other failed uplinks."""
        before = self.unreachable
        for uplink in self.uplinks:
            if uplink.name in unreachable - before:
                self._fail(uplink.name)
            elif uplink.name in before - unreachable and self.has_link(uplink):
                self._return(uplink.name, now_s)
        self.unreachable = unreachable

    def silent(self, uplink: UplinkConfig) -> tuple[str, ...]:
        """Return the protocols that receive no answer on an uplink whose link is up."""
        port = self.ports.get(uplink.ofport)
        return uplink.watched_by if port and port.silent else ()

    def take_changes(self) -> list[tuple[str, bool]]:
        """Return the uplinks that went up (True) or down (False) since the last call."""
        changed, self._changed = self._changed, []
        return changed

    def flaps(self, uplink: str, now_s: float) -> bool:
        """Whether the link of an uplink went up or down too often recently."""
        changed_s = self.by_name[uplink].changed_s
        return len(changed_s) == FLAPPING_CHANGES and now_s - changed_s[0] <= FLAPPING_S

    def _note(self, uplink: str, up: bool, now_s: float) -> None:
        link = self.by_name[uplink]
        if link.up not in (None, up):
            link.changes += 1
            link.changed_s.append(now_s)
            self._changed.append((uplink, up))
        link.up = up

    def follow_team(self, team: tuple[UplinkConfig, ...], now_s: float) -> None:
        """Record as failed: removed uplinks, whose devices may return, and new uplinks that are down."""
        before = {uplink.name for uplink in self.uplinks}
        self.uplinks = team
        for name in before - {uplink.name for uplink in team}:
            self._fail(name)
        for uplink in team:
            if uplink.name in before:
                continue
            if not self.up(uplink):
                self.by_name[uplink.name].fail()
            elif self.by_name[uplink.name].failed:
                self._return(uplink.name, now_s)

    def end_delays(self, now_s: float) -> None:
        """End the failback delays that have expired.

        If `usable` includes uplinks that still wait, the end of any delay also ends the delays of
        these uplinks, so that no unit leaves them.
        """
        links = self.by_name.values()
        due = [n for n in links if not n.waits_for_frame and self._usable_from_s(n) <= now_s]
        if due and not self._suffice(self._without_delay()):
            first = (self.by_name[uplink.name] for uplink in self._returned_first())
            due += [link for link in first if not link.waits_for_frame]
        for link in due:
            link.carry_again()
        for link in links:
            if link.lacp_known_s is not None and link.lacp_known_s <= now_s:
                link.lacp_known_s = None

    @property
    def delay_ends_s(self) -> float:
        """When a failback delay or wait for an LACP state ends next; infinity if neither is active."""
        links = self.by_name.values()
        ends = [self._usable_from_s(n) for n in links if n.failed and not n.waits_for_frame]
        known = [link.lacp_known_s for link in links if link.lacp_known_s is not None]
        return min((*ends, *known), default=NEVER_S)

    def has_link(self, uplink: UplinkConfig) -> bool:
        """Whether the switch reports the link as up."""
        port = self.ports.get(uplink.ofport)
        return port.up if port else not self.connected

    def up(self, uplink: UplinkConfig) -> bool:
        """Whether an uplink could carry traffic: its link is up, probes reach it, and it is not blocked."""
        return self.has_link(uplink) and uplink.name not in self.unreachable

    def lacp_known(self, uplinks: Iterable[UplinkConfig]) -> frozenset[str]:
        """Return the uplinks that are up and whose LACP state is known."""
        up = (uplink.name for uplink in uplinks if self.up(uplink))
        return frozenset(name for name in up if self.by_name[name].lacp_known_s is None)

    def usable(self) -> set[str]:
        """Return the uplinks that carry traffic now.

        If all uplinks wait for their failback delay or are being drained, the waiting ones that
        came up first are used. The upstream switch of a later uplink may not forward yet.
        """
        used = self._without_delay()
        if not self._suffice(used):
            used += self._returned_first()
        assert all(map(self.up, used)), "an uplink that is down carries nothing"
        return {uplink.name for uplink in used}

    def _without_delay(self) -> list[UplinkConfig]:
        """Return the uplinks that are up and have no failback delay."""
        return [u for u in self.uplinks if self.up(u) and not self.by_name[u.name].failed]

    def _returned_first(self) -> list[UplinkConfig]:
        """Return the waiting uplinks that came up again first, or within TOGETHER_S of the first."""
        returned_s = {
            uplink.name: at_s
            for uplink in self.uplinks
            if self.up(uplink) and (at_s := self.by_name[uplink.name].returned_s) is not None
        }
        waiting = [u for u in self.uplinks if u.name in returned_s]
        serving = [u for u in waiting if self._suffice([u])] or waiting
        first_s = min((returned_s[u.name] for u in serving), default=NEVER_S)
        return [u for u in waiting if returned_s[u.name] <= first_s + TOGETHER_S]

    def _suffice(self, uplinks: Iterable[UplinkConfig]) -> bool:
        """Whether one of `uplinks` is active or standby."""
        return any(uplink.serves for uplink in uplinks)

    def why_waiting(self, uplink: UplinkConfig) -> str:
        """Return why an uplink whose link is up is not used: it is blocked, or has received no frame."""
        if not self.has_link(uplink):
            return ""
        if uplink.blocked:
            return "spanning tree blocks it"
        return NOTHING_RECEIVED if self.by_name[uplink.name].proof is Proof.NEEDED else ""

    def why_unused(self, uplink: UplinkConfig, now_s: float) -> str:
        """Return why no unit can move to this unusable uplink now."""
        if uplink.role in (Role.UNUSED, Role.DRAINED):
            return uplink.role.value
        if watchers := self.silent(uplink):
            return f"no answer ({', '.join(watchers)})"
        if self.has_link(uplink) and uplink.blocked:
            return self.why_waiting(uplink)
        if uplink.name in self.unreachable:
            return "link up, but other uplinks' probes do not arrive"
        if not self.up(uplink):
            return "link down"
        link = self.by_name[uplink.name]
        if link.returned_s is not None and self.delay_s == NEVER_S:
            return "its link is up again, but with failback-delay-s=never, another uplink must fail first"
        wait_s = 0 if link.returned_s is None else math.ceil(self._usable_from_s(link) - now_s)
        if wait_s > 0:
            return f"its link is up again; failback delay: {wait_s} s left"
        if link.waits_for_frame:
            return NOTHING_RECEIVED
        return f"{uplink.role.value}, and an active uplink carries traffic"

    def renumbered(self, config: BridgeConfig) -> bool:
        """Whether an uplink or VM port has an ofport that belongs to another port on the switch.

        A restart of ovs-vswitchd may change the numbers of ports, and the database is updated only after
        the switch has connected. Flows for the old numbers could treat an uplink as a VM port.
        """
        ours: dict[int, VmPortConfig | UplinkConfig] = {**config.port_at, **config.uplink_at}
        there = ((self.ports.get(number), one.name) for number, one in ours.items())
        return any(port is not None and not _is_named(port, name) for port, name in there)


def _is_named(port: PortState, name: str) -> bool:
    """Whether a port is the interface with this name."""
    return port.name == name[:PORT_NAME_CHARACTERS]
