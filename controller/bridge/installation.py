"""State of the switch: the installed flows and groups, the desired ones, the bundle under way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import ReadInstalled, Reply
from controller.api.events import BundleDone, InstalledRead
from controller.dataplane import diff, pipeline
from controller.dataplane.specs import EMPTY, Changes, FlowSpec, GroupSpec, Pipeline
from controller.dataplane.team import Team
from policies.model import Move

# How long the switch takes to carry a change of groups or links into its flow cache. Revalidation
# starts at once and takes some 20 µs for each cached flow. It may have to finish a round first; the
# broadcasts that a VM port misses meanwhile are few.
REVALIDATED_AFTER_S = 0.03
# How often to read back what is installed, to repair what another program removed.
AUDIT_INTERVAL_S = 10.0
# The pause between two such readings, and for how long, while the switch may flush all flows at any moment.
FLUSH_AUDIT_INTERVAL_S = 0.05
FLUSHED_WITHIN_S = 3.0
# A request names one of so many.
READINGS = 0x10000


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle under way. `waiting`: the requests it answers."""

    bundle_id: int
    step: Step
    moves: tuple[Move, ...]
    waiting: tuple[Reply, ...]


# Gives the learned flows that go with flows that are added to an installed pipeline.
Seeds = Callable[[Iterable[FlowSpec], Pipeline], tuple[FlowSpec, ...]]


@dataclass(frozen=True, slots=True)
class Step:
    """One step towards the desired pipeline: the changes, and the pipeline after them.

    `final`: whether that is the desired pipeline, rather than the first of two steps.
    """

    changes: Changes
    installs: Pipeline
    final: bool


