"""Which paths between uplinks are probed: for each VLAN and each MTU that VM ports use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.config.values import BridgeConfig, UplinkConfig, VmPortConfig
from policies.model import Role

# An uplink is probed from, and probes, so many others: with more uplinks, that still joins all of
# them, and the probes grow with the number of uplinks, not with its square.
NEIGHBOURS = 3
# A message of OpenFlow holds 64 kB, and the database any number.
LONGEST_MTU = 65_000

# Addresses learned on VM ports, by the port's name, each with its VLAN.
Learned = Mapping[str, Iterable[tuple[str, int]]]


@dataclass(frozen=True, slots=True, order=True)
class Path:
    """A way that frames of a VLAN take through the network.

    `sender`: an uplink. `receiver`: an uplink, or the address of a host that is asked (`to_host`).
    `mtu`: the MTU that a frame fills; 0: the shortest frame.
    """

    mtu: int
    vlan: int
    sender: str
    receiver: str
    to_host: bool = False

    @property
    def asked(self) -> tuple[str, str, int]:
        """The uplink, host and VLAN of a question: an answer does not tell more."""
        return self.sender, self.receiver, self.vlan


def vlans_of(port: VmPortConfig, learned: Learned) -> frozenset[int]:
    """The VLANs that a VM port uses: an access port's own; on a trunk those of learned addresses."""
    if not port.vlans.takes_tagged and port.vlans.native is not None:
        return frozenset({port.vlans.native})
    return frozenset(vlan for _, vlan in learned.get(port.name, ()))


def paths(config: BridgeConfig, up: Collection[str], learned: Learned) -> tuple[Path, ...]:
    """The paths to probe, sorted. `up`: the uplinks that have a link.

    Short frames come first, then the MTUs in use. None if fewer than two uplinks can be probed.
    """
    uplinks = [u for u in config.uplinks if u.role is not Role.UNUSED and u.name in up]
    if len(uplinks) < 2:
        return ()
    used: dict[int, set[int]] = {}
    for port in config.vm_ports:
        for vlan in vlans_of(port, learned):
            used.setdefault(vlan, {0}).add(min(max(port.mtu or 0, 0), LONGEST_MTU))
    found = [
        Path(mtu, vlan, sender.name, receiver, to_host)
        for vlan, mtus in used.items()
        for sender, receiver, to_host in _ways(config, uplinks, vlan)
        for mtu in mtus
    ]
    return tuple(sorted(found))


def _ways(
    config: BridgeConfig, uplinks: Sequence[UplinkConfig], vlan: int
) -> Iterator[tuple[UplinkConfig, str, bool]]:
    """Who probes whom in a VLAN: each pair in both directions, and each uplink the hosts."""
    able = [uplink for uplink in uplinks if vlan in uplink.vlans.carried]
    if len(able) < 2:
        return
    pairs = {
        tuple(sorted((at, (at + step) % len(able))))
        for at in range(len(able))
        for step in range(1, min(NEIGHBOURS, len(able) - 1) + 1)
    }
    for one, other in sorted(pairs):
        yield able[one], able[other].name, False
        yield able[other], able[one].name, False
    for host in config.path_check_targets:
        if host.vlan == vlan:
            for uplink in able:
                yield uplink, host.address, True
