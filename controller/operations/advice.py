"""What attach reports about a bridge, besides its configuration errors.

It refuses OVN's integration bridge, bridges from whose VM ports frames would be dropped, and releases of
Open vSwitch that are too old. It gives advice about patch ports, which lead to many VMs, about tunnel
endpoints, and about releases that have not been tested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from controller.config.rows import PREFIX, BridgeRow, Ovn
from controller.config.values import BridgeConfig, VmPortConfig
from controller.teaming.buckets import hashed_by
from controller.text.wording import one_line, quoted, shortened
from policies.presets import PRESETS

SEVERAL = "set up several tunnel endpoints, so that policies can place each"
UNIT = PREFIX + "unit"
BY_ADDRESS = "source-mac"
FORGES = PREFIX + "forged-transmits"
NAMED_AT_MOST = 3
# Each is a row in the table of docs/releases.md.
RUN_ON = ((3, 1), (3, 3), (3, 5), (3, 7))
# Since 2.8, `learn` has a limit and can report whether it learned. Bundles of group mods are older.
LEAST = (2, 8)
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def refusal(row: BridgeRow, ovn: Ovn | None) -> str | None:
    """Why the bridge cannot be attached, if ovn-controller writes flows to it."""
    if ovn is None or row.name != ovn.bridge:
        return None
    others = [name for name in ovn.mapped if name != row.name]
    such_as = f": {', '.join(others)}" if others else ""
    found = f"bridge {row.name} belongs to ovn-controller, with its flows and its ports"
    return f"{found}; attach the bridge that has the uplinks{such_as}"


def dropped(
    config: BridgeConfig, row: BridgeRow, known: Mapping[str, Sequence[tuple[str, int]]]
) -> Iterator[str]:
    """A sentence for each VM port that sends from other addresses than its `attached-mac`, with advice.

    `known`: the addresses that NORMAL has learned on each VM port, in any VLAN. A port for which the
    operator has decided is left out.
    """
    decided = {i.name for i in row.interfaces if FORGES in i.external_ids}
    for port in config.vm_ports:
        others = sorted({mac for mac, _ in known.get(port.name, ())} - set(port.attached_macs))
        if port.forges or not others or port.name in decided:
            continue
        named = ", ".join(others[:NAMED_AT_MOST])
        more = f" and {len(others) - NAMED_AT_MOST} more" if len(others) > NAMED_AT_MOST else ""
        yield (
            f"{port.name} also sends from {named}{more}, which its attached-mac does not list, so these"
            f" frames would be dropped; to accept them: ovs-vsctl set interface {quoted(port.name)}"
            f" external_ids:{FORGES}=accept (or reject, to drop them)"
        )


def tunnels(config: BridgeConfig, row: BridgeRow) -> Iterator[str]:
    """A sentence for each VM port in mode dot1q-tunnel, with advice."""
    vm_ports = {port.name for port in config.vm_ports}
    for port in row.ports:
        if port.vlan_mode == "dot1q-tunnel" and port.name in vm_ports:
            yield (
                f"{port.name} has vlan_mode dot1q-tunnel, so the VM's tagged frames would be dropped;"
                f" if the VM sends none: ovs-vsctl set port {quoted(port.name)} vlan_mode=access"
            )


def of_endpoints(config: BridgeConfig) -> Iterator[str]:
    """Advice about the tunnel endpoints of a bridge, a sentence each."""
    ports = [port for port in config.vm_ports if port.endpoint is not None]
    if len(ports) > 1:
        names = ", ".join(sorted(port.name for port in ports))
        # These are always spread, so peers decide on which uplink traffic to them arrives.
        answered = [] if config.on_a_lag else [port for port in ports if port.counted_by_flows]
        spread = sorted({port.policy for port in answered if hashed_by(port, ()) is not None})
        if spread:
            yield (
                f"tunnel endpoints {names}: {', '.join(spread)} spreads each, and all traffic to them"
                " may arrive on one uplink; set policy=adaptive or load-based, which place each as a whole"
            )
            return
        yield (
            f"tunnel endpoints {names}: each has its own uplink; ovs-lbt plan --endpoints shows"
            " which VM should use which"
        )
    elif ports:
        (port,) = ports
        yield f"tunnel endpoint {port.name} ({port.endpoint}): {_alone(port, config)}"


def _alone(port: VmPortConfig, config: BridgeConfig) -> str:
    """How the policy places the only endpoint, through which all VMs of the host send."""
    one = f"{port.policy} places all tunnels as one VM port on one uplink"
    if not PRESETS[port.policy].spreads_connections:
        adaptive = f"ovs-lbt set interface {quoted(port.name)} policy=adaptive"
        return f"{one}; to spread them: {adaptive}, or {SEVERAL}"
    if port.unsplittable:
        return f"{one}; {SEVERAL}"
    if config.in_userspace and config.connection_hash == "multipath":
        found = "in the userspace datapath, multipath does not see the source ports of tunnels"
        return f"{found}; to spread them: ovs-lbt set bridge {quoted(config.name)} connection-hash=dp_hash"
    return f"{port.policy} spreads its connections, which differ in their source ports"


def of_patch_ports(config: BridgeConfig, rows: Mapping[str, BridgeRow]) -> Iterator[str]:
    """Advice about the patch ports of a bridge, a sentence each. `rows`: all bridges of the host.

    None if the policy separates addresses anyway, or if rules keep the port on one uplink.
    """
    patches = {i.name: i for i in rows[config.name].interfaces if i.peer is not None}
    bridges = {i.name: row.name for row in rows.values() for i in row.interfaces}
    remedy = f"ovs-lbt set bridge {quoted(config.name)} patch-unit={BY_ADDRESS}"
    for port in config.vm_ports:
        interface = patches.get(port.name)
        if interface is None or PRESETS[port.policy].classifier.hashed:
            continue
        leads_to = bridges.get(interface.peer or "")
        towards = f" to {leads_to}" if leads_to else ""
        if not port.rules.unsplittable and port.unit != BY_ADDRESS:
            yield (
                f"patch port {port.name}{towards}: {port.policy} places all VMs behind it as one VM port"
                f" on one uplink; to place each address by itself: {remedy}"
            )
        elif UNIT in interface.external_ids and config.patch_unit != BY_ADDRESS:
            yield (
                f"patch port {port.name}{towards}: its unit={BY_ADDRESS} is lost when ovn-controller"
                f" creates the port again; to keep it on the bridge: {remedy}"
            )


# ---- the release of Open vSwitch --------------------------------------------------------


def release_of(version: str | None) -> tuple[int, int] | None:
    """The release of a version such as `3.1.0-dev` or `2.17.9-vendor5`; None if unknown."""
    found = _RELEASE.match(version.strip()) if version is not None else None
    return (int(found[1]), int(found[2])) if found else None


def release_refusal(version: str | None) -> str | None:
    """Why this Open vSwitch cannot be used; None if it can."""
    release = release_of(version)
    if release is None or release >= LEAST:
        return None
    found = f"Open vSwitch {_found_release(version)} cannot limit what the learn action learns"
    return f"{found}; upgrade to {_as_text(LEAST)} or later"


def release_warning(version: str | None) -> str | None:
    """A warning if this Open vSwitch is not a tested release; else None.

    Only ovs-ctl writes the version to the database. Without a version there is no warning.
    """
    if version is None or release_of(version) in RUN_ON:
        return None
    tested = f"tested releases are {', '.join(map(_as_text, RUN_ON))}"
    return f"Open vSwitch {_found_release(version)} has not been tested; {tested}"


def _found_release(version: str | None) -> str:
    return shortened(one_line(version or ""))


def _as_text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
