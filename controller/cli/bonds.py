"""`attach --from-bond` and `detach --to-bond`: a bond of Linux becomes one of Open vSwitch, and back."""

from __future__ import annotations

import argparse
import contextlib
import sys

from controller import from_linux_bond as moving
from controller.api.requests import assignments
from controller.cli import answers
from controller.config.keys import BRIDGE_KEYS
from controller.host import client
from controller.operations.linux_bond import LACP, MODES, Host, Stack
from controller.text.wording import Refused, quoted

RISK = """\
risk: the host's own network then depends on ovs-vswitchd. While ovs-vswitchd is stopped, or after it
failed to start, the host has no network. Have a console that does not depend on this bond. Packets are
lost while members change sides: a member's link goes down and up again, and with LACP the switch upstream
negotiates anew. If a step fails, or a gateway that answers now does not answer then, everything goes back.
The configuration of your distribution still has the bond of Linux. Change it before the next boot."""
RISK_BACK = """\
risk: packets are lost while members change sides. The VMs of the bridge lose their network with its bond."""


def from_bond(options: argparse.Namespace, words: list[str]) -> int:
    """Make a bond of Linux one of the bridge, and attach it."""
    if options.uplink:
        return answers.failed(
            "--uplink with --from-bond -> one of them: the bond's members are uplinks"
        )
    assignments(words[1:], BRIDGE_KEYS)
    if (obstacle := client.obstacle()) is not None or not client.running():
        return answers.failed(obstacle or "no service is running -> start one with: ovs-lbt run")
    host = moving.survey(options.bridge, options.from_bond)
    print(forward(host))
    if not options.yes:
        return answers.failed("nothing was changed -> the same command with --yes")
    moving.move(host, _say)
    _say(configuration(host))
    try:
        return answers.ask("attach", words)
    except Refused as why:
        answers.failed(str(why))
        bridge, bond = quoted(options.bridge), quoted(options.from_bond)
        back = f"ovs-lbt detach {bridge} --to-bond {bond} --yes"
        found = f"{options.from_bond} has moved, but is not attached"
        return answers.failed(f"{found}; to go back: {back}")


def to_bond(options: argparse.Namespace) -> int:
    """Detach a bridge, unless it is detached, and make its bond one of Linux again."""
    host = moving.survey_back(options.bridge, options.to_bond)
    print(back(host))
    if not options.yes:
        return answers.failed("nothing was changed -> the same command with --yes")
    if moving.is_attached(options.bridge):
        command = [sys.executable, "-m", "controller.cli", "-t", options.service]
        purge = ["--purge"] if options.purge else []
        if status := moving.ended([*command, "detach", options.bridge, *purge]):
            return status
    moving.move_back(host, _say)
    return 0


def _say(line: str) -> None:
    """Say what is being done, also to a terminal that has gone meanwhile."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


# ---- what it says ----------------------------------------------------------------------
#
# The plan, the risk, and what to write where: the configuration of the distribution is not ours.


def forward(host: Host) -> str:
    """What would be done, and what that means."""
    bond, bridge = host.bond, host.bridge
    new = ", a new bridge" if host.makes_bridge else ""
    lines = [
        f"{bond.name}: bond of Linux, {bond.mode}, {', '.join(bond.members)}, {bond.mac}, MTU {bond.mtu_bytes}",
        f"becomes: bond {bond.name} of {bridge}{new}, {', '.join(bond.settings)}",
    ]
    if bond.is_port:
        lines.append(f"stays on {bridge}: addresses, routes, VMs")
    else:
        lines += _moved(host, bridge)
    lines += [f"lost: {what}" for what in bond.lost]
    return "\n".join([*lines, RISK])


def back(host: Host) -> str:
    """What going back would do, and what that means."""
    bond = host.bond
    lines = [
        f"{bond.name}: bond of {host.bridge}, {', '.join(bond.members)}",
        f"becomes: bond of Linux, {bond.mode}, {' '.join(bond.options)}",
        *([] if bond.is_port else _moved(host, bond.name)),
    ]
    risk = RISK_BACK.partition(" The VMs")[0] if bond.is_port else RISK_BACK
    return "\n".join([*lines, risk])


def _moved(host: Host, to: str) -> list[str]:
    lines = [f"moves to {to}: {what}" for what in _told(host.own)]
    for vlan in host.vlans:
        stands = "; ".join(_told(vlan.stack)) or "no addresses"
        lines.append(f"moves to {to}: VLAN {vlan.tag}, {vlan.name}: {stands}")
    return lines


def _told(stack: Stack) -> list[str]:
    return [*stack.addresses, *stack.routes, *stack.routes6]


def configuration(host: Host) -> str:
    """What to write, for ifupdown, netplan and NetworkManager."""
    parts = [
        "to keep this over a boot, replace the bond of Linux in the configuration of your distribution:",
        f"--- /etc/network/interfaces (ifupdown)\n{_ifupdown(host)}",
        f"--- /etc/netplan/*.yaml (netplan)\n{_netplan(host)}",
        f"--- NetworkManager\n{_networkmanager(host)}",
    ]
    if host.vlans:
        parts.append("VLAN devices stay what they are, with the bridge in place of the bond.")
    return "\n".join(parts)


def _addresses(host: Host) -> tuple[list[str], str | None]:
    """The host's addresses with their lengths, and its gateway."""
    plain = [address.partition(" ")[0] for address in host.own.addresses]
    routes = [*host.own.routes, *host.own.routes6]
    words = next((r.split() for r in routes if r.startswith("default via ")), None)
    return plain, words[2] if words else None


