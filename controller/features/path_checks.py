"""Path checks: sends and evaluates rounds of probes, and stops using unreachable and blocked uplinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from controller.api.engine_commands import Command, DeliverFrame, Report, SendFrame
from controller.api.events import FrameHeard
from controller.api.history import Entry, Happened
from controller.api.status import PathHindrance
from controller.config.values import BridgeConfig, UplinkConfig
from controller.dataplane import path_probes
from controller.dataplane.path_probes import NO_UPLINK, Probe
from controller.dataplane.tables import OFPP_CONTROLLER
from controller.features.feature import Feature, Timer
from controller.teaming import path_plan
from controller.teaming.own_addresses import probe_group, probe_macs, question_macs
from controller.teaming.path_plan import Path
from controller.teaming.paths import FULL_RATIO, INTERVAL_S, PathChecks, Round

# The source address of probes that prove a round; these probes do not leave the switch.
SELF = "02:6c:62:74:00:01"


@dataclass(eq=False)
class Probing(Feature[FrameHeard]):
    """Sends rounds of probes between the uplinks of one bridge. The results are in `bridge.paths`."""

    # The key that signs probes, so that no other host can forge one.
    _key: bytes = field(repr=False)
    # Current disturbances of path checks by other hosts.
    hindrances: tuple[PathHindrance, ...] = ()

    def forget_switch(self) -> None:
        self.bridge.paths.interrupt()

    def timers(self) -> Iterator[Timer]:
        bridge = self.bridge
        if bridge.connected and bridge.checks_paths:
            yield bridge.paths.foreign.heard_again_s(), self._hear_again
            yield bridge.paths.due_s, self._probe

    def follow(self, now_s: float) -> list[Command]:
        """Stop using uplinks that are unreachable or blocked, and use them again when they recover."""
        bridge, paths, config = self.bridge, self.bridge.paths, self.config
        before, changed = dict(paths.since_s), False
        if not bridge.checks_paths and paths.checks_something:
            paths.end()
            self.hindrances = ()
        if bridge.checks_paths or paths.checks_something:
            linked = [uplink.name for uplink in config.uplinks if bridge.links.has_link(uplink)]
            changed = paths.find(linked, config.failback_delay_s, now_s)
        unreachable = paths.unreachable() | {u.name for u in config.uplinks if u.blocked}
        if unreachable != bridge.links.unreachable:
            bridge.links.follow_paths(unreachable, now_s)
        if not changed:
            return []
        records = [*bridge.decision_log.paths(config.name, before, paths.since_s, now_s)]
        return [*records, *(_path_reported(record.entry) for record in records)]

    def _hear_again(self, now_s: float) -> list[Command]:
        """Let the switch accept frames again that were dropped because of a flood."""
        self.bridge.paths.foreign.take_again(now_s)
        return self.bridge.reconcile(now_s)

    def _probe(self, now_s: float) -> list[Command]:
        """Send a round of probes."""
        bridge, paths, config = self.bridge, self.bridge.paths, self.config
        told = self._tell_hindrances(now_s)
        linked = {uplink.name for uplink in config.uplinks if bridge.links.has_link(uplink)}
        paths.follow_config(path_plan.paths(config, linked, bridge.addresses.by_port))
        probes = paths.begin_round(now_s)
        sent = commands(config, probes, paths.asked_at, self._key) if probes.paths else ()
        return [*told, *sent]

    def _tell_hindrances(self, now_s: float) -> list[Command]:
        """Update how other hosts' frames disturb path checks, and report changes."""
        config = self.config
        before = {(one.kind, one.uplink): one.found for one in self.hindrances}
        self.hindrances = tuple(hindrances(config, self.bridge.paths, now_s))
        now = {(one.kind, one.uplink): f"{one.found}; {one.expected}" for one in self.hindrances}
        new = [("warning", now[key]) for key in now if key not in before]
        over = [("info", f"resolved: {before[key]}") for key in before if key not in now]
        return [Report(level, f"{config.name}: {text}") for level, text in new + over]

    def heard(self, event: FrameHeard, now_s: float) -> list[Command]:
        """Handle a path-check frame received by an uplink, or a round's proof (see `commands`)."""
        bridge, paths, config = self.bridge, self.bridge.paths, self.config
        if not bridge.checks_paths:
            return []
        if event.uplink == OFPP_CONTROLLER:
            return self._prove_round(event, now_s)
        uplink = config.uplink_at.get(event.uplink)
        if uplink is None:
            return []
        own = {of(config)[uplink.ofport] for of in (probe_macs, question_macs)}
        kind = uplink.ofport, event.frame[:6].hex(":") in own
        if kind in paths.foreign.dropped or self._hear(uplink, event.frame, now_s):
            return []
        if not paths.foreign.is_flooded(kind, uplink.name, INTERVAL_S, now_s):
            return []
        return [*self._tell_hindrances(now_s), *bridge.reconcile(now_s)]

    def _hear(self, uplink: UplinkConfig, frame: bytes, now_s: float) -> bool:
        """Evaluate a frame that an uplink has received. Return False if it does not belong to a round."""
        paths, uplinks = self.bridge.paths, self.config.uplinks
        found = path_probes.parse(frame, int(uplink.ofport), self._key)
        if isinstance(found, Probe):
            sender = self.config.uplink_at.get(found.sender)
            if sender is None or uplink.vlans.vlan_of(path_probes.tag_of(frame)) != found.vlan:
                # The sender no longer exists, or the frame was received in another VLAN.
                return False
            path = Path(found.mtu, found.vlan, sender.name, uplink.name)
            return paths.arrived(path, found.round, copy=found.receiver == NO_UPLINK)
        macs, source = probe_macs(self.config), frame[6:12].hex(":")
        if (of := next((u.name for u in uplinks if macs[u.ofport] == source), None)) is not None:
            paths.foreign.see(of, uplink.name, now_s)
        elif found is not None and (vlan := uplink.vlans.vlan_of(found.tag)) is not None:
            return paths.answered(uplink.name, found.address, vlan, found.mac)
        return False

    def _prove_round(self, event: FrameHeard, now_s: float) -> list[Command]:
        """End a round if its proof, which the switch has returned, is valid."""
        bridge = self.bridge
        found = path_probes.parse(event.frame, NO_UPLINK, self._key)
        if not isinstance(found, Probe):
            return []
        carried = bridge.placing.team_view().uplinks()
        full = {uplink.name for uplink in carried if uplink.utilization_ratio >= FULL_RATIO}
        return bridge.reconcile(now_s) if bridge.paths.prove(found.round, full, now_s) else []


