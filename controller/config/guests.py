"""The VMs behind a bridge's patch ports, by the addresses that hypervisors write to their interfaces.

An integration bridge is in the same database. Its VMs' frames leave by a patch port of the attached
bridge, where only their addresses tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from controller.config.rows import BridgeRow, Guest, InterfaceRow

# The keys that name a VM, the one that people know best first.
VM_ID_KEYS = ("vm-id", "vm-uuid", "iface-id")


def vm_identity(external_ids: Mapping[str, str]) -> str | None:
    """The name libvirt, OpenStack or Proxmox gave the VM behind an interface, if any."""
    return next((external_ids[key] for key in VM_ID_KEYS if external_ids.get(key)), None)


def rules_identity(external_ids: Mapping[str, str]) -> str | None:
    """The identity under which a Bridge keeps the rules of the VM behind an interface, if any."""
    return next((external_ids[key] for key in reversed(VM_ID_KEYS) if external_ids.get(key)), None)


def addresses(external_ids: Mapping[str, str]) -> list[str]:
    """The addresses of a VM as its hypervisor wrote them, in lower case; they may be invalid."""
    return [mac.lower() for mac in re.split(r"[\s,]+", external_ids.get("attached-mac", "")) if mac]


class Trail(NamedTuple):
    """On what the marks of a bridge depend: the bridges behind it, and the peers of their patch ports.

    A peer may be on no bridge yet.
    """

    bridges: frozenset[str] = frozenset()
    peers: frozenset[str] = frozenset()

    def leads_to(self, bridges: Set[str], interfaces: Set[str]) -> bool:
        """Whether it leads to one of these bridges, or by one of these interfaces."""
        return not (self.bridges.isdisjoint(bridges) and self.peers.isdisjoint(interfaces))


def marked(rows: Mapping[str, BridgeRow]) -> dict[str, BridgeRow]:
    """The same bridges, by name. Each patch port of an attached one says which VMs are behind it."""
    bridge_of = {i.name: row.name for row in rows.values() for i in row.interfaces}
    return {name: followed(row, rows, bridge_of)[0] for name, row in rows.items()}


def followed(
    row: BridgeRow, rows: Mapping[str, BridgeRow], bridge_of: Mapping[str, str]
) -> tuple[BridgeRow, Trail]:
    """One of `marked`, and on what its marks depend. `bridge_of`: by interface."""
    if not row.attached:
        return row, Trail()
    bridges, peers = set[str](), set[str]()

    def on(interface: InterfaceRow) -> InterfaceRow:
        found: tuple[Guest, ...] = ()
        if interface.peer is not None:
            found = _behind(interface, row.name, rows, bridge_of, bridges, peers)
        return interface if found == interface.guests else replace(interface, guests=found)

    found = row.with_interfaces(on)
    return found, Trail(frozenset(bridges), frozenset(peers))


def _behind(
    patch: InterfaceRow,
    own: str,
    rows: Mapping[str, BridgeRow],
    bridge_of: Mapping[str, str],
    bridges: set[str],
    peers: set[str],
) -> tuple[Guest, ...]:
    """The VMs on the bridge that a patch port leads to, and on those that lead on from there.

    Adds to `bridges` and `peers` what the answer depends on.
    """
    found: dict[str, Guest] = {}
    seen, ahead = {own}, [patch]
    while ahead:
        peer = ahead.pop().peer or ""
        peers.add(peer)
        name = bridge_of.get(peer)
        if name is None or name in seen:
            continue
        seen.add(name)
        bridges.add(name)
        for interface in rows[name].interfaces:
            if interface.peer is not None:
                ahead.append(interface)
            vm = vm_identity(interface.external_ids)
            identity = rules_identity(interface.external_ids)
            if vm is not None and identity is not None:
                for mac in addresses(interface.external_ids):
                    found[mac] = Guest(mac, vm, identity)
    return tuple(found[mac] for mac in sorted(found))
