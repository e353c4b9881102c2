"""Determines the uplinks of a bridge: checks the list of uplinks, and finds uplinks missing from it.

An uplink that is treated as a VM port forms a loop, and a VM port that is treated as an uplink
receives other VMs' traffic. So a list of uplinks with such an error is refused. If the database does
not show whether an interface is an uplink, an operator sets the key `role` on an uplink, or a rule
such as `unit` on a VM port.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.config.guests import OF_VM
from controller.config.keys import UPLINK_KEYS, VM_RULE_KEYS, WRITTEN_VM_KEYS
from controller.config.kinds import Known
from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, PortRow
from controller.text.wording import nearest, quoted
from policies.model import MAX_UPLINKS

# Keys that libvirt, OpenStack and others write to the Interface of a VM.
VM_IDS = ("iface-id", *OF_VM, "attached-mac")
# Patterns for the names of VM interfaces, keyed by the program that uses these names.
VM_NAMES = {
    "libvirt": r"vnet\d+",
    "OpenStack": r"(tap|qvo|qvb)[0-9a-f]{8}-[0-9a-f]{1,2}",
    "Proxmox": r"(tap|veth)\d+i\d+|fw(ln|pr)\d+[op]\d+",
    "Xen": r"vif\d+\.\d+",
}
# Types of interfaces that connect a VM, this host, or another bridge of this host.
VM_TYPES = ("internal", "patch", "dpdkvhostuser", "dpdkvhostuserclient")
TAP_DRIVERS = ("tun", "net_tap", "net_vhost", "net_virtio_user")
# Drivers of devices that are not network cards. Such a device can be an uplink, or connect a VM or a
# container.
VIRTUAL_DRIVERS = (
    *TAP_DRIVERS,
    *("veth", "openvswitch", "dummy", "ifb", "macvlan", "macvtap", "vxlan", "net_null", "net_ring"),
    *("net_pcap", "net_memif", "netkit", "bridge"),
)
DIGITS = "0123456789"
# The ofport of an interface that the switch cannot open.
NO_OFPORT = -1
IS_UPLINK = "ovs-vsctl set interface {} external_ids:" + PREFIX + "role=active"
IS_VM_PORT = "ovs-vsctl set interface {} external_ids:" + PREFIX + "unit=port"

# The uplinks in force, and errors: each problem, and the action that solves it.
Found = tuple[tuple[str, ...], list[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Team:
    """The uplinks in force, in failover order, and errors in the requested list.

    `bond`: the bond that has the uplinks as members; None for plain uplinks. `wrong`: each problem, and
    the action that solves it. `missing`: interfaces that seem to be connected to the network, but are
    neither uplinks nor VM ports. `last`: the last valid team, which can have more uplinks than a bond
    with only one remaining member. Interfaces that are in `missing` only because an uplink is
    absent or keys have disappeared are not in `last.missing`.
    """

    uplinks: tuple[str, ...]
    bond: PortRow | None
    wrong: tuple[tuple[str, str], ...]
    missing: frozenset[str]
    last: Known


def bond_of(
    row: BridgeRow, named: tuple[str, ...] | None = None, known: Known | None = None
) -> PortRow | None:
    """Return the bond that has the uplinks as members; None for plain uplinks.

    A bond stays in force when another bond is added, and when only one of its members is left. Plain
    uplinks stay in force when a bond is added.
    """
    known, bonds = known or Known(), bonds_of(row)
    single = {port.interfaces[0].name: port for port in row.ports if len(port.interfaces) == 1}
    # If a port's name differs from the name of its only interface, the port is a bond.
    shrunk = [port for name, port in single.items() if port.name != name]
    for port in (*bonds, *shrunk):
        if port.name == known.bond:
            return None if port in shrunk and named and single.keys() >= {*named} else port
    if known.bond is None and not single.keys().isdisjoint(known.uplinks):
        return None
    if len(bonds) > 1 and named is not None:
        bonds = [bond for bond in bonds if {*_names(bond)} >= {*named}]
    if not bonds and named is None and not known.uplinks:
        bonds = shrunk
    return bonds[0] if len(bonds) == 1 else None


def bonds_of(row: BridgeRow) -> list[PortRow]:
    """Return the ports with more than one interface."""
    return [port for port in row.ports if len(port.interfaces) > 1]


def to_attach(row: BridgeRow) -> str:
    """Return the command that attaches a bridge."""
    uplinks = "" if bonds_of(row) else " --uplink IF --uplink IF"
    return f"ovs-lbt attach {quoted(row.name)}{uplinks}"


def not_attached(row: BridgeRow, what: str = "") -> str:
    """Return the error text for a bridge that is not attached. `what`: a prefix for the text."""
    return f"{what}bridge {row.name} is not attached; to attach it: {to_attach(row)}"


def members_of_bonds(row: BridgeRow) -> frozenset[str]:
    """Return the names of bonds' members, which are never VM ports."""
    return frozenset(name for bond in bonds_of(row) for name in _names(bond))