def _ifupdown(host: Host) -> str:
    bond, bridge = host.bond, host.bridge
    addresses, gateway = _addresses(host)
    options = " ".join(
        s if ":" not in s else s.replace("other_config", "other-config") for s in bond.settings
    )
    lines = [
        f"auto {bridge}",
        f"allow-ovs {bridge}",
        f"iface {bridge} inet {'static' if addresses else 'manual'}",
        *(f"    address {address}" for address in addresses),
        *([f"    gateway {gateway}"] if gateway else []),
        "    ovs_type OVSBridge",
        f"    ovs_ports {bond.name}",
        f"    ovs_extra set bridge ${{IFACE}} other-config:hwaddr={bond.mac} external_ids:ovs-lbt-policy=load-based",
        f"allow-{bridge} {bond.name}",
        f"iface {bond.name} inet manual",
        f"    ovs_bridge {bridge}",
        "    ovs_type OVSBond",
        f"    ovs_bonds {' '.join(bond.members)}",
        f"    ovs_options {options}",
    ]
    return "\n".join(lines)


def _netplan(host: Host) -> str:
    bond, bridge = host.bond, host.bridge
    addresses, gateway = _addresses(host)
    quoted_addresses = ", ".join(f'"{address}"' for address in addresses)
    mode = MODES[bond.mode]
    lacp = "{lacp: active}" if bond.mode == LACP else "{}"
    lines = [
        "network:",
        "  version: 2",
        f"  ethernets: {{{', '.join(f'{member}: {{}}' for member in bond.members)}}}",
        "  bonds:",
        f"    {bond.name}:",
        f"      interfaces: [{', '.join(bond.members)}]",
        f"      parameters: {{mode: {mode}}}",
        f"      openvswitch: {lacp}",
        "  bridges:",
        f"    {bridge}:",
        f"      interfaces: [{bond.name}]",
        f'      macaddress: "{bond.mac}"',
        *([f"      addresses: [{quoted_addresses}]"] if addresses else []),
        *([f'      routes: [{{to: default, via: "{gateway}"}}]'] if gateway else []),
        "      openvswitch: {}",
    ]
    return "\n".join(lines)


def _networkmanager(host: Host) -> str:
    bond, bridge = host.bond, host.bridge
    addresses, gateway = _addresses(host)
    mode = MODES[bond.mode]
    lacp = " ovs-port.lacp active" if bond.mode == LACP else ""
    add = "nmcli connection add type"
    port = f"{bridge}-{bond.name}"
    static = [f"ipv4.method manual ipv4.addresses {','.join(a for a in addresses if ':' not in a)}"]
    static += [f"ipv4.gateway {gateway}"] if gateway and ":" not in gateway else []
    ipv4 = " ".join(static) if addresses else "ipv4.method disabled"
    members = (
        f"{add} ethernet conn.interface {m} con-name {bridge}-{m} master {port} slave-type ovs-port"
        for m in bond.members
    )
    return "\n".join(
        [
            f"{add} ovs-bridge conn.interface {bridge} con-name {bridge}",
            f"{add} ovs-port conn.interface {bond.name} con-name {port} master {bridge}"
            f" ovs-port.bond-mode {mode}{lacp}",
            *members,
            f"{add} ovs-port conn.interface {bridge} con-name {bridge}-port master {bridge}",
            f"{add} ovs-interface conn.interface {bridge} con-name {bridge}-if master {bridge}-port"
            f" slave-type ovs-port 802-3-ethernet.cloned-mac-address {bond.mac} {ipv4}",
            f"nmcli connection delete {quoted(bond.name)}",
        ]
    )
