"""Finds out which interfaces of a bridge are its uplinks.

An uplink that is treated as a VM port connects the network to itself, and a VM port that is treated
as an uplink receives other VMs' traffic. So a list of uplinks that would do either is refused.
Where the database leaves doubt, an operator decides, by setting an uplink's `role` or a VM port's
rule on the interface.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.config.rows import PREFIX, BridgeRow, InterfaceRow, PortRow

# Keys that libvirt, OpenStack and others write to the Interface of a VM.
VM_IDS = ("iface-id", "vm-id", "vm-uuid", "attached-mac")
# Names that they give to interfaces of VMs.
VM_NAMES = {
    "libvirt": r"vnet\d+",
    "OpenStack": r"(tap|qvo|qvb)[0-9a-f]{8}-[0-9a-f]{1,2}",
    "Proxmox": r"(tap|veth)\d+i\d+|fw(ln|pr)\d+[op]\d+",
    "Xen": r"vif\d+\.\d+",
}
# Types of interfaces that lead to a VM, to this host, or to another bridge on it.
VM_TYPES = ("internal", "patch", "dpdkvhostuser", "dpdkvhostuserclient")
TAP_DRIVERS = ("tun", "net_tap", "net_vhost", "net_virtio_user")
# Drivers of devices that are not network cards. They can be uplinks, or lead to a VM or a
# container.
VIRTUAL_DRIVERS = (
    *TAP_DRIVERS,
    *("veth", "openvswitch", "dummy", "ifb", "macvlan", "macvtap", "vxlan", "net_null", "net_ring"),
    *("net_pcap", "net_memif", "netkit", "bridge"),
)
DIGITS = "0123456789"
IS_UPLINK = "ovs-vsctl set interface {} external_ids:" + PREFIX + "role=active"
IS_VM_PORT = "ovs-vsctl set interface {} external_ids:" + PREFIX + "unit=port"


@dataclass(frozen=True, slots=True)
class Team:
    """The uplinks in force, in failover order, and errors in the list that was asked for.

    `wrong`: each error as what was found and what is expected. `missing`: interfaces of plain
    uplinks that seem to lead to the network, although they are not in the list. They are neither
    uplinks nor VM ports.
    """

    uplinks: tuple[str, ...]
    wrong: tuple[tuple[str, str], ...] = ()
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Known:
    """The uplinks, VM ports and other interfaces in force before; empty at a start."""

    uplinks: tuple[str, ...] = ()
    vm_ports: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Words:
    """The keys by which an operator marks an interface."""

    of_uplinks: Collection[str]
    of_vm_ports: Collection[str]
    # The keys of VM ports that the service itself writes.
    written: Collection[str]


def bond_of(row: BridgeRow) -> PortRow | None:
    """The bridge's bond, if it has exactly one."""
    bonds = _bonds(row)
    return bonds[0] if len(bonds) == 1 else None


def members_of_bonds(row: BridgeRow) -> frozenset[str]:
    """The members of bonds. They are never VM ports."""
    return frozenset(interface.name for bond in _bonds(row) for interface in bond.interfaces)


def team(row: BridgeRow, named: tuple[str, ...] | None, known: Known, words: Words) -> Team:
    """The uplinks of a bridge. `named`: the uplinks asked for; None if nobody named any."""
    bond = bond_of(row)
    return _plain(row, named, known, words) if bond is None else _bonded(row, bond, named, known)


def _bonded(row: BridgeRow, bond: PortRow, named: tuple[str, ...] | None, known: Known) -> Team:
    """All members of the bond, because NORMAL uses all of them; only their order can be chosen."""
    members = tuple(interface.name for interface in bond.interfaces)
    if named is None:
        return Team(members)
    wrong = list(_absent(row, named))
    if not wrong and {*named} != {*members}:
        expected = f"the members of {bond.name}, all of them and no others: {', '.join(members)}"
        wrong.append((",".join(named), expected))
    if wrong:
        named = known.uplinks or named
    ordered = tuple(name for name in named if name in members)
    rest = tuple(name for name in members if name not in ordered)
    return Team((*ordered, *rest), tuple(wrong))


def _plain(row: BridgeRow, named: tuple[str, ...] | None, known: Known, words: Words) -> Team:
    """The named uplinks, unless one seems to lead to a VM, or one is missing from the list."""
    by_name = {interface.name: interface for interface in row.interfaces}
    wrong: list[tuple[str, str]] = []
    in_force = known.uplinks if named is None else named
    if named is None:
        wrong.append(("nothing", "two or more interface names, as the bridge has no single bond"))
    else:
        wrong += _absent(row, named)
        vms = dict(_vms(row, (by_name[name] for name in named if name in by_name), words))
        wrong += [
            (f"{name}, {what}", f"an uplink; if it is one: {IS_UPLINK.format(name)}")
            for name, what in vms.items()
        ]
        left = [
            name
            for name in known.uplinks
            if name in by_name
            and name not in named
            and not _has(by_name[name], set(words.of_vm_ports) - set(words.written))
        ]
        wrong += [
            (
                f"{name}, an uplink until now, is missing",
                f"{name} with role=unused; or remove it: ovs-vsctl del-port {row.name} {name}",
            )
            for name in left
        ]
        if vms or left:
            in_force = known.uplinks or tuple(name for name in named if name not in vms)
    missing = dict(_missing(row, in_force, known, words))
    wrong += [
        (
            f"{name}, {what}, is missing",
            f"{name} as well; or remove it: ovs-vsctl del-port {row.name} {name};"
            f" or, if it leads to a VM: {IS_VM_PORT.format(name)}",
        )
        for name, what in missing.items()
    ]
    return Team(in_force, tuple(wrong), frozenset(missing))


