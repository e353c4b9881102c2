"""A bridge's decisions as they happen: told to the history, and the latest kept for `explain`."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.api.events import Record
from controller.api.history import Entry, Happened, Moved, Utilization
from controller.decisions.evidence import Evidence, how
from controller.load.judging import UPLINK_LAG_S, Judged
from policies import outcome
from policies.model import Load, Move, Reason, Uplink
from policies.presets import PRESETS
from policies.rules import Rule

KEPT = 256
# When it is measured what came of a decision: the mean over so long, after it was made.
OUTCOME_S = 5.0
# What is carried now: flow counters stand still for half a second at a time.
MOMENT_S = 2.0
# An uplink counts as relieved when it is so far below the threshold, lest every poll beside
# it be an event.
RELIEVED_RATIO = 0.05


@dataclass(slots=True)
class Chronicle:
    """What happened to one bridge. Nothing that decides reads it.

    `entries`: the latest. `unrelieved`: the uplinks above the threshold that no move helps.
    `broken`: the rules of VM ports that are broken, and how. `evidence`: by which the moves under way
    were chosen, where that was by loads; `decided`: what uplinks had by the last one, by name.
    `because`: why those are made that nobody asked for one by one.
    """

    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=KEPT))
    unrelieved: frozenset[str] = frozenset()
    broken: Mapping[tuple[str, Rule], str] = field(default_factory=dict)
    evidence: Evidence | None = None
    decided: Mapping[str, Load] = field(default_factory=dict)
    because: str | None = None
    _outcome_due_s: float = math.inf
    _decision: Entry | None = None

    def moved(self, judged: Judged, moves: Sequence[Move], now_s: float) -> list[Record]:
        """These moves were made; `judged` has their units where they are now."""
        if not moves:
            return []
        entry = self._of_moves(Happened.MOVED, judged, moves, now_s)
        self._decision = entry
        self._outcome_due_s = now_s + _outcome_after_s(judged)
        return [self._kept(entry)]

    def planned(self, judged: Judged, moves: Sequence[Move], now_s: float) -> list[Record]:
        """These moves would have been made, had the bridge not only been observed."""
        if not moves:
            return []
        return [self._kept(self._of_moves(Happened.PLANNED, judged, moves, now_s))]

    def refused(
        self, judged: Judged, moves: Iterable[Moved], why: str, now_s: float
    ) -> list[Record]:
        """These moves were wanted, and not made."""
        self.evidence = None
        entry = Entry(Happened.REFUSED, now_s, judged.config.name, why, tuple(moves))
        return [self._kept(replace(entry, before=_utilizations(judged.uplinks())))]

    def linked(
        self, judged: Judged, uplink: str, up: bool, silent: Sequence[str], now_s: float
    ) -> list[Record]:
        """An uplink's link came or went; or it is there, and what watches it hears no answer."""
        happened = Happened.LINK_UP if up else Happened.LINK_DOWN
        why = f"the link of {uplink} went {'up' if up else 'down'}"
        if silent and not up:
            why = f"no answer by {uplink}: {', '.join(silent)}"
        return [self._kept(Entry(happened, now_s, judged.config.name, why, uplink=uplink))]

    def saturation(
        self, judged: Judged, window_s: float, relieved: set[str], now_s: float
    ) -> list[Record]:
        """What the policies did about uplinks above the threshold: those in `relieved`, a move."""
        name, threshold_ratio = judged.config.name, judged.config.threshold_ratio
        uplinks = {uplink.name: uplink for uplink in judged.carrying(window_s)}
        found = {u.name for u in uplinks.values() if u.usable and self._is_above(u, judged)}
        now_unrelieved = frozenset(found - relieved)
        before = _utilizations(uplinks.values())
        records = []
        for uplink in sorted(now_unrelieved - self.unrelieved):
            why = f"{_carried(uplinks[uplink], how(window_s))}, above {threshold_ratio:.0%}; no move helps"
            records.append(Entry(Happened.UNRELIEVED, now_s, name, why, (), uplink, before))
        for uplink in sorted(self.unrelieved - now_unrelieved):
            why = (
                _carried(uplinks[uplink], how(window_s))
                if uplink in uplinks
                else f"{uplink} is gone"
            )
            records.append(Entry(Happened.RELIEVED, now_s, name, why, (), uplink, before))
        self.unrelieved = now_unrelieved
        return [self._kept(entry) for entry in records]

    def rules(
        self, judged: Judged, broken: Mapping[tuple[str, Rule], str], now_s: float
    ) -> Iterator[Record]:
        """The rules that are broken now; of each it is told when that begins and ends."""
        before, self.broken, bridge = self.broken, broken, judged.config.name
        for (port, rule), wrong in broken.items():
            if (port, rule) not in before:
                why = f"{port} {rule}: {wrong}"
                yield self._kept(Entry(Happened.RULE_BROKEN, now_s, bridge, why, port=port))
        for port, rule in sorted(before.keys() - broken.keys()):
            why = f"{port} {rule}: kept again, or no rule any more"
            yield self._kept(Entry(Happened.RULE_KEPT, now_s, bridge, why, port=port))

    def outcome(self, judged: Judged, now_s: float) -> list[Record]:
        """What came of the last decision, when it is time to say so."""
        decision = self._decision
        if decision is None or now_s < self._outcome_due_s:
            return []
        self._decision, self._outcome_due_s = None, math.inf
        uplinks = judged.uplinks(judged.covered(OUTCOME_S))
        why = f"{now_s - decision.at_s:.0f} s after the moves"
        entry = Entry(Happened.OUTCOME, now_s, judged.config.name, why)
        before, after = decision.before, _utilizations(uplinks)
        return [self._kept(replace(entry, moves=decision.moves, before=before, after=after))]

    def deadline_s(self) -> float:
        """When an outcome is to be measured; infinity when none is."""
        return self._outcome_due_s

    def _is_above(self, uplink: Uplink, judged: Judged) -> bool:
        slack_ratio = RELIEVED_RATIO if uplink.name in self.unrelieved else 0.0
        return uplink.utilization_ratio > judged.config.threshold_ratio - slack_ratio

    def _of_moves(
        self, happened: Happened, judged: Judged, moves: Sequence[Move], now_s: float
    ) -> Entry:
        """The moves of one bundle; `before` and `after` are of the figures they were chosen by."""
        evidence, self.evidence = self.evidence, None
        if evidence is None or not any(move.reason.by_load for move in moves):
            evidence = _as_carried(judged, moves, happened)
        else:
            self.decided = {uplink.name: uplink.load for uplink in evidence.uplinks}
        before = evidence.uplinks
        after = outcome.after(before, moves, evidence.loads)
        sentences = _why(moves, {u.name: u for u in before}, judged, evidence.how)
        because = None
        if happened is Happened.MOVED and any(move.reason is Reason.MANUAL for move in moves):
            because, self.because = self.because, None
        return Entry(
            happened,
            now_s,
            judged.config.name,
            why=because or "; ".join(sentences),
            moves=told(judged, moves),
            before=_utilizations(before),
            after=_utilizations(after),
        )

    def _kept(self, entry: Entry) -> Record:
        self.entries.append(entry)
        return Record(entry)


