"""Path checks: records which probes between uplinks arrive, and finds path faults.

A round of probes is sent twice a second. It is followed by a probe that does not use the network: the
switch returns it directly. This proves that the switch has sent the round, and that answers reach the
service. Only proved rounds count, and only once the next round has been proved: probes have then had half
a second to arrive. So neither a busy switch nor a busy service causes a fault.

A host's answer cannot be matched to one of several queries, so a host gets one query per round.
Short queries are sent with probes; long ones have separate rounds, midway between rounds of probes.

A switch sends a probe to the port where it last saw the probe's destination as a source. Another host can
change that port. So after a probe was lost, the next ones are also sent as copies to a group address, which
switches flood. A path is broken only if both are lost. If only copies arrive, another host sends from the
address of the receiver's probes.

A congested network loses some frames of all kinds. By chance, it may lose several probes of one path in a
row. Such losses must not count as a broken path.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from controller.teaming.foreign_frames import UNSEEN, ForeignFrames
from controller.teaming.path_plan import Path
from policies.path_faults import Fault, Passage, PathFault, faults

INTERVAL_S = 0.5
# The longest time that a probe may take: a round is evaluated when it is at least this old.
LATEST_S = 0.3
# A path counts as broken after this many probes were lost in a row: 2 s. In a network that also loses
# probes on working paths, more are needed (`SingleLosses`).
LOST_AFTER = 4
# A broken path counts as restored after this many probes arrived in a row: 5 s.
MENDED_AFTER = 10
# The same for a host, whose answers only show which of several uplinks is faulty: half as many losses. One
# answer proves that the host is reachable.
HOST_LOST_AFTER = 2
HOST_MENDED_AFTER = 1
# If a host answers on the faulty uplink again, it is uncertain which uplink is faulty. The paths between uplinks
# may be restored as well, which is known after `MENDED_AFTER` and two more rounds.
DOUBTED_S = (MENDED_AFTER + 2) * INTERVAL_S
# An uplink that carries this share of its capacity may be dropping probes with other frames. Lost
# probes on its paths then prove nothing.
FULL_RATIO = 0.9
# Losses in a row prove a fault if the probability that they happen by chance is below this.
CHANCE = 1e-6
# The most losses in a row that are required: 10 s. A network that loses half of all frames is unusable.
MOST_AWAITED = 20
# About the number of probes in the mean of `SingleLosses`: 5 s with three uplinks, 16 s with two.
REMEMBERED = 64
# The most frames of one round: at most 128 probes and 64 long queries are sent in a second, regardless of
# the number of VLANs.
MOST_PROBES = 64
MOST_LONG_QUESTIONS = 32
# For this many rounds after a loss, probes of a path are also sent as copies: as long as it may take until
# the path counts as broken. If only a copy arrives, the rounds begin again.
COPIED_AFTER_LOSS = MOST_AWAITED
# If only the copies of this many probes in a row arrive, another host has the address. By chance, this
# happens three times in a million in a network that loses 20 % of all probes.
ASTRAY_AFTER = 8


@dataclass(slots=True)
class SingleLosses:
    """The share of probes that one bridge recently lost on paths that turned out to work."""

    ratio: float = 0.0

    def note_losses(self, lost: int) -> None:
        """Record a probe that arrived on a working path. `lost`: the number of lost probes directly before it."""
        for found in (*[1.0] * lost, 0.0):
            self.ratio += (found - self.ratio) / REMEMBERED

    def in_a_row(self, least: int) -> int:
        """Return how many losses in a row prove a fault, but never fewer than `least`."""
        if self.ratio <= 0.0:
            return least
        by_chance = math.ceil(math.log(CHANCE) / math.log(self.ratio))
        return max(least, min(MOST_AWAITED, by_chance))


@dataclass(slots=True)
class _Probed:
    """The results of a path's last probes: how many in a row were lost, or arrived.

    `astray`: how many in a row arrived only as copies. `copied`: probes left to send as copies.
    """

    lost: int = 0
    arrived: int = 0
    broken: bool = False
    astray: int = 0
    copied: int = 0


@dataclass(slots=True)
class Round:
    """A round of probes: the probed paths, and the probes and copies that have arrived.

    `copied`: the paths whose probes are also sent as copies, one for each copy. `proved_s`: when the round
    was proved, in seconds of engine time; None: not yet.
    """

    number: int
    paths: tuple[Path, ...]
    copied: tuple[Path, ...] = ()
    probes: set[Path] = field(default_factory=set)
    copies: set[Path] = field(default_factory=set)
    proved_s: float | None = None


@dataclass(slots=True)
class PathChecks:
    """The path checks of one bridge: the paths to probe, pending rounds, and detected faults."""

    # The detected faults, and the time of each detection, in seconds of engine time.
    since_s: dict[PathFault, float] = field(default_factory=dict)
    # When the next round is due, in seconds of engine time.
    due_s: float = 0.0
    foreign: ForeignFrames = field(default_factory=ForeignFrames)
    # Rounds and their frames since the service started. `judged`: proved rounds. Their frames `arrived`,
    # were `lost`, or were lost on an uplink that was `full` or `hindered` by a flood, which proves nothing.
    # `astray`: only a copy arrived. `void`: rounds that were not proved.
    counts: Counter[str] = field(default_factory=Counter)
    _single_losses: SingleLosses = field(default_factory=SingleLosses)
    # The address from which a host answered the last query, for each uplink, host and VLAN.
    _answered_by: dict[tuple[str, str, int], str] = field(default_factory=dict)
    _plan: tuple[Path, ...] = ()
    _probed: dict[Path, _Probed] = field(default_factory=dict)
    _number: int = 0
    # The paths that rounds check in turn; those with long queries separately, by uplink and host.
    _probes: deque[deque[Path]] = field(default_factory=deque)
    _long_questions: deque[deque[Path]] = field(default_factory=deque)
    # The rounds that are not evaluated yet, by number.
    _pending: dict[int, Round] = field(default_factory=dict)
    # When each fault that is over ended; it stays in force for the failback delay.
    _ended_s: dict[PathFault, float] = field(default_factory=dict)
    # For each decided fault: the time since which the faulty uplink is undecided again.
    _doubted_s: dict[PathFault, float] = field(default_factory=dict)

    @property
    def checks_something(self) -> bool:
        """Whether there are paths to probe, or path faults."""
        return bool(self._plan or self.since_s)

    def follow_config(self, plan: tuple[Path, ...]) -> None:
        """Probe the paths of `plan` from now on, and forget the results of all other paths."""
        if plan == self._plan:
            return
        self._plan = plan
        asked: dict[tuple[str, str, int], deque[Path]] = {}
        self._probes = deque()
        for path in plan:
            if path.to_host and path.mtu > 0:
                asked.setdefault(path.asked, deque()).append(path)
            else:
                self._probes.append(deque([path]))
        self._long_questions = deque(asked.values())
        kept = set(plan)
        self._probed = {path: found for path, found in self._probed.items() if path in kept}

    def interrupt(self) -> None:
        """Discard the pending rounds, because the connection was lost. Detected faults are kept."""
        self._pending.clear()
        for probed in self._probed.values():
            probed.lost = probed.arrived = probed.astray = 0

    def end(self) -> None:
        """Stop checking paths: from now on, `find` finds no faults."""
        self.interrupt()
        self.follow_config(())
        self._probed, self._answered_by, self._single_losses = {}, {}, SingleLosses()
        self.due_s, self.foreign = 0.0, ForeignFrames()

    # ---- rounds ------------------------------------------------------------------------

    def begin_round(self, now_s: float) -> Round:
        """Begin a round with the next paths of the plan; a long plan takes several rounds."""
        previous = self._pending.get(self._number)
        self._number += 1
        if self._long_questions and self._number % 2 == 0:
            paths = _in_turn(self._long_questions, MOST_LONG_QUESTIONS)
        else:
            paths = _in_turn(self._probes, MOST_PROBES)
            self.foreign.begin_round(now_s, previous is None or previous.proved_s is not None)
        self.due_s = now_s + (INTERVAL_S / 2 if self._long_questions else INTERVAL_S)
        copied = (path for path in paths if path in self._probed and self._probed[path].copied)
        by_copy = {(p.mtu, p.vlan, p.sender): p for p in copied if not p.to_host}
        begun = self._pending[self._number] = Round(self._number, paths, tuple(by_copy.values()))
        return begun

    def arrived(self, path: Path, number: int, *, copy: bool = False) -> bool:
        """Record that a probe or its copy arrived. Return False if it is a duplicate, or was not sent."""
        pending = self._pending.get(number)
        if pending is None or path not in pending.paths:
            return False
        arrived = pending.copies if copy else pending.probes
        if path in arrived:
            return False
        arrived.add(path)
        return True

    def asked_at(self, question: Path) -> str | None:
        """Return the MAC address to send a query to; None if unknown: broadcast the query.

        If all queries were broadcast, each host would get those of all bridges on its segment.
        """
        return self._answered_by.get(question.asked)

    def answered(self, uplink: str, host: str, vlan: int, mac: str) -> bool:
        """Record that a host answered the last query on an uplink, from the address `mac`.

        Return False if the host was not queried, has already answered, or has another known address.
        """
        asked = uplink, host, vlan
        for number, pending in sorted(self._pending.items(), reverse=True):
            for path in pending.paths:
                if path.to_host and path.asked == asked:
                    known = self._answered_by.setdefault(asked, mac)
                    return known == mac and self.arrived(path, number)
        return False

    def prove(self, number: int, full: Collection[str], now_s: float) -> bool:
        """Record that a round's last probe has returned, and evaluate rounds that are old enough.

        `full`: the uplinks that may be dropping frames. Return whether a path broke or was restored.
        """
        if number not in self._pending:
            return False
        self._pending[number].proved_s = now_s
        changed = False
        for earlier in [n for n in self._pending if n < number]:
            proved_s = self._pending[earlier].proved_s
            if proved_s is not None and now_s - proved_s < LATEST_S:
                continue
            pending = self._pending.pop(earlier)
            if proved_s is not None:
                changed |= self._judge(pending, full, proved_s)
            self.counts["void" if proved_s is None else "judged"] += 1
        return changed

    def _judge(self, pending: Round, full: Collection[str], proved_s: float) -> bool:
        """Evaluate the probes of a round. Return whether a path broke or was restored."""
        changed = False
        in_a_row = self._single_losses.in_a_row(LOST_AFTER)
        for path in pending.paths:
            probed = self._probed.setdefault(path, _Probed())
            lost_after = in_a_row * HOST_LOST_AFTER // LOST_AFTER if path.to_host else in_a_row
            mended_after = HOST_MENDED_AFTER if path.to_host else MENDED_AFTER
            was_broken = probed.broken
            probed.copied = max(0, probed.copied - 1)
            arrived = path in pending.probes or path in pending.copies
            if arrived:
                if path in pending.probes:
                    self.counts["arrived"] += 1
                    if not was_broken and not path.to_host:
                        self._single_losses.note_losses(probed.lost)
                    probed.astray = 0
                else:
                    self.counts["astray"] += 1
                    probed.astray += 1
                    probed.copied = COPIED_AFTER_LOSS
                    seen_on = self.foreign.seen_on(path.receiver, proved_s)
                    if probed.astray >= ASTRAY_AFTER or UNSEEN in seen_on:
                        self.foreign.see(path.receiver, UNSEEN, proved_s)
                probed.lost, probed.arrived = 0, probed.arrived + 1
                probed.broken = was_broken and probed.arrived < mended_after
            elif self.foreign.hides(path.sender if path.to_host else path.receiver, proved_s):
                self.counts["hindered"] += 1
            elif path.sender not in full and path.receiver not in full:
                self.counts["lost"] += 1
                probed.lost, probed.arrived = probed.lost + 1, 0
                if probed.lost == 1:
                    probed.copied = COPIED_AFTER_LOSS
                probed.broken = was_broken or probed.lost >= lost_after
            else:
                self.counts["full"] += 1
            if path.to_host and not arrived:
                # The host may have another address now.
                self._answered_by.pop(path.asked, None)
            changed |= probed.broken is not was_broken
        return changed

    # ---- faults ------------------------------------------------------------------------

    def find(self, uplinks: Sequence[str], failback_delay_s: float, now_s: float) -> bool:
        """Update the faults of `uplinks`, whose links are up. Return whether faults changed.

        A fault of a VLAN or an MTU is kept for the failback delay after it has ended. When a whole
        uplink is reachable again, `Links` delays its return.
        """
        found = faults(uplinks, self._passages()) if self._plan else frozenset()
        found = self._without_doubts(found, now_s)
        before = set(self.since_s)
        for fault in sorted(found):
            self.since_s.setdefault(fault, now_s)
            self._ended_s.pop(fault, None)
        for fault in before - found:
            waits = bool(self._plan) and fault.decided and fault.kind is not Fault.UNREACHABLE
            stays = waits and fault.uplinks[0] in uplinks and len(uplinks) > 1
            ended_s = self._ended_s.setdefault(fault, now_s)
            if not stays or now_s >= ended_s + failback_delay_s:
                del self.since_s[fault], self._ended_s[fault]
        in_force = self.since_s.keys()
        assert in_force >= {*self._ended_s, *self._doubted_s}, "only faults in force have times"
        return before != in_force

    def _without_doubts(self, found: frozenset[PathFault], now_s: float) -> frozenset[PathFault]:
        """Return `found`, with decided faults kept while their paths may recover or no host answers."""
        in_force = [f for f in self.since_s if f.decided and f not in self._ended_s]
        doubted = {
            fault: doubtful
            for doubtful in found
            if not doubtful.decided
            for fault in in_force
            if fault.concerns == doubtful.concerns and fault.uplinks[0] in doubtful.uplinks
        }
        silent = {fault for fault in doubted if self._nobody_answers(fault)}
        since_s = {fault: self._doubted_s.get(fault, now_s) for fault in doubted.keys() - silent}
        self._doubted_s = {f: at_s for f, at_s in since_s.items() if now_s < at_s + DOUBTED_S}
        stay = silent | self._doubted_s.keys()
        return found - {doubted[fault] for fault in stay} | stay

    def _nobody_answers(self, fault: PathFault) -> bool:
        """Whether no host answers, although hosts are queried to find out which uplink is faulty."""
        asked = [
            path
            for path in self._plan
            if path.to_host and fault.vlan in (None, path.vlan) and path.mtu == (fault.mtu or 0)
        ]
        return bool(asked) and all(p in self._probed and self._probed[p].broken for p in asked)

    def judges_s(self, failback_delay_s: float) -> float:
        """Return when the next ended or doubtful fault expires; infinity if there is none."""
        over_s = [ended_s + failback_delay_s for ended_s in self._ended_s.values()]
        known_s = [since_s + DOUBTED_S for since_s in self._doubted_s.values()]
        return min((*over_s, *known_s), default=float("inf"))

    def is_over(self, fault: PathFault) -> bool:
        """Whether a fault has ended, and is kept only until the failback delay is over."""
        return fault in self._ended_s

    def unreachable(self) -> frozenset[str]:
        """Return the uplinks that path checks have found to be unreachable."""
        return frozenset(
            fault.uplinks[0]
            for fault in self.since_s
            if fault.kind is Fault.UNREACHABLE and fault.decided
        )

    def _passages(self) -> list[Passage]:
        """Return the results of probes. A path without results yet counts as passing."""
        found: dict[tuple[int, int], Passage] = {}
        for path in self._plan:
            empty = Passage(path.vlan, path.mtu, {}, {})
            passage = found.setdefault((path.vlan, path.mtu), empty)
            passes = not (path in self._probed and self._probed[path].broken)
            if path.to_host:
                passage.reaches[path.sender] = passes or passage.reaches.get(path.sender, False)
            else:
                passage.passes[path.sender, path.receiver] = passes
        return [found[key] for key in sorted(found)]


def _in_turn(queues: deque[deque[Path]], most: int) -> tuple[Path, ...]:
    """Return the next path of each of the next `most` queues. Paths and queues are rotated."""
    found = []
    for _ in range(min(most, len(queues))):
        found.append(queues[0][0])
        queues[0].rotate(-1)
        queues.rotate(-1)
    return tuple(found)
