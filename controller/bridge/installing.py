"""How the switch follows: when it is read, when a bundle is sent, and what its answer leads to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller.api.engine_commands import (
    Apply,
    Command,
    Prepare,
    ReadLearned,
    Reply,
    Report,
)
from controller.api.events import BundleDone, InstalledRead
from controller.bridge.installation import Bundle, Step
from controller.bridge.phase import Phase
from controller.config.values import VmPortConfig
from controller.dataplane import specs
from controller.dataplane.tables import ASSIGNED
from controller.dataplane.team import Team, VmPort
from controller.decisions.decision_log import move_lines
from controller.features.feature import Feature, Timer
from controller.features.learned_addresses import learns
from controller.teaming import buckets, splits
from controller.teaming.address_units import of_team
from controller.teaming.bindings import Bindings, ordered
from controller.teaming.own_addresses import probe_group, probe_macs, question_macs
from policies import failover
from policies.model import IDLE, Move, OfPort, Unit, Uplink

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
        ours = {int(port.ofport): port.name for port in self.config.vm_ports}
        ours |= {int(uplink.ofport): uplink.name for uplink in self.config.uplinks}
        return self.bridge.links.names_another(ours)

    def _may_install(self, now_s: float) -> bool:
        """Whether the switch may be changed now."""
        bridge = self.bridge
        if not bridge.connected or not bridge.installation.ready(now_s) or self._renumbered:
            return False
        return not bridge.addresses.awaits_normal or bridge.phase is Phase.LEAVING

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
        bridge, config, placing = self.bridge, self.config, self.bridge.placing
        given_back = bridge.interrupted or bridge.no_flood.given_back
        if not config.uplinks or (
            not bridge.serves and (not bridge.installed_anything or given_back)
        ):
            return None
        uplinks, units, split = self._links, placing.units_on_switch, placing.split_on_switch
        reused = placing.reused.reuse("order")

        def order(unit: Unit) -> tuple[Uplink, ...]:
            """The uplinks that a unit may use, the one in force first."""
            return reused(unit.name, ordered, (of.whereabouts(unit), unit, uplinks))

        orders = {unit.name: order(unit) for unit in units if not unit.is_bucket}
        address_units = bridge.address_units.by_name.values()
        macs = probe_macs(config) if bridge.checks_paths else {}
        endpoints = tuple(buckets.endpoints(config))
        return Team(
            uplinks=tuple(uplink.ofport for uplink in config.uplinks),
            vm_ports=tuple(_vm_port(p, orders[p.name], split) for p in config.vm_ports),
            hears_everywhere=config.on_a_lag,
            over_normal=config.on_bond,
            strangers=bool(config.missing),
            forwards_bpdu=config.forwards_bpdu,
            snoops=config.snoops,
            uplink_vlans={uplink.ofport: uplink.vlans for uplink in config.uplinks},
            normal_takes_any=config.bond_mode == "balance-slb" and not config.on_a_lag,
            no_flood=(bridge.no_flood.ports if bridge.serves else None) or frozenset(),
            hashes=buckets.hashes(config, split, units, order, of.homes),
            off_home_macs={} if config.on_a_lag else buckets.off_home_macs(config, split),
            addresses=tuple(of_team(address_units, config, orders, of.homes)),
            dp_hash=bridge.connection_hash.by_dp_hash,
            endpoints=endpoints,
            lanes=lanes(uplinks) if endpoints else {},
            probe_macs=macs,
            question_macs=question_macs(config) if macs and config.path_check_targets else {},
            probe_group=probe_group(config) if macs else "",
            unheard=frozenset(bridge.paths.foreign.dropped),
        )

    @property
    def _links(self) -> tuple[Uplink, ...]:
        """The team without loads: while no link, role or speed changes, the same object."""
        placing = self.bridge.placing
        idle = tuple(uplink.carrying(IDLE, reserved_bps=0.0) for uplink in placing.uplinks())
        return placing.reused.reuse("links")("", _same, (idle,))

    def foreseen(self, now_s: float) -> list[Command]:
        """The bundle that `take_over` would apply at once, for the shell to send ahead."""
        if not self._may_install(now_s):
            return []
        bridge, placing = self.bridge, self.bridge.placing
        bindings, units = placing.planned, placing.units()
        if bridge.observing and not self.config.on_bond:
            bindings, units = placing.on_switch.frozen(), placing.units_on_switch
        ahead = bindings.foreseen(units, placing.uplinks(), now_s)
        step = self._step(self._desired(ahead))
        if not step.changes:
            return []
        bundle_id = bridge.installation.next_bundle_id
        return [Prepare(Apply(self.config.name, bundle_id, step.changes))]

    def _step(self, pipeline: specs.Pipeline) -> Step:
        """The next step to a pipeline."""
        bridge = self.bridge
        return bridge.installation.step(pipeline, bridge.addresses.seeds, self._live_ports)

    # ---- bundles -----------------------------------------------------------------------

    def install(self, now_s: float) -> tuple[list[Command], bool]:
        """Send what differs, as a bundle. Also returns whether it needed no change and is done."""
        assert not self.bridge.phase.changes_nothing, "a request that only looks changes nothing"
        if not self._may_install(now_s):
            return [], False
        bridge, installation, name = self.bridge, self.bridge.installation, self.config.name
        team, installed = self._team(bridge.placing.on_switch), installation.installed
        step = self._step(specs.EMPTY if team is None else installation.desire(team))
        bundle = installation.next_bundle(step)
        if bundle is None:
            wanted = [command for one in bridge.features for command in one.want(now_s)]
            return [*bridge.placing.remembered(), *wanted], False
        if not bundle.step.changes:
            installation.finish(BundleDone(name, bundle.bundle_id), now_s)
            return self._carried_out(bundle, now_s), True
        bridge.addresses.seeded(step.changes.add_flows, installed or specs.EMPTY)
        told = Report("debug", f"{name}: {len(bundle.step.changes)} changes to flows and groups")
        apply = Apply(name, bundle.bundle_id, bundle.step.changes)
        # When the bundle is done, this reading gives the addresses to announce.
        return [told, apply, *bridge.announcer.read_ahead(bundle.moves)], False

    def _carried_out(self, bundle: Bundle, now_s: float) -> list[Command]:
        """The switch has made the changes of a bundle: answer requests, and announce moves."""
        bridge, placing = self.bridge, self.bridge.placing
        assert bridge.installation.settled, "the bundle is done"
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
            commands += bridge.announcer.take_introductions()
            commands += bridge.off_home.part() if bundle.step.changes else []
            if bridge.on_normal:
                # On NORMAL, no flows count them.
                bridge.address_units.forget_units()
                placing.keep_units()
        moves = [move for move in bundle.moves if not move.is_resplit]
        if bridge.announces:
            bridge.inbound_check.watch_moves(moves, now_s)
        bridge.announcer.announce_moves(moves, now_s)
        bridge.announcer.end_reading_ahead()
        return [*commands, *placing.remembered({move.unit for move in moves})]

    def logged(self, moves: Iterable[Move], more: str = "") -> list[Command]:
        """A log line for each VM port that moves, and for all buckets with one source and target."""
        name, because = self.config.name, self.bridge.decision_log.because
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
        bridge, placing = self.bridge, self.bridge.placing
        assert bridge.installed is None, "what the switch has now is not known"
        bridge.installation.audit_due_s = now_s + RETRY_INTERVAL_S
        later, waiters = bridge.installation.give_up()
        moves = [*bundle.moves, *later]
        placing.counts.refused.update(move.reason for move in moves)
        placing.on_switch.take_back([move for move in moves if not move.is_resplit], now_s)
        bridge.scheduler.splits.take_back(moves, now_s)
        placing.end_splits(self.config)
        refusal, team_view = f"the switch refused the change: {error}", placing.team_view
        lines = move_lines(team_view, moves)
        records = bridge.decision_log.refused(team_view, lines, refusal, now_s)
        waiting = [*bundle.waiting, *waiters]
        replies = [Reply(reply.request_id, refusal, refused=True) for reply in waiting]
        return [Report("error", f"{self.config.name}: {refusal}"), *records, *replies]

    # ---- readings ----------------------------------------------------------------------

    def _take_installed(self, read: InstalledRead, now_s: float) -> list[Command]:
        """Take a reading of the switch's flows and groups, ours and those of others."""
        bridge = self.bridge
        unknown_before, first_reading = bridge.installed is None, bridge.read is None
        if not bridge.installation.take_reading_of(read, now_s):
            return []
        members = self.config.uplinks if self.config.on_a_lag else ()
        up = [member.ofport for member in members if bridge.links.up(member)]
        bridge.repeated.take_flooded({of: read.flooded.get(of, 0) for of in up}, now_s)
        if bridge.interrupted:
            return bridge.reconcile(now_s)
        if unknown_before:
            self._restore(first_reading, now_s)
        if learns(bridge.installed or specs.EMPTY):
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

    def _restore(self, first_reading: bool, now_s: float) -> None:
        """Go on from what is installed, as an earlier service left it."""
        bridge, found = self.bridge, self.bridge.installed or specs.EMPTY
        bridge.no_flood.restore(found)
        bridge.installation.found_homes |= buckets.installed(found, bridge.placing.uplinks())
        bridge.address_units.restore(found, self.config)
        if first_reading:
            for name in splits.installed(found, self.config):
                bridge.scheduler.splits.split(name, now_s)
            bridge.placing.follow_splits()

    def _end_pause(self, now_s: float) -> list[Command]:
        self.bridge.installation.end_pause()
        return self.bridge.reconcile(now_s)

    def _audit(self, now_s: float) -> list[Command]:
        self.bridge.installation.audit_later(now_s)
        return [self.bridge.installation.read_installed(self.config.name)]


def _vm_port(port: VmPortConfig, order: Iterable[Uplink], split: frozenset[str]) -> VmPort:
    """A VM port as the pipeline needs it. `split`: the VM ports whose frames the switch spreads."""
    policy = buckets.hashed_by(port, split)
    hashed = None if policy is None else buckets.number_of(policy)
    return VmPort(
        ofport=port.ofport,
        order=tuple(uplink.ofport for uplink in order),
        vlans=port.vlans,
        attached_macs=port.attached_macs,
        forges=port.forges,
        trusted=port.trusted,
        hashed=ASSIGNED if port.per_address else hashed,
    )


def lanes(uplinks: Sequence[Uplink]) -> dict[OfPort, tuple[OfPort, ...]]:
    """For the off-home addresses of each uplink, the uplinks that serve them, the one in use first."""
    found = {}
    for own in uplinks:
        order = failover.order(own.name, own.name, uplinks, failover.as_configured)
        found[own.ofport] = tuple(uplink.ofport for uplink in failover.usable_first(order))
    return found


def _same(uplinks: tuple[Uplink, ...]) -> tuple[Uplink, ...]:
    return uplinks
