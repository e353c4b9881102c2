"""The addresses behind VM ports that are units of their own: which there are, each with a slot.

They come as the switch learns them, and go when it learns them on another port, or they announce
themselves from elsewhere. One that the switch has forgotten was silent for some minutes; switches
upstream may remember it for longer, at its uplink, so it keeps that for an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.api.events import LearnedRead
from controller.config.values import BridgeConfig, VmPortConfig
from controller.dataplane import team
from controller.dataplane.specs import Pipeline
from controller.dataplane.tables import (
    SLOTS,
    Kind,
    Register,
    Table,
    cookie_kind,
    cookie_ofport,
    station_group_id,
)
from controller.teaming.buckets import home_in, with_home
from policies.model import Unit, Uplink

# Of one VM port; what is beyond leaves by its home. Each costs the switch three flows and a group,
# and the service the reading of two of them.
PER_PORT_MAX = 256
# For so long may a switch upstream remember an address that says nothing, as some do for 1800 s.
SILENT_S = 3600.0

# An address of a VM port: its ofport, the MAC, and the VLAN.
Located = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Station:
    """An address behind the VM port of that name; `slot`: its number on the bridge."""

    port: str
    mac: str
    vlan: int
    slot: int

    @property
    def name(self) -> str:
        """Its name as a unit; no interface has one like it."""
        return f"{self.port}/{self.mac}" + (f"%{self.vlan}" if self.vlan else "")

    @property
    def number(self) -> int:
        """What static policies place it by, the same on every start."""
        return int(self.mac.replace(":", ""), 16) + self.vlan


@dataclass(slots=True)
class Stations:
    """Those of one bridge, by name.

    `found`: the homes that they had before the service started. A slot that is free again is not
    taken before all others were, so that a counter read late is nobody else's.
    """

    by_name: dict[str, Station] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    # Since when the switch does not know those that it has forgotten.
    silent_s: dict[str, float] = field(default_factory=dict)
    _last_slot: int = 0
    # Addresses that leave by another way than before, and nobody was told; with their slots.
    _unsaid: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def take(self, read: LearnedRead, config: BridgeConfig, now_s: float) -> list[str]:
        """Follow what the switch has learned; the names of those that came or went."""
        ports = {int(port.ofport): port for port in config.vm_ports if port.parted}
        present = {
            (ports[ofport].name, mac, vlan)
            for ofport, mac, vlan in read.addresses
            if ofport in ports and vlan in ports[ofport].vlans.carried
        }
        gone = {(mac, vlan) for _, mac, vlan in read.addresses} | set(read.elsewhere)
        known = {(s.port, s.mac, s.vlan): name for name, s in self.by_name.items()}
        changed = []
        for (port, mac, vlan), name in known.items():
            if (port, mac, vlan) in present:
                self.silent_s.pop(name, None)
                continue
            since_s = self.silent_s.setdefault(name, now_s)
            if (mac, vlan) in gone or now_s - since_s > SILENT_S:
                changed.append(name)
        full = set[str]()
        for port, mac, vlan in sorted(present - known.keys()):
            came = self._come(port, mac, vlan) if port not in full else []
            changed += came
            if not came:
                full.add(port)
        for name in changed:
            if name in self.silent_s:
                self._drop(name)
        return changed

    def _come(self, port: str, mac: str, vlan: int) -> list[str]:
        """A new one; where there is no room, in place of the one that was silent for longest."""
        there = [name for name, station in self.by_name.items() if station.port == port]
        dropped = []
        if len(there) >= PER_PORT_MAX:
            silent = sorted(
                (s, name) for name in there if (s := self.silent_s.get(name)) is not None
            )
            if not silent:
                return []
            dropped = [silent[0][1]]
            self._drop(dropped[0])
        station = Station(port, mac, vlan, self._free_slot())
        self.by_name[station.name] = station
        self._unsaid[port, mac, vlan] = station.slot
        return [*dropped, station.name]

    def _drop(self, name: str) -> None:
        for kept in (self.by_name, self.found, self.silent_s):
            kept.pop(name, None)

    def restore(self, installed: Pipeline, config: BridgeConfig) -> None:
        """Take over those that a switch has, with their slots and homes."""
        ports = {int(port.ofport): port.name for port in config.vm_ports if port.parted}
        uplinks = {int(uplink.ofport): uplink.name for uplink in config.uplinks}
        taken = {station.slot for station in self.by_name.values()}
        for flow in installed.flows.values():
            if flow.table != Table.HASH or cookie_kind(flow.cookie) is not Kind.FROM_ADDRESS:
                continue
            fields, slot = dict(flow.match), cookie_ofport(flow.cookie)
            ofport, vlan = fields.get(Register.VM_PORT.field), fields.get(Register.VLAN.field)
            if not isinstance(ofport, int) or not isinstance(vlan, int) or ofport not in ports:
                continue
            station = Station(ports[ofport], str(fields.get("eth_src")), vlan, slot)
            if station.name in self.by_name or slot in taken:
                continue
            taken.add(slot)
            self.by_name[station.name] = station
            self._last_slot = max(self._last_slot, slot)
            if home := home_in(installed.groups.get(station_group_id(slot)), uplinks):
                self.found[station.name] = home

    def keep(self, config: BridgeConfig) -> None:
        """Forget those behind VM ports that are gone, carry their VLAN no more, or are one unit."""
        ports = {port.name: port for port in config.vm_ports}
        names = {name: port.parted for name, port in ports.items()}
        for name, station in list(self.by_name.items()):
            if names.get(station.port) and station.vlan in ports[station.port].vlans.carried:
                continue
            self._drop(name)
            if station.port in names:
                self._unsaid[station.port, station.mac, station.vlan] = station.slot

    def forget(self) -> None:
        self.by_name, self.found, self.silent_s, self._unsaid = {}, {}, {}, {}

    def located(self, config: BridgeConfig, names: Iterable[str] | None = None) -> set[Located]:
        """Where these are, of all if none are named."""
        ofports = {port.name: int(port.ofport) for port in config.vm_ports}
        wanted = self.by_name.keys() if names is None else self.by_name.keys() & set(names)
        found = (self.by_name[name] for name in wanted)
        return {(ofports[s.port], s.mac, s.vlan) for s in found if s.port in ofports}

    def take_unsaid(
        self, installed: Pipeline, config: BridgeConfig, at_home: Callable[[Station], bool]
    ) -> set[Located]:
        """The addresses whose way out has changed otherwise than by a move, once it has.

        `at_home`: whether one leaves as it did before it was a unit.
        """
        ofports = {port.name: int(port.ofport) for port in config.vm_ports}
        by_address = {(s.port, s.mac, s.vlan): s for s in self.by_name.values()}
        due = set()
        for address, slot in list(self._unsaid.items()):
            station = by_address.get(address)
            if (station_group_id(slot) in installed.groups) is not (station is not None):
                continue
            del self._unsaid[address]
            port, mac, vlan = address
            if port in ofports and (station is None or not at_home(station)):
                due.add((ofports[port], mac, vlan))
        return due

    def _free_slot(self) -> int:
        taken = {station.slot for station in self.by_name.values()}
        slot = self._last_slot
        while (slot := (slot + 1) % SLOTS) in taken:
            pass
        self._last_slot = slot
        return slot


def units(
    stations: Iterable[Station],
    found: Mapping[str, str],
    config: BridgeConfig,
    ports: Iterable[Unit],
) -> Iterator[Unit]:
    """Addresses as units: each under the rules of its VM port, on uplinks that carry its VLAN."""
    by_name = {unit.name: unit for unit in ports}
    for station in stations:
        port = by_name.get(station.port)
        if port is None:
            continue
        able = {u.name for u in config.uplinks if station.vlan in u.vlans.carried}
        allowed = able if port.allowed is None else able & port.allowed
        yield replace(
            port,
            name=station.name,
            number=station.number,
            uplink=found.get(station.name),
            allowed=frozenset(allowed) if len(allowed) < len(config.uplinks) else None,
            # What is promised is the port's, and counted there.
            rules=replace(port.rules, reserve_bps=0.0) if port.rules.reserve_bps else port.rules,
            behind=station.port,
        )


def of_team(
    stations: Iterable[Station],
    config: BridgeConfig,
    orders: Mapping[str, Sequence[Uplink]],
    homes: Mapping[str, str],
) -> Iterator[team.Station]:
    """Addresses as the pipeline needs them; those without an uplink leave by their port's home."""
    ports: dict[str, VmPortConfig] = {port.name: port for port in config.vm_ports}
    for station in stations:
        if station.port in ports and (order := orders.get(station.name)):
            yield team.Station(
                station.slot,
                ports[station.port].ofport,
                station.mac,
                station.vlan,
                with_home(order, homes.get(station.name)),
            )
