"""Runs `attach --from-bond` and `detach --to-bond`: prints the steps, and migrates a Linux bond."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys

from controller import from_linux_bond as moving
from controller.api.requests import assignments
from controller.cli import answers
from controller.config.keys import BRIDGE_KEYS
from controller.host import client
from controller.operations.linux_bond import LACP, MODES, Host, Stack
from controller.text.wording import Refused, quoted

RISK = """\
risk: the host's own network then depends on ovs-vswitchd. While ovs-vswitchd is stopped, or if it fails
to start, the host has no network. Use a console that does not depend on this bond. Packets are lost while
members are moved: a member's link goes down and up again, and with LACP the upstream switch negotiates
again. If a step fails, or a gateway that answers now does not answer later, all steps are rolled back.
The configuration of your distribution still contains the Linux bond: change it before the next boot."""
RISK_BACK = """\
risk: packets are lost while members are moved. The VMs lose their network, because the bridge's bond is removed."""
KEPT = (
    "to keep this after a reboot, replace the Linux bond in the configuration of your distribution:"
)
LEASED = "start a DHCP client on {} before the lease of its address ends."
VLANS_STAY = "keep the VLAN devices, with the bridge instead of the bond as their parent device."
IFUPDOWN = """\
--- /etc/network/interfaces (ifupdown)
auto {bridge}
allow-ovs {bridge}
iface {bridge} inet {inet}
{lines}    ovs_type OVSBridge
    ovs_ports {bond}
    ovs_extra set bridge ${{IFACE}} other-config:hwaddr={mac} external_ids:ovs-lbt-policy=load-based
allow-{bridge} {bond}
iface {bond} inet manual
    ovs_bridge {bridge}
    ovs_type OVSBond
    ovs_bonds {members}
    ovs_options {options}"""
NETPLAN = """\
--- /etc/netplan/*.yaml (netplan)
network:
  version: 2
  ethernets: {{{ethernets}}}
  bonds:
    {bond}:
      interfaces: [{members}]
      parameters: {{mode: {mode}}}
      openvswitch: {lacp}
  bridges:
    {bridge}:
      interfaces: [{bond}]
      macaddress: "{mac}"
{dhcp}{addresses}{routes}      openvswitch: {{}}"""
NETWORKMANAGER = """\
--- NetworkManager
{add} ovs-bridge conn.interface {bridge} con-name {bridge}
{add} ovs-port conn.interface {bond} con-name {port} master {bridge} ovs-port.bond-mode {mode}{lacp}
{members}{add} ovs-port conn.interface {bridge} con-name {bridge}-port master {bridge}
{add} ovs-interface conn.interface {bridge} con-name {bridge}-if master {bridge}-port slave-type ovs-port \
802-3-ethernet.cloned-mac-address {mac} {ipv4} {ipv6}
nmcli connection delete {old}"""
NETWORKMANAGER_MEMBER = """\
{add} ethernet conn.interface {member} con-name {bridge}-{member} master {port} slave-type ovs-port
"""


def from_bond(options: argparse.Namespace, words: list[str]) -> int:
    """Migrate a Linux bond to a bridge, attach the bridge, and return the exit status."""
    if options.uplink:
        return answers.failed(
            "--uplink does not work with --from-bond, because the bond's members are the uplinks"
        )
    assignments([word for word in words[1:] if "=" in word], BRIDGE_KEYS)
    if (obstacle := client.obstacle()) is not None or not client.running():
        return answers.failed(obstacle or "no service is running; start it with: ovs-lbt run")
    host = moving.survey(options.bridge, options.from_bond)
    print(forward(host))
    if options.dry_run:
        return 0
    if not options.yes:
        return answers.failed("nothing was changed; to migrate the bond, add --yes")
    moving.move(host, _say)
    _say(configuration(host))
    try:
        return answers.ask("attach", words)
    except Refused as why:
        answers.failed(str(why))
        bridge, bond = quoted(options.bridge), quoted(options.from_bond)
        back = f"ovs-lbt detach {bridge} --to-bond {bond} --yes"
        found = f"{options.from_bond} was migrated, but the bridge is not attached"
        return answers.failed(f"{found}; to migrate back: {back}")


def to_bond(options: argparse.Namespace) -> int:
    """Detach a bridge if it is attached, convert its bond to a Linux bond, and return the exit status."""
    host = moving.survey_back(options.bridge, options.to_bond)
    print(back(host))
    if options.dry_run:
        return 0
    if not options.yes:
        return answers.failed("nothing was changed; to migrate the bond, add --yes")
    if moving.is_attached(options.bridge):
        command = [sys.executable, "-m", "controller.cli", "-t", options.service]
        purge = ["--purge"] if options.purge else []
        # A separate process, because a detach without the service ends its own process.
        detach = [*command, "detach", options.bridge, *purge]
        if status := subprocess.run(detach, start_new_session=True).returncode:
            return status
    moving.move_back(host, _say)
    return 0


