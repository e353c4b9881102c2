"""Describes the effects and limits of hardware offload, DPDK ports and representors on a bridge.

Sources: Open vSwitch's documentation ("Flow Hardware offload with Linux TC flower", "Using Open
vSwitch with DPDK", ovs-vswitchd.conf.db(5)), and the checks in `lib/netdev-offload-tc.c` of releases
3.1 and 3.5. This module has not been tested on hardware.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from controller.config.rows import BridgeRow, InterfaceRow
from controller.text.wording import first_of
from policies.presets import PRESETS

DPDK_KINDS = ("dpdk", "dpdkvhostuser", "dpdkvhostuserclient")
# TCA_ACT_MAX_NUM of Open vSwitch: the maximum number of actions, such as outputs, of a flow in tc.
MOST_ACTIONS = 16
# The maximum number of ports that a sentence lists.
NAMED = 4
SHAPED_BY = "shares, reserve-mbps and limit-mbps"
# The effects of offloading cached flows to tc, and of the values of `tc-policy`.
BY_TC = (
    "hw-offload: tc and the network card execute cached flows, which already contain the"
    " results of ovs-lbt tables, groups and learned addresses",
    "hw-offload: software forwards frames that tc does not support: frames with more than"
    f" {MOST_ACTIONS} actions, such as floods to many VM ports, and IPv6 fragments",
    "hw-offload: tc byte counts exclude Ethernet headers, so ovs-lbt adds 14 bytes for each packet"
    " of a flow",
)
TC_POLICIES = {
    "skip_hw": "tc-policy skip_hw: tc forwards in software, and no network card forwards",
    "skip_sw": "tc-policy skip_sw: Open vSwitch's kernel module forwards frames that the card cannot forward",
}


@dataclass(frozen=True, slots=True)
class Offload:
    """The hardware offload of a bridge, according to the database.

    `told`: sentences that describe the effects. `by_tc`: whether cached flows are offloaded to tc,
    whose byte counts exclude Ethernet headers. `past_queues`: the VM ports whose frames bypass the
    uplink queues if the card forwards them. `no_queues`: the uplinks that cannot have queues.
    `no_card`: why no card can forward VM traffic although `hw-offload` is true; None if a card can.
    """

    told: tuple[str, ...] = ()
    by_tc: bool = False
    past_queues: tuple[str, ...] = ()
    no_queues: tuple[str, ...] = ()
    no_card: str | None = None

    def unshaped(self, port: str) -> str | None:
        """Return why a VM port cannot have shares, a reservation or a limit; None if it can."""
        if self.no_queues:
            return f"DPDK uplinks have no Linux queues: {first_of(self.no_queues, NAMED)}"
        if port in self.past_queues:
            return "frames from a representor bypass the queues of uplinks because of hw-offload"
        return None


NOTHING = Offload()


def read(row: BridgeRow, uplinks: Sequence[InterfaceRow]) -> Offload:
    """Return the hardware offload of a bridge with these uplinks, without the effects on policies."""
    names = {uplink.name for uplink in uplinks}
    by_tc = row.hw_offload and not row.in_userspace
    representors = [i.name for i in row.interfaces if i.represents and i.name not in names]
    past_queues = by_tc and row.tc_policy != "skip_hw"
    no_queues = tuple(uplink.name for uplink in uplinks if uplink.kind in DPDK_KINDS)
    told = [*BY_TC] if by_tc else []
    if by_tc and row.tc_policy in TC_POLICIES:
        told.append(TC_POLICIES[row.tc_policy])
    told += _dpdk(row, no_queues)
    told += _representors(row, representors) if representors else ()
    return Offload(
        tuple(told),
        by_tc,
        tuple(representors) if past_queues else (),
        no_queues,
        _no_card(row, uplinks) if row.hw_offload else None,
    )


def with_policies(found: Offload, policies: Iterable[str], connection_hash: str) -> Offload:
    """Return `found` with the effects on `policies`, given the setting `connection_hash`."""
    if not found.by_tc:
        return found
    hashed = (_hashed(policy, connection_hash, found.no_card) for policy in sorted({*policies}))
    return replace(found, told=(*found.told, *filter(None, hashed)))


def _hashed(policy: str, connection_hash: str, no_card: str | None) -> str | None:
    preset = PRESETS[policy]
    if connection_hash == "auto" and no_card is not None and preset.spreads_connections:
        return f"hw-offload with {policy}: {no_card}, so connections that use dp_hash are forwarded in software"
    if connection_hash == "dp_hash" and preset.spreads_connections:
        return (
            f"hw-offload with {policy}: connection-hash is dp_hash, which tc does not support, so"
            " connections that use dp_hash are forwarded in software"
        )
    if preset.classifier.hashed or preset.splits_by is not None:
        return (
            f"hw-offload with {policy}: each connection or address that is hashed is a separate flow"
            " in tc, and software forwards its first packet"
        )
    return None


def _no_card(row: BridgeRow, uplinks: Sequence[InterfaceRow]) -> str | None:
    """Return why no card can forward to the uplinks; None if a card can.

    A card forwards only to its own ports. Disabled offload is ignored, because it can be enabled later.
    """
    if row.in_userspace:
        return None if _has_card(row) else "datapath_type netdev offloads to DPDK cards only"
    if row.tc_policy == "skip_hw":
        return "tc-policy is skip_hw"
    if uplinks and all(uplink.offloads is False for uplink in uplinks):
        return f"uplinks {first_of([u.name for u in uplinks], NAMED)} cannot offload tc flows"
    return None


def _dpdk(row: BridgeRow, no_queues: Sequence[str]) -> Iterator[str]:
    ports = [interface.name for interface in row.interfaces if interface.kind in DPDK_KINDS]
    if no_queues:
        yield (
            f"DPDK uplinks {first_of(no_queues, NAMED)} have no Linux device for queues, so"
            f" {SHAPED_BY} are rejected"
        )
    if others := [name for name in ports if name not in no_queues]:
        yield (
            f"frames of DPDK ports {first_of(others, NAMED)} are forwarded by ovs-vswitchd's own threads; all"
            " policies work as on other ports"
        )
    if row.hw_offload and row.in_userspace:
        yield (
            "hw-offload: a DPDK card can offload cached flows that only output, push or pop VLAN"
            " tags, or rewrite addresses; ovs-vswitchd forwards all other flows"
            if _has_card(row)
            else "hw-offload: datapath_type netdev offloads only to DPDK cards, which this bridge lacks"
        )


def _representors(row: BridgeRow, names: Sequence[str]) -> Iterator[str]:
    which = f"representors {first_of(names, NAMED)}"
    if not row.hw_offload:
        yield f"{which}: hw-offload is not true, so software forwards all frames of their VMs"
        return
    yield (
        f"{which}: the card forwards only to uplinks of its own embedded switch; software forwards to"
        " other uplinks, unless the card joins its ports (esw_multiport)"
    )
    if not row.in_userspace and row.tc_policy != "skip_hw":
        yield (
            f"{which}: frames that the card forwards bypass the kernel's queues, so {SHAPED_BY} are"
            " rejected for these ports"
        )


def _has_card(row: BridgeRow) -> bool:
    """Whether the bridge has a DPDK network card. vhost-user ports are forwarded in software."""
    return any(interface.kind == "dpdk" for interface in row.interfaces)