def hindrances(config: BridgeConfig, paths: PathChecks, now_s: float) -> Iterator[PathHindrance]:
    """Yield, for each uplink, how other hosts' frames disturb its path checks now."""
    macs = probe_macs(config)
    for uplink in config.uplinks:
        about = f"uplink {uplink.name}:"
        if paths.foreign.is_reported(uplink.name, now_s):
            found = (
                f"{about} too many frames to or from probe addresses disturb path checks; lost probes on this"
                " uplink are ignored"
            )
            yield PathHindrance("flooded", uplink.name, found, "find the source of these frames")
        seen_on = paths.foreign.seen_on(uplink.name, now_s)
        if seen_on:
            seen_on = tuple(filter(None, seen_on))
            seen = f"seen on {', '.join(seen_on)}" if seen_on else "not seen on any uplink"
            found = (
                f"{about} another host sends from this uplink's probe address {macs[uplink.ofport]}, {seen};"
                " these frames do not cause moves of VM ports"
            )
            yield PathHindrance("address", uplink.name, found, "find this host", seen_on)


def commands(
    config: BridgeConfig, probes: Round, asked_at: Callable[[Path], str | None], key: bytes
) -> Iterator[Command]:
    """Yield the frames of a round. The last one is the service's own probe, which the switch returns.

    `asked_at`: returns the MAC address of the host to query on a path, if it is known.
    """
    macs, asking = probe_macs(config), question_macs(config)
    by_name = {uplink.name: uplink for uplink in config.uplinks}
    leaves = (*((path, False) for path in probes.paths), *((path, True) for path in probes.copied))
    for path, is_copy in leaves:
        sender = by_name[path.sender]
        own, tag = sender.ofport, sender.vlans.tag_out(path.vlan)
        if path.to_host:
            to = asked_at(path)
            frame = path_probes.question_frame(asking[own], path.receiver, tag, path.mtu, to)
        elif is_copy:
            copy = Probe(int(own), NO_UPLINK, path.vlan, path.mtu, probes.number)
            frame = path_probes.probe_frame(copy, asking[own], probe_group(config), tag, key)
        else:
            receiver = by_name[path.receiver].ofport
            probe = Probe(int(own), int(receiver), path.vlan, path.mtu, probes.number)
            frame = path_probes.probe_frame(probe, macs[own], macs[receiver], tag, key)
        yield DeliverFrame(config.name, int(own), frame)
    proof = Probe(NO_UPLINK, NO_UPLINK, 0, 0, probes.number)
    frame = path_probes.probe_frame(proof, SELF, SELF, 0, key)
    yield SendFrame(config.name, OFPP_CONTROLLER, frame)


def _path_reported(entry: Entry) -> Report:
    found = entry.happened is Happened.PATH_FAULT
    return Report("warning" if found else "info", f"{entry.bridge}: path check: {entry.why}")
