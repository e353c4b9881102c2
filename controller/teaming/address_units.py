"""Address units: addresses behind VM ports, each with its own uplink and a number (slot) in flows.

An address is added when the switch learns it. It is removed when the switch learns it on another
port, or when its frames arrive from outside the bridge. The switch forgets an address that has been
silent for a few minutes. Upstream switches may know the address on its uplink for longer,
so the address keeps its uplink for an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.api.events import LearnedRead
from controller.config.values import BridgeConfig
from controller.dataplane import tables, team
from controller.dataplane.specs import Pipeline
from controller.dataplane.tables import Kind, Register, Table
from controller.teaming.bindings import Bound
from controller.teaming.buckets import home_in, with_home
from policies.model import Unit, Uplink

# The most addresses of one VM port; all others use its home uplink. Each address costs the switch three
# flows and a group, and the service has to read two of these flows.
PER_PORT_MAX = 256
# How long to keep a silent address. Upstream switches may remember it for long, some for 1800 s.
SILENT_S = 3600.0

# An address of a VM port: its ofport, the MAC, and the VLAN.
Located = tuple[int, str, int]


@dataclass(slots=True)
class AddressUnit:
    """An address behind a VM port, placed on an uplink separately from the port."""

    # The name of the VM port.
    port: str
    mac: str
    # 0 for untagged.
    vlan: int
    # The number of the address on the bridge.
    slot: int
    # The home of the address before the service started, if it is known.
    found: str | None = None
    # The time at which the switch forgot the address (engine time); None: the switch has learned it.
    silent_s: float | None = None

    @property
    def address(self) -> tuple[str, str, int]:
        """The port, MAC and VLAN, which identify the address unit."""
        return self.port, self.mac, self.vlan

    @property
    def name(self) -> str:
        """The name of the unit; no interface can have such a name."""
        return f"{self.port}/{self.mac}" + (f"%{self.vlan}" if self.vlan else "")

    @property
    def number(self) -> int:
        """The number by which static policies place the address; the same after every start."""
        return int(self.mac.replace(":", ""), 16) + self.vlan


@dataclass(slots=True)
class AddressUnits:
    """The address units of one bridge, by name.

    A slot that becomes free is reused only after all other slots, so that counters that are read
    late are not attributed to another address.
    """

    by_name: dict[str, AddressUnit] = field(default_factory=dict)
    _last_slot: int = 0
    # The slots of addresses that may use another uplink than before, and are not announced yet.
    _unannounced: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def silent(self) -> set[str]:
        """Return the names of the addresses that the switch has forgotten."""
        return {name for name, unit in self.by_name.items() if unit.silent_s is not None}

    def by_slot(self, config: BridgeConfig) -> dict[int, tuple[str, int]]:
        """Return the name of each address unit and the ofport of its VM port, by slot."""
        return {
            unit.slot: (unit.name, int(config.port_named[unit.port].ofport))
            for unit in self.by_name.values()
            if unit.port in config.port_named
        }

    def follow_learned(self, read: LearnedRead, config: BridgeConfig, now_s: float) -> list[str]:
        """Add learned addresses, and remove forgotten ones. Return the names of added and removed units."""
        ports = {int(port.ofport): port for port in config.per_address}
        present = {
            (ports[ofport].name, mac, vlan)
            for ofport, mac, vlan in read.addresses
            if ofport in ports and vlan in ports[ofport].vlans.carried
        }
        gone = {(mac, vlan) for _, mac, vlan in read.addresses} | set(read.elsewhere)
        known, ended = {unit.address for unit in self.by_name.values()}, []
        for name, unit in self.by_name.items():
            if unit.address in present:
                unit.silent_s = None
                continue
            if unit.silent_s is None:
                unit.silent_s = now_s
            if (unit.mac, unit.vlan) in gone or now_s - unit.silent_s > SILENT_S:
                ended.append(name)
        changed, full = ended.copy(), set[str]()
        for port, mac, vlan in sorted(present - known):
            came = self._come(port, mac, vlan) if port not in full else []
            changed += came
            if not came:
                full.add(port)
        for name in ended:
            self.by_name.pop(name, None)
        return changed

    def _come(self, port: str, mac: str, vlan: int) -> list[str]:
        """Add an address. If its port or the bridge is full, replace the port's longest silent address."""
        there = [unit for unit in self.by_name.values() if unit.port == port]
        dropped = []
        if len(there) >= PER_PORT_MAX or len(self.by_name) >= tables.SLOTS:
            silent = [(u.silent_s, u.name) for u in there if u.silent_s is not None]
            if not silent:
                return []
            dropped = [min(silent)[1]]
            del self.by_name[dropped[0]]
        unit = AddressUnit(port, mac, vlan, self._free_slot())
        self.by_name[unit.name] = unit
        self._unannounced[unit.address] = unit.slot
        return [*dropped, unit.name]

    def restore(self, installed: Pipeline, config: BridgeConfig) -> None:
        """Add the addresses in the installed pipeline, with their slots and home uplinks."""
        taken = {unit.slot for unit in self.by_name.values()}
        for flow in installed.flows.values():
            if flow.table != Table.HASH or tables.cookie_kind(flow.cookie) is not Kind.FROM_ADDRESS:
                continue
            fields, slot = dict(flow.match), tables.cookie_ofport(flow.cookie)
            ofport, vlan = fields.get(Register.VM_PORT), fields.get(Register.VLAN)
            port = config.port_at.get(ofport) if isinstance(ofport, int) else None
            if port is None or not port.per_address or not isinstance(vlan, int):
                continue
            unit = AddressUnit(port.name, str(fields.get("eth_src")), vlan, slot)
            if unit.name in self.by_name or slot in taken:
                continue
            taken.add(slot)
            self.by_name[unit.name] = unit
            self._last_slot = max(self._last_slot, slot)
            unit.found = home_in(installed.groups.get(tables.address_group_id(slot)), config)

    def keep_behind(self, config: BridgeConfig) -> None:
        """Forget addresses whose port is gone, no longer carries their VLAN, or has no address units."""
        for name, unit in list(self.by_name.items()):
            port = config.port_named.get(unit.port)
            if port and port.per_address and unit.vlan in port.vlans.carried:
                continue
            del self.by_name[name]
            if port:
                self._unannounced[unit.address] = unit.slot

    def forget_units(self) -> None:
        self.by_name, self._unannounced = {}, {}

    def located(self, config: BridgeConfig, names: Iterable[str] | None = None) -> set[Located]:
        """Return the addresses with these names, or all addresses if `names` is None."""
        ports = config.port_named
        wanted = self.by_name.keys() if names is None else self.by_name.keys() & set(names)
        found = (self.by_name[name] for name in wanted)
        return {(int(ports[s.port].ofport), s.mac, s.vlan) for s in found if s.port in ports}

    def take_unannounced(
        self, installed: Pipeline, config: BridgeConfig, bound: Mapping[str, Bound]
    ) -> set[Located]:
        """Return the addresses whose uplink on the switch has changed without a move.

        That happens when an address becomes a unit, or is no longer a unit. `bound`: all bindings.
        """
        by_address = {unit.address: unit for unit in self.by_name.values()}
        due = set()
        for address, slot in list(self._unannounced.items()):
            unit = by_address.get(address)
            if (tables.address_group_id(slot) in installed.groups) is not (unit is not None):
                continue
            del self._unannounced[address]
            port, mac, vlan = address
            names = () if unit is None else (unit.name, port)
            uplinks = {bound[name].uplink for name in names if name in bound}
            by_home = unit is not None and len(uplinks) < 2
            if port in config.port_named and not by_home:
                due.add((int(config.port_named[port].ofport), mac, vlan))
        return due

    def _free_slot(self) -> int:
        taken = {unit.slot for unit in self.by_name.values()}
        assert len(taken) == len(self.by_name) < tables.SLOTS, "own slots, and one is free"
        slot = self._last_slot
        while (slot := (slot + 1) % tables.SLOTS) in taken:
            pass
        self._last_slot = slot
        return slot