def _say(line: str) -> None:
    """Print a line about the progress. Errors are ignored if the terminal no longer exists."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


# ---- texts -----------------------------------------------------------------------------
#
# The plan, the risk, and the changes to the distribution's configuration, which the user must make.


def forward(host: Host) -> str:
    """Return a description of the steps and risks of migrating a Linux bond to a bridge."""
    bond, bridge = host.bond, host.bridge
    new = ", a new bridge" if host.makes_bridge else ""
    lines = [
        f"{bond.name}: Linux bond, {bond.mode}, {', '.join(bond.members)}, {bond.mac}, MTU {bond.mtu_bytes}",
        f"becomes: bond {bond.name} on {bridge}{new}, {', '.join(bond.settings)}",
    ]
    if bond.is_port:
        lines.append(f"stays on {bridge}: addresses, routes, VMs")
    else:
        lines += _moved(host, bridge)
    lines += [f"lost: {what}" for what in bond.lost]
    return "\n".join([*lines, RISK])


def back(host: Host) -> str:
    """Return a description of the steps and risks of migrating back to a Linux bond."""
    bond = host.bond
    lines = [
        f"{bond.name}: bond on {host.bridge}, {', '.join(bond.members)}",
        f"becomes: Linux bond, {bond.mode}, {' '.join(bond.options)}",
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
    """Return how to configure the bridge and its bond in ifupdown, netplan and NetworkManager."""
    bond, bridge, own = host.bond, host.bridge, host.own
    # DHCP and router advertisements configure addresses with a limited lifetime.
    limited = [address for address in own.addresses if " valid_lft " in address]
    addresses = [a.partition(" ")[0] for a in own.addresses if a not in limited]
    dhcp = any(":" not in address for address in limited)
    ipv4 = [address for address in addresses if ":" not in address]
    ipv6 = [address for address in addresses if ":" in address]
    gateway = _gateway(own.routes) if ipv4 and not dhcp else ""
    gateway6 = _gateway(own.routes6) if ipv6 else ""
    # ifupdown uses only one `address` of a stanza, and none with DHCP.
    first, more = ([], addresses) if dhcp else (ipv4[:1], [*ipv4[1:], *ipv6])
    lines = [f"address {address}" for address in first]
    lines += [f"gateway {gateway}"] if gateway else []
    lines += [f"up ip address add {address} dev {bridge}" for address in more]
    lines += [f"up ip route add default via {gateway6} dev {bridge}"] if gateway6 else []
    lacp = bond.mode == LACP
    words = {
        "bridge": bridge,
        "bond": bond.name,
        "mac": bond.mac,
        "mode": MODES[bond.mode],
        "port": f"{bridge}-{bond.name}",
        "add": "nmcli connection add type",
    }
    ifupdown = IFUPDOWN.format(
        **words,
        inet="dhcp" if dhcp else "static" if ipv4 else "manual",
        lines="".join(f"    {line}\n" for line in lines),
        members=" ".join(bond.members),
        options=" ".join(bond.settings).replace("other_config:", "other-config:"),
    )
    listed = ", ".join(f'"{address}"' for address in addresses)
    via = ", ".join(f'{{to: default, via: "{one}"}}' for one in (gateway, gateway6) if one)
    netplan = NETPLAN.format(
        **words,
        ethernets=", ".join(f"{member}: {{}}" for member in bond.members),
        members=", ".join(bond.members),
        lacp="{lacp: active}" if lacp else "{}",
        dhcp="      dhcp4: true\n" if dhcp else "",
        addresses=f"      addresses: [{listed}]\n" if addresses else "",
        routes=f"      routes: [{via}]\n" if via else "",
    )
    members = (NETWORKMANAGER_MEMBER.format(**words, member=member) for member in bond.members)
    networkmanager = NETWORKMANAGER.format(
        **words,
        lacp=" ovs-port.lacp active" if lacp else "",
        members="".join(members),
        ipv4=_method("ipv4", ipv4, gateway, "auto" if dhcp else "manual" if ipv4 else "disabled"),
        ipv6=_method("ipv6", ipv6, gateway6, "manual" if ipv6 else "auto"),
        old=quoted(bond.name),
    )
    notes = [*[LEASED.format(bridge)] * dhcp, *[VLANS_STAY] * bool(host.vlans)]
    return "\n".join([KEPT, ifupdown, netplan, networkmanager, *notes])


def _gateway(routes: tuple[str, ...]) -> str:
    return next((route.split()[2] for route in routes if route.startswith("default via ")), "")


def _method(family: str, addresses: list[str], gateway: str, method: str) -> str:
    """Return a NetworkManager method with its settings."""
    fixed = f" {family}.addresses {','.join(addresses)}" if addresses else ""
    via = f" {family}.gateway {gateway}" if gateway else ""
    return f"{family}.method {method}{fixed}{via}"