def likely_uplinks(row: BridgeRow) -> list[str]:
    """Return a bridge's interfaces that seem to lead to the network; the bridge may not be attached."""
    listed = {name.strip() for name in row.external_ids.get(PREFIX + "uplinks", "").split(",")}
    listed |= members_of_bonds(row)
    return [
        interface.name
        for interface in row.interfaces
        if interface.name in listed or (_is_card(interface) and not _is_vm(row, interface))
    ]


def team(row: BridgeRow, named: tuple[str, ...] | None, known: Known) -> Team:
    """Determine the uplinks of a bridge. `named`: the requested uplinks; None if none are requested."""
    bond = bond_of(row, named, known)
    if bond is None:
        uplinks, wrong = _plain(row, named, known)
        been = {*known.uplinks, *_present(row), *_in_use(row)}
        last = tuple(name for name in uplinks if name in been)
        there = _working(row, uplinks)
    else:
        uplinks, wrong = _bonded(row, bond, named, known)
        last = uplinks if len(uplinks) > 1 else tuple(dict.fromkeys((*known.uplinks, *uplinks)))
        there = {*uplinks}
    gone = [name for name in last if name not in there]
    decided = {*uplinks, *known.vm_ports, *row.mirrored_to}
    new = [interface for interface in row.interfaces if interface.name not in decided]
    missing = _missing(row, new, uplinks, known, gone)
    wrong += _strangers(row, bond, last, missing, gone)
    if bond is not None and len(uplinks) < 2 and not missing:
        added = _into(row, bond, gone[0] if gone else "NAME")
        wrong.append((f"bond {bond.name} has only one member", f"add another: ovs-vsctl {added}"))
    evident = frozenset(name for name, what in missing.items() if what is not None)
    valid = Known(bond.name if bond else None, last, evident)
    apart = frozenset(missing)
    if row.keys_lost:
        # The keys that list the uplinks have disappeared, so a new interface may be an uplink.
        apart |= {interface.name for interface in new if _of_a_vm(row, interface) is None}
    assert apart.isdisjoint(uplinks), "an interface would be an uplink and missing"
    return Team(uplinks, bond, tuple(wrong), apart, valid)


def _bonded(row: BridgeRow, bond: PortRow, named: tuple[str, ...] | None, known: Known) -> Found:
    """Return all members of a bond, because NORMAL uses all of them. `named`: the order to use.

    If the bond has too many members, return the members of the last valid team.
    """
    members, wrong = _names(bond), list[tuple[str, str]]()
    if len(members) > MAX_UPLINKS:
        problem = f"bond {bond.name} has {len(members)} members"
        wrong.append((problem, f"expected at most {MAX_UPLINKS}"))
        members = tuple(name for name in members if name in known.uplinks)
    elif named is not None and len(members) > 1:
        wrong += _absent(row, named, Known())
        if not wrong and {*named} != {*members}:
            problem = f"{','.join(named)} are not the members of {bond.name}"
            wrong.append((problem, f"name all members and no others: {', '.join(members)}"))
    order = known.uplinks if wrong and known.uplinks else named or ()
    ordered = tuple(name for name in order if name in members)
    return (*ordered, *(name for name in members if name not in ordered)), wrong


