"""The links of a bridge: what the switch reports of its ports, and which uplinks carry traffic."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.api.events import PortState
from controller.config.values import UplinkConfig
from policies.model import Role

# The time at which a failback delay ends whose uplink is still down.
NEVER_S = float("inf")
NOTHING_RECEIVED = "its link returned, but it has received no frame since, unlike other uplinks"
# OpenFlow reports only this much of a port's name.
PORT_NAME_CHARACTERS = 15
# So many changes of a link in this time are too many, as the alert OvsLbtLinkFlapping has it.
FLAPPING_CHANGES, FLAPPING_S = 6, 900.0
# How long after a member's link is up the database shows its LACP state; usually about 0.1 s.
LACP_KNOWN_AFTER_S = 1.0
# How often a frame is asked for that would prove an uplink which has received nothing yet.
ASK_EVERY_S = 2.0
# Links that return within this time have failed of one cause, such as a switch that restarted.
TOGETHER_S = 3.0


@dataclass(slots=True)
class Unproven:
    """An uplink whose link has returned, and that has received nothing since.

    `received`: the frames that each uplink had received before, by name. `others_receive`: whether
    another one has received a frame since; None: not known yet.
    """

    received: dict[str, int]
    others_receive: bool | None = None


@dataclass(slots=True)
class Links:
    """Ports by ofport, and how long uplinks whose link returned still have to wait.

    Until the switch is connected, an uplink that it has not reported counts as up. If LACP, BFD or
    CFM watches a link and hears no answer, the link counts as down.
    """

    # The failback delay.
    delay_s: float
    connected: bool = False
    # By ofport.
    ports: dict[int, PortState] = field(default_factory=dict)
    # How often the link of each uplink went up or down, by name.
    changes: Counter[str] = field(default_factory=Counter)
    # When the last changes of each uplink were, in seconds of engine time.
    _changed_s: dict[str, deque[float]] = field(default_factory=dict)
    # The uplinks whose link went up (True) or down since `take_changes`.
    _changed: list[tuple[str, bool]] = field(default_factory=list)
    _last_up: dict[str, bool] = field(default_factory=dict)
    # When the failback delay of each uplink ends, in seconds of engine time.
    _usable_from_s: dict[str, float] = field(default_factory=dict)
    # When the LACP state of each uplink that came up is known.
    _lacp_known_s: dict[str, float] = field(default_factory=dict)
    # The uplinks that probes do not reach, or that spanning tree blocks, although their links are up.
    unreachable: frozenset[str] = frozenset()
    # When the link of each uplink that has a failback delay returned.
    _returned_s: dict[str, float] = field(default_factory=dict)
    # The uplinks that have to receive a frame before they return, if other uplinks receive some.
    _unproven: dict[str, Unproven] = field(default_factory=dict)
    # How many frames each uplink has received, by name; none before the first poll.
    _received: dict[str, int] = field(default_factory=dict)
    # When to ask for a frame next.
    _ask_s: float = 0.0
    # The speed of each uplink that the switch reported last.
    _speeds_bps: dict[str, float] = field(default_factory=dict)

    def connect(
        self, ports: Iterable[PortState], uplinks: Sequence[UplinkConfig], now_s: float
    ) -> None:
        """Replace all ports. An uplink that the switch does not have is down."""
        self.connected = True
        self.ports = {}
        for port in ports:
            self.note_port(port, uplinks, now_s)
        self._lacp_known_s = {}
        for uplink in uplinks:
            if uplink.ofport not in self.ports:
                self._note(uplink.name, False, now_s)
                self._usable_from_s[uplink.name] = NEVER_S

    def note_port(self, port: PortState, uplinks: Iterable[UplinkConfig], now_s: float) -> None:
        """Note a link. One that returns carries nothing until its failback delay has ended."""
        before = self.ports.get(port.ofport)
        was_up = before is not None and before.up
        self.ports[port.ofport] = port
        uplink = next((u for u in uplinks if _is_named(port, u.name)), None)
        if uplink is None:
            return
        self._note(uplink.name, port.up, now_s)
        if uplink.watched_by and before and before.silent and not (port.up or port.silent):
            # The answer was missing because the link went down.
            self._changed.append((uplink.name, False))
        if port.speed_bps:
            self._speeds_bps[uplink.name] = port.speed_bps
        if port.up and not was_up:
            self._lacp_known_s[uplink.name] = now_s + LACP_KNOWN_AFTER_S
        if not port.up:
            self._fail(uplink.name)
        elif not was_up and self._usable_from_s.get(uplink.name) == NEVER_S:
            self._return(uplink.name, now_s)

    def remove(self, ofport: int, uplinks: Iterable[UplinkConfig], now_s: float) -> None:
        """A port is gone, so its link is down."""
        if port := self.ports.get(ofport):
            self.note_port(replace(port, up=False), uplinks, now_s)
            del self.ports[ofport]

    def _fail(self, uplink: str) -> None:
        """An uplink no longer carries traffic. It may not return until its failback delay has ended.

        If uplinks never fall back, those that have returned since they failed take its place.
        """
        failed_before = (
            self._usable_from_s.get(uplink) == NEVER_S and uplink not in self._returned_s
        )
        self._usable_from_s[uplink] = NEVER_S
        self._returned_s.pop(uplink, None)
        self._unproven.pop(uplink, None)
        if self.delay_s == NEVER_S and not failed_before:
            for name in self._returned_s:
                self._usable_from_s.pop(name, None)
            self._returned_s = {}

    def _return(self, uplink: str, now_s: float) -> None:
        """An uplink could carry traffic again; its failback delay begins."""
        self._returned_s[uplink] = now_s
        self._usable_from_s[uplink] = now_s + self.delay_s
        if uplink in self._received and uplink not in self.unreachable:
            self._unproven[uplink] = Unproven(dict(self._received))
            self._ask_s = now_s + self.delay_s

    def forget_received(self) -> None:
        """No uplink has to receive a frame: they are a LAG, perhaps again after a fallback."""
        self._unproven.clear()
        self._received.clear()

    def receive(self, received: Mapping[str, int], probed: bool) -> None:
        """How many frames uplinks have received: the first one proves an uplink that has returned.

        `probed`: probes are sent to it. Without them, no proof is needed if no other uplink receives
        anything.
        """
        self._received |= received
        for name, unproven in list(self._unproven.items()):
            before = unproven.received
            # The counters of a device that was made anew begin at zero.
            before |= {
                n: count for n, count in received.items() if count < before.get(n, count + 1)
            }
            grown = {n for n, count in received.items() if count > before[n]}
            unproven.others_receive = bool(probed or unproven.others_receive or grown - {name})
            if name in grown:
                del self._unproven[name]

    def waits_for_frame(self, uplink: str) -> bool:
        """Whether an uplink has to receive a frame before it returns."""
        unproven = self._unproven.get(uplink)
        return unproven is not None and unproven.others_receive is not False

    def note_asked(self, now_s: float) -> None:
        """A frame was sent that reaches all uplinks of one network."""
        self._ask_s = now_s + ASK_EVERY_S

    @property
    def asks_s(self) -> float:
        """When to have such a frame sent; infinity if no uplink waits for one."""
        waits = any(
            self.waits_for_frame(name) and self._usable_from_s.get(name, NEVER_S) <= self._ask_s
            for name in self._unproven
        )
        return self._ask_s if waits else NEVER_S

    def follow_delay(self, delay_s: float) -> None:
        """The failback delay was set: those that run follow it."""
        self.delay_s = delay_s
        for name, returned_s in self._returned_s.items():
            self._usable_from_s[name] = returned_s + delay_s

    def follow_paths(
        self, unreachable: frozenset[str], uplinks: Iterable[UplinkConfig], now_s: float
    ) -> None:
        """Take these uplinks for failed, although their links are up; others return as from a failure."""
        before = self.unreachable
        for uplink in uplinks:
            if uplink.name in unreachable - before:
                self._fail(uplink.name)
            elif uplink.name in before - unreachable and self.has_link(uplink):
                self._return(uplink.name, now_s)
        self.unreachable = unreachable

    def silent(self, uplink: UplinkConfig) -> tuple[str, ...]:
        """The protocols that hear no answer on an uplink whose link is up; empty if all is well."""
        port = self.ports.get(uplink.ofport)
        return uplink.watched_by if port and port.silent else ()

    def take_changes(self) -> list[tuple[str, bool]]:
        """The uplinks that went up (True) or down since the last call, or fell silent."""
        changed, self._changed = self._changed, []
        return changed

    def flaps(self, uplink: str, now_s: float) -> bool:
        """Whether the link of an uplink went up or down too often lately."""
        changed_s = self._changed_s.get(uplink, deque())
        return len(changed_s) == FLAPPING_CHANGES and now_s - changed_s[0] <= FLAPPING_S

    def _note(self, uplink: str, up: bool, now_s: float) -> None:
        if self._last_up.get(uplink, up) != up:
            self.changes[uplink] += 1
            changed_s = self._changed_s.setdefault(uplink, deque(maxlen=FLAPPING_CHANGES))
            changed_s.append(now_s)
            self._changed.append((uplink, up))
        self._last_up[uplink] = up

    def follow_team(
        self, old: Iterable[UplinkConfig], new: Iterable[UplinkConfig], now_s: float
    ) -> None:
        """An uplink that left has failed: its device may be made anew. A new one that is down has to wait."""
        stayed, team = {uplink.name for uplink in old}, {uplink.name for uplink in new}
        for name in stayed - team:
            self._fail(name)
        for uplink in new:
            if uplink.name in stayed:
                continue
            if not self.up(uplink):
                self._usable_from_s[uplink.name] = NEVER_S
            elif uplink.name in self._usable_from_s:
                self._return(uplink.name, now_s)

    def end_delays(self, uplinks: Sequence[UplinkConfig], now_s: float) -> None:
        """End the delays that are over.

        The end of one delay ends those of all waiting uplinks that are in use, so that no unit leaves
        them.
        """
        due = {
            name
            for name, at_s in self._usable_from_s.items()
            if at_s <= now_s and not self.waits_for_frame(name)
        }
        if due and not self._suffice(self._without_delay(uplinks)):
            first = (uplink.name for uplink in self._returned_first(uplinks))
            due |= {name for name in first if not self.waits_for_frame(name)}
        for name in due:
            del self._usable_from_s[name]
            self._returned_s.pop(name, None)
            self._unproven.pop(name, None)
        known = [name for name, at_s in self._lacp_known_s.items() if at_s <= now_s]
        for name in known:
            del self._lacp_known_s[name]

    @property
    def delay_ends_s(self) -> float:
        """When the next delay ends; infinity if none runs. This is asked after each event."""
        if not self._usable_from_s and not self._lacp_known_s:
            return NEVER_S
        ends = (s for name, s in self._usable_from_s.items() if not self.waits_for_frame(name))
        return min((*ends, *self._lacp_known_s.values()), default=NEVER_S)

    def has_link(self, uplink: UplinkConfig) -> bool:
        """Whether the switch reports the link as up."""
        port = self.ports.get(uplink.ofport)
        return port.up if port else not self.connected

    def up(self, uplink: UplinkConfig) -> bool:
        """Whether an uplink could carry traffic: its link is up, probes reach it, and it is not blocked."""
        return self.has_link(uplink) and uplink.name not in self.unreachable

    def lacp_known(self, uplinks: Iterable[UplinkConfig]) -> frozenset[str]:
        """The uplinks that are up, with known LACP state."""
        up = (uplink.name for uplink in uplinks if self.up(uplink))
        return frozenset(name for name in up if name not in self._lacp_known_s)

    def usable(self, uplinks: Sequence[UplinkConfig]) -> set[str]:
        """The uplinks that carry traffic now.

        If all of them wait, or the only others are being drained, those are used that returned first.
        What a later one is connected to may not forward yet.
        """
        used = self._without_delay(uplinks)
        if not self._suffice(used):
            used += self._returned_first(uplinks)
        return {uplink.name for uplink in used}

    def _without_delay(self, uplinks: Iterable[UplinkConfig]) -> list[UplinkConfig]:
        """The uplinks that are up and have no failback delay."""
        return [u for u in uplinks if self.up(u) and u.name not in self._usable_from_s]

    def _returned_first(self, uplinks: Iterable[UplinkConfig]) -> list[UplinkConfig]:
        """The waiting uplinks that returned first, and those that returned together with them."""
        waiting = [u for u in uplinks if self.up(u) and u.name in self._returned_s]
        serving = [u for u in waiting if self._suffice([u])] or waiting
        first_s = min((self._returned_s[u.name] for u in serving), default=NEVER_S)
        return [u for u in waiting if self._returned_s[u.name] <= first_s + TOGETHER_S]

    def _suffice(self, uplinks: Iterable[UplinkConfig]) -> bool:
        """Whether one of them is active or standby."""
        return any(uplink.role in (Role.ACTIVE, Role.STANDBY) for uplink in uplinks)

    def waits_s(self, uplink: str, now_s: float) -> float:
        """The rest of an uplink's failback delay; zero if none runs."""
        until_s = self._usable_from_s.get(uplink, now_s)
        return 0.0 if until_s == NEVER_S else max(0.0, until_s - now_s)

    def stays_away(self, uplink: str) -> bool:
        """Whether an uplink could carry traffic again, and does not return by itself."""
        return uplink in self._returned_s and self._usable_from_s.get(uplink) == NEVER_S

    def why_waiting(self, uplink: UplinkConfig) -> str:
        """Why an uplink that has a link carries nothing, if it is blocked or has received nothing."""
        if not self.has_link(uplink):
            return ""
        if uplink.blocked:
            return "spanning tree blocks it"
        unproven = self._unproven.get(uplink.name)
        return NOTHING_RECEIVED if unproven is not None and unproven.others_receive else ""

    def why_unused(self, uplink: UplinkConfig, now_s: float) -> str:
        """Why no unit can move to this unusable uplink now."""
        if uplink.role in (Role.UNUSED, Role.DRAINED):
            return uplink.role.value
        if watchers := self.silent(uplink):
            return f"no answer ({', '.join(watchers)})"
        if self.has_link(uplink) and uplink.blocked:
            return self.why_waiting(uplink)
        if uplink.name in self.unreachable:
            return "link up, but probes of other uplinks do not arrive"
        if not self.up(uplink):
            return "link down"
        if self.stays_away(uplink.name):
            return "its link returned, but failback-delay-s is never: it waits for another uplink to fail"
        if wait_s := math.ceil(self.waits_s(uplink.name, now_s)):
            return f"its link returned, and its failback delay ends in {wait_s} s"
        if self.waits_for_frame(uplink.name):
            return NOTHING_RECEIVED
        return f"{uplink.role.value}, and an active uplink carries traffic"

    def names_another(self, names: Mapping[int, str]) -> bool:
        """Whether the switch has a port of another name under one of these ofports."""
        return any(
            number in self.ports and not _is_named(self.ports[number], name)
            for number, name in names.items()
        )

    def speed_bps(self, uplink: UplinkConfig) -> float:
        """The speed that the switch reported last; zero if it never reported one.

        Most interfaces report none while their link is down. If shares of capacity changed with
        that, units would move that have nothing to do with a failure.
        """
        return self._speeds_bps.get(uplink.name, 0.0)


def _is_named(port: PortState, name: str) -> bool:
    """Whether a port is the interface of this name."""
    return port.name == name[:PORT_NAME_CHARACTERS]
