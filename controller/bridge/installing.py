"""How the switch follows: when it is read, when a bundle is sent, and what its answer leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
from controller.bridge import desired
from controller.bridge.installation import Bundle
from controller.bridge.phase import Phase
from controller.dataplane import specs
from controller.dataplane.team import Team
from controller.decisions.decision_log import move_lines
from controller.features.feature import Feature, Timer
from controller.features.learned_addresses import learns
from controller.teaming import buckets, splits
from controller.teaming.bindings import Bindings, ordered
from controller.teaming.own_addresses import probe_macs
from policies.model import IDLE, Move, Uplink

RETRY_INTERVAL_S = 1.0


class Installing(Feature[InstalledRead | BundleDone]):
    """How the switch of one bridge follows."""

    hears = (InstalledRead, BundleDone)

    def heard(self, event: InstalledRead | BundleDone, now_s: float) -> list[Command]:
        if isinstance(event, BundleDone):
            return self._finish_bundle(event, now_s)
        return self._take_installed(event, now_s)

    def timers(self) -> Iterator[Timer]:
        yield self.bridge.installation.resumes_s, self._end_pause
        yield self.bridge.installation.audit_due_s, self._audit

    @property
    def _live_ports(self) -> frozenset[int]:
        """The numbers of the ports that carry traffic."""
        return frozenset(number for number, port in self.bridge.links.ports.items() if port.up)

    @property
    def _renumbered(self) -> bool:
        """Whether the switch has another port under an ofport that the database gives one of ours.

        A restart of ovs-vswitchd may number ports anew, and the database follows only after the
        connection. Flows for the old numbers could take an uplink for a VM port.
        """
        ours = {int(port.ofport): port.name for port in self.bridge.config.vm_ports}
        ours |= {int(uplink.ofport): uplink.name for uplink in self.bridge.config.uplinks}
        return self.bridge.links.names_another(ours)

    def _may_install(self, now_s: float) -> bool:
        """Whether the switch may be changed now."""
        if (
            not self.bridge.connected
            or not self.bridge.installation.ready(now_s)
            or self._renumbered
        ):
            return False
        return not self.bridge.addresses.awaits_normal or self.bridge.phase is Phase.LEAVING

    # ---- what the switch should have -----------------------------------------------------

    def desired(self) -> specs.Pipeline:
        """The pipeline for the bindings that the switch follows; empty if it should have none."""
        return self._desired(self.bridge.placing.on_switch)

    @property
    def has_all(self) -> bool:
        """Whether the switch has the desired pipeline."""
        return self.bridge.settled and self.bridge.installed == self.desired()

    def _desired(self, of: Bindings) -> specs.Pipeline:
        team = self._team(of)
        return specs.EMPTY if team is None else self.bridge.installation.pipeline_of(team)

    def _team(self, of: Bindings) -> Team | None:
        """The team that the pipeline is built from, given these bindings; None: no pipeline.

        A bridge that is being given back, or left to NORMAL, keeps its pipeline until NORMAL floods
        to all ports again.
        """
        if not self.bridge.config.uplinks:
            return None
        if not self.bridge.serves and (
            not self.bridge.installed_anything
            or self.bridge.interrupted
            or self.bridge.no_flood.given_back
        ):
            return None
        uplinks, order = self._links, self.bridge.placing.reused.reuse("order")
        no_flood = self.bridge.no_flood.ports if self.bridge.serves else None
        return desired.team(
            self.bridge.config,
            self.bridge.placing.split_on_switch,
            self.bridge.placing.units_on_switch,
            lambda unit: order(unit.name, ordered, (of.whereabouts(unit), unit, uplinks)),
            of.homes,
            no_flood or frozenset(),
            self.bridge.address_units.by_name.values(),
            dp_hash=self.bridge.connection_hash.by_dp_hash,
            uplinks=uplinks,
            probe_macs=probe_macs(self.bridge.config) if self.bridge.checks_paths else {},
            unheard=frozenset(self.bridge.paths.foreign.dropped),
        )

    @property
    def _links(self) -> tuple[Uplink, ...]:
        """The team without loads: while no link, role or speed changes, the same object."""
        idle = tuple(
            uplink.carrying(IDLE, reserved_bps=0.0) for uplink in self.bridge.placing.uplinks()
        )
        return self.bridge.placing.reused.reuse("links")("", _same, (idle,))

    def foreseen(self, now_s: float) -> list[Command]:
        """The bundle that `take_over` would apply at once, for the shell to send ahead."""
        if not self._may_install(now_s):
            return []
        uplinks = self.bridge.placing.uplinks()
        if self.bridge.observing and not self.bridge.config.on_bond:
            ahead = self.bridge.placing.on_switch.frozen().foreseen(
                self.bridge.placing.units_on_switch, uplinks, now_s
            )
        else:
            ahead = self.bridge.placing.planned.foreseen(
                self.bridge.placing.units(), uplinks, now_s
            )
        step = self.bridge.installation.step(
            self._desired(ahead), self.bridge.addresses.seeds, self._live_ports
        )
        if not step.changes:
            return []
        bundle_id = self.bridge.installation.next_bundle_id
        return [Prepare(Apply(self.bridge.config.name, bundle_id, step.changes))]

    # ---- bundles -----------------------------------------------------------------------

    def install(self, now_s: float) -> tuple[list[Command], bool]:
        """Send what differs, as a bundle. Also returns whether it needed no change and is done."""
        assert not self.bridge.phase.changes_nothing, "a request that only looks changes nothing"
        if not self._may_install(now_s):
            return [], False
        team, installed = (
            self._team(self.bridge.placing.on_switch),
            self.bridge.installation.installed,
        )
        pipeline = specs.EMPTY if team is None else self.bridge.installation.desire(team)
        step = self.bridge.installation.step(
            pipeline, self.bridge.addresses.seeds, self._live_ports
        )
        bundle = self.bridge.installation.next_bundle(step)
        if bundle is None:
            wanted = [command for one in self.bridge.features for command in one.want(now_s)]
            return [*self.bridge.placing.remembered(), *wanted], False
        if not bundle.changes:
            done = BundleDone(self.bridge.config.name, bundle.bundle_id)
            self.bridge.installation.finish(done, now_s)
            return self._carried_out(bundle, now_s), True
        added = step.changes.add_flows
        self.bridge.addresses.seeded(added, installed or specs.EMPTY)
        text = f"{self.bridge.config.name}: {len(bundle.changes)} changes to flows and groups"
        apply = Apply(self.bridge.config.name, bundle.bundle_id, bundle.changes)
        # When the bundle is done, this reading gives the addresses to announce.
        return [
            Report("debug", text),
            apply,
            *self.bridge.announcer.read_ahead(bundle.moves),
        ], False

    def _carried_out(self, bundle: Bundle, now_s: float) -> list[Command]:
        """The switch has made the changes of a bundle: answer requests, and announce moves."""
        assert self.bridge.installation.settled, "the bundle is done"
        commands: list[Command] = list(bundle.waiting)
        if any(move.is_resplit for move in bundle.moves):
            self.bridge.polls.count_anew(now_s)
        commands += self.bridge.handover.take_over()
        self.bridge.placing.counts.apply(bundle.moves)
        if any(move.reason.by_load for move in bundle.moves):
            self.bridge.scheduler.convergence.confirm_moves(now_s)
        commands += self.logged(bundle.moves)
        commands += self.bridge.decision_log.moved(
            self.bridge.placing.team_view, bundle.moves, now_s
        )
        if not self.bridge.installed_anything:
            self.bridge.handover.taken_over_with = ()
            commands += self.bridge.announcer.take_introductions()
            commands += self.bridge.off_home.part() if bundle.changes else []
            if self.bridge.on_normal:
                # On NORMAL, no flows count them.
                self.bridge.address_units.forget_units()
                self.bridge.placing.keep_units()
        moves = [move for move in bundle.moves if not move.is_resplit]
        if self.bridge.announces:
            self.bridge.inbound_check.watch_moves(moves, now_s)
        self.bridge.announcer.announce_moves(moves, now_s)
        self.bridge.announcer.end_reading_ahead()
        return [*commands, *self.bridge.placing.remembered({move.unit for move in moves})]

    def logged(self, moves: Iterable[Move], more: str = "") -> list[Command]:
        """A log line for each VM port that moves, and for all buckets with one source and target."""
        name, because = self.bridge.config.name, self.bridge.decision_log.because
        return [
            Report("info", f"{name}: {move.way} ({because or move.reason}){more}")
            for move in move_lines(self.bridge.placing.team_view, moves)
        ]

    def _finish_bundle(self, done: BundleDone, now_s: float) -> list[Command]:
        """The switch has made the changes of a bundle, or has refused all of them."""
        bundle = self.bridge.installation.finish(done, now_s)
        if bundle is None:
            return []
        if done.error is not None:
            self.bridge.announcer.end_reading_ahead()
            return self._bundle_refused(bundle, done.error, now_s)
        commands = self._carried_out(bundle, now_s)
        return [*commands, *self.bridge.reconcile(now_s)]

    def _bundle_refused(self, bundle: Bundle, error: str, now_s: float) -> list[Command]:
        """The switch has refused a bundle: report that, and read what is installed."""
        assert self.bridge.installed is None, "what the switch has now is not known"
        self.bridge.installation.audit_at(now_s + RETRY_INTERVAL_S)
        later, waiters = self.bridge.installation.give_up()
        moves = [*bundle.moves, *later]
        self.bridge.placing.counts.refuse(moves)
        self.bridge.placing.on_switch.take_back(
            [move for move in moves if not move.is_resplit], now_s
        )
        self.bridge.scheduler.splits.take_back(moves, now_s)
        self.bridge.placing.end_splits(self.bridge.config)
        refusal = f"the switch refused the change: {error}"
        records = self.bridge.decision_log.refused(
            self.bridge.placing.team_view,
            move_lines(self.bridge.placing.team_view, moves),
            refusal,
            now_s,
        )
        waiting = [*bundle.waiting, *waiters]
        replies = [Reply(reply.request_id, refusal, refused=True) for reply in waiting]
        return [Report("error", f"{self.bridge.config.name}: {refusal}"), *records, *replies]

    # ---- readings ----------------------------------------------------------------------

    def _take_installed(self, read: InstalledRead, now_s: float) -> list[Command]:
        """Take a reading of the switch's flows and groups, ours and those of others."""
        unknown_before, first_reading = self.bridge.installed is None, self.bridge.read is None
        if not self.bridge.installation.take_reading_of(read, now_s):
            return []
        members = self.bridge.config.uplinks if self.bridge.config.on_a_lag else ()
        up = [member.ofport for member in members if self.bridge.links.up(member)]
        self.bridge.repeated.take_flooded(
            {ofport: read.flooded.get(ofport, 0) for ofport in up}, now_s
        )
        if self.bridge.interrupted:
            return self.bridge.reconcile(now_s)
        if unknown_before:
            self._restore(first_reading, now_s)
        if learns(self.bridge.installed or specs.EMPTY):
            forgotten = self.bridge.handover.take_over()
            return [*forgotten, *self.bridge.reconcile(now_s), ReadLearned(self.bridge.config.name)]
        inspects = self.bridge.phase is Phase.INSPECTING
        if inspects and not first_reading:
            return []
        commands: list[Command] = []
        if inspects and self.bridge.config.on_bond:
            # Before anything is changed, see which ports have the flag already.
            commands += self.bridge.no_flood.inspect(now_s)
        unknown = self.bridge.config.on_bond or not self.bridge.addresses.by_port
        if (
            self.bridge.phase is not Phase.LEAVING
            and unknown
            and not self.bridge.addresses.awaits_normal
        ):
            # NORMAL knows the addresses of silent VMs and of new ones; we do not.
            return [*commands, *self.bridge.handover.read_forwarding()]
        return [*commands, *self.bridge.reconcile(now_s)]

    def _restore(self, first_reading: bool, now_s: float) -> None:
        """Go on from what is installed, as an earlier service left it."""
        found = self.bridge.installed or specs.EMPTY
        self.bridge.no_flood.restore(found)
        self.bridge.installation.found_homes |= buckets.installed(
            found, self.bridge.placing.uplinks()
        )
        self.bridge.address_units.restore(found, self.bridge.config)
        if first_reading:
            for name in splits.installed(found, self.bridge.config):
                self.bridge.scheduler.splits.split(name, now_s)
            self.bridge.placing.follow_splits()

    def _end_pause(self, now_s: float) -> list[Command]:
        self.bridge.installation.end_pause()
        return self.bridge.reconcile(now_s)

    def _audit(self, now_s: float) -> list[Command]:
        self.bridge.installation.audit_later(now_s)
        return [ReadInstalled(self.bridge.config.name)]


def _same(uplinks: tuple[Uplink, ...]) -> tuple[Uplink, ...]:
    return uplinks