def _plain(row: BridgeRow, named: tuple[str, ...] | None, known: Known) -> Found:
    """Return the named plain uplinks; the last valid ones if the list has VM ports or lacks an uplink."""
    by_name = {interface.name: interface for interface in row.interfaces}
    if named is None:
        problem = "no uplinks are named, and the bridge does not have exactly one bond"
        remedy = "expected two or more interface names"
        if len(known.uplinks) > 1 and by_name.keys() - members_of_bonds(row) >= {*known.uplinks}:
            remedy = f"to name the previous uplinks: ovs-vsctl {_naming(row, known.uplinks)}"
        return known.uplinks, [(problem, remedy)]
    wrong = list(_absent(row, named, known))
    unmarked = [n for n in named if n in by_name and not _has(by_name[n], ("role",))]
    vms = {name: what for name in unmarked if (what := _of_a_vm(row, by_name[name]))}
    for name, what in vms.items():
        remedy = f"if it is an uplink: {IS_UPLINK.format(quoted(name))}"
        if name == row.name:
            remedy = "name the ports that lead to the network"
        wrong.append((f"{name} {what}", remedy))
    omitted = (n for n in known.uplinks if n in by_name and n not in named)
    left = [name for name in omitted if not _has(by_name[name], VM_RULE_KEYS)]
    for name in left:
        remedy = f"add {name} and set role=unused; or remove it: ovs-vsctl {_del_port(row, name)}"
        wrong.append((f"{name}, an uplink until now, is missing from the uplinks", remedy))
    if bonded := sorted(members_of_bonds(row).intersection(named)):
        remedy = "name the members of one bond, or only ports outside bonds"
        wrong.append((f"the list contains bond members: {', '.join(bonded)}", remedy))
    if vms or left or bonded:
        return known.uplinks or tuple(name for name in named if name not in vms), wrong
    return named, wrong


def _absent(row: BridgeRow, named: tuple[str, ...], known: Known) -> Iterator[tuple[str, str]]:
    present, bridge = _present(row), quoted(row.name)
    is_renamed = present - {row.name, *known.vm_ports, *known.uplinks}
    for name in (name for name in named if name not in present):
        problem = f"no interface of {row.name} is named {name}"
        remedy = f"to list the names: ovs-vsctl list-ifaces {bridge}"
        if name in known.uplinks and not is_renamed:
            # This also moves an interface that is a port of another bridge.
            port = quoted(name)
            remedy = f"to add it: ovs-vsctl --if-exists del-port {port} -- add-port {bridge} {port}"
        elif len(known.uplinks) > 1 and {*known.uplinks} <= present:
            remedy = f"to use the previous uplinks: ovs-vsctl {_naming(row, known.uplinks)}"
        else:
            problem += nearest(name, present)
        yield problem, remedy


def _of_a_vm(row: BridgeRow, interface: InterfaceRow) -> str | None:
    """Return the evidence that an interface does not lead to the network; None without evidence."""
    if found := [key for key in VM_IDS if interface.external_ids.get(key)]:
        return f"is an interface of a VM, because it has {found[0]}"
    if interface.name == row.name:
        return "is the bridge's own port"
    if found := _has(interface, VM_RULE_KEYS):
        return f"is a VM port, because it has {PREFIX}{found[0]}"
    if interface.kind in VM_TYPES:
        return f"has type {interface.kind}, which is unusual for an uplink"
    if interface.driver in TAP_DRIVERS:
        return "is a tap device, which is typical of a VM"
    if interface.represents:
        return "is the representor of a VM's virtual function"
    for whose, pattern in VM_NAMES.items():
        if re.fullmatch(pattern, interface.name, re.ASCII):
            return f"has a name that {whose} uses for VM interfaces"
    # A network card that was missing from the list may have been treated as a VM port before.
    if not _is_card(interface) and (found := _has(interface, WRITTEN_VM_KEYS)):
        return f"is a VM port, because it has {PREFIX}{found[0]}"
    return None