def told(judged: Judged, moves: Iterable[Move]) -> tuple[Moved, ...]:
    """Moves as people read them: buckets that go one way together."""
    vms = {port.name: port.vm for port in judged.config.vm_ports}
    single, shared = [], Counter[tuple[str, str, str, str]]()
    for move in moves:
        way = move.source, move.target, move.reason.value
        of, slash, _ = move.unit.rpartition("/")
        if slash and of in PRESETS and move.unit not in vms:
            shared[of, *way] += 1
        else:
            # Of an address, the VM is that of its port, where that has a name of its own.
            behind = vms.get(of) if vms.get(of) != of else None
            vm, source = vms.get(move.unit, behind), move.source or None
            single.append(Moved(move.unit, source, *way[1:], vm=vm))
    together = [
        Moved(policy, source, target, reason, buckets=count)
        for (policy, source, target, reason), count in sorted(shared.items())
    ]
    return (*single, *together)


def _why(
    moves: Iterable[Move], before: Mapping[str, Uplink], judged: Judged, how: str
) -> list[str]:
    """A sentence for each uplink that was left, by reason."""
    sentences: dict[str, None] = {}
    for move in moves:
        left = before.get(move.source)
        carried = _carried(left, how) if left else f"{move.source} has left the team"
        taker = before.get(move.target)
        match move.reason:
            case Reason.THRESHOLD:
                text = f"{carried}, above {judged.config.threshold_ratio:.0%}"
            case Reason.REBALANCE if left and taker:
                text = f"{carried}, {taker.name} at {taker.utilization_ratio:.0%}"
            case Reason.FAILOVER:
                text = f"{move.source} carries nothing"
            case Reason.FAILBACK:
                text = f"{move.target} carries traffic again"
            case Reason.DRAIN:
                text = f"{move.source} is to be idle"
            case Reason.PIN:
                text = f"pinned to {move.target}"
            case Reason.MANUAL:
                text = "asked for by an operator"
            case Reason.SPLIT:
                text = f"{carried}, and no placement of whole ports makes that much better"
            case Reason.MERGE:
                text = f"what {move.unit} sends need not be spread any more"
            case Reason.RULE:
                text = f"{move.source} is not where a rule wants it"
            case _:
                text = carried
        sentences[text] = None
    return list(sentences)


def _carried(uplink: Uplink, how: str) -> str:
    """What an uplink carries, in words."""
    return f"{uplink.name} at {uplink.utilization_ratio:.0%} {how}".rstrip()


def _as_carried(judged: Judged, moves: Sequence[Move], happened: Happened) -> Evidence:
    """What uplinks and units carried lately; observed, before the moves that were thought of."""
    window_s = judged.covered(MOMENT_S)
    carrying = judged.carrying(window_s)
    loads = {unit.name: load for unit, load in judged.carried(window_s)}
    if resplit := {move.unit for move in moves if move.is_resplit}:
        loads |= {u.name: u.load for u in judged.loaded(window_s) if u.name in resplit}
    if happened is Happened.PLANNED:
        carrying = outcome.after(carrying, moves, loads, back=True)
    return Evidence(carrying, loads, how(window_s))


def _outcome_after_s(judged: Judged) -> float:
    """By then, the polls of so long after the decision are there."""
    return OUTCOME_S + UPLINK_LAG_S + 2 * judged.config.poll_interval_s


def _utilizations(uplinks: Iterable[Uplink]) -> dict[str, Utilization]:
    return {uplink.name: Utilization.of(uplink) for uplink in uplinks}
