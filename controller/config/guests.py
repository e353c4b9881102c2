"""Identifies the VM of an interface, from the IDs or interface names that hypervisors set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from controller.config.rows import BridgeRow, Guest, InterfaceRow

# Proxmox does not write IDs, but the names of ports contain the VM's number: the first port of VM 101 is
# tap101i0, of a container veth101i0, and behind Proxmox's firewall fwln101o0.
PROXMOX = re.compile(r"(?:(?:tap|veth)([1-9][0-9]{2,8})i|fwln([1-9][0-9]{2,8})o)([0-9]{1,3})")
# Names of a VM's interface that are the same on every host: UUID/MAC, and VMIDiN for Proxmox.
UUID_AND_MAC = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE
)
VMID_AND_NUMBER = re.compile(r"[1-9][0-9]{2,8}i[0-9]{1,3}")


# The ID of a pod, which ovs-cni writes to the Port record.
POD = "contPodUid"
# The keys with a VM's name or ID: of libvirt, OpenStack, XCP-ng and ovs-cni.
OF_VM = ("vm-id", "vm-uuid", "xs-vm-uuid", POD)


class VmNames(NamedTuple):
    """The names that a hypervisor uses for an interface and its VM.

    `of_vm`: the names of the VM, common to all its interfaces, the preferred name first. `by_address`:
    UUID/MAC for each address. `own`: the name that only this interface has, if any.
    """

    of_vm: tuple[str, ...]
    by_address: tuple[str, ...]
    own: tuple[str, ...]

    @classmethod
    def of(cls, interface: InterfaceRow) -> VmNames:
        ids = interface.external_ids
        of_vm = tuple(ids[key] for key in OF_VM if ids.get(key))
        # XCP-ng writes the same value to both keys.
        own = tuple(dict.fromkeys(ids[key] for key in ("iface-id", "xs-vif-uuid") if ids.get(key)))
        if not (of_vm or own) and (found := PROXMOX.fullmatch(interface.name)) is not None:
            vm = found[1] or found[2]
            return cls((vm,), (), (f"{vm}i{found[3]}",))
        macs = addresses(ids)
        return cls(of_vm, tuple(f"{vm.lower()}/{mac}" for vm in of_vm for mac in macs), own)

    @property
    def vm(self) -> str | None:
        """The name that libvirt, OpenStack or Proxmox uses for the VM; None if unknown."""
        return next(iter((*self.of_vm, *self.own)), None)

    @property
    def identities(self) -> tuple[str, ...]:
        """The names under which a bridge can store the interface's rules; later names take precedence."""
        return (*self.of_vm, *self.own_identities)

    @property
    def own_identities(self) -> tuple[str, ...]:
        """The names that no other interface of the VM has."""
        return (*self.by_address, *self.own)

    @property
    def default_identity(self) -> str | None:
        """The default name under which a bridge stores the interface's rules; None if unknown."""
        return next(iter((*self.own, *reversed(self.of_vm))), None)


def is_anywhere(name: str) -> bool:
    """Whether `name` identifies a VM's interface on every host: UUID/MAC or VMIDiN."""
    return bool(UUID_AND_MAC.fullmatch(name) or VMID_AND_NUMBER.fullmatch(name))


def addresses(external_ids: Mapping[str, str]) -> list[str]:
    """Return a VM's addresses in `attached-mac`, in lower case. They may be invalid."""
    return [mac.lower() for mac in re.split(r"[\s,]+", external_ids.get("attached-mac", "")) if mac]


def guests_on(row: BridgeRow) -> dict[str, Guest]:
    """Return the VMs on a bridge, keyed by address. VMs without a name or address are excluded."""
    found = {}
    for interface in row.interfaces:
        names = VmNames.of(interface)
        vm, identity = names.vm, names.default_identity
        if vm is not None and identity is not None:
            for mac in addresses(interface.external_ids):
                found[mac] = Guest(mac, vm, identity, identities=names.own_identities)
    return found