def _working(row: BridgeRow, uplinks: tuple[str, ...]) -> set[str]:
    """Return the uplinks that the switch can open, and whose devices have not been renamed.

    For a renamed device, the switch has a second interface with the same address.
    """
    here = {i.name: i.mac for i in row.interfaces if i.name in uplinks and i.ofport != NO_OFPORT}
    alike = [i for i in row.interfaces if i.name not in uplinks and i.mac in here.values()]
    renamed = {i.mac for i in alike if i.mac is not None and not _is_vm(row, i)}
    return {name for name, mac in here.items() if mac not in renamed}


def _missing(
    row: BridgeRow,
    new: Iterable[InterfaceRow],
    uplinks: tuple[str, ...],
    known: Known,
    gone: Collection[str],
) -> dict[str, str | None]:
    """Return the interfaces in `new` that seem to lead to the network, each with the evidence.

    No evidence (None): the only sign is that an uplink in `gone` could have been renamed.
    """
    bonded, in_use, missing = members_of_bonds(row), _in_use(row), dict[str, str | None]()
    stem = _stem(row, uplinks, known)
    for interface in new:
        name = interface.name
        if name in bonded:
            missing[name] = "a member of a bond"
        elif interface.ofport is None or _is_vm(row, interface):
            continue
        elif _is_card(interface):
            missing[name] = f"a network card ({interface.driver})"
        elif found := _has(interface, UPLINK_KEYS):
            missing[name] = f"an uplink with {PREFIX}{found[0]}"
        elif name in in_use:
            missing[name] = "an uplink to which VM ports are bound"
        elif name in known.uplinks:
            missing[name] = "an uplink until now"
        elif name.rstrip(DIGITS) == stem:
            missing[name] = f"a new interface named like {uplinks[0]}"
        elif name in known.missing:
            # VM ports used this interface as an uplink, and were then moved to other uplinks.
            missing[name] = "which has not been a VM port until now"
        elif gone:
            missing[name] = None
    return missing


def _strangers(
    row: BridgeRow,
    bond: PortRow | None,
    uplinks: tuple[str, ...],
    missing: Mapping[str, str | None],
    gone: list[str],
) -> Iterator[tuple[str, str]]:
    """Report missing interfaces and further bonds: each problem, and the action that solves it."""
    for other in bonds_of(row):
        if other is not bond and uplinks and not missing.keys().isdisjoint(_names(other)):
            yield (
                f"{other.name} ({', '.join(_names(other))}) is a bond in addition to the uplinks",
                f"remove it: ovs-vsctl {_del_port(row, other.name)}; or, if it leads to another network,"
                " move it to a separate bridge, with the VMs of that network",
            )
    single = sorted(missing.keys() - members_of_bonds(row))
    places = dict(zip(single, gone, strict=False))
    for name in single:
        what = missing[name] or f"which may be {' or '.join(gone)} under another name"
        remedy = f"add {name} as well"
        if name in places:
            replaced = replacing(row, bond, uplinks, places)
            remedy = f"use it instead of {places[name]}: {replaced}"
        elif bond is not None:
            remedy = f"add it to {bond.name}: ovs-vsctl {_into(row, bond, name)}"
        yield (
            f"{name}, {what}, is missing from the uplinks",
            f"{remedy}; or remove it: ovs-vsctl {_del_port(row, name)};"
            f" or, if it leads to a VM: {IS_VM_PORT.format(quoted(name))}",
        )


