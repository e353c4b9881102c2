"""The decision log of a bridge: records for the history, and the latest entries for `explain`."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import Record
from controller.api.history import Entry, Happened, Moved, Utilization
from controller.load.loads import UPLINK_LAG_S
from controller.load.team_view import TeamView
from policies import outcome
from policies.model import Load, Move, Reason, Snapshot, Uplink
from policies.path_faults import PathFault
from policies.presets import PRESETS
from policies.rules import Rule

# How many entries are kept for `explain`.
KEPT = 256
# The time after a decision over which its outcome is measured, as a mean.
OUTCOME_S = 5.0
# The time over which current loads are averaged, because flow counters lag by half a second.
MOMENT_S = 2.0
# How far below the threshold an uplink must be to count as relieved. Without this margin, every
# poll near the threshold would be an event.
RELIEVED_RATIO = 0.05

# Why a unit left an uplink, by reason. `carried`: the uplink and its utilization. `beside`: the
# target and its utilization, if both uplinks are in the team.
WHY: Mapping[Reason, str] = {
    Reason.THRESHOLD: "{carried}, above {threshold_ratio:.0%}",
    Reason.REBALANCE: "{carried}{beside}",
    Reason.SPLIT: "{carried}, and no placement of whole VM ports would be much better",
    Reason.MERGE: "{move.unit} no longer needs to be split",
    Reason.RULE: "rules require {move.target} instead of {move.source}",
    Reason.PIN: "pinned to {move.target}",
    Reason.DRAIN: "{move.source} is being drained",
    Reason.MANUAL: "requested by an operator",
    Reason.FAILOVER: "{move.source} failed",
    Reason.FAILBACK: "{move.target} is back in service",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The loads on which a policy based its moves.

    `loads`: the load that moves with each unit, by name. `how`: the time that `loads` covers.
    """

    uplinks: tuple[Uplink, ...]
    loads: Mapping[str, Load]
    how: str

    @classmethod
    def evidence_of(cls, snapshot: Snapshot, how: str) -> Evidence:
        return cls(snapshot.uplinks, {unit.name: unit.load for unit in snapshot.units}, how)


def how(window_s: float | None) -> str:
    """Return the time over which loads are averaged, in words; empty for the latest loads."""
    return f"over {window_s:g} s" if window_s else ""


