"""Requests that take several events: each is a job on one bridge.

The step of a job defines what it has sent, and what it waits for. Answers of the database are assigned to a
job by its number. A job that attaches or detaches a bridge exists until nothing is left to do on the switch,
also after its request has been answered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from controller.api.engine_commands import Reply, Setting, Write
from controller.api.events import ForwardingByOne, Written
from controller.bridge.bridge import Bridge, Commands
from controller.bridge.fleet import Fleet
from controller.config.reader import read_bridge
from controller.config.rows import PREFIX, BridgeRow
from controller.config.values import BridgeConfig, UplinkConfig
from controller.operations.unconfirmed import Unconfirmed
from controller.text.wording import OUR_LOG, Refused, one_line
from policies.model import Role

# More time for each VM port of a large bridge: each has some twenty flows and groups.
TIMEOUT_PER_PORT_S, LARGE_PORTS = 0.03, 300
# An operator is waiting. The last learning packet is sent 3 s after a move.
DRAIN_TIMEOUT_S = 10.0
# How a job answers: with the text, whether the request is refused, and the time.
Tell = Callable[[str, bool, float], Commands]
# What follows when the database has stored settings, at that time: commands, and the answer.
Then = Callable[[float], tuple[Commands, str]]


class Step(Enum):
    """A step of a job. Which steps a job takes, and in which order, is in the docstring of its class."""

    # The settings are sent to the database. Waits for its answer.
    STORE = auto()

    # The switch is read. Waits until all is known on which an attach depends. Nothing is changed so far.
    READ = auto()
    # The database has the settings. Waits until it reports them; then our pipeline is sent.
    TAKE_OVER = auto()
    # The new fail mode is sent to the database. Waits until the switch has flushed all flows for it.
    FLUSH = auto()
    # Waits until the switch has the whole pipeline; then the request is answered.
    INSTALL = auto()

    # Units move to the member by which NORMAL takes over. Waits until frames come by it.
    GATHER = auto()
    # What is ours is removed from the switch. Waits until nothing of it is left.
    REMOVE = auto()
    # NORMAL over all plain uplinks would be a loop: it is made to forward by one. Waits until it does.
    FORWARD = auto()
    # The settings are removed from the database. Waits for its answer.
    FORGET = auto()

    # The settings are no longer in force, or an attach has failed and its settings are being undone.
    # Waits for the database's answer if there was none, and until the switch has nothing of ours.
    LEAVE = auto()

    # The uplink is drained. Waits until no unit uses it, and the learning packets are sent.
    EMPTY = auto()

    # A change waits to be confirmed. Waits until its time has passed, or for a rollback by an operator.
    WAIT = auto()
    # The database is told that a reversal has begun. Waits for its answer.
    BEGIN = auto()
    # The change is reverted. Waits until it is: for the database, or for an attach or a detach.
    REVERT = auto()


@dataclass(slots=True, eq=False)
class Job:
    """A request in progress on one bridge.

    `number`: of the request; below zero if the service made it itself. `name`: of the bridge.
    `tell`: gives the answer; None after the answer.
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
        """The records of the bridge; None if it was deleted."""
        return self.fleet.rows.get(self.name)

    def written(self, error: str | None, now_s: float) -> Commands:
        """The database, or in step FORWARD the switch, has done or refused what the job has sent."""
        raise NotImplementedError

    def proceed(self, now_s: float) -> Commands:
        """Go on as far as possible. Called after each event."""
        return []

    def goes_on_s(self) -> float:
        """When the job goes on although nothing has happened; infinity if it only waits."""
        return float("inf")

    def interrupted(self, why: str, now_s: float) -> Commands:
        """A fault of ovs-lbt has interrupted the job."""
        return self.end(why, now_s, refused=True)

    def blame(self, since_s: float) -> str:
        """The fault of ovs-lbt since then that has delayed the job, as the end of an answer; may be empty."""
        fault = self.fleet.blamed(self.name, since_s)
        return f", because ovs-lbt itself failed: {fault.text}; {OUR_LOG}" if fault else ""

    def give_answer(self, text: str, now_s: float, refused: bool = False) -> Commands:
        """Give the answer. The job goes on."""
        assert self.tell is not None, "a request is answered once"
        tell, self.tell = self.tell, None
        return tell(text, refused, now_s)

    def end(self, text: str, now_s: float, refused: bool = False) -> Commands:
        """Give the answer if it was not given; the job is done."""
        self.jobs.forget(self)
        return [] if self.tell is None else self.give_answer(text, now_s, refused)


