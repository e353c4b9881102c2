"""Rules of VMs: the records that keep them, and rules for VMs that are not on this host.

A rule for a VM that may move from host to host is set on each of them, under a name that the VM's
interface has on all: UUID/MAC. The Bridge keeps it until the VM comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from controller.api.engine_commands import Setting
from controller.bridge.bridge import Bridge
from controller.bridge.fleet import Fleet
from controller.config import guests
from controller.config.keys import VM_RULE_KEYS, Key
from controller.config.rows import PREFIX, BridgeRow, Guest
from controller.config.values import VmPortConfig
from controller.config.vm_ports import vm_keys
from controller.text.wording import Refused, quoted


def kept(row: BridgeRow, port: VmPortConfig, key: str, value: str) -> list[Setting]:
    """The settings of a rule. The Bridge keeps it if the VM has an identity.

    The same rule in another place could take precedence, so it is removed there.
    """
    if port.vm_id is None:
        return [Setting("Interface", port.name, PREFIX + key, value)]
    rule = on_bridge(row.name, port.vm_id, key, value)
    return [rule, *(s for s in _present(row, port, key) if s.key != rule.key)]


def removed(row: BridgeRow, port: VmPortConfig, key: str) -> list[Setting]:
    """The settings that remove a rule from every place where one for this port alone can be."""
    always = [] if port.vm_id is None else [on_bridge(row.name, port.vm_id, key, None)]
    if any(interface.name == port.name for interface in row.interfaces):
        always.insert(0, Setting("Interface", port.name, PREFIX + key, None))
    return list(dict.fromkeys([*always, *_present(row, port, key)]))


def named(bridges: Mapping[str, Bridge], name: str) -> tuple[Bridge, VmPortConfig] | None:
    """The VM port with this name of a VM's interface (UUID/MAC), which rules are then kept under."""
    for bridge in bridges.values():
        for port in bridge.config.vm_ports:
            if (found := _same(port.vm_ids, name)) is not None:
                return bridge, replace(port, vm_id=found)
    return None


def guest_named(bridge: Bridge, name: str) -> tuple[VmPortConfig, Guest] | None:
    """The VM behind a patch port with this name of its interface, and that port."""
    for port in bridge.config.vm_ports:
        for guest in port.guests:
            if _same(guest.identities, name) is not None:
                return port, guest
    return None


def home(fleet: Fleet, name: str) -> Bridge | None:
    """The bridge that keeps rules for a VM of which no VM port is known; None if `name` is no such.

    Raises:
        Refused: it is not known which bridge the VM will use.
    """
    if not guests.is_anywhere(name):
        return None
    bridges = [bridge for _, bridge in sorted(fleet.bridges.items())]
    for bridge in bridges:
        if guest_named(bridge, name) is not None:
            return bridge
    if len(bridges) != 1:
        listed = ", ".join(bridge.config.name for bridge in bridges) or "none"
        found = f"VM {name}: not on this host, whose attached bridges are {listed}"
        key = quoted(f'external_ids:"{PREFIX}vm-{name.lower()}-KEY"=VALUE')
        expected = f"one attached bridge; for one of several: ovs-vsctl set bridge BRIDGE {key}"
        raise Refused(f"{found} -> {expected}")
    return bridges[0]


def keys_at(bridge: Bridge) -> dict[str, Key]:
    """The keys of rules for a VM that may use all uplinks of a bridge."""
    team = tuple(uplink.name for uplink in bridge.config.uplinks)
    keys = vm_keys(frozenset(team), team)
    return {name: keys[name] for name in VM_RULE_KEYS}


def on_bridge(bridge: str, identity: str, key: str, value: str | None) -> Setting:
    """The setting of a rule that a Bridge keeps for a VM, which need not be on this host."""
    return Setting("Bridge", bridge, f"{PREFIX}vm-{identity}-{key}", value)


def _present(row: BridgeRow, port: VmPortConfig, key: str) -> list[Setting]:
    """The settings that remove a rule of this port alone from where it is."""
    found = [
        Setting("Interface", interface.name, PREFIX + key, None)
        for interface in row.interfaces
        if interface.name == port.name and PREFIX + key in interface.external_ids
    ]
    kept_as = (on_bridge(row.name, identity, key, None) for identity in port.vm_ids)
    return [*found, *(setting for setting in kept_as if setting.key in row.external_ids)]


def _same(names: tuple[str, ...], name: str) -> str | None:
    """The one of the names that is this one, whatever its case, if it is a name on every host."""
    if not guests.is_anywhere(name):
        return None
    return next((one for one in names if one.lower() == name.lower()), None)
