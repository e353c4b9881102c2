"""Changes that wait to be confirmed: each is reverted when its time has passed.

The database says what waits, so this also serves a change that was made before this service
started. A reversal first writes that it has begun. If the database cannot store that, nothing is
changed, and it is tried again. Then it takes the same way as the request of an operator.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import Record, Reply, Report, Setting, Write
from controller.api.history import Entry, Happened
from controller.bridge.bridge import Commands
from controller.bridge.fleet import Fleet
from controller.config.rows import PREFIX, BridgeRow
from controller.operations import unconfirmed
from controller.operations.attach import attach
from controller.operations.detach import detach
from controller.operations.jobs import Job, Jobs, Step
from controller.operations.unconfirmed import (
    GRACE_S,
    NOTHING_WAITS,
    UNCONFIRMED,
    Unconfirmed,
    What,
    waiting,
)
from controller.text.wording import Refused, quoted, time_of_day

# How long after a reversal that failed the next one begins.
RETRY_S = 2.0


@dataclass(slots=True)
class _Waiting:
    """A change that waits. `due_s`: when it is reverted. `failed`: why it was not, the last time.

    `over`: it was confirmed or reverted. The database may still show it for a moment.
    """

    change: Unconfirmed
    due_s: float
    failed: str = ""
    over: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class _Reversal(Job):
    """A reversal in progress: BEGIN, REVERT. An attach or a detach takes its place, and its number.

    `asked`: the requests that wait for it. `early`: its time has not passed.
    """

    step: Step = Step.BEGIN
    change: Unconfirmed
    asked: list[int]
    early: bool

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
        """The database knows that it has begun: revert."""
        row, bridge, change = self.row, self.bridge, self.change
        if row is None:
            raise Refused(f"bridge {self.name}: deleted meanwhile -> an existing bridge")
        done = Setting("Bridge", self.name, UNCONFIRMED, None)
        observes = Setting("Bridge", self.name, PREFIX + "mode", "observe") in change.back
        if bridge is not None and (change.what is What.ATTACH or observes):
            bridge.handover.because = _rolled_back(change, self.early)
        match change.what:
            case What.ATTACH if row.attached and bridge is not None:
                return detach(self.jobs, self.number, bridge, now_s, reverts=change)
            case What.DETACH if not row.attached:
                given = unconfirmed.values(change)
                return attach(self.jobs, self.number, row, given, now_s, reverts=change)
            case What.SET if row.attached:
                return [Write((*unconfirmed.restored(change, row), done), self.number)]
        # Somebody has attached or detached it meanwhile, directly in the database.
        self.change = replace(change, what=What.SET)
        return [Write((done,), self.number)]


@dataclass(slots=True)
class Confirmations:
    """The changes of all bridges that wait to be confirmed."""

    fleet: Fleet
    jobs: Jobs
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    # By bridge.
    _reversals: dict[str, _Reversal] = field(default_factory=dict)
    # Invalid values that were reported.
    _invalid: dict[str, str] = field(default_factory=dict)

    def reverts_s(self) -> float:
        """When the next change is to be reverted; infinity if none can be now."""
        return min((there.due_s for _, there in self._next()), default=float("inf"))

    def _next(self) -> list[tuple[str, _Waiting]]:
        """The changes that could be reverted as far as other requests are concerned."""
        if not self._waiting or not self.fleet.leads:
            return []
        busy = self._reversals.keys() | self.jobs.in_hand
        waiting = self._waiting.items()
        return [(name, there) for name, there in waiting if not there.over and name not in busy]

    def follow_database(self, now_s: float) -> Commands:
        """Follow the database: what waits there, and what does not any more."""
        commands: Commands = []
        for name, row in self.fleet.rows.items():
            if (text := row.external_ids.get(UNCONFIRMED)) is None:
                self._waiting.pop(name, None)
                continue
            try:
                change = unconfirmed.parse(text)
            except ValueError:
                if self._invalid.get(name) != text:
                    self._invalid[name] = text
                    found = f"Bridge {name} {UNCONFIRMED}: what the service did not write"
                    expected = f"ovs-vsctl remove bridge {quoted(name)} external_ids {UNCONFIRMED}"
                    commands.append(Report("warning", f"{found} -> {expected}"))
                continue
            self._follow(name, change, now_s)
        for name in self._waiting.keys() - self.fleet.rows.keys():
            del self._waiting[name]
        return commands

    def _follow(self, name: str, change: Unconfirmed, now_s: float) -> None:
        if (known := self._waiting.get(name)) is not None and known.change.is_same(change):
            return
        # From now on, our own clock counts: the host's can be set meanwhile.
        due_s = now_s + change.left_s(self.fleet.epoch_s + now_s) + GRACE_S
        assert due_s > now_s, "there is time to confirm a change"
        self._waiting[name] = _Waiting(change, now_s if change.begun else due_s)

    # ---- requests ------------------------------------------------------------------------

    def confirm(self, request_id: int, row: BridgeRow, now_s: float) -> Commands:
        """Keep a change.

        Raises:
            Refused: none waits, or it is being reverted.
        """
        name = row.name
        there = self._there(name)
        late = now_s >= there.due_s - GRACE_S and not there.failed
        if late or name in self._reversals:
            what = there.change.what
            raise Refused(
                f"bridge {name}: {what} was not confirmed in time, and is being rolled back"
                f" -> {what} once more"
            )

        def confirmed(at_s: float) -> tuple[Commands, str]:
            text = f"{there.change.what} confirmed"
            there.over = True
            entry = Entry(Happened.CONFIRMED, at_s, name, text)
            return [Record(entry), Report("info", f"{name}: {text}")], f"{name}: {text}"

        return self.jobs.store(
            request_id, name, [Setting("Bridge", name, UNCONFIRMED, None)], confirmed
        )

    def set(
        self,
        request_id: int,
        row: BridgeRow,
        settings: tuple[Setting, ...],
        wait_s: float,
        now_s: float,
    ) -> Commands:
        """Write settings that wait to be confirmed.

        Raises:
            Refused: another change of the bridge waits.
        """
        epoch_now_s = self.fleet.epoch_s + now_s
        unconfirmed.refuse_waiting(row, epoch_now_s)
        back = unconfirmed.before_set(row, settings)
        change = Unconfirmed(What.SET, epoch_now_s + wait_s, wait_s, back)

        def done(at_s: float) -> tuple[Commands, str]:
            return [], waiting(row.name, change, self.fleet.epoch_s + at_s)

        written = (*settings, change.as_setting(row.name))
        return self.jobs.store(request_id, row.name, written, done)

    def revert(self, request_id: int, row: BridgeRow, now_s: float) -> Commands:
        """Revert a change now.

        Raises:
            Refused: none waits.
        """
        name = row.name
        if (reversal := self._reversals.get(name)) is not None:
            reversal.asked.append(request_id)
            return []
        there = self._there(name)
        self.jobs.refuse_in_hand(name)
        return self._begin(name, there, [request_id], early=now_s < there.due_s - GRACE_S)

    def _there(self, name: str) -> _Waiting:
        if (there := self._waiting.get(name)) is None or there.over:
            raise Refused(f"bridge {name}: nothing waits to be confirmed -> {NOTHING_WAITS}")
        return there

    def abandon_reversals(self) -> list[int]:
        """Another service leads from now on, and reverts. Returns the requests that wait."""
        asked = [number for reversal in self._reversals.values() for number in reversal.asked]
        self._reversals = {}
        return asked

    # ---- reversals -----------------------------------------------------------------------

    def revert_due(self, now_s: float) -> Commands:
        """Begin to revert what is due. Called after each event."""
        due = [(name, there) for name, there in self._next() if there.due_s <= now_s]
        return [command for name, there in due for command in self._begin(name, there, [])]

    def _begin(self, name: str, there: _Waiting, asked: list[int], early: bool = False) -> Commands:
        assert name not in self._reversals, "a change is reverted once at a time"
        self._reversals[name] = reversal = _Reversal(
            self.jobs,
            next(self.jobs.own_numbers),
            name,
            tell=functools.partial(self._finish, name),
            change=there.change,
            asked=asked,
            early=early,
        )
        self.jobs.begin(reversal)
        begun = replace(there.change, begun=True)
        return [Write((begun.as_setting(name),), reversal.number)]

    def _finish(self, name: str, answer: str, refused: bool, now_s: float) -> Commands:
        """A reversal is done, or is tried again later."""
        reversal = self._reversals.pop(name)
        change, there = reversal.change, self._waiting.get(name)
        if refused:
            text = f"bridge {name}: {change.what} was not confirmed, and is not rolled back yet: {answer}"
            told: Commands = [Reply(asked, text, refused=True) for asked in reversal.asked]
            if there is not None:
                if there.failed != answer:
                    told.append(Report("warning", text))
                there.due_s, there.failed = now_s + RETRY_S, answer
            return told
        if there is not None:
            change, there.over = there.change, True
        text = _rolled_back(change, reversal.early)
        # What attach told the first time needs no repetition.
        text += f"; {answer}" if answer and change.what is What.ATTACH else ""
        return [
            Record(Entry(Happened.REVERTED, now_s, name, text)),
            Report("warning", f"{name}: {text}"),
            *(Reply(asked, f"{name}: {text}") for asked in reversal.asked),
        ]


def _rolled_back(change: Unconfirmed, early: bool) -> str:
    """Who has rolled back a change: an operator, `early`, or the timer, and when that was due."""
    if early:
        return f"{change.what} rolled back by an operator"
    return f"{change.what} rolled back by the timer, not confirmed by {time_of_day(change.until_s)}"
