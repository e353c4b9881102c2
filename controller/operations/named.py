"""Finds bridges, VM ports, addresses behind VM ports, uplinks and VM rules by the names in requests.

An unknown name is refused, with the command that lists the known names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from controller.api.engine_commands import Setting
from controller.bridge.bridge import Bridge
from controller.bridge.fleet import Fleet
from controller.bridge.phase import Phase
from controller.config import guests
from controller.config.keys import VM_RULE_KEYS, Key
from controller.config.membership import not_attached
from controller.config.rows import PREFIX, BridgeRow, Guest
from controller.config.values import UplinkConfig, VmPortConfig
from controller.config.vm_ports import vm_keys
from controller.teaming.address_units import AddressUnit
from controller.text.wording import STARTED, Refused, one_of, quoted, unknown


def row(fleet: Fleet, name: str) -> BridgeRow:
    """Return the record of an Open vSwitch bridge, attached or not."""
    if name not in fleet.rows:
        for other in fleet.rows.values():
            if any(port.name == name for port in other.ports):
                found = f"{name} is a port or a VLAN bridge of bridge {other.name}, not a bridge"
                raise Refused(f"{found}; use {quoted(other.name)}, which forwards its frames")
        raise Refused(unknown("bridge", name, fleet.rows, "ovs-vsctl list-br"))
    return fleet.rows[name]


def attached_bridge(fleet: Fleet, name: str) -> Bridge:
    """Return an attached bridge, in any phase."""
    if not (found := row(fleet, name)).attached or name not in fleet.bridges:
        raise Refused(not_attached(found))
    return fleet.bridges[name]


def serving_bridge(fleet: Fleet, name: str) -> Bridge:
    """Return an attached bridge that is not being attached or detached now."""
    bridge = attached_bridge(fleet, name)
    if not bridge.phase.is_attached:
        raise Refused(f"bridge {name} is being attached or detached; try again in a few seconds")
    return bridge


def moving_bridge(bridge: Bridge) -> None:
    """Refuse a bridge on which moves are impossible: it is in observe mode, or not connected."""
    name = bridge.config.name
    if bridge.observing:
        enforce = f"ovs-lbt set bridge {quoted(name)} mode=enforce"
        raise Refused(f"bridge {name} is in observe mode; to make moves: {enforce}")
    if not bridge.connected:
        raise Refused(f"bridge {name}: the switch is not connected; {STARTED}")


def interface(fleet: Fleet, name: str) -> tuple[Bridge, VmPortConfig | None]:
    """Return the attached bridge of an interface, and the VM port (None for an uplink).

    `name` can also be that of a VM with one VM port, or UUID/MAC, which is the same on every host.
    """
    if (found := of_vm(fleet.bridges, name)) is not None:
        return found
    for bridge in fleet.bridges.values():
        if any(uplink.name == name for uplink in bridge.config.uplinks):
            return bridge, None
    if (found := _port(fleet.bridges.values(), name)) is None:
        raise Refused(_unknown_interface(fleet, name))
    return found


def _unknown_interface(fleet: Fleet, name: str) -> str:
    """Return the reason why an interface is not a VM port or an uplink of an attached bridge."""
    for row in fleet.rows.values():
        if any(interface.name == name for interface in row.interfaces):
            if not row.attached:
                return not_attached(row, f"interface {name}: ")
            found = f"interface {name} of bridge {row.name} is neither a VM port nor an uplink"
            return f"{found}; to see why: ovs-lbt check {quoted(row.name)}"
    configs = [bridge.config for bridge in fleet.bridges.values()]
    names = {n for c in configs for port in c.vm_ports for n in (port.name, port.vm)}
    names |= {uplink.name for config in configs for uplink in config.uplinks}
    return unknown("interface of an attached bridge", name, names, "ovs-lbt show")


def _listed(bridge: Bridge) -> str:
    return f"to list VM ports and uplinks: ovs-lbt show {quoted(bridge.config.name)}"


def _port(
    bridges: Iterable[Bridge], name: str, behind: Iterable[tuple[Bridge, VmPortConfig]] = ()
) -> tuple[Bridge, VmPortConfig] | None:
    """Return the VM port with this name or VM name, else the item in `behind`. Refuse several."""
    ports = [(bridge, port) for bridge in bridges for port in bridge.config.vm_ports]
    found = [(bridge, port) for bridge, port in ports if port.name == name]
    found = found or [(bridge, port) for bridge, port in ports if port.vm == name] or [*behind]
    if len(found) > 1:
        names = one_of(sorted(port.name for _, port in found))
        raise Refused(f"VM {name} has {len(found)} ports; use {names}")
    return found[0] if found else None


def port_or_vm(fleet: Fleet, name: str) -> tuple[Bridge, VmPortConfig]:
    """Return the VM port (or the address behind a VM port) with this name or VM name, and its bridge.

    A VM behind a patch port is found as its address on that port.
    """
    behind = (
        (b, _as_port(b, port, address))
        for b in fleet.serving
        for port in b.config.vm_ports
        for address in b.address_units.by_name.values()
        if address.port == port.name
        and (guest := port.guest(address.mac)) is not None
        and guest.vm == name
    )
    if (found := _port(fleet.serving, name, behind)) is not None:
        return found
    if (of_address := address(fleet, name)) is not None:
        return of_address
    bridge, port = interface(fleet, name)
    if port is None:
        raise Refused(f"{name} is an uplink, not a VM port; {_listed(bridge)}")
    return bridge, port


def uplink(bridge: Bridge, name: str) -> UplinkConfig:
    """Return the uplink `name` of this bridge."""
    by_name, of = {uplink.name: uplink for uplink in bridge.config.uplinks}, bridge.config.name
    if name not in by_name:
        raise Refused(unknown(f"uplink of {of}", name, by_name, f"ovs-lbt show {quoted(of)}"))
    return by_name[name]


def member(fleet: Fleet, name: str) -> tuple[Bridge, UplinkConfig]:
    """Return the uplink `name` of any attached bridge, and this bridge."""
    bridge, port = interface(fleet, name)
    if bridge.phase is Phase.INSPECTING:
        raise Refused(not_attached(fleet.rows[bridge.config.name], f"uplink {name}: "))
    if port is not None:
        raise Refused(f"{name} is a VM port, not an uplink; {_listed(bridge)}")
    return bridge, uplink(bridge, name)


def carrier(bridge: Bridge, port: VmPortConfig, name: str) -> UplinkConfig:
    """Return the uplink `name` of the team. Refuse an uplink that the VM port must not use."""
    found = uplink(bridge, name)
    if port.carriers is not None and name not in port.carriers:
        carriers = f"use {one_of(sorted(port.carriers))}" if port.carriers else "no uplink does"
        raise Refused(f"uplink {name} does not carry the VLANs of {port.name}; {carriers}")
    if port.allowed is not None and name not in port.allowed:
        allowed = one_of(sorted(port.allowed))
        raise Refused(f"uplink {name} is not allowed for {port.name}; use {allowed}")
    if name in bridge.placing.kept_off.by_unit.get(port.name, ()):
        raise Refused(f"uplink {name} loses frames of {port.name} (path check); use another uplink")
    return found


def address(fleet: Fleet, name: str) -> tuple[Bridge, VmPortConfig] | None:
    """Return the bridge and a `VmPortConfig` for address `name`; None if it is not an address.

    `name` can be `PORT/MAC%VLAN` (as in the log and history), `PORT/MAC` if the MAC address is in only one
    VLAN, or `UUID/MAC` for a VM behind a patch port.
    """
    for bridge in fleet.bridges.values():
        if (vm := _guest(bridge, name)) is not None:
            port, guest = vm
            known = _known(bridge, port, guest.mac)
            if len(known) == 1:
                return bridge, replace(_as_port(bridge, port, known[0]), vm_id=name.lower())
    of, _, mac_and_vlan = name.lower().rpartition("/")
    mac, _, vlan = mac_and_vlan.partition("%")
    ports = ((b, p) for b in fleet.bridges.values() for p in b.config.vm_ports)
    for bridge, port in ((b, p) for b, p in ports if of and p.name.lower() == of):
        found = [a for a in _known(bridge, port, mac) if not vlan or vlan == str(a.vlan)]
        if len(found) == 1:
            return bridge, _as_port(bridge, port, found[0])
        if found:
            raise Refused(f"{name} is in several VLANs; use {one_of(u.name for u in found)}")
        listing = f"ovs-lbt explain {quoted(port.name)}"
        raise Refused(f"address {name} is not known; to list known addresses: {listing}")
    return None


def _known(bridge: Bridge, port: VmPortConfig, mac: str) -> list[AddressUnit]:
    """Return the units of an address behind a port, one unit for each VLAN."""
    units = bridge.address_units.by_name.values()
    return [unit for unit in units if (unit.port, unit.mac) == (port.name, mac)]


def _as_port(bridge: Bridge, port: VmPortConfig, address: AddressUnit) -> VmPortConfig:
    unit = next(unit for unit in bridge.placing.units() if unit.name == address.name)
    guest = port.guest(address.mac)
    return replace(
        port,
        name=address.name,
        vm=address.name if guest is None else guest.vm,
        vm_id=None if guest is None else guest.identity,
        vm_ids=() if guest is None else guest.identities,
        unit="port",
        allowed=unit.allowed,
        rules=unit.rules,
        guests=(),
        endpoint=None,
    )


# ---- rules of VMs ------------------------------------------------------------------------
#
# A rule for a VM that may migrate is set on each host, under a name that the VM's interface has on all
# hosts: UUID/MAC. The record of the bridge stores the rule, also before the VM is on the host.


def kept_rule(row: BridgeRow, port: VmPortConfig, key: str, value: str) -> list[Setting]:
    """Return the settings that store a rule: on the bridge if the VM has an identity, else on the port.

    The same rule in another record could take precedence, so it is removed from other records.
    """
    if port.vm_id is None:
        return [Setting("Interface", port.name, PREFIX + key, value)]
    rule = rule_on_bridge(row.name, port.vm_id, key, value)
    return [rule, *(s for s in _present(row, port, key) if s.key != rule.key)]


def removed_rule(row: BridgeRow, port: VmPortConfig, key: str) -> list[Setting]:
    """Return the settings that remove a rule of this VM port from every record that can store it."""
    always = [] if port.vm_id is None else [rule_on_bridge(row.name, port.vm_id, key, None)]
    if any(interface.name == port.name for interface in row.interfaces):
        always.insert(0, Setting("Interface", port.name, PREFIX + key, None))
    return list(dict.fromkeys([*always, *_present(row, port, key)]))


def of_vm(bridges: Mapping[str, Bridge], name: str) -> tuple[Bridge, VmPortConfig] | None:
    """Return the VM port of the VM interface `name` (UUID/MAC, as in rules' keys); None if there is none."""
    for bridge in bridges.values():
        for port in bridge.config.vm_ports:
            if (found := _same(port.vm_ids, name)) is not None:
                return bridge, replace(port, vm_id=found)
    return None


def _guest(bridge: Bridge, name: str) -> tuple[VmPortConfig, Guest] | None:
    """Return a patch port, and the VM behind it with interface `name` (UUID/MAC); None if unknown."""
    for port in bridge.config.vm_ports:
        for guest in port.guests:
            if _same(guest.identities, name) is not None:
                return port, guest
    return None


def home_of_rules(fleet: Fleet, name: str) -> Bridge | None:
    """Return the bridge that stores rules for a VM without a VM port; None if `name` is not UUID/MAC.

    Raises:
        Refused: the bridge that the VM will use is not known.
    """
    if not guests.is_anywhere(name):
        return None
    bridges = [bridge for _, bridge in sorted(fleet.bridges.items())]
    for bridge in bridges:
        if _guest(bridge, name) is not None:
            return bridge
    if len(bridges) != 1:
        listed = ", ".join(bridge.config.name for bridge in bridges) or "none"
        key = quoted(f'external_ids:"{PREFIX}vm-{name.lower()}-KEY"=VALUE')
        advice = f"set the rule on the VM's future bridge: ovs-vsctl set bridge BRIDGE {key}"
        raise Refused(f"VM {name} is not on this host (attached bridges: {listed}); {advice}")
    return bridges[0]


def rule_keys_at(bridge: Bridge) -> dict[str, Key]:
    """Return the keys of a VM's rules. Values that name uplinks can name any uplink of `bridge`."""
    team = tuple(uplink.name for uplink in bridge.config.uplinks)
    keys = vm_keys(frozenset(team), team)
    return {name: keys[name] for name in VM_RULE_KEYS}


def rule_on_bridge(bridge: str, identity: str, key: str, value: str | None) -> Setting:
    """Return the setting that stores a VM's rule on a bridge; `value` None removes the rule."""
    return Setting("Bridge", bridge, f"{PREFIX}vm-{identity}-{key}", value)


def _present(row: BridgeRow, port: VmPortConfig, key: str) -> list[Setting]:
    """Return the settings that remove a rule of this VM port from the records that have the rule."""
    found = [
        Setting("Interface", interface.name, PREFIX + key, None)
        for interface in row.interfaces
        if interface.name == port.name and PREFIX + key in interface.external_ids
    ]
    kept_as = (rule_on_bridge(row.name, identity, key, None) for identity in port.vm_ids)
    return [*found, *(setting for setting in kept_as if setting.key in row.external_ids)]


def _same(names: tuple[str, ...], name: str) -> str | None:
    """Return the name that equals `name` except for case; None if there is none, or it is not UUID/MAC."""
    if not guests.is_anywhere(name):
        return None
    return next((one for one in names if one.lower() == name.lower()), None)