@dataclass(slots=True)
class DecisionLog:
    """The decision log of one bridge. No decision depends on it."""

    # The latest entries, the last one at the end.
    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=KEPT))
    # The uplinks above the threshold that no move relieves.
    unrelieved: frozenset[str] = frozenset()
    # The broken rules of VM ports, and a description of each violation.
    broken: Mapping[tuple[str, Rule], str] = field(default_factory=dict)
    # The loads on which the moves in progress are based; None: the moves are not based on loads.
    evidence: Evidence | None = None
    # The load of each uplink in the last evidence of moves that were based on loads, by name.
    decided: Mapping[str, Load] = field(default_factory=dict)
    # The reason for the next manual moves, if no operator requested them one by one.
    because: str | None = None
    # When to measure the outcome of `_decision`, in seconds of engine time; infinity if there is none.
    outcome_due_s: float = math.inf
    _decision: Entry | None = None

    def moved(self, team_view: TeamView, moves: Sequence[Move], now_s: float) -> list[Record]:
        """Record moves that were made. `team_view`: the team after the moves."""
        if not moves:
            return []
        entry = self._of_moves(Happened.MOVED, team_view, moves, now_s)
        self._decision = entry
        # By that time, the results of all polls within OUTCOME_S after the moves have arrived.
        after_s = OUTCOME_S + UPLINK_LAG_S + 2 * team_view.config.poll_interval_s
        self.outcome_due_s = now_s + after_s
        return [self._kept(entry)]

    def planned(self, team_view: TeamView, moves: Sequence[Move], now_s: float) -> list[Record]:
        """Record moves that were not made because the bridge is in observe mode."""
        if not moves:
            return []
        return [self._kept(self._of_moves(Happened.PLANNED, team_view, moves, now_s))]

    def refused(
        self, team_view: TeamView, moves: Iterable[Moved], why: str, now_s: float
    ) -> list[Record]:
        """Record moves that were refused. `why`: the reason for the refusal."""
        self.evidence = None
        entry = Entry(Happened.REFUSED, now_s, team_view.config.name, why, tuple(moves))
        return [self._kept(replace(entry, before=_utilizations(team_view.uplinks())))]

    def linked(
        self, team_view: TeamView, uplink: str, up: bool, silent: Sequence[str], now_s: float
    ) -> list[Record]:
        """Record that a link went up or down. `silent`: the protocols that got no response."""
        happened = Happened.LINK_UP if up else Happened.LINK_DOWN
        why = f"the link of {uplink} went {'up' if up else 'down'}"
        if silent and not up:
            why = f"no {' or '.join(silent)} response on {uplink}"
        return [self._kept(Entry(happened, now_s, team_view.config.name, why, uplink=uplink))]

    def saturation(
        self, team_view: TeamView, window_s: float, relieved: set[str], now_s: float
    ) -> list[Record]:
        """Record changes in the set of uplinks that exceed the threshold and that no move relieves.

        `relieved`: the uplinks from which units are being moved now.
        """
        name, threshold_ratio = team_view.config.name, team_view.config.threshold_ratio
        uplinks = {uplink.name: uplink for uplink in team_view.carrying(window_s)}
        found = {u.name for u in uplinks.values() if u.usable and self._is_above(u, team_view)}
        now_unrelieved = frozenset(found - relieved)
        if now_unrelieved == self.unrelieved:
            return []
        before = _utilizations(uplinks.values())
        records = []
        for uplink in sorted(now_unrelieved - self.unrelieved):
            why = f"{_carried(uplinks[uplink], how(window_s))}, above {threshold_ratio:.0%}; no move helps"
            records.append(Entry(Happened.UNRELIEVED, now_s, name, why, (), uplink, before))
        for uplink in sorted(self.unrelieved - now_unrelieved):
            why = (
                _carried(uplinks[uplink], how(window_s))
                if uplink in uplinks
                else f"{uplink} is no longer an uplink"
            )
            records.append(Entry(Happened.RELIEVED, now_s, name, why, (), uplink, before))
        self.unrelieved = now_unrelieved
        return [self._kept(entry) for entry in records]

    def rules(
        self, team_view: TeamView, broken: Mapping[tuple[str, Rule], str], now_s: float
    ) -> Iterator[Record]:
        """Record rules that became broken or are met again. `broken`: the rules broken now."""
        before, self.broken, bridge = self.broken, broken, team_view.config.name
        for (port, rule), wrong in broken.items():
            if (port, rule) not in before:
                why = f"{port} {rule}: {wrong}"
                yield self._kept(Entry(Happened.RULE_BROKEN, now_s, bridge, why, port=port))
        for port, rule in sorted(before.keys() - broken.keys()):
            why = f"{port} {rule}: no longer broken, or the rule was removed"
            yield self._kept(Entry(Happened.RULE_KEPT, now_s, bridge, why, port=port))

    def paths(
        self,
        bridge: str,
        before: Collection[PathFault],
        after: Collection[PathFault],
        now_s: float,
    ) -> Iterator[Record]:
        """Record new path faults, and path faults that have ended."""
        for fault in sorted(set(after) - set(before)):
            why = f"{fault.found}; {fault.expected}"
            entry = Entry(Happened.PATH_FAULT, now_s, bridge, why, uplink=_only(fault))
            yield self._kept(entry)
        for fault in sorted(set(before) - set(after)):
            why = f"{', '.join(fault.uplinks)}: fault ({fault.short}) ended or is no longer checked"
            entry = Entry(Happened.PATH_MENDED, now_s, bridge, why, uplink=_only(fault))
            yield self._kept(entry)

    def outcome(self, team_view: TeamView, now_s: float) -> list[Record]:
        """Return the record of the last decision's outcome if it is due, otherwise nothing."""
        decision = self._decision
        if decision is None or now_s < self.outcome_due_s:
            return []
        self._decision, self.outcome_due_s = None, math.inf
        uplinks = team_view.uplinks(team_view.covered(OUTCOME_S))
        why = f"{now_s - decision.at_s:.0f} s after the moves"
        entry = Entry(Happened.OUTCOME, now_s, team_view.config.name, why)
        before, after = decision.before, _utilizations(uplinks)
        return [self._kept(replace(entry, moves=decision.moves, before=before, after=after))]

    def _is_above(self, uplink: Uplink, team_view: TeamView) -> bool:
        slack_ratio = RELIEVED_RATIO if uplink.name in self.unrelieved else 0.0
        return uplink.utilization_ratio > team_view.config.threshold_ratio - slack_ratio

    def _of_moves(
        self, happened: Happened, team_view: TeamView, moves: Sequence[Move], now_s: float
    ) -> Entry:
        """Return the entry for the moves of one bundle, with the loads on which they are based."""
        evidence, self.evidence = self.evidence, None
        if evidence is None or not any(move.reason.by_load for move in moves):
            evidence = _as_carried(team_view, moves, happened)
        else:
            self.decided = {uplink.name: uplink.load for uplink in evidence.uplinks}
        before = evidence.uplinks
        after = outcome.after(before, moves, evidence.loads)
        sentences = _why(moves, {u.name: u for u in before}, team_view, evidence.how)
        because = None
        if happened is Happened.MOVED and any(move.reason is Reason.MANUAL for move in moves):
            because, self.because = self.because, None
        return Entry(
            happened,
            now_s,
            team_view.config.name,
            why=because or "; ".join(sentences),
            moves=move_lines(team_view, moves),
            before=_utilizations(before),
            after=_utilizations(after),
        )

    def _kept(self, entry: Entry) -> Record:
        self.entries.append(entry)
        return Record(entry)


