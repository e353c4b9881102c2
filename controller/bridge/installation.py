"""Installs the desired pipeline on a bridge's switch: reads flows and groups, and sends bundles of changes."""

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
from controller.dataplane import pipeline
from controller.dataplane.specs import EMPTY, Changes, FlowSpec, GroupSpec, Pipeline
from controller.dataplane.team import Team
from controller.decisions.decision_log import move_lines
from controller.features.feature import Feature, Timer
from controller.features.learned_addresses import learns
from controller.teaming import buckets, splits
from controller.teaming.bindings import Bindings
from policies.model import Move

RETRY_INTERVAL_S = 1.0
# How long the switch takes to apply a change of groups or links to its flow cache. Revalidation
# starts immediately and takes about 20 µs for each cached flow. If the switch is already
# revalidating, it takes longer, but a VM port then misses only a few broadcasts.
REVALIDATED_AFTER_S = 0.03
# How often to read installed flows and groups, to restore those that another program removed.
AUDIT_INTERVAL_S = 10.0
# While the switch may flush all flows: the interval of these readings, and the length of this phase.
FLUSH_AUDIT_INTERVAL_S = 0.05
FLUSHED_WITHIN_S = 3.0
# If more moves wait for a bundle, all moves of a unit are combined into one.
MOST_EXPECTED = 1000
# The number of different values of `Installation.reading`.
READINGS = 0x10000


