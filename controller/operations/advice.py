"""Writes refusals and advice for attach: about OVN, patch ports, tunnels and Open vSwitch releases.

An attach is refused for OVN's integration bridge, for a bridge whose VM ports would lose frames, and for a
release of Open vSwitch that is too old. Advice concerns patch ports (each of which connects many VMs),
tunnel endpoints, and releases that have not been tested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from controller.config import membership
from controller.config.rows import PREFIX, BridgeRow, Ovn
from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane.drops import Drop
from controller.teaming.buckets import hashed_by
from controller.text.wording import DROPPED, first_of, one_line, quoted, shortened
from policies.presets import PRESETS

SEVERAL = "set up several tunnel endpoints, so that policies can place each endpoint"
UNIT = PREFIX + "unit"
BY_ADDRESS = "source-mac"
FORGES = PREFIX + "forged-transmits"
# The tested releases. Each has a row in the table of docs/releases.md.
RUN_ON = ((3, 1), (3, 3), (3, 5), (3, 7))
# Since 2.8, `learn` supports limit and result_dst. Group mods in bundles exist in older releases, too.
LEAST = (2, 8)
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def refusal(row: BridgeRow, ovn: Ovn | None) -> str | None:
    """Return why a bridge whose flows ovn-controller writes is refused; None for other bridges."""
    if ovn is None or row.name != ovn.bridge:
        return None
    others = [name for name in ovn.mapped if name != row.name]
    such_as = f": {', '.join(others)}" if others else ""
    found = f"bridge {row.name} is OVN's integration bridge, whose flows ovn-controller writes"
    return f"{found}; attach the bridge that has the uplinks{such_as}"


def dropped(
    config: BridgeConfig, row: BridgeRow, known: Mapping[str, Sequence[tuple[str, int]]]
) -> Iterator[str]:
    """Report each VM port that sends from addresses other than its `attached-mac`, with advice.

    `known`: the addresses that NORMAL has learned on each VM port, in any VLAN. Ports with the key
    `forged-transmits` are skipped.
    """
    decided = {i.name for i in row.interfaces if FORGES in i.external_ids}
    for port in config.vm_ports:
        others = sorted({mac for mac, _ in known.get(port.name, ())} - set(port.attached_macs))
        if port.forges or not others or port.name in decided:
            continue
        yield (
            f"{port.name} also sends from {first_of(others)}, which its attached-mac does not list, so these"
            f" frames would be dropped; to accept them: ovs-vsctl set interface {quoted(port.name)}"
            f" external_ids:{FORGES}=accept (or reject, to drop them)"
        )


def of_dropped(row: BridgeRow, port: str, reason: Drop, count: int) -> tuple[str, bool]:
    """Return the report of a VM port's dropped frames, and whether an operator must act.

    No action is needed for frames that NORMAL drops too, or that the key `forged-transmits` rejects.
    """
    found = f"{port}: in the last 15 min, ovs-lbt dropped {DROPPED[reason]} ({count} in total)"
    accept = "ovs-lbt set interface {} forged-transmits=accept"
    if reason is Drop.CLAIMED:
        return f"{found}; if VMs share the address, on each of them: {accept.format('NAME')}", True
    rejects = any(i.name == port and FORGES in i.external_ids for i in row.interfaces)
    if reason is not Drop.ADDRESS or rejects:
        return found, False
    remedy = f"to accept them: {accept.format(quoted(port))} (or reject, to drop them)"
    return f"{found}; {remedy}", True


def of_endpoints(config: BridgeConfig) -> Iterator[str]:
    """Yield advice about the tunnel endpoints of a bridge, as sentences."""
    ports = [port for port in config.vm_ports if port.endpoint is not None]
    if len(ports) > 1:
        names = ", ".join(sorted(port.name for port in ports))
        # These endpoints always spread sent traffic, so peers select the uplinks of received traffic.
        answered = [] if config.on_a_lag else [port for port in ports if port.counted_by_flows]
        spread = sorted({port.policy for port in answered if hashed_by(port, ()) is not None})
        if spread:
            yield (
                f"tunnel endpoints {names}: {', '.join(spread)} spreads sent traffic, but all received traffic"
                " may use one uplink; set policy=adaptive or load-based, which place each endpoint as a whole"
            )
            return
        yield (
            f"tunnel endpoints {names}: each is placed separately; to plan which VM should use which"
            " endpoint: ovs-lbt plan --endpoints"
        )
    elif ports:
        (port,) = ports
        yield f"tunnel endpoint {port.name} ({port.endpoint}): {_alone(port, config)}"


def _alone(port: VmPortConfig, config: BridgeConfig) -> str:
    """Describe how the policy places the only endpoint, which all VMs of the host use."""
    one = f"{port.policy} places all tunnels as one VM port on one uplink"
    if not PRESETS[port.policy].spreads_connections:
        adaptive = f"ovs-lbt set interface {quoted(port.name)} policy=adaptive"
        return f"{one}; to spread the tunnels: {adaptive}, or {SEVERAL}"
    if port.unsplittable:
        return f"{one}; {SEVERAL}"
    if config.in_userspace and config.connection_hash == "multipath":
        found = "in the userspace datapath, multipath does not see the source ports of tunnels"
        return f"{found}; to spread tunnels: ovs-lbt set bridge {quoted(config.name)} connection-hash=dp_hash"
    return f"{port.policy} spreads the endpoint's connections, which have different source ports"


def of_joined_bridges(config: BridgeConfig, rows: Mapping[str, BridgeRow]) -> Iterator[str]:
    """Report patch ports to bridges that also have uplinks. `rows`: all bridges of the host."""
    leads_to = _leads_to(config, rows)
    for name in sorted({*leads_to.values()} - {config.name}):
        if uplinks := membership.likely_uplinks(rows[name]):
            patches = sorted(patch for patch, bridge in leads_to.items() if bridge == name)
            yield (
                f"patch port {first_of(patches)} leads to {name}, which also has uplinks"
                f" ({first_of(uplinks)}); if they are connected to the network of {config.name}, frames"
                " circulate: remove the patch port, or the uplinks of one bridge"
            )


def _leads_to(config: BridgeConfig, rows: Mapping[str, BridgeRow]) -> dict[str, str]:
    """Return the name of the bridge that each patch port leads to, if the peer exists."""
    peers = {i.peer: i.name for i in rows[config.name].interfaces if i.peer is not None}
    others = rows.values() if peers else ()
    return {peers[i.name]: row.name for row in others for i in row.interfaces if i.name in peers}


def of_patch_ports(config: BridgeConfig, rows: Mapping[str, BridgeRow]) -> Iterator[str]:
    """Yield advice about the patch ports of a bridge, as sentences. `rows`: all bridges of the host.

    Patch ports are skipped if their policy spreads connections, or if rules keep them on one uplink.
    """
    patches = {i.name: i for i in rows[config.name].interfaces if i.peer is not None}
    leads_to = _leads_to(config, rows)
    remedy = f"ovs-lbt set bridge {quoted(config.name)} patch-unit={BY_ADDRESS}"
    for port in config.vm_ports:
        interface = patches.get(port.name)
        if interface is None or PRESETS[port.policy].classifier.hashed:
            continue
        towards = f" to {leads_to[port.name]}" if port.name in leads_to else ""
        if not port.rules.unsplittable and port.unit != BY_ADDRESS:
            yield (
                f"patch port {port.name}{towards}: {port.policy} treats all VMs behind it as one VM port,"
                f" on one uplink; to place each address separately: {remedy}"
            )
        elif UNIT in interface.external_ids and config.patch_unit != BY_ADDRESS:
            yield (
                f"patch port {port.name}{towards}: its unit={BY_ADDRESS} is lost when ovn-controller"
                f" creates the port again; to set the unit on the bridge: {remedy}"
            )


# ---- the release of Open vSwitch --------------------------------------------------------


def release_of(version: str | None) -> tuple[int, int] | None:
    """Return the release of a version such as `3.1.0-dev` or `2.17.9-vendor5`; None if unknown."""
    found = _RELEASE.match(version.strip()) if version is not None else None
    return (int(found[1]), int(found[2])) if found else None


def release_refusal(version: str | None) -> str | None:
    """Return the reason why this release of Open vSwitch cannot be used; None if it can be used."""
    release = release_of(version)
    if release is None or release >= LEAST:
        return None
    found = f"Open vSwitch {_found_release(version)} cannot limit the number of flows that a learn action adds"
    return f"{found}; upgrade to {_as_text(LEAST)} or later"


def release_warning(version: str | None) -> str | None:
    """Return a warning if this release of Open vSwitch has not been tested; else None.

    Only ovs-ctl writes the version to the database. If the version is missing, None is returned.
    """
    if version is None or release_of(version) in RUN_ON:
        return None
    tested = f"tested releases are {', '.join(map(_as_text, RUN_ON))}"
    return f"Open vSwitch {_found_release(version)} has not been tested; {tested}"


def _found_release(version: str | None) -> str:
    return shortened(one_line(version or ""))


def _as_text(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
