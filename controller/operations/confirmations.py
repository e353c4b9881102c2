"""Changes that wait to be confirmed: each is reverted when its time has passed.

The database says what waits, so this also serves a change that was made before this service
started. A reversal first writes that it has begun. If the database cannot store that, nothing is
changed, and it is tried again. Then it takes the same way as the request of an operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from controller.api.events import Record, Reply, Report, Setting, Write, Written
from controller.api.history import Entry, Happened
from controller.bridge.bridge import Commands
from controller.bridge.fleet import Fleet
from controller.config.rows import BridgeRow
from controller.operations import unconfirmed
from controller.operations.attach_detach import AttachDetach
from controller.operations.attach_settings import Refused, refuse_waiting
from controller.operations.unconfirmed import (
    GRACE_S,
    NOTHING_WAITS,
    UNCONFIRMED,
    Unconfirmed,
    What,
    waiting,
)
from controller.text.wording import quoted

# How long after a reversal that failed the next one begins.
RETRY_S = 2.0


@dataclass(slots=True)
class _Waiting:
    """A change that waits. `due_s`: when it is reverted. `failed`: why it was not, the last time."""

    change: Unconfirmed
    due_s: float
    failed: str = ""


@dataclass(slots=True)
class _Reversal:
    """A reversal in progress. `asked`: the requests that wait for it. `early`: its time has not passed.

    `begun`: the database says so.
    """

    bridge: str
    change: Unconfirmed
    asked: list[int]
    early: bool
    begun: bool = False


@dataclass(frozen=True, slots=True)
class _Writing:
    """A change of settings, or a confirmation, that the database does not have yet."""

    bridge: str
    change: Unconfirmed
    confirms: bool


@dataclass(slots=True)
class Confirmations:
    """The changes of all bridges that wait to be confirmed."""

    fleet: Fleet
    attach_detach: AttachDetach
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    # By the number of the request that a reversal makes. Those of operators are positive.
    _reversals: dict[int, _Reversal] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(-1, -1))
    # By the number of an operator's request.
    _writing: dict[int, _Writing] = field(default_factory=dict)
    # By bridge: the change that was reverted last. The database may still show it for a moment.
    _reverted: dict[str, Unconfirmed] = field(default_factory=dict)
    # Invalid values that were reported.
    _invalid: dict[str, str] = field(default_factory=dict)

    @property
    def reverting(self) -> set[str]:
        """The bridges on which a change is being reverted."""
        return {reversal.bridge for reversal in self._reversals.values()}

    def reverts_s(self) -> float:
        """When the next change is to be reverted; infinity if none can be now."""
        return min((there.due_s for _, there in self._next()), default=float("inf"))

    def _next(self) -> list[tuple[str, _Waiting]]:
        """The changes that could be reverted as far as other requests are concerned."""
        if not self._waiting or not self.fleet.leads:
            return []
        busy = self.reverting | self.attach_detach.in_hand
        return [one for one in self._waiting.items() if one[0] not in busy]

    def follow_database(self, now_s: float) -> Commands:
        """Follow the database: what waits there, and what does not any more."""
        commands: Commands = []
        for name, row in self.fleet.rows.items():
            if (text := row.external_ids.get(UNCONFIRMED)) is None:
                self._waiting.pop(name, None)
                self._reverted.pop(name, None)
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
        known, reverted = self._waiting.get(name), self._reverted.get(name)
        if reverted is not None and reverted.is_same(change):
            return
        if known is not None and known.change.is_same(change):
            return
        # From now on, our own clock counts: the host's can be set meanwhile.
        due_s = now_s + change.left_s(self.fleet.epoch_s + now_s) + GRACE_S
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
        if late or name in self.reverting:
            what = there.change.what
            raise Refused(
                f"bridge {name}: {what} was not confirmed in time, and is being rolled back"
                f" -> {what} once more"
            )
        self._writing[request_id] = _Writing(name, there.change, confirms=True)
        return [Write((Setting("Bridge", name, UNCONFIRMED, None),), request_id)]

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
        refuse_waiting(row, epoch_now_s)
        back = unconfirmed.before_set(row, settings)
        change = Unconfirmed(What.SET, epoch_now_s + wait_s, wait_s, back)
        self._writing[request_id] = _Writing(row.name, change, confirms=False)
        return [Write((*settings, change.as_setting(row.name)), request_id)]

    def revert(self, request_id: int, row: BridgeRow, now_s: float) -> Commands:
        """Revert a change now.

        Raises:
            Refused: none waits.
        """
        name = row.name
        for reversal in self._reversals.values():
            if reversal.bridge == name:
                reversal.asked.append(request_id)
                return []
        there = self._there(name)
        if name in self.attach_detach.in_hand:
            raise Refused(f"bridge {name}: another request is changing it -> try again later")
        return self._begin(name, there, [request_id], early=now_s < there.due_s - GRACE_S)

    def _there(self, name: str) -> _Waiting:
        if name not in self._waiting:
            raise Refused(f"bridge {name}: nothing waits to be confirmed -> {NOTHING_WAITS}")
        return self._waiting[name]

    def abandon_reversals(self) -> list[int]:
        """Another service leads from now on, and reverts. Returns the requests that wait."""
        asked = [number for reversal in self._reversals.values() for number in reversal.asked]
        asked += self._writing
        self._reversals, self._writing = {}, {}
        return asked

    # ---- reversals -----------------------------------------------------------------------

    def revert_due(self, now_s: float) -> Commands:
        """Begin to revert what is due. Called after each event."""
        due = [(name, there) for name, there in self._next() if there.due_s <= now_s]
        return [command for name, there in due for command in self._begin(name, there, [])]

    def _begin(self, name: str, there: _Waiting, asked: list[int], early: bool = False) -> Commands:
        number = next(self._numbers)
        self._reversals[number] = _Reversal(name, there.change, asked, early)
        begun = replace(there.change, begun=True)
        return [Write((begun.as_setting(name),), number)]

    def written(self, event: Written, now_s: float) -> Commands | None:
        """The database has stored or refused something; None if it is not ours."""
        if (writing := self._writing.pop(event.request_id, None)) is not None:
            return self._stored(writing, event, now_s)
        reversal = self._reversals.get(event.request_id)
        if reversal is None:
            # An answer to a reversal that was abandoned.
            return [] if event.request_id < 0 else None
        if event.error is not None and (not reversal.begun or reversal.change.what is What.SET):
            text = f"database: {event.error}"
            return self._finish(
                event.request_id, Reply(event.request_id, text, refused=True), now_s
            )
        if not reversal.begun:
            reversal.begun = True
            try:
                return self._go_on(event.request_id, reversal, now_s)
            except Refused as refusal:
                reply = Reply(event.request_id, str(refusal), refused=True)
                return self._finish(event.request_id, reply, now_s)
        if reversal.change.what is What.SET:
            return self._finish(event.request_id, Reply(event.request_id, ""), now_s)
        return None

    def _go_on(self, number: int, reversal: _Reversal, now_s: float) -> Commands:
        """The database knows that it has begun: revert."""
        name, change = reversal.bridge, reversal.change
        row, bridge = self.fleet.rows.get(name), self.fleet.bridges.get(name)
        if row is None:
            raise Refused(f"bridge {name}: deleted meanwhile -> an existing bridge")
        done = Setting("Bridge", name, UNCONFIRMED, None)
        match change.what:
            case What.ATTACH if row.attached and bridge is not None:
                return self.attach_detach.detach(number, bridge, now_s, reverts=change)
            case What.DETACH if not row.attached:
                values = unconfirmed.values(change)
                return self.attach_detach.attach(number, row, values, now_s, reverts=change)
            case What.SET if row.attached:
                return [Write((*unconfirmed.restored(change, row), done), number)]
        # Somebody has attached or detached it meanwhile, directly in the database.
        reversal.change = replace(change, what=What.SET)
        return [Write((done,), number)]

    def with_own_answers(self, commands: Commands, now_s: float) -> Commands:
        """Commands, with what follows from the answers to our own requests in their place."""
        if not self._reversals:
            return commands
        taken: Commands = []
        for command in commands:
            if isinstance(command, Reply) and command.request_id in self._reversals:
                taken += self._finish(command.request_id, command, now_s)
            else:
                taken.append(command)
        return taken

    def _finish(self, number: int, reply: Reply, now_s: float) -> Commands:
        """A reversal is done, or is tried again later."""
        reversal = self._reversals.pop(number)
        name, what = reversal.bridge, reversal.change.what
        there = self._waiting.get(name)
        if reply.refused:
            text = (
                f"bridge {name}: {what} was not confirmed, and is not rolled back yet: {reply.text}"
            )
            told: Commands = [Reply(asked, text, refused=True) for asked in reversal.asked]
            if there is not None:
                if there.failed != reply.text:
                    told.append(Report("warning", text))
                there.due_s, there.failed = now_s + RETRY_S, reply.text
            return told
        if there is not None:
            self._reverted[name] = there.change
            what = there.change.what
            del self._waiting[name]
        asked_for = "as asked for" if reversal.early else "not confirmed in time"
        text = f"{what} rolled back, {asked_for}"
        # What attach told the first time needs no repetition.
        text += f"; {reply.text}" if reply.text and what is What.ATTACH else ""
        return [
            Record(Entry(Happened.REVERTED, now_s, name, text)),
            Report("warning", f"{name}: {text}"),
            *(Reply(asked, f"{name}: {text}") for asked in reversal.asked),
        ]

    def _stored(self, writing: _Writing, event: Written, now_s: float) -> Commands:
        name, number = writing.bridge, event.request_id
        if event.error is not None:
            return [Reply(number, f"database: {event.error}", refused=True)]
        if not writing.confirms:
            return [Reply(number, waiting(name, writing.change, self.fleet.epoch_s + now_s))]
        text = f"{writing.change.what} confirmed"
        self._waiting.pop(name, None)
        return [
            Record(Entry(Happened.CONFIRMED, now_s, name, text)),
            Report("info", f"{name}: {text}"),
            Reply(number, f"{name}: {text}"),
        ]