@dataclass(slots=True, eq=False, kw_only=True)
class Store(Job):
    """A request that only stores settings in the database. One step: STORE. `then`: what follows it."""

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
    """A drain in progress: STORE, EMPTY.

    `ports`, `addresses`: the number of VM ports, and of addresses behind VM ports, that used the
    uplink.
    """

    uplink: str
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
            expected = "allow these VM ports another uplink that is up"
            return self._refuse(f"{found}; {expected}", now_s)
        if not in_time and not bridge.settled:
            found = "drained, but the switch has not confirmed the moves"
            return self._refuse(f"{found}{cause}", now_s)
        text = f"{self.uplink}: idle, {self.ports} VM port{'' if self.ports == 1 else 's'}"
        if self.addresses:
            text += f" and {self.addresses} address{'' if self.addresses == 1 else 'es'}"
        text += " moved"
        if bridge.config.on_a_lag:
            text += "; the upstream switch continues to send on it until its link goes down"
        return self.end(text, now_s)

    def _refuse(self, why: str, now_s: float) -> Commands:
        return self.end(f"uplink {self.uplink}: {why}", now_s, refused=True)


@dataclass(slots=True, eq=False, kw_only=True)
class Change(Job):
    """An attach or a detach. It ends when nothing is left to do on the switch, also after its answer.

    `began_s`, `deadline_s`: when it began, and when it must end. `waits`: the change that must be confirmed
    afterwards, if any. `reverts`: the change that it reverts, if any. `undone`: the answer of an attach that
    has failed, once its settings are undone.
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
        """The job still ends properly: an attach is undone, a detach goes on."""
        return []

    def give_back(self, bridge: Bridge, now_s: float) -> Commands:
        """Remove everything of ours from the switch. A fault of ovs-lbt may delay that, but not the job."""
        return self.fleet.alone(self.name, lambda: bridge.give_back(now_s), now_s)

    def leave(self, now_s: float) -> Commands:
        """Drop the bridge once nothing of ours is left on it.

        If the switch did not answer in time, it may still receive what was sent before. That is
        removed when it answers.
        """
        bridge, row = self.bridge, self.row
        if bridge is None or row is None:
            return self.end(self.undone, now_s, refused=True)
        if self.tell is not None or not bridge.settled or bridge.installed_anything:
            return []
        self.jobs.forget(self)
        assert self.step is Step.LEAVE, "a bridge is dropped when its settings are gone"
        commands = self.fleet.drop(self.name)
        # An operator has attached it again, directly in the database.
        return [*commands, *self.fleet.manage(read_bridge(row))] if row.attached else commands


@dataclass(slots=True)
class Jobs:
    """The jobs in progress."""

    fleet: Fleet
    # In the order in which they have begun.
    _by_number: dict[int, Job] = field(default_factory=dict)
    # The numbers of requests that the service makes itself.
    own_numbers: count[int] = field(default_factory=lambda: count(-1, -1))

    @property
    def concerned(self) -> set[str]:
        """The bridges with a job."""
        return {job.name for job in self._by_number.values()}

    @property
    def in_hand(self) -> set[str]:
        """The bridges that a request is attaching or detaching. No other request may change them."""
        return {job.name for job in self._by_number.values() if isinstance(job, Change)}

    def refuse_in_hand(self, bridge: str) -> None:
        """Refuse to change a bridge that another request is changing.

        Raises:
            Refused: one does.
        """
        if bridge in self.in_hand:
            raise Refused(f"another request is changing bridge {bridge}; try again later")

    def begin(self, job: Job) -> None:
        """Begin a job. It takes the place of one with its number: its answer is the answer of that one."""
        assert not (isinstance(job, Change) and job.name in self.in_hand), "a bridge in hand"
        before = self._by_number.get(job.number)
        assert before is None or before.step is Step.REVERT, "a number is one request"
        job.tell = job.tell or (before.tell if before is not None else _reply(job.number))
        self._by_number[job.number] = job

    def forget(self, job: Job) -> None:
        """A job is done."""
        if self._by_number.get(job.number) is job:
            del self._by_number[job.number]

    def store(
        self, number: int, bridge: str, settings: Iterable[Setting], done: str | Then = ""
    ) -> Commands:
        """Write the settings of an operator's request, and answer with what was `done`."""
        then = (lambda _now_s: ([], one_line(done))) if isinstance(done, str) else done
        self.begin(Store(self, number, bridge, then=then))
        return [Write(tuple(settings), number)]

    def take_answer(self, event: Written, now_s: float) -> Commands:
        """The database has stored or refused the settings of a job. One that is gone needs no answer."""
        job = self._by_number.get(event.request_id)
        if job is None:
            return []
        return self._alone(job, lambda: job.written(event.error, now_s), now_s)

    def forwards_by_one(self, event: ForwardingByOne, now_s: float) -> Commands:
        """A bridge of plain uplinks forwards by one of them now, or could not be made to."""
        waiting = (job for job in self._by_number.values() if job.step is Step.FORWARD)
        if (job := next((job for job in waiting if job.name == event.bridge), None)) is None:
            return []
        return self._alone(job, lambda: job.written(event.error, now_s), now_s)

    def go_on(self, now_s: float) -> Commands:
        """Each job goes on as far as possible. Called after each event.

        First those that attach or detach a bridge: other jobs end when they drop it.
        """
        commands = Commands()
        for job in sorted(self._by_number.values(), key=lambda job: not isinstance(job, Change)):
            commands += self._alone(job, functools.partial(job.proceed, now_s), now_s)
        return commands

    def _alone(self, job: Job, go_on: Callable[[], Commands], now_s: float) -> Commands:
        """Let a job go on. A fault of ovs-lbt concerns its bridge only."""
        try:
            return go_on()
        except Exception as error:
            failed = self.fleet.failed(job.name, error, now_s)
            return [*failed, *job.interrupted(self.fleet.failures[job.name].why, now_s)]

    def next_s(self) -> float:
        """When the first of them goes on although nothing has happened; infinity if none does."""
        return min((job.goes_on_s() for job in self._by_number.values()), default=float("inf"))

    def abandon(self) -> list[int]:
        """Drop all jobs as they are. Returns the requests that wait for an answer."""
        waiting = [n for n, job in self._by_number.items() if n > 0 and job.tell is not None]
        self._by_number = {}
        return waiting


def _reply(request_id: int) -> Tell:
    """Answer an operator's request."""
    return lambda text, refused, _now_s: [Reply(request_id, text, refused)]


def longer_s(config: BridgeConfig) -> float:
    """How much longer the pipeline of a large bridge may take."""
    return TIMEOUT_PER_PORT_S * max(0, len(config.vm_ports) - LARGE_PORTS)


def drained(uplink: UplinkConfig) -> tuple[Setting, ...]:
    """The settings that drain an uplink and save its previous role."""
    before = None if uplink.role is Role.ACTIVE else uplink.role.value
    return (_setting(uplink, "role", Role.DRAINED.value), _setting(uplink, "role-before", before))


def undrained(uplink: UplinkConfig) -> tuple[Setting, ...]:
    """The settings that restore the uplink's previous role."""
    role = None if uplink.role_before is Role.ACTIVE else uplink.role_before.value
    return (_setting(uplink, "role", role), _setting(uplink, "role-before", None))


def _setting(uplink: UplinkConfig, key: str, value: str | None) -> Setting:
    return Setting("Interface", uplink.name, PREFIX + key, value)
