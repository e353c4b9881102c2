"""The frames of a round of path checks, what frames that come back say, and what hinders the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.api.events import Command, DeliverFrame, SendFrame
from controller.api.status import PathHindrance
from controller.config.values import BridgeConfig, UplinkConfig
from controller.dataplane import path_probes
from controller.dataplane.path_probes import NO_UPLINK, Probe
from controller.dataplane.tables import OFPP_CONTROLLER
from controller.teaming.foreign_frames import MOST_HEARD
from controller.teaming.own_addresses import probe_group, probe_macs, question_macs
from controller.teaming.path_plan import Path
from controller.teaming.paths import INTERVAL_S, PathChecks, Round

# The source of proofs, which take no network.
SELF = "02:6c:62:74:00:01"


def hindrances(config: BridgeConfig, paths: PathChecks, now_s: float) -> Iterator[PathHindrance]:
    """What other hosts do to path checks now."""
    macs = probe_macs(config)
    for uplink in config.uplinks:
        about = f"uplink {uplink.name}:"
        # A flood that goes on shows again each time the switch takes such frames.
        if paths.foreign.hides(uplink.name, now_s - INTERVAL_S):
            found = (
                f"{about} path checks are hindered by more than {MOST_HEARD} frames in {INTERVAL_S:g} s to or"
                " from the addresses of probes; probes that it does not receive do not count"
            )
            yield PathHindrance("flooded", uplink.name, found, "no host that sends such frames")
        seen_on = paths.foreign.seen_on(uplink.name, now_s)
        if seen_on:
            seen_on = tuple(filter(None, seen_on))
            seen = f"seen on {', '.join(seen_on)}" if seen_on else "not seen on an uplink"
            found = (
                f"{about} somebody else sends from {macs[uplink.ofport]}, the address of its probes; {seen};"
                " nothing moves because of that"
            )
            yield PathHindrance("address", uplink.name, found, "no other host with it", seen_on)


def commands(
    config: BridgeConfig, probes: Round, asked_at: Callable[[Path], str | None], key: bytes
) -> Iterator[Command]:
    """The frames of a round. The last one proves the round: the switch gives it straight back.

    `asked_at`: the address of the host that a question goes to, if it is known.
    """
    macs, asking = probe_macs(config), question_macs(config)
    by_name = {uplink.name: uplink for uplink in config.uplinks}
    for path in probes.paths:
        sender = by_name[path.sender]
        tag = sender.vlans.tag_out(path.vlan)
        if path.to_host:
            source, to = asking[sender.ofport], asked_at(path)
            frame = path_probes.question_frame(source, path.receiver, tag, path.mtu, to)
        else:
            source, receiver = macs[sender.ofport], by_name[path.receiver]
            ends = int(sender.ofport), int(receiver.ofport)
            probe = Probe(*ends, path.vlan, path.mtu, probes.number)
            frame = path_probes.probe_frame(probe, source, macs[receiver.ofport], tag, key)
        yield DeliverFrame(config.name, int(sender.ofport), frame)
    for path in probes.copied:
        sender, group = by_name[path.sender], probe_group(config)
        copy = Probe(int(sender.ofport), NO_UPLINK, path.vlan, path.mtu, probes.number)
        tag = sender.vlans.tag_out(path.vlan)
        frame = path_probes.probe_frame(copy, asking[sender.ofport], group, tag, key)
        yield DeliverFrame(config.name, int(sender.ofport), frame)
    proof = Probe(NO_UPLINK, NO_UPLINK, 0, 0, probes.number)
    frame = path_probes.probe_frame(proof, SELF, SELF, 0, key)
    yield SendFrame(config.name, OFPP_CONTROLLER, frame)


def is_own(config: BridgeConfig, uplink: UplinkConfig, frame: bytes) -> bool:
    """Whether a frame goes to an address of an uplink."""
    macs = (of(config)[uplink.ofport] for of in (probe_macs, question_macs))
    return frame[:6].hex(":") in macs


def owner(config: BridgeConfig, frame: bytes) -> str | None:
    """The uplink from the address of whose probes a frame comes; None: of none."""
    source, macs = frame[6:12].hex(":"), probe_macs(config)
    return next((u.name for u in config.uplinks if macs[u.ofport] == source), None)


def path_of(
    config: BridgeConfig, probe: Probe, receiver: UplinkConfig, frame: bytes
) -> Path | None:
    """The path that a probe has taken; None if its sender is gone, or it came in another VLAN."""
    sender = next((u.name for u in config.uplinks if int(u.ofport) == probe.sender), None)
    vlan = receiver.vlans.vlan_of(path_probes.tag_of(frame))
    if sender is None or vlan != probe.vlan:
        return None
    return Path(probe.mtu, probe.vlan, sender, receiver.name)
