"""Runs requests that take several events, as jobs in steps: each job changes one bridge.

A step consists of a message that the job has sent, and a condition for which the job waits. A job's
number identifies the database's answers to the job. A job that attaches or detaches a bridge ends
when no work is left on the switch, possibly after the answer to the request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from controller.api.engine_commands import Reply, Setting, Write
from controller.api.events import ForwardingByOne, Written
from controller.api.history import Moved
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.fleet import Fleet
from controller.config import controllers
from controller.config.reader import read_bridge
from controller.config.rows import BridgeRow
from controller.config.values import BridgeConfig
from controller.operations.unconfirmed import Unconfirmed
from controller.text.wording import OUR_LOG, Refused, one_line
from policies.model import Role

# The additional time for each VM port of a large bridge: a port has about twenty flows and groups.
TIMEOUT_PER_PORT_S, LARGE_PORTS = 0.03, 300
# Open vSwitch waits at most this long, by default, before it connects to a controller again.
RECONNECT_S = 8.0
# An operator waits at most this long for the answer. The last learning packet is sent 3 s after a move.
DRAIN_TIMEOUT_S = 10.0
# Sends the answer of a job: the text, whether the request is refused, and the time.
Tell = Callable[[str, bool, float], Commands]
# Returns commands, and the answer, once the database has stored the settings (at the given time).
Then = Callable[[float], tuple[Commands, str]]


class Step(Enum):
    """A step of a job. The docstring of each job class lists the steps of that job in order."""

    # The settings are sent to the database. Waits for the database's answer.
    STORE = auto()

    # The switch is read. Waits for all data that an attach depends on. Nothing has been changed so far.
    READ = auto()
    # The database has stored the settings. Waits until the database reports them; then our pipeline is sent.
    TAKE_OVER = auto()
    # The new fail mode is sent to the database. Waits until the switch has flushed all flows for it.
    FLUSH = auto()
    # Waits until the switch has the whole pipeline; then the request is answered.
    INSTALL = auto()

    # Units move to the member on which NORMAL will forward. Waits until frames arrive on this member.
    GATHER = auto()
    # Our flows and groups are removed from the switch. Waits until all are removed.
    REMOVE = auto()
    # NORMAL on all plain uplinks would form a loop, so it is limited to one uplink. Waits for the limit.
    FORWARD = auto()
    # The settings are removed from the database. Waits for the database's answer.
    FORGET = auto()

    # The settings are no longer in force, or an attach has failed and its settings are rolled back.
    # Waits for the database's answer, and until the switch has no ovs-lbt flows or groups.
    LEAVE = auto()

    # The uplink is drained. Waits until no unit uses it, and the learning packets are sent.
    EMPTY = auto()

    # A change is in force, but not confirmed. Waits for the timer, or for a rollback by an operator.
    WAIT = auto()
    # The start of a reversal is written to the database. Waits for the database's answer.
    BEGIN = auto()
    # The change is being reverted. Waits for the database, or for the end of an attach or a detach.
    REVERT = auto()


@dataclass(slots=True, eq=False)
class Job:
    """A request in progress on one bridge.

    `number`: the number of the request; negative for requests of the service itself. `name`: the name
    of the bridge. `tell`: sends the answer; None once it has been sent.
    """

    jobs: Jobs
    number: int
    name: str
    step: Step
    tell: Tell | None = None

    @property
    def fleet(self) -> Fleet:
        return self.jobs.fleet

    @property
    def bridge(self) -> Bridge | None:
        """The bridge; None if the service no longer manages it."""
        return self.fleet.bridges.get(self.name)

    @property
    def row(self) -> BridgeRow | None:
        """The records of the bridge; None if the bridge was deleted."""
        return self.fleet.rows.get(self.name)

    def written(self, error: str | None, now_s: float) -> Commands:
        """Handle the database's answer (in step FORWARD: the switch's). `error`: None on success."""
        raise NotImplementedError

    def proceed(self, now_s: float) -> Commands:
        """Perform all steps that are possible now. Called after each event."""
        return []

    def goes_on_s(self) -> float:
        """Return when the job continues even without an event; infinity if it needs an event."""
        return float("inf")

    def interrupted(self, why: str, now_s: float) -> Commands:
        """Refuse the request, because a fault in ovs-lbt has interrupted the job."""
        return self.end(why, now_s, refused=True)

    def blame(self, since_s: float) -> str:
        """Return a clause that blames an ovs-lbt fault since `since_s`; empty if there is none."""
        fault = self.fleet.blamed(self.name, since_s)
        return f", because ovs-lbt itself failed: {fault.text}; {OUR_LOG}" if fault else ""

    def give_answer(self, text: str, now_s: float, refused: bool = False) -> Commands:
        """Send the answer. The job continues."""
        assert self.tell is not None, "a request is answered once"
        tell, self.tell = self.tell, None
        return tell(text, refused, now_s)

    def end(self, text: str, now_s: float, refused: bool = False) -> Commands:
        """End the job. Send the answer if it has not been sent."""
        self.jobs.forget(self)
        return [] if self.tell is None else self.give_answer(text, now_s, refused)


@dataclass(slots=True, eq=False, kw_only=True)
class Store(Job):
    """A request that only stores settings, and then calls `then`. Its only step is STORE."""

    then: Then
    step: Step = Step.STORE

    def written(self, error: str | None, now_s: float) -> Commands:
        assert self.step is Step.STORE, "settings are written once"
        if error is not None:
            return self.end(f"database: {error}", now_s, refused=True)
        commands, text = self.then(now_s)
        return [*commands, *self.end(text, now_s)]


@dataclass(slots=True, eq=False, kw_only=True)
class Drain(Job):
    """A drain in progress. Its steps: STORE, EMPTY.

    `ports`, `addresses`: the number of VM ports, and of addresses behind VM ports, that used the
    uplink. `notes`: further lines of the answer.
    """

    uplink: str
    notes: tuple[str, ...] = ()
    ports: int
    addresses: int
    deadline_s: float

    def written(self, error: str | None, now_s: float) -> Commands:
        assert self.step is Step.STORE, "the role is written once"
        if error is not None:
            return self.end(f"database: {error}", now_s, refused=True)
        self.step = Step.EMPTY
        return []

    def goes_on_s(self) -> float:
        return self.deadline_s if self.step is Step.EMPTY else float("inf")

    def proceed(self, now_s: float) -> Commands:
        """Answer once the uplink is idle and the learning packets are sent."""
        bridge = self.bridge
        if bridge is None:
            return self._refuse("the bridge was detached during the drain", now_s)
        roles = {uplink.name: uplink.role for uplink in bridge.config.uplinks}
        over = roles.get(self.uplink) in (Role.DRAINED, None) and bridge.at_rest
        in_time = now_s < self.deadline_s
        if self.step is Step.STORE or (in_time and not over):
            return []
        cause = self.blame(self.deadline_s - DRAIN_TIMEOUT_S) or bridge.awaited
        if not bridge.connected:
            return self._refuse(f"drained, but the switch is not connected{cause}", now_s)
        if remaining := bridge.placing.planned.on(self.uplink):
            found = f"drained, but still used by {', '.join(remaining)}"
            expected = "allow these VM ports to use another uplink that is up"
            return self._refuse(f"{found}; {expected}", now_s)
        if not in_time and not bridge.settled:
            found = "drained, but the switch has not confirmed the moves"
            return self._refuse(f"{found}{cause}", now_s)
        text = f"{self.uplink}: idle, {self.ports} VM port{'' if self.ports == 1 else 's'}"
        if self.addresses:
            text += f" and {self.addresses} address{'' if self.addresses == 1 else 'es'}"
        text += " moved"
        if bridge.config.on_a_lag:
            text += "; the upstream switch still sends on this uplink until the link goes down"
        return self.end("\n".join([text, *self.notes]), now_s)

    def _refuse(self, why: str, now_s: float) -> Commands:
        return self.end(f"uplink {self.uplink}: {why}", now_s, refused=True)


@dataclass(slots=True, eq=False, kw_only=True)
class Change(Job):
    """An attach or a detach. The job ends when no work is left on the switch, possibly after its answer.

    `began_s`, `deadline_s`: when the job started, and its latest end. `waits`: the change that must be
    confirmed afterwards, if any. `reverts`: the change that this job reverts, if any. `undone`: the answer
    of an attach that has failed, sent once its settings are rolled back.
    """

    began_s: float
    deadline_s: float
    undone: str = ""
    waits: Unconfirmed | None = None
    reverts: Unconfirmed | None = None

    def __post_init__(self) -> None:
        assert self.began_s < self.deadline_s < float("inf"), "no job waits for ever"
        assert self.waits is None or self.reverts is None, "a reversal is not reverted"

    def interrupted(self, why: str, now_s: float) -> Commands:
        """Do nothing, because the job still completes: an attach is rolled back, a detach continues."""
        return []

    def give_back(self, bridge: Bridge, now_s: float) -> Commands:
        """Remove our flows and groups from the switch. A fault in ovs-lbt only delays the removal."""
        return self.fleet.alone(self.name, lambda: bridge.give_back(now_s), now_s)

    def leave(self, now_s: float) -> Commands:
        """Stop managing the bridge once the switch has none of our flows and groups.

        If the switch did not answer in time, it may still process earlier messages. The flows and
        groups from these messages are removed when the switch answers.
        """
        bridge, row = self.bridge, self.row
        if bridge is None or row is None:
            return self.end(self.undone, now_s, refused=True)
        if self.tell is not None or not bridge.settled or bridge.installed_anything:
            return []
        self.jobs.forget(self)
        assert self.step is Step.LEAVE, "a bridge is dropped when its settings are gone"
        commands = self.fleet.drop(self.name)
        # If an operator has attached the bridge again in the database, it is managed again.
        return [*commands, *self.fleet.manage(read_bridge(row))] if row.attached else commands


@dataclass(frozen=True, slots=True)
class Doing:
    """The effects of a checked request on the bridge `name`. A dry run only describes them.

    `settings`: the settings that are written. `moves`: the moves that are made in addition to those
    that follow from the settings. `notes`: further lines of the description.
    """

    name: str
    carry_out: Callable[[], Commands]
    settings: tuple[Setting, ...] = ()
    moves: tuple[Moved, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Jobs:
    """Runs the jobs in progress, and passes the database's answers to these jobs."""

    fleet: Fleet
    # In the order of their start.
    _by_number: dict[int, Job] = field(default_factory=dict)
    # Numbers for requests that the service itself makes.
    own_numbers: count[int] = field(default_factory=lambda: count(-1, -1))

    @property
    def concerned(self) -> set[str]:
        """The names of the bridges that have a job in progress."""
        return {job.name for job in self._by_number.values()}

    @property
    def in_hand(self) -> set[str]:
        """The bridges that are being attached or detached, which other requests must not change."""
        return {job.name for job in self._by_number.values() if isinstance(job, Change)}

    @property
    def unanswered(self) -> bool:
        """Whether a request waits for its answer."""
        return any(job.tell is not None for job in self._by_number.values())

    def refuse_in_hand(self, bridge: str) -> None:
        """Refuse to change a bridge that is being attached or detached.

        Raises:
            Refused: another request is changing `bridge`.
        """
        if bridge in self.in_hand:
            raise Refused(f"another request is changing bridge {bridge}; try again later")

    def begin(self, job: Job) -> None:
        """Begin a job. It replaces any job with the same number, and takes over its request."""
        assert not (isinstance(job, Change) and job.name in self.in_hand), "one change at a time"
        before = self._by_number.get(job.number)
        assert before is None or before.step is Step.REVERT, "a number identifies one request"
        job.tell = job.tell or (before.tell if before is not None else _reply(job.number))
        self._by_number[job.number] = job

    def forget(self, job: Job) -> None:
        """Remove a job that has ended, and free its bridge for other requests."""
        if self._by_number.get(job.number) is job:
            del self._by_number[job.number]

    def store(
        self, number: int, bridge: str, settings: Iterable[Setting], done: str | Then = ""
    ) -> Doing:
        """Write the settings of an operator's request, and answer with `done` once they are stored."""
        then = (lambda _now_s: ([], one_line(done))) if isinstance(done, str) else done
        return self.writing(Store(self, number, bridge, then=then), settings)

    def writing(self, job: Job, to_write: Iterable[Setting], notes: tuple[str, ...] = ()) -> Doing:
        """Begin a job. If its first step is STORE, write its settings."""
        settings = tuple(to_write)

        def carry_out() -> Commands:
            self.begin(job)
            return [Write(settings, job.number)] if job.step is Step.STORE else []

        return Doing(job.name, carry_out, settings, notes=notes)

    def take_answer(self, event: Written, now_s: float) -> Commands:
        """Handle the database's answer to a job's settings. Ignore answers for jobs that have ended."""
        job = self._by_number.get(event.request_id)
        if job is None:
            return []
        return self._alone(job, lambda: job.written(event.error, now_s), now_s)

    def forwards_by_one(self, event: ForwardingByOne, now_s: float) -> Commands:
        """Handle the result of limiting a bridge with plain uplinks to one uplink."""
        waiting = (job for job in self._by_number.values() if job.step is Step.FORWARD)
        if (job := next((job for job in waiting if job.name == event.bridge), None)) is None:
            return []
        return self._alone(job, lambda: job.written(event.error, now_s), now_s)

    def go_on(self, now_s: float) -> Commands:
        """Continue all jobs as far as possible. Called after each event.

        Jobs that attach or detach run first, because other jobs end when their bridge is dropped.
        """
        commands = Commands()
        for job in sorted(self._by_number.values(), key=lambda job: not isinstance(job, Change)):
            commands += self._alone(job, functools.partial(job.proceed, now_s), now_s)
        return commands

    def _alone(self, job: Job, go_on: Callable[[], Commands], now_s: float) -> Commands:
        """Continue a job, and confine an ovs-lbt fault to the job's bridge."""
        try:
            return go_on()
        except Exception as error:
            failed = self.fleet.failed(job.name, error, now_s)
            return [*failed, *job.interrupted(self.fleet.failures[job.name].why, now_s)]

    def next_s(self) -> float:
        """Return when a job next continues without an event; infinity if all jobs need events."""
        return min((job.goes_on_s() for job in self._by_number.values()), default=float("inf"))

    def abandon(self) -> list[int]:
        """Drop all jobs in their current state. Return the numbers of the unanswered requests."""
        waiting = [n for n, job in self._by_number.items() if n > 0 and job.tell is not None]
        self._by_number = {}
        return waiting


def _reply(request_id: int) -> Tell:
    """Return a function that answers an operator's request."""
    return lambda text, refused, _now_s: [Reply(request_id, text, refused)]


def longer_s(fleet: Fleet, config: BridgeConfig) -> float:
    """Return the additional time for a large bridge, and for a switch that connects to the service."""
    large_s = TIMEOUT_PER_PORT_S * max(0, len(config.vm_ports) - LARGE_PORTS)
    targets = fleet.rows[config.name].controllers
    connects = any(controllers.is_ours(target, fleet.listens_on) for target in targets)
    return large_s + RECONNECT_S * connects