def _absent(row: BridgeRow, named: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    present = {interface.name for interface in row.interfaces}
    for name in named:
        if name not in present:
            yield name, f"an interface of {row.name}"


def _vms(
    row: BridgeRow, interfaces: Iterable[InterfaceRow], words: Words
) -> Iterator[tuple[str, str]]:
    """The interfaces that seem to lead to a VM, each with the evidence for that."""
    for interface in interfaces:
        has_role = PREFIX + "role" in interface.external_ids
        if not has_role and (what := _of_a_vm(row, interface, words)) is not None:
            yield interface.name, what


def is_of_a_vm(row: BridgeRow, interface: InterfaceRow, words: Words) -> bool:
    """Whether there is evidence that an interface leads to a VM."""
    return _of_a_vm(row, interface, words) is not None


def _of_a_vm(row: BridgeRow, interface: InterfaceRow, words: Words) -> str | None:
    """The evidence that an interface leads to a VM or to no network; None if there is none."""
    if found := [key for key in VM_IDS if interface.external_ids.get(key)]:
        return f"an interface of a VM, which has {found[0]}"
    if interface.name == row.name:
        return "the bridge's own port"
    if found := _has(interface, set(words.of_vm_ports) - set(words.written)):
        return f"a VM port, which has {PREFIX}{found[0]}"
    if interface.kind in VM_TYPES:
        return f"of type {interface.kind}"
    if interface.driver in TAP_DRIVERS:
        return "a tap device, as VMs use"
    if interface.represents:
        return "the representor of a function that a VM has"
    for whose, pattern in VM_NAMES.items():
        if re.fullmatch(pattern, interface.name, re.ASCII):
            return f"with a name that {whose} gives to interfaces of VMs"
    # A card that was missing from the list may have been treated as a VM port meanwhile.
    if not _is_card(interface) and (found := _has(interface, words.written)):
        return f"a VM port, which has {PREFIX}{found[0]}"
    return None


def _missing(
    row: BridgeRow, uplinks: tuple[str, ...], known: Known, words: Words
) -> Iterator[tuple[str, str]]:
    """Interfaces outside the list that seem to lead to the network, each with the evidence."""
    bonded = members_of_bonds(row)
    in_use = _in_use(row)
    for interface in row.interfaces:
        if interface.name in {*uplinks, *known.vm_ports, *row.mirrored_to}:
            continue
        if interface.name in bonded:
            yield interface.name, "a member of a bond"
        elif (
            interface.ofport is None
            or _has(interface, words.written)
            or _of_a_vm(row, interface, words) is not None
        ):
            continue
        elif _is_card(interface):
            yield interface.name, f"a network card ({interface.driver})"
        elif found := _has(interface, words.of_uplinks):
            yield interface.name, f"an uplink, which has {PREFIX}{found[0]}"
        elif interface.name in in_use:
            yield interface.name, "an uplink that VM ports are bound to"
        elif _is_named_alike(row, interface.name, uplinks, known, words):
            yield interface.name, f"new, and named like {uplinks[0]}"
        elif interface.name in known.missing:
            # VM ports that used it as an uplink have left it meanwhile.
            yield interface.name, "not a VM port until now"


def _is_named_alike(
    row: BridgeRow, name: str, uplinks: tuple[str, ...], known: Known, words: Words
) -> bool:
    """Whether a new interface has the uplinks' name with another number, and no VM port has.

    At attach nothing is new.
    """
    written = {i.name for i in row.interfaces if _has(i, words.written)}
    vm_ports = known.vm_ports | written
    if not vm_ports and not known.uplinks:
        return False
    stems = {uplink.rstrip(DIGITS) for uplink in uplinks}
    return stems == {name.rstrip(DIGITS)} - {other.rstrip(DIGITS) for other in vm_ports}


def _is_card(interface: InterfaceRow) -> bool:
    """Whether it is hardware or stands for hardware, such as a kernel bond or a VLAN of a card."""
    kinds, driver = ("", "system", "dpdk"), interface.driver
    return interface.kind in kinds and driver is not None and driver not in VIRTUAL_DRIVERS


def _in_use(row: BridgeRow) -> set[str]:
    """The uplinks that VM ports are pinned to, or were bound to when that was last written."""
    keys = (PREFIX + "binding", PREFIX + "pin")
    return {i.external_ids.get(key, "") for i in row.interfaces for key in keys}


def _has(interface: InterfaceRow, keys: Iterable[str]) -> list[str]:
    """Those of our keys that an interface has."""
    ids: Mapping[str, str] = interface.external_ids
    return sorted(key for key in keys if PREFIX + key in ids)


def _bonds(row: BridgeRow) -> list[PortRow]:
    return [port for port in row.ports if len(port.interfaces) > 1]
