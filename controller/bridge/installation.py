"""How the switch of a bridge follows: when it is read, when a bundle is sent, and what its answer leads to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from controller.api.engine_commands import (
    Apply,
    Command,
    Prepare,
    ReadInstalled,
    ReadLearned,
    Reply,
    Report,
)
from controller.api.events import BundleDone, InstalledRead
from controller.bridge.desired import desired_team
from controller.bridge.phase import Phase
from controller.dataplane import diff, pipeline
from controller.dataplane.specs import EMPTY, Changes, FlowSpec, GroupSpec, Pipeline
from controller.dataplane.team import Team
from controller.decisions.decision_log import move_lines
from controller.features.feature import Feature, Timer
from controller.features.learned_addresses import learns
from controller.teaming import buckets, splits
from controller.teaming.bindings import Bindings
from policies.model import Move

RETRY_INTERVAL_S = 1.0
# How long the switch takes to carry a change of groups or links into its flow cache. Revalidation
# starts at once and takes some 20 µs for each cached flow. It may have to finish a round first; the
# broadcasts that a VM port misses meanwhile are few.
REVALIDATED_AFTER_S = 0.03
# How often to read back what is installed, to repair what another program removed.
AUDIT_INTERVAL_S = 10.0
# The pause between two such readings, and for how long, while the switch may flush all flows at any moment.
FLUSH_AUDIT_INTERVAL_S = 0.05
FLUSHED_WITHIN_S = 3.0
# With more moves waiting for a bundle, several moves of one unit become one.
MOST_EXPECTED = 1000
# A request names one of so many.
READINGS = 0x10000


@dataclass(frozen=True, slots=True)
class Step:
    """One step towards the desired pipeline: the changes, and the pipeline after them.

    `final`: whether that is the desired pipeline, rather than the first of two steps.
    """

    changes: Changes
    installs: Pipeline
    final: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle under way. `waiting`: the requests it answers."""

    bundle_id: int
    step: Step
    moves: tuple[Move, ...]
    waiting: tuple[Reply, ...]