def replacing(
    row: BridgeRow, bond: PortRow | None, uplinks: Iterable[str], places: Mapping[str, str]
) -> str:
    """Return the command that replaces absent uplinks. `places`: new interface -> absent uplink."""
    if bond is not None:
        steps = [_into(row, bond, name) for name in places if name not in _names(bond)]
        old_members = (quoted(old) for old in places.values() if old in _names(bond))
        steps += [f"del-bond-iface {quoted(bond.name)} {old}" for old in old_members]
    else:
        steps = [_del_port(row, old) for old in places.values() if old in _present(row)]
    if bond is None or PREFIX + "uplinks" in row.external_ids:
        new = {old: name for name, old in places.items()}
        steps.append(_naming(row, dict.fromkeys(new.get(name, name) for name in uplinks)))
    return f"ovs-vsctl {' -- '.join(steps)}"


def _naming(row: BridgeRow, uplinks: Iterable[str]) -> str:
    """Return the arguments for ovs-vsctl that name the uplinks of a bridge."""
    named = quoted(f'"{",".join(uplinks)}"')
    return f"set bridge {quoted(row.name)} external_ids:{PREFIX}uplinks={named}"


def _into(row: BridgeRow, bond: PortRow, name: str) -> str:
    """Return the arguments for ovs-vsctl that make an interface a member of a bond."""
    added = f"add-bond-iface {quoted(bond.name)} {quoted(name)}"
    # An absent interface may be a port of another bridge.
    absent = f"--if-exists del-port {quoted(name)}" if name != "NAME" else ""
    removed = _del_port(row, name) if name in _present(row) else absent
    return f"{removed} -- {added}" if removed else added


def _del_port(row: BridgeRow, name: str) -> str:
    return f"del-port {quoted(row.name)} {quoted(name)}"


def _present(row: BridgeRow) -> set[str]:
    return {interface.name for interface in row.interfaces}


def _names(bond: PortRow) -> tuple[str, ...]:
    return tuple(interface.name for interface in bond.interfaces)


def _is_vm(row: BridgeRow, interface: InterfaceRow) -> bool:
    """Whether there is evidence that an interface is a VM port, or was a VM port before."""
    return bool(_has(interface, WRITTEN_VM_KEYS)) or _of_a_vm(row, interface) is not None


def _stem(row: BridgeRow, uplinks: tuple[str, ...], known: Known) -> str | None:
    """Return the common prefix of the uplinks' names, without numbers; None if VM ports also have it.

    Also None if there is no common prefix, and during `attach`, which treats no interface as new.
    """
    vm_ports = known.vm_ports | {i.name for i in row.interfaces if _has(i, WRITTEN_VM_KEYS)}
    stems = {uplink.rstrip(DIGITS) for uplink in uplinks}
    if len(stems) != 1 or not (vm_ports or known.uplinks):
        return None
    return next(iter(stems - {other.rstrip(DIGITS) for other in vm_ports}), None)


def _is_card(interface: InterfaceRow) -> bool:
    """Whether an interface is hardware or represents hardware, such as a Linux bond or a card's VLAN."""
    kinds, driver = ("", "system", "dpdk"), interface.driver
    return interface.kind in kinds and driver is not None and driver not in VIRTUAL_DRIVERS


def _in_use(row: BridgeRow) -> set[str]:
    """Return the uplinks to which VM ports are pinned, or were bound according to the database."""
    keys = (PREFIX + "binding", PREFIX + "pin")
    return {i.external_ids.get(key, "") for i in row.interfaces for key in keys}


def _has(interface: InterfaceRow, keys: Iterable[str]) -> list[str]:
    """Return the ovs-lbt keys among `keys` that an interface has."""
    ids: Mapping[str, str] = interface.external_ids
    return sorted(key for key in keys if PREFIX + key in ids)