def units(
    address_units: Iterable[AddressUnit], config: BridgeConfig, ports: Iterable[Unit]
) -> Iterator[Unit]:
    """Yield addresses as units, on uplinks that carry their VLAN, under the rules of their VM port.

    An address whose VM is known can have its own pin, which does not apply while the address is
    silent: a move could not be announced, and upstream switches may still send to the old uplink.
    """
    by_name = {unit.name: unit for unit in ports}
    pins = {
        (port.name, guest.mac): guest.pin
        for port in config.per_address
        for guest in port.guests
        if guest.pin is not None
    }
    for unit in address_units:
        port = by_name.get(unit.port)
        if port is None:
            continue
        able = {u.name for u in config.uplinks if unit.vlan in u.vlans.carried}
        allowed = able if port.allowed is None else able & port.allowed
        pin = pins.get((unit.port, unit.mac)) if unit.silent_s is None else None
        rules = port.rules
        if pin is not None or rules.reserve_bps:
            # The reservation belongs to its port, and is counted there.
            rules = replace(rules, reserve_bps=0.0, pin=pin)
        yield replace(
            port,
            name=unit.name,
            number=unit.number,
            uplink=unit.found,
            allowed=frozenset(allowed) if len(allowed) < len(config.uplinks) else None,
            rules=rules,
            behind=unit.port,
        )


def of_team(
    address_units: Iterable[AddressUnit],
    config: BridgeConfig,
    orders: Mapping[str, Sequence[Uplink]],
    homes: Mapping[str, str],
) -> Iterator[team.Address]:
    """Yield addresses in `orders` as pipeline input. Other addresses use their port's home uplink."""
    for unit in address_units:
        if (port := config.port_named.get(unit.port)) and (order := orders.get(unit.name)):
            numbers = with_home(order, homes.get(unit.name))
            yield team.Address(unit.slot, port.ofport, unit.mac, unit.vlan, numbers)