@dataclass(eq=False)
class Installation(Feature[InstalledRead | BundleDone]):
    """The installed pipeline of one bridge's switch, and the bundle under way to the desired one."""

    hears = (InstalledRead, BundleDone)

    # Our flows and groups on the switch; None: not known.
    installed: Pipeline | None = None
    # The last reading, with the flows and groups of other programs; None: there was none.
    read: InstalledRead | None = None
    # The homes of buckets that the first reading of the switch showed, by unit name.
    found_homes: dict[str, str] = field(default_factory=dict)
    # Moves that go with the next bundle, and requests that wait until the switch has the desired pipeline.
    expected: list[Move] = field(default_factory=list)
    waiting: list[Reply] = field(default_factory=list)
    _bundle: Bundle | None = None
    _bundles: int = 0
    # The number of the readings that count. An answer with another one may be from before a bundle whose
    # result is not known.
    reading: int = 0
    # When the pause ends in which no bundle is sent, in seconds of engine time; infinity: there is none.
    resumes_s: float = math.inf
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

    def expect(self, moves: Iterable[Move]) -> None:
        """Have moves go with the next bundle.

        While a switch does not answer, its links may change without end.
        """
        self.expected += moves
        if len(self.expected) > MOST_EXPECTED:
            self.expected = _combined(self.expected)

    @property
    def settled(self) -> bool:
        """Whether the installed pipeline is known and no bundle is under way."""
        return self.installed is not None and self._bundle is None

    @property
    def has_all(self) -> bool:
        """Whether the switch has the desired pipeline."""
        return self.bridge.settled and self.installed == self.desired()

    def forget_switch(self) -> None:
        """Forget what is installed and pending: it has to be read from the switch."""
        if self._bundle is not None:
            self.reading = (self.reading + 1) % READINGS
            self.expected = [*self._bundle.moves, *self.expected]
            self.waiting = [*self._bundle.waiting, *self.waiting]
        self.installed = None
        self._bundle = self._taken = None
        self.resumes_s = math.inf

    def heard(self, event: InstalledRead | BundleDone, now_s: float) -> list[Command]:
        if isinstance(event, BundleDone):
            return self._finish_bundle(event, now_s)
        return self._take_installed(event, now_s)

    def timers(self) -> Iterator[Timer]:
        yield self.resumes_s, self._resume
        yield self.audit_due_s, self._audit

    # ---- pauses ------------------------------------------------------------------------

    def pause(self, now_s: float) -> None:
        """Send nothing until the switch has carried a change, or a failure, into its flow cache."""
        self.resumes_s = now_s + REVALIDATED_AFTER_S

    def _resume(self, now_s: float) -> list[Command]:
        self.resumes_s = math.inf
        return self.bridge.reconcile(now_s)

    def ready(self, now_s: float) -> bool:
        """Whether a bundle may be sent now."""
        return self.settled and not now_s < self.resumes_s < math.inf

    def _may_install(self, now_s: float) -> bool:
        """Whether the switch may be changed now."""
        bridge = self.bridge
        if not bridge.connected or not self.ready(now_s) or bridge.links.renumbered(self.config):
            return False
        return not bridge.addresses.awaits_normal or bridge.phase is Phase.LEAVING

    # ---- what the switch should have -----------------------------------------------------

    def desired(self, of: Bindings | None = None) -> Pipeline:
        """The pipeline for these bindings, or those that the switch follows; empty if it should have none."""
        team = desired_team(self.bridge, of or self.bridge.placing.on_switch)
        return EMPTY if team is None else self._pipeline_of(team)

    def _pipeline_of(self, team: Team) -> Pipeline:
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
        """The team of the last desired pipeline; None: there was none."""
        return self._built[0] if self._built is not None else None

    def foreseen(self, now_s: float) -> list[Command]:
        """The bundle that `take_over` would apply, for the shell to send ahead."""
        if not self._may_install(now_s):
            return []
        bridge, placing = self.bridge, self.bridge.placing
        bindings, units = placing.planned, placing.units()
        if bridge.observing and not self.config.on_bond:
            bindings, units = placing.on_switch.frozen(), placing.units_on_switch
        ahead = bindings.foreseen(units, placing.uplinks(), now_s)
        step = self.step(self.desired(ahead))
        if not step.changes:
            return []
        return [Prepare(Apply(self.config.name, self._bundles + 1, step.changes))]

    # ---- bundles -----------------------------------------------------------------------

    def step(self, desired: Pipeline) -> Step:
        """The next step to the desired pipeline.

        If the change opens new paths for broadcasts, a first step only closes the old ones. The
        second step follows when the switch has carried that into its flow cache.
        """
        assert self.installed is not None
        live = frozenset(number for number, port in self.bridge.links.ports.items() if port.up)
        installs = diff.closing(desired, self.installed, live)
        if installs == self.installed:
            installs = desired
        changes = diff.changes(installs, self.installed)
        # Part of neither pipeline: what the switch would otherwise have to learn again.
        if learned := self.bridge.addresses.seeds(changes.add_flows, self.installed):
            changes = replace(changes, add_flows=(*changes.add_flows, *learned))
        return Step(changes, installs, final=installs == desired)

    def install(self, now_s: float) -> tuple[list[Command], bool]:
        """Send what differs, as a bundle. Also returns whether it needed no change and is done."""
        assert not self.bridge.phase.changes_nothing, "a request that only looks changes nothing"
        if not self._may_install(now_s):
            return [], False
        bridge, name = self.bridge, self.config.name
        desired, team = EMPTY, desired_team(bridge, bridge.placing.on_switch)
        if team is not None:
            desired = self._pipeline_of(team)
            self._built = team, desired
        bundle = self.next_bundle(self.step(desired))
        if bundle is None:
            wanted = [command for one in bridge.features for command in one.want(now_s)]
            return [*bridge.placing.remembered(), *wanted], False
        changes = bundle.step.changes
        if not changes:
            self._finish(bundle, None, now_s)
            return self._carried_out(bundle, now_s), True
        bridge.addresses.seeded()
        told = Report("debug", f"{name}: {len(changes)} changes to flows and groups")
        # When the bundle is done, this reading gives the addresses to announce.
        ahead = bridge.announcer.read_ahead(bundle.moves)
        return [told, Apply(name, bundle.bundle_id, changes), *ahead], False

    def next_bundle(self, step: Step) -> Bundle | None:
        """The next bundle, under way from now on; None if nothing is left to do."""
        if not step.changes and not self.expected and not (step.final and self.waiting):
            return None
        assert self.settled, "one bundle at a time, and none before a reading"
        assert step.final or step.changes, "a first step closes something"
        moves, self.expected = tuple(self.expected), []
        waiting: tuple[Reply, ...] = ()
        if step.final:
            waiting, self.waiting = tuple(self.waiting), []
        self._bundles += 1
        self._bundle = Bundle(self._bundles, step, moves, waiting)
        return self._bundle

    def _finish_bundle(self, done: BundleDone, now_s: float) -> list[Command]:
        """The switch has made the changes of a bundle, or has refused all of them."""
        bundle = self._bundle
        if bundle is None or done.bundle_id != bundle.bundle_id:
            # It is of an earlier connection.
            return []
        self._finish(bundle, done.error, now_s)
        if done.error is not None:
            self.bridge.announcer.reads_ahead = False
            return self._bundle_refused(bundle, done.error, now_s)
        commands = self._carried_out(bundle, now_s)
        return [*commands, *self.bridge.reconcile(now_s)]

    def _finish(self, bundle: Bundle, error: str | None, now_s: float) -> None:
        """The bundle under way is done, committed or refused."""
        assert bundle.bundle_id == self._bundles, "no bundle begins before the last one is done"
        self._bundle = self._taken = None
        self.installed = bundle.step.installs if error is None else None
        if error is None and not bundle.step.final:
            self.pause(now_s)

    def _carried_out(self, bundle: Bundle, now_s: float) -> list[Command]:
        """The switch has made the changes of a bundle: answer requests, and announce moves."""
        bridge, placing = self.bridge, self.bridge.placing
        assert self.settled, "the bundle is done"
        commands: list[Command] = list(bundle.waiting)
        if any(move.is_resplit for move in bundle.moves):
            bridge.polls.count_anew(now_s)
        commands += bridge.handover.take_over()
        placing.counts.applied.update(move.reason for move in bundle.moves)
        if any(move.reason.by_load for move in bundle.moves):
            bridge.scheduler.convergence.confirm_moves(now_s)
        commands += self.logged(bundle.moves)
        commands += bridge.decision_log.moved(placing.team_view, bundle.moves, now_s)
        if not bridge.installed_anything:
            bridge.handover.taken_over_with = ()
            commands += bridge.announcer.introductions
            bridge.announcer.introductions = []
            commands += bridge.off_home.part() if bundle.step.changes else []
            if bridge.on_normal:
                # On NORMAL, no flows count them.
                bridge.address_units.forget_units()
                placing.keep_units()
        moves = [move for move in bundle.moves if not move.is_resplit]
        if bridge.announces:
            bridge.inbound_check.watch_moves(moves, now_s)
        bridge.announcer.announce_moves(moves, now_s)
        bridge.announcer.reads_ahead = False
        return [*commands, *placing.remembered({move.unit for move in moves})]

    def logged(self, moves: Iterable[Move], more: str = "") -> list[Command]:
        """A log line for each VM port that moves, and for all buckets with one source and target."""
        name, because = self.config.name, self.bridge.decision_log.because
        return [
            Report("info", f"{name}: {move.way} ({because or move.reason}){more}")
            for move in move_lines(self.bridge.placing.team_view, moves)
        ]

    def _bundle_refused(self, bundle: Bundle, error: str, now_s: float) -> list[Command]:
        """The switch has refused a bundle: report that, and read what is installed."""
        bridge, placing = self.bridge, self.bridge.placing
        assert self.installed is None, "what the switch has now is not known"
        self.audit_due_s = now_s + RETRY_INTERVAL_S
        moves, self.expected = [*bundle.moves, *self.expected], []
        placing.counts.refused.update(move.reason for move in moves)
        placing.on_switch.take_back([move for move in moves if not move.is_resplit], now_s)
        bridge.scheduler.splits.take_back(moves, now_s)
        placing.end_splits(self.config)
        refusal, team_view = f"the switch refused the change: {error}", placing.team_view
        lines = move_lines(team_view, moves)
        records = bridge.decision_log.refused(team_view, lines, refusal, now_s)
        waiting = [*bundle.waiting, *self.take_waiting()]
        replies = [Reply(reply.request_id, refusal, refused=True) for reply in waiting]
        return [Report("error", f"{self.config.name}: {refusal}"), *records, *replies]

    def take_waiting(self) -> list[Reply]:
        """The requests that wait, which the caller answers."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def abandon(self) -> list[Reply]:
        """Another service takes over: return the requests that wait, and make no moves."""
        self.forget_switch()
        self.expected = []
        return self.take_waiting()

    # ---- readings ----------------------------------------------------------------------

    def read_installed(self) -> ReadInstalled:
        """Request the installed flows and groups."""
        return ReadInstalled(self.config.name, self.reading)

    def _take_installed(self, read: InstalledRead, now_s: float) -> list[Command]:
        """Take a reading of the switch's flows and groups, ours and those of others."""
        bridge = self.bridge
        unknown_before, first_reading = self.installed is None, self.read is None
        if not self._take(read, now_s):
            return []
        members = self.config.uplinks if self.config.on_a_lag else ()
        up = [member.ofport for member in members if bridge.links.up(member)]
        bridge.repeated.take_flooded({of: read.flooded.get(of, 0) for of in up}, now_s)
        if bridge.interrupted:
            return bridge.reconcile(now_s)
        if unknown_before:
            self._restore(first_reading, now_s)
        if learns(self.installed or EMPTY):
            forgotten = bridge.handover.take_over()
            return [*forgotten, *bridge.reconcile(now_s), ReadLearned(self.config.name)]
        inspects = bridge.phase is Phase.INSPECTING
        if inspects and not first_reading:
            return []
        commands: list[Command] = []
        if inspects and self.config.on_bond:
            # Before anything is changed, see which ports have the flag already.
            commands += bridge.no_flood.inspect(now_s)
        unknown = self.config.on_bond or not bridge.addresses.by_port
        is_leaving, asked = bridge.phase is Phase.LEAVING, bridge.addresses.awaits_normal
        if unknown and not (is_leaving or asked):
            # NORMAL knows the addresses of silent VMs and of new ones; we do not.
            return [*commands, *bridge.handover.read_forwarding()]
        return [*commands, *bridge.reconcile(now_s)]

    def _take(self, read: InstalledRead, now_s: float) -> bool:
        """Note what a reading shows. If it may be from before a bundle, ignore it and return False."""
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

    def _restore(self, first_reading: bool, now_s: float) -> None:
        """Go on from what is installed, as an earlier service left it."""
        bridge, found = self.bridge, self.installed or EMPTY
        bridge.no_flood.restore(found)
        self.found_homes |= buckets.installed(found, self.config)
        bridge.address_units.restore(found, self.config)
        if first_reading:
            for name in splits.installed(found, self.config):
                bridge.scheduler.splits.split(name, now_s)
            bridge.placing.follow_splits()

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

    def _audit(self, now_s: float) -> list[Command]:
        if now_s >= self._flushes_until_s:
            self.bridge.no_flood.doubt()
        self.audit_later(now_s)
        return [self.read_installed()]

    def audit_later(self, now_s: float) -> None:
        """Restart the audit interval, because the installed flows are being read."""
        self.audit_due_s = now_s + AUDIT_INTERVAL_S

    def audit_by(self, at_s: float) -> None:
        """Read what is installed at this time or earlier."""
        self.audit_due_s = min(self.audit_due_s, at_s)

    def poll_counted(self, some: bool, now_s: float) -> None:
        """A poll has counted our flows. If there are none, another program has deleted them."""
        if self._counted and not some:
            self.audit_by(now_s)
        self._counted = some

    def expect_flush(self, now_s: float) -> None:
        """Open vSwitch will flush all flows, as soon as it has read the database."""
        self._flushes_until_s = now_s + FLUSHED_WITHIN_S
        self.audit_due_s = now_s


def _combined(moves: Iterable[Move]) -> list[Move]:
    """One move for each unit, from its first source to its last target. Splits and merges stay."""
    combined: dict[object, Move] = {}
    for move in moves:
        key = object() if move.is_resplit else move.unit
        first = combined.pop(key, move)
        if move.is_resplit or first.source != move.target:
            combined[key] = replace(move, source=first.source)
    return list(combined.values())