def move_lines(team_view: TeamView, moves: Iterable[Move]) -> tuple[Moved, ...]:
    """Return moves for display. Buckets with the same source and target share one line."""
    ports = {port.name: port for port in team_view.config.vm_ports}
    vms = {name: port.vm for name, port in ports.items()}
    single, shared = [], Counter[tuple[str, str, str, str]]()
    for move in moves:
        way = move.source, move.target, move.reason.value
        of, slash, address = move.unit.rpartition("/")
        if slash and of in PRESETS and move.unit not in vms:
            shared[of, *way] += 1
        else:
            # The VM of an address is the VM of its port, unless another VM is known.
            behind = vms.get(of) if vms.get(of) != of else None
            if of in ports and (guest := ports[of].guest(address.partition("%")[0])) is not None:
                behind = guest.vm
            vm, source = vms.get(move.unit, behind), move.source or None
            single.append(Moved(move.unit, source, *way[1:], vm=vm))
    together = [
        Moved(policy, source, target, reason, buckets=count)
        for (policy, source, target, reason), count in sorted(shared.items())
    ]
    return (*single, *together)


def _why(
    moves: Iterable[Move], before: Mapping[str, Uplink], team_view: TeamView, how: str
) -> list[str]:
    """Return a sentence for each reason and each uplink that units leave."""
    sentences: dict[str, None] = {}
    for move in moves:
        left = before.get(move.source)
        carried = _carried(left, how) if left else f"{move.source} is no longer an uplink"
        taker = before.get(move.target)
        text = WHY[move.reason].format(
            move=move,
            carried=carried,
            threshold_ratio=team_view.config.threshold_ratio,
            beside=f", {taker.name} at {taker.utilization_ratio:.0%}" if left and taker else "",
        )
        sentences[text] = None
    return list(sentences)


def _only(fault: PathFault) -> str | None:
    """Return the faulty uplink; None if it is unknown which uplink is faulty."""
    return fault.uplinks[0] if fault.decided else None


def _carried(uplink: Uplink, how: str) -> str:
    """Return the utilization of an uplink, in words."""
    return f"{uplink.name} at {uplink.utilization_ratio:.0%} {how}".rstrip()


def _as_carried(team_view: TeamView, moves: Sequence[Move], happened: Happened) -> Evidence:
    """Return the latest loads; for planned moves (observe mode), the loads before these moves."""
    window_s = team_view.covered(MOMENT_S)
    carrying = team_view.carrying(window_s)
    resplit = {move.unit for move in moves if move.is_resplit}
    units = team_view.loaded(window_s)
    loads = {u.name: u.load if u.name in resplit else u.own_load for u in units}
    if happened is Happened.PLANNED:
        carrying = outcome.after(carrying, moves, loads, back=True)
    return Evidence(carrying, loads, how(window_s))


def _utilizations(uplinks: Iterable[Uplink]) -> dict[str, Utilization]:
    return {uplink.name: Utilization.utilization_of(uplink) for uplink in uplinks}
