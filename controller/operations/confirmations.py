"""Rolls back changes (attach, detach, set) that operators do not confirm in time.

The changes are stored in the database, so those made before this service started are also handled.
Before a rollback, its start is recorded in the database. If this fails, nothing is changed, and
recording is tried again. Once it succeeds, the rollback runs like an operator's request.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from controller.api.engine_commands import Record, Reply, Report, Setting, Write
from controller.api.history import Entry, Happened
from controller.bridge.bridge import Commands
from controller.bridge.fleet import Fleet
from controller.config.rows import PREFIX, BridgeRow
from controller.operations import unconfirmed
from controller.operations.attach import attach
from controller.operations.detach import detach
from controller.operations.jobs import Doing, Job, Jobs, Step
from controller.operations.unconfirmed import GRACE_S, UNCONFIRMED, Unconfirmed, What, waiting
from controller.text.wording import Refused, quoted, time_of_day

# The time between a failed reversal and the next attempt.
RETRY_S = 2.0


@dataclass(slots=True, eq=False, kw_only=True)
class _Waiting(Job):
    """An unconfirmed change, and its reversal: WAIT, BEGIN, REVERT, and WAIT again if the reversal fails.

    After REVERT, an attach or a detach replaces this job and uses its number. `due_s`: the time of the
    reversal. `failed`: the reason why the last reversal failed. `asked`: requests that wait for the reversal.
    `early`: whether the reversal began before `due_s`. `over`: whether the change was confirmed or reverted.
    """

    number: int = 0
    step: Step = Step.WAIT
    change: Unconfirmed
    due_s: float
    failed: str = ""
    asked: list[int] = field(default_factory=list)
    early: bool = False
    over: bool = False

    def begin(self, asked: list[int], early: bool) -> Commands:
        """Begin the rollback: record its start. `asked`: requests for it. `early`: before its deadline."""
        assert self.step is Step.WAIT, "only one reversal at a time"
        self.number, self.step, self.tell = next(self.jobs.own_numbers), Step.BEGIN, self._finish
        self.asked, self.early = asked, early
        self.jobs.begin(self)
        return [Write((replace(self.change, begun=True).as_setting(self.name),), self.number)]

    def written(self, error: str | None, now_s: float) -> Commands:
        if error is not None:
            return self.end(f"database: {error}", now_s, refused=True)
        if self.step is Step.REVERT:
            return self.end("", now_s)
        self.step = Step.REVERT
        try:
            return self._revert(now_s)
        except Refused as refusal:
            return self.end(str(refusal), now_s, refused=True)

    def _revert(self, now_s: float) -> Commands:
        """Revert the change, now that the database has stored the start of the reversal."""
        row, bridge, change = self.row, self.bridge, self.change
        if row is None:
            raise Refused(f"bridge {self.name} was deleted")
        done = Setting("Bridge", self.name, UNCONFIRMED, None)
        observes = Setting("Bridge", self.name, PREFIX + "mode", "observe") in change.back
        if bridge is not None and (change.what is What.ATTACH or observes):
            bridge.handover.because = _rolled_back(change, self.early)
        match change.what:
            case What.ATTACH if row.attached and bridge is not None:
                return detach(self.jobs, self.number, bridge, now_s, reverts=change).carry_out()
            case What.DETACH if not row.attached:
                given = unconfirmed.values(change)
                return attach(self.jobs, self.number, row, given, now_s, reverts=change)
            case What.SET if row.attached:
                return [Write((*unconfirmed.restored(change, row), done), self.number)]
        # The bridge was attached or detached directly in the database.
        return [Write((done,), self.number)]

    def _finish(self, answer: str, refused: bool, now_s: float) -> Commands:
        """Report the result of the reversal, and schedule another attempt if it failed."""
        row, change, asked, self.asked = self.row, self.change, self.asked, []
        self.step = Step.WAIT
        waits = row is not None and UNCONFIRMED in row.external_ids
        self.over = not (refused and waits)
        if refused:
            text = f"bridge {self.name}: {change.what} was not confirmed, but has not been rolled back yet: {answer}"
            told: Commands = [Reply(number, text, refused=True) for number in asked]
            if waits and self.failed != answer:
                told.append(Report("warning", text))
            self.due_s, self.failed = now_s + RETRY_S, answer
            return told
        text = _rolled_back(change, self.early)
        # The findings of an attach were already reported when the bridge was attached before.
        text += f"; {answer}" if answer and change.what is What.ATTACH else ""
        return [
            Record(Entry(Happened.REVERTED, now_s, self.name, text)),
            Report("warning", f"{self.name}: {text}"),
            *(Reply(number, f"{self.name}: {text}") for number in asked),
        ]


@dataclass(slots=True)
class Confirmations:
    """The unconfirmed changes on all bridges, and their rollbacks."""

    fleet: Fleet
    jobs: Jobs
    # Keyed by the name of the bridge.
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    # Invalid values of the key that were reported, keyed by the name of the bridge.
    _invalid: dict[str, str] = field(default_factory=dict)

    def reverts_s(self) -> float:
        """Return when the first rollback is due; infinity if no change can be rolled back now."""
        return min((there.due_s for there in self._next()), default=float("inf"))

    def _next(self) -> list[_Waiting]:
        """Return the unconfirmed changes on bridges that no other request is changing."""
        if not self._waiting or not self.fleet.leads:
            return []
        waiting = [one for one in self._waiting.values() if one.step is Step.WAIT and not one.over]
        in_hand = self.jobs.in_hand
        return [one for one in waiting if one.name not in in_hand]

    def follow_database(self, now_s: float) -> Commands:
        """Update the unconfirmed changes from the database. Report invalid values."""
        commands: Commands = []
        for name, row in self.fleet.rows.items():
            known = self._waiting.get(name)
            if known is not None and known.step is not Step.WAIT:
                continue
            if (text := row.external_ids.get(UNCONFIRMED)) is None:
                self._waiting.pop(name, None)
                continue
            try:
                change = unconfirmed.parse(text)
            except ValueError:
                if self._invalid.get(name) != text:
                    self._invalid[name] = text
                    found = f"Bridge {name}: the service did not write this value of {UNCONFIRMED}"
                    remove = f"ovs-vsctl remove bridge {quoted(name)} external_ids {UNCONFIRMED}"
                    commands.append(Report("warning", f"{found}; to remove it: {remove}"))
                continue
            if known is not None and known.change.is_same(change):
                continue
            # From now on, use the monotonic clock, because the host's clock can be set.
            due_s = now_s + change.left_s(self.fleet.epoch_s + now_s) + GRACE_S
            assert due_s > now_s, "there is time to confirm a change"
            due_s = now_s if change.begun else due_s
            self._waiting[name] = _Waiting(self.jobs, name=name, change=change, due_s=due_s)
        for name in self._waiting.keys() - self.fleet.rows.keys():
            del self._waiting[name]
        return commands

    def follow_clock(self) -> Commands:
        """Store the deadlines again, after the host's clock was set: the time to confirm does not change."""
        settings = tuple(
            replace(there.change, until_s=until_s).as_setting(there.name)
            for there in self._next()
            if not there.failed and not there.change.begun
            if (until_s := self.fleet.epoch_s + there.due_s - GRACE_S) > 0
        )
        return [Write(settings)] if settings else []

    # ---- requests ------------------------------------------------------------------------

    def confirm(self, request_id: int, row: BridgeRow, now_s: float) -> Doing:
        """Confirm a bridge's change, so that it is not rolled back.

        Raises:
            Refused: the bridge has no unconfirmed change, or its rollback has begun.
        """
        name = row.name
        there = self._there(name)
        late = now_s >= there.due_s - GRACE_S and not there.failed
        if late or there.step is not Step.WAIT:
            raise Refused(unconfirmed.too_late(name, there.change))

        def confirmed(at_s: float) -> tuple[Commands, str]:
            text = f"{there.change.what} confirmed"
            there.over = True
            entry = Entry(Happened.CONFIRMED, at_s, name, text)
            return [Record(entry), Report("info", f"{name}: {text}")], f"{name}: {text}"

        gone = Setting("Bridge", name, UNCONFIRMED, None)
        doing = self.jobs.store(request_id, name, [gone], confirmed)
        note = f"bridge {name}: would confirm the change by {there.change.what}"
        return replace(doing, settings=(), notes=(note,))

    def set(
        self,
        request_id: int,
        row: BridgeRow,
        settings: tuple[Setting, ...],
        wait_s: float,
        now_s: float,
    ) -> Doing:
        """Write settings that must be confirmed within `wait_s`.

        Raises:
            Refused: the bridge already has an unconfirmed change.
        """
        epoch_now_s = self.fleet.epoch_s + now_s
        unconfirmed.refuse_waiting(row, epoch_now_s)
        back = unconfirmed.before_set(row, settings)
        change = Unconfirmed(What.SET, epoch_now_s + wait_s, wait_s, back)

        def done(at_s: float) -> tuple[Commands, str]:
            return [], waiting(row.name, change, self.fleet.epoch_s + at_s)

        written = (*settings, change.as_setting(row.name))
        return self.jobs.store(request_id, row.name, written, done)

    def revert(self, request_id: int, row: BridgeRow, now_s: float) -> Doing:
        """Roll back a bridge's unconfirmed change now.

        Raises:
            Refused: the bridge has no unconfirmed change.
        """
        there = self._there(row.name)
        change, waits = there.change, there.step is Step.WAIT
        if waits:
            self.jobs.refuse_in_hand(row.name)

        def carry_out() -> Commands:
            if waits:
                return there.begin([request_id], early=now_s < there.due_s - GRACE_S)
            there.asked.append(request_id)
            return []

        back = unconfirmed.restored(change, row) if change.what is What.SET else ()
        note = f"bridge {row.name}: would roll back the change by {change.what}"
        return Doing(row.name, carry_out, back, notes=(note,))

    def _there(self, name: str) -> _Waiting:
        if (there := self._waiting.get(name)) is None or there.over:
            raise Refused(unconfirmed.nothing_waits(name))
        return there

    def abandon_reversals(self) -> list[int]:
        """Leave rollbacks to the new leader. Return the numbers of requests for rollbacks."""
        asked = [number for one in self._waiting.values() for number in one.asked]
        for one in self._waiting.values():
            one.step, one.asked = Step.WAIT, []
        return asked

    def revert_due(self, now_s: float) -> Commands:
        """Begin the rollbacks that are due. Called after each event."""
        due = [there for there in self._next() if there.due_s <= now_s]
        return [command for there in due for command in there.begin([], early=False)]


def _rolled_back(change: Unconfirmed, early: bool) -> str:
    """Describe the rollback of a change: by an operator (`early`), or by the timer, with the deadline."""
    if early:
        return f"{change.what} rolled back by an operator"
    return f"{change.what} rolled back by the timer, not confirmed by {time_of_day(change.until_s)}"