@dataclass(frozen=True, slots=True)
class Step:
    """One step towards the desired pipeline: the changes, and the resulting pipeline `installs`.

    `moves`: whether the step makes the expected moves. `final`: whether `installs` is the desired pipeline.
    """

    changes: Changes
    installs: Pipeline
    moves: bool
    final: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that has been sent but not answered.

    `before`: what is installed until the answer. `waiting`: the replies to send after the answer.
    """

    bundle_id: int
    before: Pipeline
    step: Step
    moves: tuple[Move, ...]
    waiting: tuple[Reply, ...]


@dataclass(eq=False)
class Installation(Feature[InstalledRead | BundleDone]):
    """The pipeline installed on one bridge's switch, and the pending bundle that changes it."""

    # Our flows and groups on the switch; None if they are not known.
    installed: Pipeline | None = None
    # The last reading, with other programs' flows and groups; None if there was none.
    read: InstalledRead | None = None
    # The homes of buckets in the first reading of the switch, by unit name.
    found_homes: dict[str, str] = field(default_factory=dict)
    # Moves to send in the next bundle, and replies to send when the switch has the desired pipeline.
    expected: list[Move] = field(default_factory=list)
    waiting: list[Reply] = field(default_factory=list)
    _bundle: Bundle | None = None
    _bundles: int = 0
    # The number of the readings that are accepted. A reading with another number may have been made
    # before a bundle that has an unknown result.
    reading: int = 0
    # When the pause without bundles ends, in seconds of engine time; infinity if there is no pause.
    resumes_s: float = math.inf
    # When to read the installed flows and groups next, in seconds of engine time.
    audit_due_s: float = 0.0
    # Until when the switch may flush all flows, in seconds of engine time.
    _flushes_until_s: float = 0.0
    # Whether the last poll has read counters of our flows.
    _counted: bool = False
    # The last desired team and its pipeline, so that the pipeline is built only once.
    _built: tuple[Team, Pipeline] | None = None
    # The flows and groups from which `installed` was made; later readings often return the same objects.
    _taken: tuple[tuple[FlowSpec, ...], tuple[GroupSpec, ...]] | None = None

    def expect(self, moves: Iterable[Move]) -> None:
        """Add moves to the next bundle.

        If there are many moves, they are combined by unit. Links may change often before the switch answers.
        """
        self.expected += moves
        if len(self.expected) > MOST_EXPECTED:
            self.expected = _combined(self.expected)

    @property
    def settled(self) -> bool:
        """Whether the installed pipeline is known and no bundle is pending."""
        return self.installed is not None and self._bundle is None

    @property
    def has_all(self) -> bool:
        """Whether the switch has the desired pipeline."""
        return self.bridge.settled and self.installed == self.desired()

    def forget_switch(self) -> None:
        """Forget installed flows and the pending bundle: the switch must be read again."""
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
        """Send no bundle until the switch has applied a change or a link failure to its flow cache."""
        self.resumes_s = now_s + REVALIDATED_AFTER_S

    def _resume(self, now_s: float) -> list[Command]:
        self.resumes_s = math.inf
        return self.bridge.reconcile(now_s)

    def ready(self, now_s: float) -> bool:
        """Whether a bundle can be sent now: none is pending, and no pause (see `pause`) is in progress."""
        return self.settled and not now_s < self.resumes_s < math.inf

    def _may_install(self, now_s: float) -> bool:
        """Whether the switch can be changed now."""
        bridge = self.bridge
        if not bridge.connected or not self.ready(now_s) or bridge.links.renumbered(self.config):
            return False
        return not bridge.addresses.awaits_normal or bridge.phase is Phase.LEAVING

    # ---- the desired pipeline ------------------------------------------------------------

    def desired(self, of: Bindings | None = None) -> Pipeline:
        """Return the pipeline for bindings `of` (None: those on the switch); empty without a team."""
        team = desired_team(self.bridge, of or self.bridge.placing.on_switch)
        return EMPTY if team is None else self._pipeline_of(team)

    def _pipeline_of(self, team: Team) -> Pipeline:
        """Return the pipeline for a team.

        If the pipeline equals the installed one, return the installed object: readings share it between
        bridges, and comparing an object with itself is fast. The same applies to the flows alone, which
        most moves do not change.
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
        """The team of the last desired pipeline; None if there was none."""
        return self._built[0] if self._built is not None else None

    def foreseen(self, now_s: float) -> list[Command]:
        """Return a command to prepare the bundle that `Bridge.take_over` would send, if there is one."""
        if not self._may_install(now_s):
            return []
        bridge, placing = self.bridge, self.bridge.placing
        bindings, units = placing.planned, placing.units()
        if bridge.observing and not self.config.on_bond:
            bindings, units = placing.on_switch.frozen(), placing.units_on_switch
        ahead, _ = bindings.foreseen(units, placing.uplinks(), now_s)
        step = self.step(self.desired(ahead))
        if not step.changes:
            return []
        return [Prepare(Apply(self.config.name, self._bundles + 1, step.changes))]

    # ---- bundles -----------------------------------------------------------------------

    def step(self, desired: Pipeline) -> Step:
        """Return the next step to the desired pipeline.

        If the change opens new paths for broadcasts, a first step only closes the old paths. If unicast
        for VM ports that move may arrive on new uplinks, an earlier step only accepts this unicast. Each step
        follows when the switch has applied the previous one to its flow cache.
        """
        assert self.installed is not None
        live = frozenset(number for number, port in self.bridge.links.ports.items() if port.up)
        same_flows = desired.flows is self.installed.flows
        opening = None if same_flows else pipeline.opening(desired, self.installed)
        installs = opening or pipeline.closing(desired, self.installed, live)
        if installs == self.installed:
            installs = desired
        changes = pipeline.changes(installs, self.installed)
        # Learned flows belong to neither pipeline. Without them, the switch would have to learn again.
        if learned := self.bridge.addresses.seeds(changes.add_flows, self.installed):
            changes = replace(changes, add_flows=(*changes.add_flows, *learned))
        return Step(changes, installs, moves=opening is None, final=installs == desired)

    def install(self, now_s: float) -> tuple[list[Command], bool]:
        """Return the commands that install the desired pipeline, and whether an empty bundle completed."""
        assert not self.bridge.phase.changes_nothing, "an inspected bridge is not changed"
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
        # The switch answers this reading after the bundle, with the addresses to announce.
        ahead = bridge.announcer.read_ahead(bundle.moves)
        return [told, Apply(name, bundle.bundle_id, changes), *ahead], False

    def next_bundle(self, step: Step) -> Bundle | None:
        """Create, record and return the next bundle; None if nothing is left to do."""
        if not step.changes and not self.expected and not (step.final and self.waiting):
            return None
        assert self.settled, "one bundle at a time, and none before a reading"
        assert step.final or step.changes, "an earlier step opens or closes something"
        moves, waiting = tuple[Move, ...](), tuple[Reply, ...]()
        if step.moves:
            moves, self.expected = tuple(self.expected), []
        if step.final:
            waiting, self.waiting = tuple(self.waiting), []
        self._bundles += 1
        self._bundle = Bundle(self._bundles, self.installed or EMPTY, step, moves, waiting)
        return self._bundle

    def _finish_bundle(self, done: BundleDone, now_s: float) -> list[Command]:
        """Handle the result of a bundle: the switch has made all of its changes, or refused them."""
        bundle = self._bundle
        if bundle is None or done.bundle_id != bundle.bundle_id:
            # The bundle belongs to an earlier connection.
            return []
        self._finish(bundle, done.error, now_s)
        if done.error is not None:
            self.bridge.announcer.reads_ahead = False
            return self._bundle_refused(bundle, done.error, now_s)
        commands = self._carried_out(bundle, now_s)
        return [*commands, *self.bridge.reconcile(now_s)]

    def _finish(self, bundle: Bundle, error: str | None, now_s: float) -> None:
        """Record that the pending bundle was committed or, with an `error`, refused."""
        assert bundle.bundle_id == self._bundles, "no bundle begins before the last one is done"
        self._bundle = self._taken = None
        self.installed = bundle.step.installs if error is None else None
        if error is None and not bundle.step.final:
            self.pause(now_s)

    def _carried_out(self, bundle: Bundle, now_s: float) -> list[Command]:
        """Answer requests, and announce moves, after the switch has made the changes of a bundle."""
        bridge, placing = self.bridge, self.bridge.placing
        assert self.settled, "the bundle is done"
        commands: list[Command] = list(bundle.waiting)
        if any(move.is_resplit for move in bundle.moves):
            bridge.polls.count_anew(now_s)
        commands += bridge.handover.take_over()
        placing.counts.applied.update(move.reason for move in bundle.moves)
        if any(move.reason.by_load for move in bundle.moves):
            bridge.polls.convergence.confirm_moves(now_s)
        commands += self.logged(bundle.moves)
        commands += bridge.decision_log.moved(placing.team_view(), bundle.moves, now_s)
        if not bridge.installed_anything:
            bridge.handover.taken_over_with = ()
            commands += bridge.announcer.introductions
            bridge.announcer.introductions = []
            commands += bridge.off_home.part() if bundle.step.changes else []
            if bridge.on_normal:
                # While NORMAL forwards, no flow counters exist for these units.
                bridge.address_units.forget_units()
                placing.keep_units()
        moves = [move for move in bundle.moves if not move.is_resplit]
        if bridge.announces:
            bridge.inbound_check.watch_moves(moves, now_s)
        bridge.announcer.announce_moves(moves, bundle.before, now_s)
        bridge.announcer.reads_ahead = False
        return [*commands, *placing.remembered({move.unit for move in moves})]

    def logged(self, moves: Iterable[Move], more: str = "") -> list[Command]:
        """Return log lines for moves. Buckets with the same source and target share one line."""
        name, because = self.config.name, self.bridge.decision_log.because
        return [
            Report("info", f"{name}: {move.way} ({because or move.reason}){more}")
            for move in move_lines(self.bridge.placing.team_view(), moves)
        ]

    def _bundle_refused(self, bundle: Bundle, error: str, now_s: float) -> list[Command]:
        """Report that the switch has refused a bundle, and schedule a reading of installed flows."""
        bridge, placing = self.bridge, self.bridge.placing
        assert self.installed is None, "the installed flows are not known now"
        self.audit_due_s = now_s + RETRY_INTERVAL_S
        moves, self.expected = [*bundle.moves, *self.expected], []
        placing.counts.refused.update(move.reason for move in moves)
        placing.on_switch.take_back([move for move in moves if not move.is_resplit], now_s)
        bridge.scheduler.splits.take_back(moves, now_s)
        placing.end_splits(self.config)
        refusal, team_view = f"the switch refused the change: {error}", placing.team_view()
        lines = move_lines(team_view, moves)
        records = bridge.decision_log.refused(team_view, lines, refusal, now_s)
        waiting = [*bundle.waiting, *self.take_waiting()]
        replies = [Reply(reply.request_id, refusal, refused=True) for reply in waiting]
        return [Report("error", f"{self.config.name}: {refusal}"), *records, *replies]

    def take_waiting(self) -> list[Reply]:
        """Remove and return the replies to waiting requests, for the caller to send."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def abandon(self) -> list[Reply]:
        """Drop all moves, because another service takes over; return the replies to waiting requests."""
        self.forget_switch()
        self.expected = []
        return self.take_waiting()

    # ---- readings ----------------------------------------------------------------------

    def read_installed(self) -> ReadInstalled:
        """Request the installed flows and groups."""
        return ReadInstalled(self.config.name, self.reading)

    def _take_installed(self, read: InstalledRead, now_s: float) -> list[Command]:
        """Handle a reading of the switch's flows and groups, ours and other programs'."""
        bridge = self.bridge
        unknown_before, first_reading = self.installed is None, self.read is None
        if not self._take(read, now_s):
            return []
        members = self.config.uplinks if self.config.on_a_lag else ()
        up = [member.ofport for member in members if bridge.links.up(member)]
        bridge.dropped.take(read.dropped, self.config, now_s)
        bridge.repeated.take_flooded({of: read.flooded.get(of, 0) for of in up}, now_s)
        if bridge.interrupted:
            return bridge.reconcile(now_s)
        if unknown_before:
            self._restore(first_reading, now_s)
        if learns(self.installed or EMPTY):
            forgotten = bridge.handover.take_over()
            return [*forgotten, *bridge.reconcile(now_s), ReadLearned(self.config.name)]
        # NORMAL forwards, and learns addresses that will have to be cleared.
        bridge.handover.taken_over_with = ()
        inspects = bridge.phase is Phase.INSPECTING
        if inspects and not first_reading:
            return []
        commands: list[Command] = []
        if inspects and self.config.on_bond:
            # Read the flags of ports before any change.
            commands += bridge.no_flood.inspect(now_s)
        unknown = self.config.on_bond or not bridge.addresses.by_port
        is_leaving, asked = bridge.phase is Phase.LEAVING, bridge.addresses.awaits_normal
        if unknown and not (is_leaving or asked):
            # NORMAL knows the addresses of silent and of new VMs; our pipeline does not.
            return [*commands, *bridge.handover.read_forwarding()]
        return [*commands, *bridge.reconcile(now_s)]

    def _take(self, read: InstalledRead, now_s: float) -> bool:
        """Store a reading. If the reading may be older than a bundle, ignore it and return False."""
        if now_s < self._flushes_until_s:
            # The interval begins with the answer, because a reading takes long if the switch has many bridges.
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
        """Restore state from the installed flows and groups, which an earlier service may have left."""
        bridge, found = self.bridge, self.installed or EMPTY
        bridge.no_flood.restore(found)
        self.found_homes |= buckets.installed(found, self.config)
        bridge.address_units.restore(found, self.config)
        if first_reading:
            for name in splits.installed(found, self.config):
                bridge.scheduler.splits.split(name, now_s)
            bridge.placing.follow_splits()

    def add_group(self, group: GroupSpec) -> None:
        """Add to the installed pipeline a group that was added to the switch without a bundle."""

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
        """Restart the audit interval, because installed flows are being read."""
        self.audit_due_s = now_s + AUDIT_INTERVAL_S

    def audit_by(self, at_s: float) -> None:
        """Read installed flows and groups at `at_s` or earlier."""
        self.audit_due_s = min(self.audit_due_s, at_s)

    def poll_counted(self, some: bool, now_s: float) -> None:
        """Note whether a poll has found any of our flows. If not, another program may have deleted them."""
        if self._counted and not some:
            self.audit_by(now_s)
        self._counted = some

    def expect_flush(self, now_s: float) -> None:
        """Read flows often for a while: Open vSwitch will flush all flows when it has read the database."""
        self._flushes_until_s = now_s + FLUSHED_WITHIN_S
        self.audit_due_s = now_s


def _combined(moves: Iterable[Move]) -> list[Move]:
    """Combine the moves of each unit, from its first source to its last target; keep splits and merges."""
    combined: dict[object, Move] = {}
    for move in moves:
        key = object() if move.is_resplit else move.unit
        first = combined.pop(key, move)
        if move.is_resplit or first.source != move.target:
            combined[key] = replace(move, source=first.source)
    return list(combined.values())