@dataclass(slots=True)
class Installation:
    """The installed pipeline of one switch, and the bundle under way."""

    # Our flows and groups on the switch; None: not known.
    installed: Pipeline | None = None
    # The last reading, with the flows and groups of other programs; None: there was none.
    read: InstalledRead | None = None
    # The homes of buckets that the first reading of the switch showed, by unit name.
    found_homes: dict[str, str] = field(default_factory=dict)
    # Moves that go with the next bundle, and requests that wait for it.
    _moves: list[Move] = field(default_factory=list)
    _waiting: list[Reply] = field(default_factory=list)
    _bundle: Bundle | None = None
    _bundles: int = 0
    # The number of the readings that count. An answer with another one may be from before a bundle whose
    # result is not known.
    reading: int = 0
    # Until when no bundle is sent, in seconds of engine time; None: no pause.
    _pause_until_s: float | None = None
    # When to read what is installed next, in seconds of engine time.
    audit_due_s: float = 0.0
    # Until when the switch may flush all flows, in seconds of engine time.
    _flushes_until_s: float = 0.0
    # Whether the last poll has counted flows of ours.
    _counted: bool = False
    # The last desired team and its pipeline, to build it only once.
    _built: tuple[Team, Pipeline] | None = None
    # The flows and groups that `installed` was made from; readings often repeat them unchanged.
    _taken: tuple[tuple[FlowSpec, ...], tuple[GroupSpec, ...]] | None = None

    @property
    def settled(self) -> bool:
        """Whether the installed pipeline is known and no bundle is under way."""
        return self.installed is not None and self._bundle is None

    @property
    def has_anything(self) -> bool:
        return self.installed is not None and self.installed != EMPTY

    def read_installed(self, bridge: str) -> ReadInstalled:
        """Ask for what is installed."""
        return ReadInstalled(bridge, self.reading)

    def take_reading_of(self, read: InstalledRead, now_s: float) -> bool:
        """Take a reading of the switch. If it may be from before a bundle, ignore it and return False."""
        if now_s < self._flushes_until_s:
            # Not before this one is answered: a switch with many bridges has much to read.
            self.audit_due_s = now_s + FLUSH_AUDIT_INTERVAL_S
        if self._bundle is not None or read.number != self.reading:
            return False
        parts = read.flows, read.groups
        if self._taken is None or any(a is not b for a, b in zip(parts, self._taken, strict=True)):
            self.installed = Pipeline(
                {flow.key: flow for flow in read.flows}, {g.group_id: g for g in read.groups}
            )
            self._taken = parts
        self.read = read
        return True

    def add_group(self, group: GroupSpec) -> None:
        """The switch has a group that no bundle has added."""

        def with_it(pipeline: Pipeline) -> Pipeline:
            return Pipeline(pipeline.flows, {**pipeline.groups, group.group_id: group})

        if self.installed is not None:
            self.installed, self._taken = with_it(self.installed), None
        if self._bundle is not None:
            step = self._bundle.step
            step = replace(step, installs=with_it(step.installs))
            self._bundle = replace(self._bundle, step=step)

    # ---- audits ------------------------------------------------------------------------

    def audit_later(self, now_s: float) -> None:
        """Count the audit interval from now, because what is installed is being read."""
        self.audit_due_s = now_s + AUDIT_INTERVAL_S

    def audit_by(self, at_s: float) -> None:
        """Read what is installed at this time or earlier."""
        self.audit_due_s = min(self.audit_due_s, at_s)

    def poll_counted(self, some: bool, now_s: float) -> None:
        """A poll has counted flows of ours, or none. If all are gone, somebody has deleted them."""
        if self._counted and not some:
            self.audit_by(now_s)
        self._counted = some

    def expect_flush(self, now_s: float) -> None:
        """Open vSwitch will flush all flows, as soon as it has read the database."""
        self._flushes_until_s = now_s + FLUSHED_WITHIN_S
        self.audit_due_s = now_s

    # ---- what is desired ---------------------------------------------------------------

    def pipeline_of(self, team: Team) -> Pipeline:
        """The pipeline that a team needs.

        If it equals the installed one, that object is returned: readings share it between bridges,
        and comparing it with itself is fast. The same goes for flows alone, which most moves leave
        as they are.
        """
        installed = self.installed
        if self._built and self._built[0] == team:
            built = self._built[1]
        else:
            built = pipeline.build(team, self._built)
        if installed is None or installed is built or installed.flows != built.flows:
            return built
        same = installed.groups == built.groups
        return installed if same else Pipeline(installed.flows, built.groups)

    @property
    def team(self) -> Team | None:
        """The last team of which the pipeline was desired; None: there was none."""
        return self._built[0] if self._built is not None else None

    def desire(self, team: Team) -> Pipeline:
        """The pipeline that a team needs; remembered for the next call."""
        self._built = team, self.pipeline_of(team)
        return self._built[1]

    # ---- bundles -----------------------------------------------------------------------

    def expect(self, moves: Iterable[Move]) -> None:
        """These moves go with the next bundle."""
        self._moves += moves

    @property
    def expected(self) -> tuple[Move, ...]:
        """The moves that go with the next bundle."""
        return tuple(self._moves)

    def wait(self, reply: Reply) -> None:
        """Answer once the switch has the desired pipeline."""
        self._waiting.append(reply)

    def ready(self, now_s: float) -> bool:
        """Whether a bundle may be sent now."""
        return self.settled and (self._pause_until_s is None or now_s >= self._pause_until_s)

    def step(self, desired: Pipeline, seeds: Seeds, live: Collection[int]) -> Step:
        """The next step to the desired pipeline.

        `seeds` gives flows that go with the step and are part of neither pipeline: learned flows
        that the switch would otherwise have to learn again. `live`: the numbers of ports that carry
        traffic.

        If the change opens new paths for broadcasts, a first step only closes the old ones. The
        second step follows when the switch has carried that into its flow cache.
        """
        assert self.installed is not None
        installs = diff.closing(desired, self.installed, live)
        if installs == self.installed:
            installs = desired
        changes = diff.changes(installs, self.installed)
        if learned := seeds(changes.add_flows, self.installed):
            changes = replace(changes, add_flows=(*changes.add_flows, *learned))
        return Step(changes, installs, final=installs == desired)

    def next_bundle(self, step: Step) -> Bundle | None:
        """The next bundle, under way from now on; None if nothing is left to do."""
        if not step.changes and not self._moves and not (step.final and self._waiting):
            return None
        assert self.settled, "one bundle at a time, and none before a reading"
        assert step.final or step.changes, "a first step closes something"
        moves, self._moves = tuple(self._moves), []
        waiting: tuple[Reply, ...] = ()
        if step.final:
            waiting, self._waiting = tuple(self._waiting), []
        self._bundles += 1
        self._bundle = Bundle(self._bundles, step, moves, waiting)
        return self._bundle

    @property
    def next_bundle_id(self) -> int:
        """The number of the next bundle."""
        return self._bundles + 1

    def finish(self, done: BundleDone, now_s: float) -> Bundle | None:
        """The bundle that is done, committed or refused; None if it is of an earlier connection."""
        bundle = self._bundle
        if bundle is None or done.bundle_id != bundle.bundle_id:
            return None
        assert bundle.bundle_id == self._bundles, "no bundle begins before the last one is done"
        self._bundle = self._taken = None
        self.installed = bundle.step.installs if done.error is None else None
        if done.error is None and not bundle.step.final:
            self._pause_until_s = now_s + REVALIDATED_AFTER_S
        return bundle

    def give_up(self) -> tuple[list[Move], list[Reply]]:
        """Drop, and return, the moves for the next bundle and the requests that wait for it."""
        moves, self._moves = self._moves, []
        waiting, self._waiting = self._waiting, []
        return moves, waiting

    def abandon_waiting(self) -> list[Reply]:
        """Another service takes over: return the requests that wait."""
        self.forget_reading()
        return self.give_up()[1]

    def pause(self, now_s: float) -> None:
        """Send nothing until the switch has failed over by itself."""
        self._pause_until_s = now_s + REVALIDATED_AFTER_S

    def end_pause(self) -> None:
        self._pause_until_s = None

    @property
    def resumes_s(self) -> float:
        """When the pause ends; infinity if there is none."""
        return float("inf") if self._pause_until_s is None else self._pause_until_s

    def fail(self, read_s: float) -> list[Reply]:
        """An error of ours: read what is installed at `read_s`. Returns the requests that wait."""
        self.forget_reading()
        waiting, self._waiting = self._waiting, []
        self.audit_due_s = read_s
        return waiting

    def forget_reading(self) -> None:
        """The connection ended. The result of a bundle is not known, so read what is installed."""
        if self._bundle is not None:
            self.reading = (self.reading + 1) % READINGS
            self._moves = [*self._bundle.moves, *self._moves]
            self._waiting = [*self._bundle.waiting, *self._waiting]
        self.installed = None
        self._bundle = self._taken = None
        self._pause_until_s = None
