"""The frames of a round of path checks, and what frames that come back say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.api.events import Command, DeliverFrame, FrameHeard, SendFrame
from controller.config.values import BridgeConfig
from controller.dataplane import path_probes
from controller.dataplane.path_probes import HostAnswer, Probe
from controller.teaming.own_addresses import probe_macs, question_macs
from controller.teaming.path_plan import Path
from controller.teaming.paths import Round

# The source of the probe that takes no network. The switch drops what seems to come from a probe's.
SELF = "02:6c:62:74:00:01"


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
    first = config.uplinks[0]
    own = int(first.ofport)
    proof = Probe(own, own, 0, 0, probes.number)
    frame = path_probes.probe_frame(proof, SELF, macs[first.ofport], 0, key)
    yield SendFrame(config.name, own, frame)


def heard(config: BridgeConfig, event: FrameHeard, key: bytes) -> Probe | HostAnswer | None:
    """What a frame says; None: nothing. An uplink that has left the team hears nothing."""
    if not any(int(uplink.ofport) == event.uplink for uplink in config.uplinks):
        return None
    return path_probes.parse(event.frame, event.uplink, key)


def path_of(config: BridgeConfig, probe: Probe) -> Path | None:
    """The path that a probe has taken; None if an end of it has left the team."""
    names = {int(uplink.ofport): uplink.name for uplink in config.uplinks}
    if probe.sender not in names or probe.receiver not in names:
        return None
    return Path(probe.mtu, probe.vlan, names[probe.sender], names[probe.receiver])
