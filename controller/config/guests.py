"""Whose the interfaces of VMs are, as hypervisors write it or name them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from controller.config.rows import BridgeRow, Guest, InterfaceRow

# Proxmox names a VM's ports after it, and writes no identity: VM 101's first one is tap101i0, a
# container's veth101i0, and what is behind Proxmox's firewall fwln101o0.
PROXMOX = re.compile(r"(?:(?:tap|veth)([1-9][0-9]{2,8})i|fwln([1-9][0-9]{2,8})o)([0-9]{1,3})")
# An interface of a VM by the names that it has on every host: UUID/MAC, and Proxmox's VMIDiN.
UUID_AND_MAC = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE
)
VMID_AND_NUMBER = re.compile(r"[1-9][0-9]{2,8}i[0-9]{1,3}")


class _Names(NamedTuple):
    """The names by which a hypervisor knows an interface.

    `of_vm`: those of its VM, which all interfaces of the VM have, the one that people know best first.
    `by_address`: UUID/MAC for each address. `own`: the one that only this interface has, if any.
    """

    of_vm: tuple[str, ...]
    by_address: tuple[str, ...]
    own: tuple[str, ...]


def _names(interface: InterfaceRow) -> _Names:
    ids = interface.external_ids
    of_vm = tuple(ids[key] for key in ("vm-id", "vm-uuid") if ids.get(key))
    own = tuple(ids[key] for key in ("iface-id",) if ids.get(key))
    if not (of_vm or own) and (found := PROXMOX.fullmatch(interface.name)) is not None:
        vm = found[1] or found[2]
        return _Names((vm,), (), (f"{vm}i{found[3]}",))
    return _Names(
        of_vm, tuple(f"{vm.lower()}/{mac}" for vm in of_vm for mac in addresses(ids)), own
    )


def vm_name(interface: InterfaceRow) -> str | None:
    """The name libvirt, OpenStack or Proxmox gave the VM behind an interface, if any."""
    names = _names(interface)
    return next(iter((*names.of_vm, *names.own)), None)


def identities(interface: InterfaceRow) -> tuple[str, ...]:
    """The names under which a Bridge may keep rules of an interface. A later one takes precedence."""
    names = _names(interface)
    return (*names.of_vm, *names.by_address, *names.own)


def own_identities(interface: InterfaceRow) -> tuple[str, ...]:
    """Those of the names that no other interface of the VM has."""
    names = _names(interface)
    return (*names.by_address, *names.own)


def rules_identity(interface: InterfaceRow) -> str | None:
    """The name under which a Bridge keeps the rules of an interface unless another is given."""
    names = _names(interface)
    return next(iter((*names.own, *reversed(names.of_vm))), None)


def is_anywhere(name: str) -> bool:
    """Whether a name is that of a VM's interface on every host: UUID/MAC or VMIDiN."""
    return bool(UUID_AND_MAC.fullmatch(name) or VMID_AND_NUMBER.fullmatch(name))


def addresses(external_ids: Mapping[str, str]) -> list[str]:
    """The addresses of a VM as its hypervisor wrote them, in lower case; they may be invalid."""
    return [mac.lower() for mac in re.split(r"[\s,]+", external_ids.get("attached-mac", "")) if mac]


def guests_on(row: BridgeRow) -> dict[str, Guest]:
    """The VMs on a bridge, by address, whose hypervisor has written both a name and the address."""
    found = {}
    for interface in row.interfaces:
        vm, identity = vm_name(interface), rules_identity(interface)
        if vm is not None and identity is not None:
            also = own_identities(interface)
            for mac in addresses(interface.external_ids):
                found[mac] = Guest(mac, vm, identity, identities=also)
    return found
