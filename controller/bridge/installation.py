"""What a switch has of ours, and how it becomes what it should have: one bundle at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from controller.api.events import BundleDone, InstalledRead, Reply
from controller.dataplane import reconcile
from controller.dataplane.specs import EMPTY, Changes, FlowSpec, GroupSpec, Pipeline
from policies.model import Move

# By then the switch has carried a change of groups or links into its flow cache: revalidation
# starts at once and takes some 20 µs for each cached flow. It may have to finish a round
# first, and the broadcasts a VM port misses meanwhile are few.
REVALIDATED_AFTER_S = 0.03


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle under way: what the switch has once it is committed, and who waits for it.

    `final`: that is all that was desired, rather than the first of two steps.
    """

    bundle_id: int
    changes: Changes
    installs: Pipeline
    final: bool
    moves: tuple[Move, ...]
    waiting: tuple[Reply, ...]


@dataclass(slots=True)
class Installation:
    """Desired against installed, on one switch.

    `installed` None: not known. Moves made and requests waiting go with the next bundle.
    """

    installed: Pipeline | None = None
    _moves: list[Move] = field(default_factory=list)
    _waiting: list[Reply] = field(default_factory=list)
    _bundle: Bundle | None = None
    _bundles: int = 0
    _pause_until_s: float = 0.0
    # What `installed` was read as, if it was: the same is read again and again.
    _taken: tuple[tuple[FlowSpec, ...], tuple[GroupSpec, ...]] | None = None

    @property
    def settled(self) -> bool:
        """Whether the switch is known and nothing is under way."""
        return self.installed is not None and self._bundle is None

    @property
    def has_anything(self) -> bool:
        return self.installed is not None and self.installed != EMPTY

    def take(self, read: InstalledRead) -> bool:
        """What the switch has, as it says; not taken while a bundle is changing it."""
        if self._bundle is not None:
            return False
        parts = read.flows, read.groups
        if self._taken is None or any(a is not b for a, b in zip(parts, self._taken, strict=True)):
            self.installed = Pipeline(
                {flow.key: flow for flow in read.flows}, {g.group_id: g for g in read.groups}
            )
            self._taken = parts
        return True

    def expect(self, moves: Iterable[Move]) -> None:
        """These moves go with the next bundle."""
        self._moves += moves

    def wait(self, reply: Reply) -> None:
        """Answer once the switch has all that is desired."""
        self._waiting.append(reply)

    def ready(self, now_s: float) -> bool:
        """Whether a bundle may be sent now."""
        return self.settled and now_s >= self._pause_until_s

    def next_bundle(
        self,
        desired: Pipeline,
        seeds: Callable[[Pipeline, Pipeline], tuple[FlowSpec, ...]],
    ) -> Bundle | None:
        """The next bundle, which is under way from here on; None where nothing is left to do.

        `seeds` gives what goes with the step from one pipeline to another and is not part
        of either: flows that the switch would else have to learn.

        Ways for broadcasts that open are left to a second bundle, sent when the switch has
        closed the old ones in its flow cache.
        """
        assert self.installed is not None
        step = reconcile.closing(desired, self.installed)
        if step == self.installed:
            step = desired
        final = step == desired
        changes = reconcile.changes(step, self.installed)
        if learned := seeds(step, self.installed):
            changes = replace(changes, add_flows=(*changes.add_flows, *learned))
        if not changes and not self._moves and not (final and self._waiting):
            return None
        moves, self._moves = tuple(self._moves), []
        waiting: tuple[Reply, ...] = ()
        if final:
            waiting, self._waiting = tuple(self._waiting), []
        self._bundles += 1
        self._bundle = Bundle(self._bundles, changes, step, final, moves, waiting)
        return self._bundle

    def finish(self, done: BundleDone, now_s: float) -> Bundle | None:
        """The bundle that is done, committed or refused; None for one of another connection."""
        bundle = self._bundle
        if bundle is None or done.bundle_id != bundle.bundle_id:
            return None
        self._bundle = self._taken = None
        self.installed = bundle.installs if done.error is None else None
        if done.error is None and not bundle.final:
            self._pause_until_s = now_s + REVALIDATED_AFTER_S
        return bundle

    def give_up(self) -> tuple[list[Move], list[Reply]]:
        """The moves that were to go with the next bundle, and those who wait for it."""
        moves, self._moves = self._moves, []
        waiting, self._waiting = self._waiting, []
        return moves, waiting

    def abandon(self) -> list[Reply]:
        """Another service goes on from here; those who wait."""
        self.forget()
        return self.give_up()[1]

    def pause(self, now_s: float) -> None:
        """A switch that fails over by itself is left alone until it has."""
        self._pause_until_s = now_s + REVALIDATED_AFTER_S

    def resume(self, now_s: float) -> bool:
        """Whether a pause is over since the last call."""
        over = now_s >= self._pause_until_s > 0.0
        if over:
            self._pause_until_s = 0.0
        return over

    def deadline_s(self) -> float:
        """When a pause ends; infinity when there is none."""
        return self._pause_until_s if self._pause_until_s > 0.0 else float("inf")

    def forget(self) -> None:
        """The connection is another: what became of a bundle under way is to be read."""
        if self._bundle is not None:
            self._moves = [*self._bundle.moves, *self._moves]
            self._waiting = [*self._bundle.waiting, *self._waiting]
        self.installed = None
        self._bundle = self._taken = None
        self._pause_until_s = 0.0
